"""A consumer reads what is there, from whoever leads, until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_brokers import FakeCluster, FakeRuntime, fake_cluster, lose_connection, never
from sim_brokers import simulate

from system_under_test.client.consumer import EARLIEST, LATEST, SimpleConsumer
from system_under_test.client.errors import ReadFailed
from system_under_test.client.metadata import SILENCE
from system_under_test.protocol.errors import ErrorCode as E
from system_under_test.protocol.schema import records_bytes


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


def test_an_empty_fetch_is_no_reason_to_ask_for_more() -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            assert (await consumer.fetch("t", 0, 3, max_bytes=10)).messages == []
            assert len(cluster.brokers[1].requests) == 1

    simulate(main)


def test_offset_out_of_range_is_told_not_hidden() -> None:
    async def main() -> None:
        async with consuming() as (cluster, consumer):
            cluster.brokers[1].script = [E.OFFSET_OUT_OF_RANGE]
            fetched = await consumer.fetch("t", 0, 99)
            assert (fetched.error, fetched.messages, fetched.high_watermark) == (E.OFFSET_OUT_OF_RANGE, [], -1)

    simulate(main)


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


def test_a_refusal_to_tell_offsets_carries_its_code() -> None:
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


def damaged(cluster: FakeCluster, value: bytes, position: int) -> None:
    """Every broker serves its log with one bit of the message of this value flipped."""
    for broker in cluster.brokers.values():
        serve = broker.fetch

        async def fetch(request: Any, context: Any, serve: Any = serve) -> Any:
            response = await serve(request, context)
            part = response.topics[0].partitions[0]
            records = bytearray(records_bytes(part.records))
            at = records.index(value) + position
            records[at] ^= 1
            part.records = bytes(records)
            return response

        broker.fetch = fetch  # type: ignore[method-assign]


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
            await asyncio.sleep(SILENCE)
            for _ in range(20):
                consumer._metadata.forget("t", 0)
                await consumer.fetch("t", 0, 0)
            assert len(asked) == 2, "after a while it is one like the others"
            await silent.stop()

    simulate(main)
