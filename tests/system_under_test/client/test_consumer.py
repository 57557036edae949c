"""A consumer reads what is there, from the leader, until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.system_under_test.client.connection import Connection
from assay.system_under_test.client.consumer import EARLIEST, LATEST, Position, SimpleConsumer
from assay.system_under_test.client.coordinated import CommitFailed
from assay.system_under_test.client.errors import Certainty, DamagedAnswer, ReadFailed
from assay.system_under_test.client.group_consumer import GroupConsumer
from assay.system_under_test.client.metadata import SILENCE_SECONDS
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.schema import read_records

from helpers.fake_brokers import FakeCluster, FakeRuntime, fake_cluster, lose_connection, never
from helpers.sim_brokers import brokers, simulate, until


@asynccontextmanager
async def consuming(**settings: Any) -> AsyncIterator[tuple[FakeCluster, SimpleConsumer]]:
    async with fake_cluster() as cluster:
        cluster.log = [b"a", b"b", b"c"]
        consumer = SimpleConsumer(cluster.bootstrap, runtime=FakeRuntime(), **{"timeout": 2.0, **settings})
        try:
            yield cluster, consumer
        finally:
            await consumer.close()


def test_messages_from_an_offset_on_with_the_high_watermark() -> None:
    async def main() -> None:
        async with consuming() as (_, consumer):
            fetched = await consumer.fetch("t", 0, 1)
            assert [(m.offset, m.value) for m in fetched.messages] == [(1, b"b"), (2, b"c")]
            assert (fetched.high_watermark, fetched.node, fetched.error) == (3, 1, E.NONE)

    simulate(main)


def test_the_buffer_doubles_until_the_first_message_fits() -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            fetched = await consumer.fetch("t", 0, 0, max_bytes=10)
            assert [m.value for m in fetched.messages] == [b"a"]
            asked = [request.topics[0].partitions[0].max_bytes for request in cluster.brokers[1].requests]
            assert asked == [10, 20, 40]

    simulate(main)


def test_a_message_larger_than_any_buffer_is_an_error() -> None:
    async def main() -> None:
        async with consuming(max_fetch_bytes=20) as (_, consumer):
            for fetched in (
                await consumer.fetch("t", 0, 0, max_bytes=10),
                (await consumer.multi_fetch({("t", 0): 0}, max_bytes=10))["t", 0],
            ):
                assert (fetched.error, list(fetched.messages)) == (E.MESSAGE_TOO_LARGE, [])

    simulate(main)


def test_an_empty_fetch_is_no_reason_to_ask_for_more() -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            assert (await consumer.fetch("t", 0, 3, max_bytes=10)).messages == []
            assert len(cluster.brokers[1].requests) == 1

    simulate(main)


def test_offset_out_of_range_is_reported_not_hidden() -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            cluster.brokers[1].script = [E.OFFSET_OUT_OF_RANGE]
            fetched = await consumer.fetch("t", 0, 99)
            assert (fetched.error, fetched.messages, fetched.high_watermark) == (E.OFFSET_OUT_OF_RANGE, [], -1)

    simulate(main)


def test_brokers_are_reached_by_ipv6_addresses_too_as_a_caller_and_as_metadata_have_them() -> None:
    async def main() -> None:
        async with fake_cluster("::1") as cluster:
            cluster.log, cluster.leader = [b"a"], 2
            consumer = SimpleConsumer(cluster.bootstrap[0], runtime=FakeRuntime(), timeout=2.0)
            try:
                assert (await consumer.fetch("t", 0, 0)).node == 2
            finally:
                await consumer.close()

    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    asyncio.run(main())


@pytest.mark.parametrize("trouble", [E.NOT_LEADER_FOR_PARTITION, lose_connection])
def test_reads_follow_the_leader(trouble: Any) -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            await consumer.fetch("t", 0, 0)
            cluster.leader = 2
            cluster.brokers[1].script = [trouble]
            assert (await consumer.fetch("t", 0, 0)).node == 2
            cluster.leader = 1
            cluster.brokers[2].script = [trouble]
            assert await consumer.offsets("t", 0, LATEST) == 3

    simulate(main)


def test_no_answer_ends_in_time() -> None:
    async def main() -> None:
        async with consuming(timeout=0.3) as (cluster, consumer):
            cluster.brokers[1].script = [never]
            with pytest.raises(ReadFailed, match="no answer"):
                await consumer.fetch("t", 0, 0)

    simulate(main)


def test_offsets_by_time() -> None:
    async def main() -> None:
        async with consuming() as (_, consumer):
            assert [await consumer.offsets("t", 0, time) for time in (LATEST, EARLIEST, 5)] == [3, 0, -1]

    simulate(main)


def test_an_error_instead_of_offsets_carries_its_code() -> None:
    async def main() -> None:
        async with consuming(timeout=0.2) as (cluster, consumer):
            cluster.brokers[1].script = [E.LEADER_NOT_AVAILABLE] * 100
            with pytest.raises(ReadFailed) as caught:
                await consumer.offsets("t", 0, LATEST)
            assert caught.value.error is E.LEADER_NOT_AVAILABLE
            cluster.brokers[1].script = [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]
            with pytest.raises(ReadFailed) as caught:
                await consumer.offsets("t", 0, 5)
            assert caught.value.error is E.UNSUPPORTED_FOR_MESSAGE_FORMAT

    simulate(main)


def test_offsets_of_segments_newest_first() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=1).with_setting("segment.bytes", "200")) as cluster:
            for number in range(10):
                await cluster.producer.send("orders", 0, [(None, bytes(100))])
                assert await cluster.consumer.offsets("orders", 0, LATEST) == number + 1
            assert await cluster.consumer.offsets_before("orders", 0, LATEST) == [10]
            found = await cluster.consumer.offsets_before("orders", 0, LATEST, 99)
            assert found == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
            assert await cluster.consumer.offsets_before("orders", 0, LATEST, 3) == [10, 9, 8]
            assert await cluster.consumer.offsets_before("orders", 0, EARLIEST, 3) == [0]
            assert await cluster.consumer.offsets_before("orders", 0, 1, 3) == []

    simulate(main)


def test_an_offset_that_consumers_cannot_read_is_not_listed() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=1).with_setting("segment.bytes", "200")) as cluster:
            await cluster.producer.send("orders", 0, [(None, bytes(100))])
            leader = await cluster.leader()
            for node in cluster.nodes:
                if node is not leader:
                    await node.stop()
            hasty = cluster.producer_with(acks=1)
            for _ in range(3):
                await hasty.send("orders", 0, [(None, bytes(100))])
            assert await cluster.consumer.offsets_before("orders", 0, LATEST, 9) == [1, 0]
            future = int(cluster.cluster.harness_runtime().wall_clock() * 1000) + 60_000
            assert await cluster.consumer.offsets_before("orders", 0, future, 9) == [1, 0]
            for node in cluster.nodes:
                await node.resume()

    simulate(main)


def test_many_partitions_are_read_in_one_request_to_each_leader() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=6)) as cluster:
            for partition in range(6):
                records = [(None, f"{partition}-{number}".encode()) for number in range(3)]
                await cluster.producer.send("orders", partition, records)
            begin = {("orders", partition): partition % 3 for partition in range(6)}
            asked: list[Any] = []
            call = Connection.call

            async def counting(self: Any, request: Any, version: int, timeout: float) -> Any:
                asked.append(request)
                return await call(self, request, version, timeout)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connection, "call", counting)
                await cluster.consumer.multi_fetch(begin)
                asked.clear()
                found = await cluster.consumer.multi_fetch(begin)
            assert list(found) == list(begin)
            for (_, partition), fetched in found.items():
                assert [m.value for m in fetched.messages] == [
                    f"{partition}-{number}".encode() for number in range(partition % 3, 3)
                ]
                assert fetched.high_watermark == 3
            assert len(asked) == len({fetched.node for fetched in found.values()})
            assert len(asked) < 6

    simulate(main)


@pytest.mark.parametrize("version", [2, 3])
def test_an_outsized_message_is_read_among_others(version: int) -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            await cluster.producer.send("orders", 0, [(None, bytes(100_000))])
            await cluster.producer.send("orders", 1, [(None, b"small")])
            consumer = SimpleConsumer(
                cluster.bootstrap, runtime=cluster.cluster.harness_runtime(), fetch_version=version
            )
            cluster._open.append(consumer)
            begin = {("orders", 0): 0, ("orders", 1): 0}
            lengths: dict[Any, set[int]] = {one: set() for one in begin}
            for _ in range(3):
                for one, fetched in (await consumer.multi_fetch(begin, max_bytes=1000)).items():
                    lengths[one] |= {len(m.value or b"") for m in fetched.messages}
            assert lengths == {("orders", 0): {100_000}, ("orders", 1): {5}}

    simulate(main)


def test_a_partition_without_leader_holds_up_no_other() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2, replication=1, min_insync=1)) as cluster:
            for partition in range(2):
                await cluster.producer.send("orders", partition, [(None, b"x")])
            dead, alive = await cluster.leader("orders-0"), await cluster.leader("orders-1")
            assert dead is not alive
            await cluster.consumer.multi_fetch({("orders", 0): 0, ("orders", 1): 0})
            await dead.kill()
            loop = asyncio.get_running_loop()
            for _ in range(5):
                begin = loop.time()
                found = await cluster.consumer.multi_fetch({("orders", 0): 0, ("orders", 1): 0})
                assert loop.time() - begin < 3.5
                assert [m.value for m in found["orders", 1].messages] == [b"x"]
                assert found["orders", 0].error in (E.NETWORK_EXCEPTION, E.LEADER_NOT_AVAILABLE)
            with pytest.raises(ReadFailed):
                await cluster.consumer.multi_fetch({("orders", 0): 0})
            assert await cluster.consumer.multi_fetch({}) == {}
            await dead.start()
            await until(lambda: _readable(cluster), "it is read again")

    async def _readable(cluster: Any) -> bool:
        found = await cluster.consumer.multi_fetch({("orders", 0): 0, ("orders", 1): 1})
        return bool(found["orders", 0].messages)

    simulate(main)


def test_a_silent_leader_holds_up_the_others_once_and_has_its_time_where_it_is_asked_alone() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2, replication=1, min_insync=1, session_timeout_ms=20_000)) as cluster:
            for partition in range(2):
                await cluster.producer.send("orders", partition, [(None, b"x")])
            silent = await cluster.leader("orders-0")
            begin = {("orders", 0): 0, ("orders", 1): 0}
            await cluster.consumer.multi_fetch(begin)
            await silent.stop()
            loop = asyncio.get_running_loop()
            took = []
            while sum(took) < SILENCE_SECONDS:
                before = loop.time()
                found = await cluster.consumer.multi_fetch(begin, max_wait=0.1)
                took.append(loop.time() - before)
                assert [m.value for m in found["orders", 1].messages] == [b"x"]
            assert took[0] > 2.0
            assert len(took) > 10
            assert sum(one > 0.5 for one in took) <= 2, "its own time, and that of the search for another leader"
            resumed = asyncio.ensure_future(asyncio.sleep(1.0))
            resumed.add_done_callback(lambda _: asyncio.ensure_future(silent.resume()))
            alone = await cluster.consumer.multi_fetch({("orders", 0): 0})
            assert [m.value for m in alone["orders", 0].messages] == [b"x"]
            assert list((await cluster.consumer.multi_fetch(begin))["orders", 0].messages), "it is heard again"

    simulate(main)


def test_multi_fetch_reports_each_partition_that_is_out_of_range() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await cluster.consumer.multi_fetch({("orders", 0): 0, ("orders", 1): 0})
            found = await cluster.consumer.multi_fetch({("orders", 0): 0, ("orders", 1): 7})
            assert [m.value for m in found["orders", 0].messages] == [b"x"]
            assert found["orders", 1].error is E.OFFSET_OUT_OF_RANGE

    simulate(main)


def damaged(cluster: FakeCluster, value: bytes, position: int) -> None:
    """Every broker serves its log with one bit of the message of this value flipped."""
    for broker in cluster.brokers.values():
        serve = broker.fetch

        async def fetch(request: Any, context: Any, serve: Any = serve) -> Any:
            response = await serve(request, context)
            part = response.topics[0].partitions[0]
            records = bytearray(read_records(part.records))
            at = records.index(value) + position
            records[at] ^= 1
            part.records = bytes(records)
            return response

        broker.fetch = fetch  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("served", "how"),
    [
        (bytes(11) + b"\x7f", "no whole message, whatever the fetch size"),
        (bytes(8) + b"\xff" * 20, "impossible size"),
    ],
)
def test_what_are_no_messages_is_said_to_be_none(served: bytes, how: str) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            cluster.log = [b"first"]
            for broker in cluster.brokers.values():
                serve = broker.fetch

                async def fetch(request: Any, context: Any, serve: Any = serve) -> Any:
                    response = await serve(request, context)
                    response.topics[0].partitions[0].records = served
                    return response

                broker.fetch = fetch  # type: ignore[method-assign]
                await broker.stop()
                await broker.start()
            consumer = SimpleConsumer(cluster.bootstrap, runtime=FakeRuntime(), timeout=2.0, check_crcs=False)
            with pytest.raises(DamagedAnswer, match=f"broker 1 served damaged records: .*{how}") as caught:
                await consumer.fetch("t", 0, 0)
            assert caught.value.error is E.CORRUPT_MESSAGE
            await consumer.close()

    simulate(main)


@pytest.mark.parametrize("check_crcs", [True, False])
def test_damage_is_refused_or_handed_out_as_it_came(check_crcs: bool) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            cluster.log = [b"first", b"secret", b"last"]
            damaged(cluster, b"secret", 0)
            for broker in cluster.brokers.values():
                await broker.stop()
                await broker.start()
            consumer = SimpleConsumer(cluster.bootstrap, runtime=FakeRuntime(), timeout=2.0, check_crcs=check_crcs)
            fetched = await consumer.fetch("t", 0, 0)
            if check_crcs:
                assert [m.value for m in fetched.messages] == [b"first"], "what came before the damage"
                with pytest.raises(ReadFailed, match="broker 1 served damaged records") as caught:
                    await consumer.fetch("t", 0, 1)
                assert caught.value.error is E.CORRUPT_MESSAGE
            else:
                assert [m.value for m in fetched.messages] == [b"first", b"recret", b"last"]
            await consumer.close()

    simulate(main)


def test_a_broker_that_did_not_answer_is_asked_last() -> None:
    """Each look would take a second if chance led it to the silent broker first."""

    async def main() -> None:
        async with consuming(timeout=5.0) as (cluster, consumer):
            silent = cluster.brokers[2]
            cluster.leader = 1
            asked = []

            async def metadata(request: Any, context: Any) -> Any:
                asked.append(asyncio.get_running_loop().time())
                await never()

            silent.metadata = metadata  # type: ignore[method-assign]
            await silent.stop()
            await silent.start()
            for _ in range(20):
                consumer._metadata.forget("t", 0)
                await consumer.fetch("t", 0, 0)
            assert len(asked) == 1
            await asyncio.sleep(SILENCE_SECONDS)
            for _ in range(20):
                consumer._metadata.forget("t", 0)
                await consumer.fetch("t", 0, 0)
            assert len(asked) == 2, "after a while it is one like the others"
            await silent.stop()

    simulate(main)


def test_offsets_are_kept_for_each_group_and_only_while_it_has_no_members() -> None:
    orders, other = ("orders", 0), ("orders", 1)

    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            consumer = cluster.consumer
            await consumer.commit("a", {orders: Position(3, "so far"), other: Position(5)})
            await consumer.commit("b", {orders: Position(4)})
            assert await consumer.committed("a", [orders, other]) == {orders: Position(3, "so far"), other: Position(5)}
            assert await consumer.committed("b", [orders, other]) == {orders: Position(4), other: Position(-1)}
            runtime = cluster.cluster.harness_runtime()
            member = GroupConsumer(cluster.bootstrap, "a", ["orders"], runtime=runtime)
            await member.poll(0.1)
            with pytest.raises(CommitFailed) as raised:
                await consumer.commit("a", {orders: Position(9)})
            assert raised.value.outcome is Certainty.NOT_DONE
            assert (await consumer.committed("a", [orders]))[orders] == Position(3, "so far")
            await member.close()

    simulate(check)
