"""A producer keeps order, and distinguishes "certainly not appended" from "unknown"."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from assay.system_under_test.client import properties
from assay.system_under_test.client.callbacks import Callbacks, Envelope
from assay.system_under_test.client.config import AsyncProducerConfig, ProducerConfig
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer, SendResult
from assay.system_under_test.client.serializer import as_bytes, as_json, as_text
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.records import message_set

from helpers.fake_brokers import FakeCluster, FakeRuntime, fake_cluster, lose_connection, never
from helpers.sim_brokers import simulate


@asynccontextmanager
async def producing(**settings: Any) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    async with fake_cluster() as cluster:
        producer = Producer(cluster.bootstrap, ProducerConfig(**{"timeout": 2.0, **settings}), runtime=FakeRuntime())
        try:
            yield cluster, producer
        finally:
            await producer.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_message_set_is_appended_by_the_leader() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            assert await producer.send_set("t", 0, [(None, b"a"), (b"k", b"b")]) == SendResult(0, 1)
            assert await producer.send_set("t", 0, [(None, b"c")]) == SendResult(2, 1)
            assert cluster.log == [b"a", b"b", b"c"]

    simulate(main)


def test_concurrent_sends_share_message_sets_and_keep_their_order() -> None:
    async def main() -> None:
        async with producing(batch_size=34 * 10) as (cluster, producer):
            values = [b"%d" % number for number in range(40)]
            results = await asyncio.gather(*(producer.send_set("t", 0, [(None, value)]) for value in values))
            assert cluster.log == values
            assert [result.base_offset for result in results] == list(range(40))
            assert 4 < len(cluster.brokers[1].requests) < 20

    simulate(main)


def test_linger_waits_for_company() -> None:
    async def main() -> None:
        async with producing(linger=0.05) as (cluster, producer):
            first = asyncio.create_task(producer.send_set("t", 0, [(None, b"1")]))
            await asyncio.sleep(0.01)
            await asyncio.gather(first, producer.send_set("t", 0, [(None, b"2")]))
            assert len(cluster.brokers[1].requests) == 1

    simulate(main)


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_FOR_PARTITION,
        E.REQUEST_TIMED_OUT,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.UNKNOWN,
        E.STALE_CONTROLLER_EPOCH,
    ],
)
def test_codes_of_unknown_outcome_are_not_tried_again(code: E) -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            cluster.brokers[1].script = [code]
            with pytest.raises(SendUnknown) as caught:
                await producer.send_set("t", 0, [(None, b"a")])
            assert (caught.value.error, caught.value.node) == (code, 1)
            assert len(cluster.brokers[1].requests) == 1

    simulate(main)


@pytest.mark.parametrize(
    "code", [E.MESSAGE_TOO_LARGE, E.INVALID_TOPIC, E.RECORD_LIST_TOO_LARGE, E.INVALID_REQUIRED_ACKS]
)
def test_refusals_that_will_not_change_fail_at_once(code: E) -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            cluster.brokers[1].script = [code]
            with pytest.raises(SendFailed) as caught:
                await producer.send_set("t", 0, [(None, b"a")])
            assert caught.value.error is code
            assert len(cluster.brokers[1].requests) == 1
            assert cluster.log == []

    simulate(main)


@pytest.mark.parametrize(
    "code", [E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS, E.CORRUPT_MESSAGE]
)
def test_refusals_that_may_change_are_tried_again_and_appended_once(code: E) -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            cluster.brokers[1].script = [code, code]
            assert await producer.send_set("t", 0, [(None, b"a")]) == SendResult(0, 1)
            assert cluster.log == [b"a"]

    simulate(main)


def test_definite_failures_to_the_last_try_are_a_definite_failure() -> None:
    async def main() -> None:
        async with producing(retries=2) as (cluster, producer):
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS] * 3
            with pytest.raises(SendFailed, match="NOT_ENOUGH_REPLICAS"):
                await producer.send_set("t", 0, [(None, b"a")])
            assert len(cluster.brokers[1].requests) == 3

    simulate(main)


def test_one_unknown_among_definite_failures_is_unknown() -> None:
    async def main() -> None:
        async with producing(retries=5) as (cluster, producer):
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT]
            with pytest.raises(SendUnknown):
                await producer.send_set("t", 0, [(None, b"a")])
            assert len(cluster.brokers[1].requests) == 2

    simulate(main)


def test_a_connection_lost_after_sending_is_unknown() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            cluster.brokers[1].script = [lose_connection]
            with pytest.raises(SendUnknown, match="closed the connection"):
                await producer.send_set("t", 0, [(None, b"a")])
            assert await producer.send_set("t", 0, [(None, b"b")]) == SendResult(0, 1)

    simulate(main)


def test_no_answer_in_time_is_unknown_and_the_next_send_gets_a_connection_of_its_own() -> None:
    async def main() -> None:
        async with producing(timeout=0.3) as (cluster, producer):
            cluster.brokers[1].script = [never]
            with pytest.raises(SendUnknown, match="no answer within"):
                await producer.send_set("t", 0, [(None, b"a")])
            assert await producer.send_set("t", 0, [(None, b"b")]) == SendResult(0, 1)

    simulate(main)


def test_a_leader_that_refuses_connections_fails_definitely_and_its_successor_is_found() -> None:
    async def main() -> None:
        async with producing(timeout=0.6, retries=1000) as (cluster, producer):
            await producer.send_set("t", 0, [(None, b"a")])
            await cluster.brokers[1].stop()
            with pytest.raises((SendFailed, SendUnknown)):  # unknown if it was sent before the end was noticed
                await producer.send_set("t", 0, [(None, b"b")])
            with pytest.raises(SendFailed, match="no connection"):
                await producer.send_set("t", 0, [(None, b"c")])
            waiting = asyncio.create_task(producer.send_set("t", 0, [(None, b"d")]))
            await asyncio.sleep(0.2)
            cluster.leader = 2
            assert (await waiting).node == 2
            assert cluster.log == [b"a", b"d"]

    simulate(main)


def test_a_partition_without_leader_is_waited_for_until_the_time_is_over() -> None:
    async def main() -> None:
        async with producing(timeout=0.3) as (cluster, producer):
            cluster.leader = -1
            with pytest.raises(SendFailed) as caught:
                await producer.send_set("t", 0, [(None, b"a")])
            assert caught.value.error is E.LEADER_NOT_AVAILABLE
            waiting = asyncio.create_task(producer.send_set("t", 0, [(None, b"b")]))
            await asyncio.sleep(0.1)
            cluster.leader = 2
            assert (await waiting).node == 2

    simulate(main)


def test_a_topic_that_does_not_exist_is_a_definite_failure() -> None:
    async def main() -> None:
        async with producing(timeout=0.2) as (_, producer):
            with pytest.raises(SendFailed) as caught:
                await producer.send_set("nowhere", 0, [(None, b"a")])
            assert caught.value.error is E.UNKNOWN_TOPIC_OR_PARTITION

    simulate(main)


def test_no_broker_at_all_is_a_definite_failure() -> None:
    async def main() -> None:
        producer = Producer(f"127.0.0.1:{free_port()}", ProducerConfig(timeout=0.2), runtime=FakeRuntime())
        with pytest.raises(SendFailed):
            await producer.send_set("t", 0, [(None, b"a")])
        await producer.close()

    simulate(main)


def test_after_not_leader_the_new_leader_is_looked_up() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            await producer.send_set("t", 0, [(None, b"a")])
            cluster.leader = 2
            cluster.brokers[1].script = [E.NOT_LEADER_FOR_PARTITION]
            with pytest.raises(SendUnknown):
                await producer.send_set("t", 0, [(None, b"b")])
            assert await producer.send_set("t", 0, [(None, b"c")]) == SendResult(1, 2)

    simulate(main)


def test_acks_0_waits_for_no_answer() -> None:
    async def main() -> None:
        async with producing(acks=0) as (cluster, producer):
            assert await producer.send_set("t", 0, [(None, b"a")]) == SendResult(-1, 1)
            async with asyncio.timeout(2):
                while cluster.log != [b"a"]:  # noqa: ASYNC110 (on the other side of a socket)
                    await asyncio.sleep(0.005)

    simulate(main)


def test_close_settles_what_is_in_flight_as_unknown_and_what_waits_as_failed() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            cluster.brokers[1].script = [never]
            sent = asyncio.create_task(producer.send_set("t", 0, [(None, b"a")]))
            async with asyncio.timeout(2):
                while not cluster.brokers[1].requests:  # noqa: ASYNC110 (on the other side of a socket)
                    await asyncio.sleep(0.005)
            queued = asyncio.create_task(producer.send_set("t", 0, [(None, b"b")]))
            await asyncio.sleep(0)
            await producer.close()
            with pytest.raises(SendUnknown):
                await sent
            with pytest.raises(SendFailed):
                await queued
            with pytest.raises(SendFailed):
                await producer.send_set("t", 0, [(None, b"c")])

    simulate(main)


@pytest.mark.parametrize(
    ("script", "leader", "expected"),
    [
        pytest.param([], -1, SendFailed, id="no leader yet"),
        pytest.param([E.NOT_ENOUGH_REPLICAS], 1, SendFailed, id="refused, and to be sent again"),
        pytest.param([E.REQUEST_TIMED_OUT], 1, SendUnknown, id="in doubt, and to be sent again"),
        pytest.param([E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS], 1, SendUnknown, id="in doubt, then refused"),
    ],
)
def test_close_knows_whether_what_waits_for_its_next_try_may_have_been_appended(
    script: list[E], leader: int, expected: type[Exception]
) -> None:
    async def main() -> None:
        tries = len(script)
        async with producing(repeat_unknown=True, retry_back_off=0.2) as (cluster, producer):
            cluster.leader = leader
            cluster.brokers[1].script = [*script]
            sent = asyncio.create_task(producer.send_set("t", 0, [(None, b"a")]))
            await asyncio.sleep(0.1 + 0.2 * max(0, tries - 1))
            assert len(cluster.brokers[1].requests) == tries
            await producer.close()
            with pytest.raises(expected, match="closed"):
                await sent
            assert cluster.log == []

    simulate(main)


def test_a_cancelled_send_that_still_waited_is_not_sent() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            go = asyncio.Event()
            cluster.brokers[1].script = [go.wait]
            first = asyncio.create_task(producer.send_set("t", 0, [(None, b"a")]))
            await asyncio.sleep(0.05)
            second = asyncio.create_task(producer.send_set("t", 0, [(None, b"b")]))
            await asyncio.sleep(0)
            second.cancel()
            go.set()
            await first
            await producer.send_set("t", 0, [(None, b"c")])
            assert cluster.log == [b"a", b"c"]

    simulate(main)


def test_keyed_messages_go_where_the_java_producer_sends_them() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            for key in (b"21", b"foobar"):
                await producer.send("t", key, key)
            partitions = [request.topics[0].partitions[0].partition for request in cluster.brokers[1].requests]
            assert partitions == [(-973932308 & 0x7FFFFFFF) % 4, (-790332482 & 0x7FFFFFFF) % 4]

    simulate(main)


@pytest.mark.parametrize("time", [2**63, 1.5, 2**63 - 1])
def test_a_time_that_no_message_can_have_fails_that_send_alone(time: Any) -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            sends = [producer.send_set("t", 0, [(None, b"%d" % n)], timestamp=time if n == 1 else 7) for n in range(3)]
            found = await asyncio.gather(*sends, return_exceptions=True)
            fits = time == 2**63 - 1
            assert [type(each) for each in found] == [SendResult, SendResult if fits else ValueError, SendResult]
            assert cluster.log == ([b"0", b"1", b"2"] if fits else [b"0", b"2"])

    simulate(main)


@pytest.mark.parametrize("leads", [False, True])
def test_a_keyed_message_has_its_time_once_for_its_topic_and_its_partition(leads: bool) -> None:
    async def main() -> None:
        async with producing(timeout=1.0) as (cluster, producer):
            loop = asyncio.get_running_loop()
            began = loop.time()
            cluster.leader = -1
            sent = asyncio.create_task(producer.send("new", b"k", b"a"))
            await asyncio.sleep(0.7)
            cluster.topics.append("new")
            if leads:
                cluster.leader = 1
                assert (await sent).result().base_offset == 0
            else:
                with pytest.raises(SendFailed):
                    await sent
            assert loop.time() - began < 1.1

    simulate(main)


def test_a_broker_that_keeps_silent_about_the_partition_leaves_the_outcome_unknown() -> None:
    async def main() -> None:
        async with producing() as (cluster, producer):
            broker = cluster.brokers[1]

            def other_partition() -> None:
                broker.requests[-1].topics[0].partitions[0].partition = 3

            broker.script = [other_partition]
            with pytest.raises(SendUnknown, match="does not contain it"):
                await producer.send_set("t", 0, [(None, b"a")])

    simulate(main)


def test_a_list_is_serialized_and_goes_as_one_message_set_to_each_partition() -> None:
    """Each has an offset of its own. A topic that waits holds up no other."""

    async def main() -> None:
        serializers = {"key_serializer": as_text, "value_serializer": as_json}
        async with producing(partitioner=lambda key, count, random: int(key or b"0") % count, **serializers) as made:
            cluster, producer = made
            cluster.topics.append("u")
            sent = asyncio.get_running_loop().time()
            places = [("t", "1"), ("nowhere", "1"), ("t", "2"), ("u", "1"), ("t", "5"), ("t", None)]
            sending = asyncio.create_task(
                producer.send_list([(topic, key, [number]) for number, (topic, key) in enumerate(places)])
            )
            await asyncio.sleep(1)
            asked = [r.topics[0] for r in cluster.brokers[1].requests]
            found = [(one.topic, one.partitions[0].partition, bodies(one.partitions[0].records)) for one in asked]
            assert sorted(found) == [("t", 0, [5]), ("t", 1, [0, 4]), ("t", 2, [2]), ("u", 1, [3])]
            outcomes = [known(one) for one in await sending]
            assert asyncio.get_running_loop().time() - sent == pytest.approx(2.0, abs=0.2)
            assert type(outcomes.pop(1)) is SendFailed
            offsets = [outcome.base_offset for outcome in outcomes if isinstance(outcome, SendResult)]
            assert [cluster.log[offset] for offset in offsets] == [b"[0]", b"[2]", b"[3]", b"[4]", b"[5]"]
            assert await producer.send_list([]) == []

    simulate(main)


def known(outcome: asyncio.Future[SendResult]) -> SendResult | BaseException:
    """Returns the result or the error of a future that is done."""
    return outcome.exception() or outcome.result()


def bodies(records: Any) -> list[int]:
    return [json.loads(message.value or b"")[0] for message in message_set.decode(bytes(records))]


def test_each_message_of_a_list_has_the_outcome_of_its_partition() -> None:
    async def main() -> None:
        async with producing(retries=0, partitioner=lambda key, count, random: int(key or b"0")) as (cluster, producer):
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS, E.NONE, E.REQUEST_TIMED_OUT]
            outcomes = await producer.send_list([("t", key, b"x") for key in (b"0", b"1", b"2", b"1", b"0")])
            kinds = [type(known(outcome)) for outcome in outcomes]
            assert kinds == [SendFailed, SendResult, SendUnknown, SendResult, SendFailed]

    simulate(main)


@pytest.mark.parametrize("value", ["text", 5])
def test_nothing_of_a_list_is_sent_when_a_message_cannot_be_serialized(value: object) -> None:
    async def main() -> None:
        for serializer in (as_bytes, lambda topic, data: data):
            async with producing(value_serializer=serializer) as (cluster, producer):
                with pytest.raises(TypeError):
                    await producer.send_list([("t", b"k", b"v"), ("t", b"k", value)])
                assert cluster.brokers[1].requests == []

    simulate(main)


def test_with_a_partitioner_that_fails_a_list_fails_definitely_and_so_does_one_after_the_end() -> None:
    async def main() -> None:
        async with producing(partitioner=lambda key, count, random: 1 // 0) as (cluster, producer):
            for _ in range(2):
                (outcome,) = await producer.send_list([("t", b"k", b"v")])
                assert type(known(outcome)) is SendFailed
                await producer.close()
            assert cluster.brokers[1].requests == []

    simulate(main)


KINDS = {"sync": ProducerConfig(timeout=2.0), "async": AsyncProducerConfig(timeout=2.0, linger=0.0)}


@pytest.mark.parametrize("kind", KINDS)
def test_one_producer_takes_the_same_arguments_whatever_its_type(kind: str) -> None:
    """Topic, key, value. The type decides only when a send returns."""

    async def main() -> None:
        async with fake_cluster() as cluster:
            producer = Producer(cluster.bootstrap, KINDS[kind], runtime=FakeRuntime())
            informed: list[tuple[Any, Any, type]] = []

            def done(envelope: Envelope, outcome: SendResult | ClientError) -> None:
                informed.append((envelope.key, envelope.value, type(outcome)))

            first = await producer.send("t", b"key", b"one", on_done=done)
            assert first.done() == (kind == "sync")
            second = await producer.send("t", None, b"two", partition=0, on_done=done)
            (third,) = await producer.send_list([("t", b"key", b"three")], on_done=done)
            assert third.done() == (kind == "sync")
            await producer.flush()
            assert sorted(known(one).base_offset for one in (first, second, third)) == [0, 1, 2]  # type: ignore[union-attr]
            assert {request.topics[0].partitions[0].partition for request in cluster.brokers[1].requests} >= {0}
            await producer.close()
            assert sorted(informed, key=str) == [
                (None, b"two", SendResult), (b"key", b"one", SendResult), (b"key", b"three", SendResult),
            ]  # fmt: skip

    simulate(main)


def test_without_a_queue_a_send_raises_what_its_outcome_is_and_informs_of_it() -> None:
    async def main() -> None:
        async with producing(retries=0) as (cluster, producer):
            informed: list[SendResult | ClientError] = []
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS]
            with pytest.raises(SendFailed) as caught:
                await producer.send("t", b"k", b"v", on_done=lambda envelope, outcome: informed.append(outcome))
            assert informed == [caught.value]

    simulate(main)


def test_the_type_of_a_producer_is_that_of_its_properties() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            for kind in KINDS:
                made = properties.read_producer_settings(
                    {"producer.type": kind, "metadata.broker.list": ",".join(cluster.bootstrap)}
                )
                producer = Producer(
                    made.bootstrap, made.config, runtime=FakeRuntime(), handler=made.handler, callbacks=made.callbacks
                )
                assert (await producer.send("t", b"k", b"v")).done() == (kind == "sync")
                await producer.close()

    simulate(main)


def test_what_the_type_of_a_producer_does_not_have_is_a_mistake() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            with pytest.raises(ValueError, match=r"producer\.type=async"):
                Producer(cluster.bootstrap, ProducerConfig(), runtime=FakeRuntime(), callbacks=Callbacks())
            queued = Producer(cluster.bootstrap, KINDS["async"], runtime=FakeRuntime())
            with pytest.raises(ValueError, match=r"producer\.type=sync"):
                await queued.send_set("t", 0, [(None, b"a")])
            await queued.close()

    simulate(main)
