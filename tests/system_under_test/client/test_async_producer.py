"""A producer that lets its caller go on: order, bounds, stages, and what is known of each message in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from assay.system_under_test.client.callbacks import BatchHandler, Callbacks, Envelope, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.client.serializer import as_json, as_text
from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode as E

from helpers.fake_brokers import FakeCluster, FakeRuntime, fake_cluster, lose_connection, never
from helpers.sim_brokers import brokers, simulate


@asynccontextmanager
async def producing(
    handler: BatchHandler = pass_on,
    callbacks: Callbacks | None = None,
    defects: Sequence[str] = (),
    **settings: Any,
) -> AsyncIterator[tuple[FakeCluster, Producer]]:
    async with fake_cluster() as cluster:
        producer = Producer(
            cluster.bootstrap,
            AsyncProducerConfig(
                **({"timeout": 2.0, "value_serializer": as_text, "key_serializer": as_text} | settings)
            ),
            runtime=FakeRuntime(),
            handler=handler,
            callbacks=callbacks,
            traits=select_client_traits(defects),
        )
        try:
            yield cluster, producer
        finally:
            await producer.close(0.0)


class Stages(Callbacks):
    """Writes down its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def before_enqueue(self, envelope: Envelope) -> Envelope:
        self.calls.append(("before_enqueue", envelope.value))
        return envelope

    def after_enqueue(self, envelope: Envelope, added: bool) -> None:
        self.calls.append(("after_enqueue" if added else "refused", envelope.value))

    def after_dequeue(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        self.calls.append(("after_dequeue", [envelope.value for envelope in envelopes]))
        return envelopes

    def before_sending(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        self.calls.append(("before_sending", [envelope.value for envelope in envelopes]))
        return envelopes

    def after_sending(self, envelope: Envelope, result: SendResult) -> None:
        self.calls.append(("after_sending", (envelope.value, result.base_offset)))

    def on_drop(self, envelope: Envelope, error: ClientError) -> None:
        self.calls.append((type(error).__name__, envelope.value))

    def close(self) -> None:
        self.calls.append(("close", None))


def test_messages_are_appended_in_order_in_few_sets_and_each_has_its_offset() -> None:
    async def main() -> None:
        async with producing(batch_count=10) as (cluster, producer):
            outcomes = [await producer.send("t", None, str(number), partition=0) for number in range(100)]
            account = await producer.flush()
            assert (account.appended, account.failed, account.unknown) == (100, [], [])
            assert cluster.log == [b"%d" % number for number in range(100)]
            assert [outcome.result().base_offset for outcome in outcomes] == list(range(100))
            assert len(cluster.brokers[1].requests) <= 10

    simulate(main)


def test_a_batch_leaves_when_it_is_full_when_its_time_is_over_or_at_a_flush() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with producing(batch_count=3, linger=0.5) as (_, producer):
            begin = loop.time()
            await (await producer.send("t", None, "alone", partition=0))
            assert 0.5 <= loop.time() - begin < 0.6
            begin = loop.time()
            await asyncio.gather(*[await producer.send("t", None, word, partition=0) for word in ("a", "b", "c")])
            assert loop.time() - begin < 0.1
            await producer.send("t", None, "flushed", partition=0)
            await producer.flush()
            assert loop.time() - begin < 0.2

    simulate(main)


def test_order_is_kept_through_retries() -> None:
    async def main() -> None:
        async with producing(batch_count=1, batch_size=1) as (cluster, producer):
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS, E.NONE, E.LEADER_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS]
            for number in range(20):
                await producer.send("t", None, str(number), partition=0)
                await asyncio.sleep(0.01)
            await producer.flush()
            assert cluster.log == [b"%d" % number for number in range(20)]

    simulate(main)


def test_the_defect_lets_a_set_be_overtaken() -> None:
    async def main() -> None:
        async with producing(batch_count=1, batch_size=1, defects=("retry-reorders",)) as (cluster, producer):
            cluster.brokers[1].script = [E.NOT_ENOUGH_REPLICAS]
            for number in range(20):
                await producer.send("t", None, str(number), partition=0)
                await asyncio.sleep(0.01)
            await producer.flush()
            assert sorted(cluster.log) == sorted(b"%d" % number for number in range(20))  # type: ignore[type-var]
            assert cluster.log != [b"%d" % number for number in range(20)]

    simulate(main)


def test_a_full_queue_makes_its_sender_wait_or_drops_its_message() -> None:
    async def main() -> None:
        stages = Stages()
        async with producing(queue_size=2, enqueue_timeout=0.1, callbacks=stages) as (cluster, producer):
            go = asyncio.Event()
            cluster.brokers[1].script = [go.wait]
            first, second = [await producer.send("t", None, word, partition=0) for word in ("a", "b")]
            with pytest.raises(SendFailed, match="queue is full"):
                await producer.send("t", None, "c", partition=0)
            assert stages.calls[-2:] == [("refused", "c"), ("SendFailed", "c")]
            waiting = asyncio.create_task(producer.send("t", None, "d", partition=0))
            await asyncio.sleep(0.05)
            go.set()
            await asyncio.gather(first, second, await waiting)
            assert cluster.log == [b"a", b"b", b"d"]

    simulate(main)


def test_every_stage_is_called_in_turn() -> None:
    async def main() -> None:
        stages = Stages()
        done: list[tuple[Any, SendResult | ClientError]] = []
        async with producing(callbacks=stages, linger=0.01) as (cluster, producer):
            for word in ("a", "b"):
                await producer.send(
                    "t", None, word, partition=0, on_done=lambda envelope, known: done.append((envelope.value, known))
                )
            await producer.flush()
            cluster.brokers[1].script = [E.MESSAGE_TOO_LARGE, lose_connection]
            for word in ("refused", "in doubt"):
                await producer.send(
                    "t", None, word, partition=0, on_done=lambda envelope, known: done.append((envelope.value, known))
                )
                await producer.flush()
        assert stages.calls[:8] == [
            ("before_enqueue", "a"),
            ("after_enqueue", "a"),
            ("before_enqueue", "b"),
            ("after_enqueue", "b"),
            ("after_dequeue", ["a", "b"]),
            ("before_sending", ["a", "b"]),
            ("after_sending", ("a", 0)),
            ("after_sending", ("b", 1)),
        ]
        assert ("SendFailed", "refused") in stages.calls
        assert ("SendUnknown", "in doubt") in stages.calls
        assert stages.calls[-1] == ("close", None)
        assert done[:2] == [("a", SendResult(0, 1)), ("b", SendResult(1, 1))]
        assert [type(known) for _, known in done[2:]] == [SendFailed, SendUnknown]

    simulate(main)


def test_an_event_handler_may_change_leave_out_and_add() -> None:
    async def handler(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        await asyncio.sleep(0.01)
        kept = [replace(envelope, value=envelope.value.upper()) for envelope in envelopes if envelope.value != "no"]
        return [*kept, Envelope("t", "more", partition=0)]

    async def main() -> None:
        async with producing(handler=handler, linger=0.01) as (cluster, producer):
            yes, no = [await producer.send("t", None, word, partition=0) for word in ("yes", "no")]
            account = await producer.flush()
            assert cluster.log == [b"YES", b"more"]
            assert (await yes).base_offset == 0
            with pytest.raises(SendFailed, match="left out"):
                await no
            assert account.appended == 2
            assert [envelope.value for envelope in account.failed] == ["no"]

    simulate(main)


def test_an_event_handler_may_send_again_what_is_still_under_way() -> None:
    before: list[Envelope] = []
    done: list[Any] = []

    async def handler(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        again = list(before)
        before.extend(envelopes)
        return [*envelopes, *again]

    async def main() -> None:
        async with producing(handler=handler, batch_count=1, linger=0.0) as (cluster, producer):
            for word in ("one", "two"):
                await producer.send(
                    "t", None, word, partition=0, on_done=lambda envelope, known: done.append(envelope.value)
                )
            account = await producer.flush()
            assert cluster.log == [b"one", b"two", b"one"]
            assert account.appended == len(cluster.log)
            assert done == ["one", "two", "one"]

    simulate(main)


def test_a_stage_that_raises_fails_its_batch_and_the_next_one_goes_on() -> None:
    class Once(Callbacks):
        raised = False

        def before_sending(self, envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
            if not self.raised:
                self.raised = True
                raise RuntimeError("so be it")
            return envelopes

    async def main() -> None:
        async with producing(callbacks=Once()) as (cluster, producer):
            lost = await producer.send("t", None, "a", partition=0)
            with pytest.raises(SendFailed, match="so be it"):
                await lost
            await (await producer.send("t", None, "b", partition=0))
            assert cluster.log == [b"b"]

    simulate(main)


def test_what_does_not_get_through_a_stage_fails_in_the_order_of_its_sending() -> None:
    async def nothing(envelopes: Sequence[Envelope]) -> Sequence[Envelope]:
        return []

    async def main() -> None:
        stages = Stages()
        async with producing(handler=nothing, callbacks=stages) as (_, producer):
            for number in range(50):
                await producer.send("t", None, str(number), partition=0)
            await producer.flush()
            dropped = [value for stage, value in stages.calls if stage == "SendFailed"]
            assert dropped == [str(number) for number in range(50)]

    simulate(main)


def test_what_cannot_be_serialized_fails_alone() -> None:
    async def main() -> None:
        async with producing(value_serializer=as_json, linger=0.01) as (cluster, producer):
            good, bad, tombstone = [await producer.send("t", "k", it) for it in ({"b": 1, "a": 2}, object(), None)]
            await asyncio.gather(good, tombstone)
            with pytest.raises(SendFailed, match="not JSON serializable"):
                await bad
            assert cluster.log == [b'{"a":2,"b":1}', None]

    simulate(main)


def test_what_a_serializer_does_not_make_bytes_of_fails_alone() -> None:
    async def main() -> None:
        async with producing(value_serializer=lambda topic, value: value) as (cluster, producer):
            good, bad = [await producer.send("t", None, value, partition=0) for value in (b"good", "bad")]
            with pytest.raises(SendFailed, match="bytes"):
                await bad
            assert (await good).base_offset == 0
            assert cluster.log == [b"good"]

    simulate(main)


def test_close_returns_what_is_known_of_each() -> None:
    async def main() -> None:
        stages = Stages()
        async with producing(batch_size=1, callbacks=stages) as (cluster, producer):
            cluster.brokers[1].script = [E.NONE, never]
            outcomes = [await producer.send("t", None, word, partition=0) for word in ("a", "b", "c")]
            account = await producer.close(0.5)
            assert account.appended == 1
            assert [envelope.value for envelope in account.unknown] == ["b"]
            assert [envelope.value for envelope in account.failed] == ["c"]
            assert [type(outcome.exception()) for outcome in outcomes[1:]] == [SendUnknown, SendFailed]
            assert stages.calls[-1] == ("close", None)
            with pytest.raises(SendFailed, match="closed"):
                await producer.send("t", None, "d", partition=0)
            assert (await producer.close()).appended == 0
            assert cluster.log == [b"a"]

    simulate(main)


def test_a_close_that_is_cancelled_ends_it_all_the_same() -> None:
    async def main() -> None:
        async with producing(batch_size=1) as (cluster, producer):
            cluster.brokers[1].script = [never]
            outcomes = [await producer.send("t", None, word, partition=0) for word in ("a", "b")]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.close(), 0.5)
            await asyncio.sleep(0)
            assert [type(outcome.exception()) for outcome in outcomes] == [SendUnknown, SendFailed]

    simulate(main)


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_last_call_of_callbacks_is_that_of_their_close(cancelled: bool) -> None:
    async def main() -> None:
        stages, words = Stages(), [str(number) for number in range(20)]
        async with producing(callbacks=stages, queue_size=1) as (cluster, producer):
            cluster.brokers[1].script = [never]
            await producer.send("t", None, "under way", partition=0)
            blocked = [asyncio.create_task(producer.send("t", None, word, partition=0)) for word in words]
            await asyncio.sleep(0.1)
            if cancelled:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.close(), 0.1)
            else:
                await producer.close(0.1)
            refused = await asyncio.gather(*blocked, return_exceptions=True)
            assert [type(outcome) for outcome in refused] == [SendFailed] * len(words)
            ends = [call for call in stages.calls if call[0] not in ("before_enqueue", "after_enqueue", "refused")]
            dropped = [("SendUnknown", "under way"), *(("SendFailed", word) for word in words)]
            assert ends[-len(dropped) - 1 :] == [*dropped, ("close", None)]

    simulate(main)


def test_close_sends_a_last_batch() -> None:
    class Farewell(Callbacks):
        def last_batch(self) -> Sequence[Envelope]:
            return [Envelope("t", "farewell", partition=0)]

    async def main() -> None:
        async with producing(callbacks=Farewell(), linger=9.0, batch_count=99) as (cluster, producer):
            await producer.send("t", None, "a", partition=0)
            assert (await producer.close()).appended == 2
            assert cluster.log == [b"a", b"farewell"]

    simulate(main)


def test_a_last_batch_that_fails_keeps_no_producer_open() -> None:
    class Clumsy(Stages):
        def last_batch(self) -> Sequence[Envelope]:
            raise RuntimeError("no last batch")

    async def main() -> None:
        stages = Clumsy()
        async with producing(callbacks=stages, linger=9.0) as (cluster, producer):
            await producer.send("t", None, "a", partition=0)
            assert (await producer.close()).appended == 1
            assert cluster.log == [b"a"]
            assert stages.calls[-1] == ("close", None)
            with pytest.raises(SendFailed, match="closed"):
                await producer.send("t", None, "b", partition=0)

    simulate(main)


def test_an_unknown_topic_fails_its_messages_and_no_others() -> None:
    async def main() -> None:
        async with producing(timeout=0.3) as (cluster, producer):
            lost = await producer.send("nowhere", None, "a")
            with pytest.raises(SendFailed) as caught:
                await lost
            assert caught.value.error is E.UNKNOWN_TOPIC_OR_PARTITION
            await (await producer.send("t", "k", "b"))
            assert cluster.log == [b"b"]

    simulate(main)


def test_a_cancelled_outcome_is_not_sent_and_gives_its_place_back() -> None:
    async def main() -> None:
        async with producing(linger=0.05, queue_size=2) as (cluster, producer):
            first, second = [await producer.send("t", None, word, partition=0) for word in ("a", "b")]
            first.cancel()
            await second
            await asyncio.gather(*[await producer.send("t", None, word, partition=0) for word in ("c", "d")])
            assert cluster.log == [b"b", b"c", b"d"]

    simulate(main)


def test_while_a_leader_is_killed_order_holds_and_no_failure_is_found_in_the_log() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            producer = Producer(
                cluster.bootstrap,
                AsyncProducerConfig(timeout=4.0, value_serializer=as_text),
                runtime=cluster.cluster.harness_runtime(),
            )
            cluster._open.append(producer)
            known: dict[str, SendResult | ClientError] = {}
            for number in range(300):
                await producer.send(
                    "orders",
                    None,
                    str(number),
                    partition=0,
                    on_done=lambda one, what: known.__setitem__(one.value, what),
                )
                await asyncio.sleep(0.02)
                if number == 100:
                    leader = await cluster.leader()
                    await leader.kill()
                if number == 200:
                    await leader.start()
            await producer.flush()
            assert len(known) == 300
            found: dict[str, int] = {}
            while len(found) < (await cluster.consumer.offsets("orders", 0, -1)):
                for message in (await cluster.consumer.fetch("orders", 0, len(found))).messages:
                    assert message.value is not None
                    assert message.value.decode() not in found
                    found[message.value.decode()] = message.offset
            for value, what in known.items():
                if isinstance(what, SendResult):
                    assert found[value] == what.base_offset
                elif isinstance(what, SendFailed):
                    assert value not in found
            acknowledged = [what.base_offset for what in known.values() if isinstance(what, SendResult)]
            in_order = [found[str(number)] for number in range(300) if str(number) in found]
            assert len(acknowledged) > 200
            assert in_order == sorted(in_order)

    simulate(main)


def test_a_list_goes_the_way_of_its_messages_and_what_finds_no_room_has_failed() -> None:
    async def main() -> None:
        async with producing(queue_size=2, enqueue_timeout=0, batch_count=10, linger=0.1) as (cluster, producer):
            done: list[Any] = []
            outcomes = await producer.send_list(
                [("t", "k", "a"), ("t", "k", "b"), ("t", "k", "c")], on_done=lambda envelope, known: done.append(known)
            )
            assert [await outcome for outcome in outcomes[:2]] == [SendResult(0, 1), SendResult(1, 1)]
            with pytest.raises(SendFailed, match="full"):
                await outcomes[2]
            assert [type(known) for known in done] == [SendFailed, SendResult, SendResult]
            assert cluster.log == [b"a", b"b"]
            await producer.close()
            (outcome,) = await producer.send_list([("t", None, "d")])
            assert type(outcome.exception()) is SendFailed

    simulate(main)
