"""Consumers of a group read everything once while none dies, and what is committed is not read again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import ConsumerConfig
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.errors import Certainty, ClientError, ReadFailed
from assay.system_under_test.client.group_consumer import NO_LISTENER, ConsumerRecord, GroupConsumer, GroupListener
from assay.system_under_test.client.membership import CommitFailed, Position
from assay.system_under_test.client.multi_fetch import FetchResult
from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.sim_brokers import Brokers, brokers, simulate, until

PARTITIONS = 4


def consumer(
    cluster: Brokers,
    topics: Sequence[str] = ("orders",),
    listener: GroupListener = NO_LISTENER,
    defects: Sequence[str] = (),
    **settings: Any,
) -> GroupConsumer:
    made = GroupConsumer(
        cluster.bootstrap,
        "g",
        topics,
        ConsumerConfig(**({"session_timeout": 2.0, "rebalance_timeout": 3.0} | settings)),
        runtime=cluster.cluster.harness_runtime(),
        listener=listener,
        traits=select_client_traits(defects),
    )
    cluster._open.append(made)
    return made


async def fill(cluster: Brokers, word: str, count: int = 20) -> set[bytes]:
    values = set()
    for partition in range(PARTITIONS):
        records = [(None, f"{word}-{partition}-{number}".encode()) for number in range(count)]
        await cluster.producer.send("orders", partition, records)
        values |= {value for _, value in records}
    return values


class Reader:
    """Polls and commits until it is stopped."""

    def __init__(self, one: GroupConsumer) -> None:
        self.consumer = one
        self.records: list[ConsumerRecord] = []
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            self.records += await self.consumer.poll(0.5)
            try:
                await self.consumer.commit()
            except CommitFailed:
                continue

    @property
    def values(self) -> set[bytes | None]:
        return {record.value for record in self.records}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_members_read_everything_and_the_next_ones_read_on() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            first = await fill(cluster, "first")
            one, two = Reader(consumer(cluster)), Reader(consumer(cluster))
            await until(lambda: one.values | two.values >= first, "all is read", 30)
            await until(
                lambda: (
                    all(r.consumer.generation is not None and r.consumer.generation.partitions for r in (one, two))
                    and one.consumer.generation is not None
                    and two.consumer.generation is not None
                    and one.consumer.generation.number == two.consumer.generation.number
                ),
                "both own something",
                30,
            )
            second = await fill(cluster, "second")
            await until(lambda: one.values | two.values >= second, "and what comes later", 30)
            for reader in (one, two):
                offsets: dict[int, int] = {}
                for record in reader.records:
                    assert record.offset >= offsets.get(record.partition, 0) or record.value in first
                    offsets[record.partition] = record.offset
            await asyncio.sleep(1.0)
            await one.stop()
            await two.stop()
            await one.consumer.close()
            await two.consumer.close(leave=False)
            third = await fill(cluster, "third")
            three = Reader(consumer(cluster))
            await until(lambda: three.values >= third, "the next one reads on", 30)
            assert three.values == third
            await three.stop()

    simulate(check)


def test_it_reports_what_it_gets_and_loses_and_may_seek() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            everything = await fill(cluster, "x", 3)
            calls: list[tuple[str, int]] = []
            one = consumer(
                cluster,
                listener=GroupListener(
                    on_assigned=lambda partitions: calls.append(("assigned", len(partitions))),
                    on_revoked=lambda partitions: calls.append(("revoked", len(partitions))),
                ),
            )
            found: list[ConsumerRecord] = []
            while len(found) < len(everything):
                found += await one.poll(1.0)
            assert calls == [("assigned", PARTITIONS)]
            assert [record.offset for record in found if record.partition == 1] == [0, 1, 2]
            one.seek(("orders", 1), 1)
            assert [record.offset for record in await one.poll(1.0)] == [1, 2]
            assert one.position(("orders", 1)) == 3
            one.seek(("orders", 1), 99)  # beyond the end: starts again where the reset says
            assert await one.poll(0.0) == []
            assert [record.offset for record in await one.poll(1.0)] == [0, 1, 2]
            with pytest.raises(KeyError):
                one.seek(("orders", 9), 0)
            await one.close()
            assert calls == [("assigned", PARTITIONS), ("revoked", PARTITIONS)]

    simulate(check)


def test_one_that_was_silent_past_its_session_commits_nothing_more() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x", 3)
            one, two = consumer(cluster), consumer(cluster)
            while len(await one.poll(1.0)) < PARTITIONS:
                pass
            await one.commit("first")
            one.fall_silent(3.0)
            await asyncio.sleep(1.0)
            await two.poll(0.0)  # waits for the other's session
            assert two.generation is not None
            assert len(two.generation.partitions) == PARTITIONS
            assert {two.committed_at_assignment(partition).metadata for partition in two.generation.partitions} == {
                "first"
            }
            await asyncio.sleep(1.0)
            with pytest.raises(CommitFailed) as refused:
                await one.commit("late")
            assert refused.value.outcome is Certainty.NOT_DONE
            await one.poll(0.0)
            assert one.generation is not None
            assert one.generation.number > two.generation.number

    simulate(check)


def test_assigned_partitions_are_read_without_a_membership() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x", 3)
            one = consumer(cluster, topics=())
            assert await one.poll(0.0) == []
            one.assign([("orders", 1), ("orders", 2)])
            with pytest.raises(ValueError, match="assigned"):
                one.subscribe(["orders"])
            found: list[ConsumerRecord] = []
            while len(found) < 6:
                found += await one.poll(1.0)
            assert {record.partition for record in found} == {1, 2}
            assert (one.generation, one.assignment) == (None, (("orders", 1), ("orders", 2)))
            await one.commit("by hand", offsets={("orders", 1): 2})
            one.assign([("orders", 2), ("orders", 3)])
            with pytest.raises(KeyError):
                one.position(("orders", 1))
            assert one.position(("orders", 2)) == 3
            assert {record.partition for record in await one.poll(1.0)} == {3}
            two = consumer(cluster, topics=())
            two.assign([("orders", 1)])
            assert [record.offset for record in await two.poll(1.0)] == [2]
            assert two.committed_at_assignment(("orders", 1)) == Position(2, "by hand")

    simulate(check)


def test_a_commit_of_one_who_is_no_member_is_refused_while_the_group_has_some() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            member, stranger = consumer(cluster), consumer(cluster, topics=())
            with pytest.raises(CommitFailed) as early:
                await member.commit(offsets={("orders", 0): 1})
            assert early.value.partitions == {("orders", 0): Certainty.NOT_DONE}
            await member.poll(0.0)
            stranger.assign([("orders", 0)])
            with pytest.raises(CommitFailed) as refused:
                await stranger.commit(offsets={("orders", 0): 1})
            assert refused.value.outcome is Certainty.NOT_DONE
            await member.unsubscribe()
            await stranger.commit(offsets={("orders", 0): 1})
            assert (await member.committed([("orders", 0)]))["orders", 0].offset == 1

    simulate(check)


def test_paused_partitions_are_left_out_until_they_are_resumed() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            for partition in range(2):
                await cluster.producer.send("orders", partition, [(None, b"x")])
            one = consumer(cluster)
            await one.poll(0.0)
            one.seek(("orders", 0), 0)
            one.seek(("orders", 1), 0)
            one.pause([("orders", 1)])
            assert {record.partition for record in await one.poll(1.0)} == {0}
            assert await one.poll(0.5) == []
            one.resume([("orders", 1)])
            assert {record.partition for record in await one.poll(1.0)} == {1}
            with pytest.raises(KeyError):
                one.pause([("orders", 7)])

    simulate(check)


def test_without_a_reset_the_caller_says_where_to_begin() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            await cluster.producer.send("orders", 0, [(None, b"a"), (None, b"b")])
            one = consumer(cluster, reset="none")
            for _ in range(2):
                with pytest.raises(ReadFailed, match="nothing is committed"):
                    await one.poll(0.5)
            one.seek(("orders", 0), 1)
            assert [record.value for record in await one.poll(0.5)] == [b"b"]
            one.seek(("orders", 0), 99)
            for _ in range(2):
                with pytest.raises(ReadFailed, match="offset 99 is not in the log") as caught:
                    await one.poll(0.5)
                assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
            one.seek(("orders", 0), 0)
            assert len(await one.poll(0.5)) == 2

    simulate(check)


def test_what_was_revoked_can_still_be_committed_in_the_callback() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            values = await fill(cluster, "x", 5)
            committed: list[int] = []

            async def revoked(partitions: Sequence[Partition]) -> None:
                await one.commit("farewell")
                committed.append(len(partitions))

            one = consumer(cluster, listener=GroupListener(on_revoked=revoked))
            found: list[ConsumerRecord] = []
            while len(found) < len(values):
                found += await one.poll(1.0)
            two = Reader(consumer(cluster))
            three = Reader(one)
            await until(lambda: bool(committed), "a rebalance", 20)
            await until(
                lambda: two.consumer.generation is not None and len(two.consumer.generation.partitions) == 2, "both", 20
            )
            await asyncio.sleep(2.0)
            assert not two.records, "nothing is read again"
            assert not three.records
            await two.stop()
            await three.stop()

    simulate(check)


def test_one_whose_session_is_over_has_lost_what_it_owned() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            calls: list[str] = []
            one = consumer(
                cluster,
                listener=GroupListener(
                    on_revoked=lambda partitions: calls.append("revoked"),
                    on_lost=lambda partitions: calls.append("lost"),
                ),
            )
            await one.poll(0.0)
            one.fall_silent(3.0)
            await asyncio.sleep(4.0)
            await one.poll(0.0)
            assert calls == ["lost"]
            await one.close()
            assert calls == ["lost", "revoked"]
            other = consumer(
                cluster,
                listener=GroupListener(
                    on_revoked=lambda partitions: calls.append("other revoked"),
                    on_lost=lambda partitions: calls.append("other lost"),
                ),
            )
            await other.poll(0.0)
            other.fall_silent(3.0)
            await asyncio.sleep(4.0)
            await other.close()
            assert calls[2:] == ["other lost"], "also when it closes before it polls again"

    simulate(check)


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, ["committed"]), (9.0, ["lost"])])
def test_a_group_waits_for_one_that_has_to_join_again_for_its_rebalance_timeout(
    seconds: float, expected: list[str]
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x", 3)
            calls: list[str] = []

            async def revoked(partitions: Sequence[Partition]) -> None:
                await one.commit("farewell")
                calls.append("committed")

            listener = GroupListener(on_revoked=revoked, on_lost=lambda partitions: calls.append("lost"))
            one = consumer(cluster, listener=listener, rebalance_timeout=7.0)
            while len(await one.poll(1.0)) < PARTITIONS:
                pass
            two = Reader(consumer(cluster, rebalance_timeout=7.0, timeout=15.0))
            await asyncio.sleep(seconds)  # it works on what it has read, for longer than its session of 2 s
            await one.poll(0.0)
            assert calls == expected
            await two.stop()

    simulate(check)


async def finds_no_one(cluster: Brokers) -> None:
    """A newcomer has all partitions at once: it does not wait for the session of one that was there before."""
    newcomer = consumer(cluster)
    before = asyncio.get_running_loop().time()
    await newcomer.poll(0.0)
    assert len(newcomer.assignment) == PARTITIONS
    assert asyncio.get_running_loop().time() - before < 1.0


@pytest.mark.parametrize("closes", [False, True])
def test_a_callback_that_raises_keeps_no_one_in_the_group(closes: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:

            def revoked(partitions: Sequence[Partition]) -> None:
                raise RuntimeError(f"{len(partitions)} partitions are gone")

            one = consumer(cluster, listener=GroupListener(on_revoked=revoked))
            await one.poll(0.0)
            with pytest.raises(RuntimeError, match="4 partitions"):
                await (one.close() if closes else one.unsubscribe())
            await finds_no_one(cluster)

    simulate(check)


def test_a_newcomer_waits_for_the_others_for_as_long_as_their_group_does() -> None:
    """Were it to give up before, it would be there twice: what one of the two owns would be read by no member."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            one, two = (consumer(cluster, rebalance_timeout=6.0, timeout=2.0) for _ in range(2))
            await one.poll(0.0)
            joining = asyncio.get_running_loop().create_task(two.poll(0.0))
            await asyncio.sleep(5.0)  # it works on what it has read, for longer than a call may take
            await one.poll(0.0)
            await joining
            assert sorted((*one.assignment, *two.assignment)) == [("orders", index) for index in range(PARTITIONS)]

    simulate(check)


def test_one_whose_leaving_is_cancelled_goes_on_as_a_member_and_may_leave_again() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x", 1)
            hurry = asyncio.Event()

            async def revoked(partitions: Sequence[Partition]) -> None:
                await hurry.wait()

            one = consumer(cluster, listener=GroupListener(on_revoked=revoked))
            await one.poll(0.0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(one.unsubscribe(), 0.5)
            assert len(await one.poll(1.0)) > 0, "it is a member, so it reads"
            hurry.set()
            await one.close()
            await finds_no_one(cluster)

    simulate(check)


@pytest.mark.parametrize("objects", [False, True])
def test_a_reset_to_which_the_caller_objects_skips_no_record(objects: bool) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            everything = await fill(cluster, "x", 1)

            def on_reset(partition: Partition, offset: int) -> None:
                if objects:
                    raise RuntimeError(f"{partition[1]} is to be read from {offset} on")

            one = consumer(cluster, listener=GroupListener(on_reset=on_reset))
            await one.poll(0.0)
            for last in range(PARTITIONS):  # each poll begins with another partition
                for partition in range(PARTITIONS):
                    one.seek(("orders", partition), 99 if partition == last else 0)
                found: set[bytes | None] = set()
                raised = 0
                for _ in range(3):
                    try:
                        found |= {record.value for record in await one.poll(0.5)}
                    except RuntimeError:
                        raised += 1
                assert (found, raised) == (everything, int(objects))

    simulate(check)


def test_a_poll_that_raises_has_reset_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is out of range, and empty where reading goes on; another is damaged from the start to the end."""
    read = SimpleConsumer.multi_fetch

    async def one_damaged(self: SimpleConsumer, offsets: Mapping[Partition, int], *args: Any, **kinds: Any) -> Any:
        found = await read(self, offsets, *args, **kinds)
        return found | {one: FetchResult((), -1, 1, ErrorCode.CORRUPT_MESSAGE) for one in found if one[1] == 1}

    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            resets: dict[Partition, int] = {}
            one = consumer(cluster, listener=GroupListener(on_reset=resets.__setitem__))
            await one.poll(0.0)
            monkeypatch.setattr(SimpleConsumer, "multi_fetch", one_damaged)
            one.seek(("orders", 0), 99)
            assert await one.poll(1.0) == []
            assert (resets, one.position(("orders", 0))) == ({("orders", 0): 0}, 0)
            with pytest.raises(ReadFailed, match="orders-1 at offset 0: CORRUPT_MESSAGE"):
                await one.poll(1.0)
            await cluster.producer.send("orders", 0, [(None, b"x")])
            assert [record.value for record in await one.poll(1.0)] == [b"x"], "the damaged one holds up no other"

    simulate(check)


def test_topics_and_partitions_that_come_later_are_joined() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one = consumer(cluster, topics=("orders", "later"), metadata_age=1.0)
            await one.poll(0.0)
            assert set(one.assignment) == {("orders", 0), ("orders", 1)}
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)
            made = await admin.create_topics([NewTopic("later", partitions=1, replication=3)])
            assert made["later"].outcome is Certainty.DONE
            await admin.create_partitions("orders", 3)
            expected = {("orders", 0), ("orders", 1), ("orders", 2), ("later", 0)}

            async def owned() -> bool:
                await one.poll(0.2)
                return set(one.assignment) == expected

            await until(owned, "all that is there", 30)

    simulate(check)


def test_a_coordinator_that_moves_takes_the_group_along() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            first = await fill(cluster, "first")
            readers = [Reader(consumer(cluster, session_timeout=4.0)) for _ in range(2)]
            await until(lambda: readers[0].values | readers[1].values >= first, "all is read", 30)
            address = readers[0].consumer._membership._coordinator
            coordinator = next(node for node in cluster.nodes if address is not None and node.address == address.host)
            await coordinator.kill()
            second = set()
            for partition in range(PARTITIONS):
                await until(lambda p=partition: _sent(cluster, p, second), "it is sent", 30)  # type: ignore[misc]
            await until(lambda: readers[0].values | readers[1].values >= second, "and what comes later", 40)
            for reader in readers:
                await reader.stop()

    async def _sent(cluster: Brokers, partition: int, values: set[bytes]) -> bool:
        value = f"second-{partition}-{len(values)}".encode()
        try:
            await cluster.producer.send("orders", partition, [(None, value)])
        except ClientError:
            return False
        values.add(value)
        return True

    simulate(check)


def read_again(defects: tuple[str, ...]) -> list[tuple[int, list[int]]]:
    """Partition and offsets of what is read before and after a rebalance; all was committed of 0, and of 1 nothing."""
    found: list[tuple[int, list[int]]] = []

    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            one = consumer(cluster, defects=defects)

            async def poll() -> None:
                records: list[ConsumerRecord] = []
                for _ in range(4):
                    records += await one.poll(0.2)
                for partition in range(2):
                    found.append((partition, [record.offset for record in records if record.partition == partition]))

            for partition in range(2):
                await cluster.producer.send("orders", partition, [(None, b"a"), (None, b"b")])
            await poll()
            await one.commit(offsets={("orders", 0): 2})
            one.subscribe(["orders"])
            await poll()
            for partition in range(2):
                await cluster.producer.send("orders", partition, [(None, b"c")])
            await poll()
            one.seek(("orders", 1), 1)
            await poll()

    simulate(check)
    return found


def test_after_a_rebalance_a_member_reads_on_from_what_is_committed() -> None:
    assert read_again(()) == [(0, [0, 1]), (1, [0, 1]), (0, []), (1, [0, 1]), (0, [2]), (1, [2]), (0, []), (1, [1, 2])]


def test_the_defect_makes_a_consumer_fall_silent_where_a_rebalance_set_it_back() -> None:
    calls = read_again(("silent-consumer",))
    assert calls == [(0, [0, 1]), (1, [0, 1]), (0, []), (1, []), (0, [2]), (1, []), (0, []), (1, [1, 2])]


def test_records_of_a_generation_that_is_over_are_not_returned() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            one = consumer(cluster)
            await one.poll(0.0)
            first = one.generation
            assert first is not None
            polling = asyncio.create_task(one.poll(5.0))
            await asyncio.sleep(0.02)
            one._membership._end_generation(ErrorCode.ILLEGAL_GENERATION)
            await cluster.producer.send("orders", 0, [(None, b"x")])
            found = await polling
            assert one.generation is not None
            assert one.generation.number > first.number
            assert [record.value for record in found] == [b"x"]

    simulate(check)


def test_latest_begins_at_the_end() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "old")
            one = consumer(cluster, reset="latest")
            assert await one.poll(0.5) == []
            new = await fill(cluster, "new", 1)
            found = set()
            while found != new:
                found |= {record.value for record in await one.poll(1.0)}
            with pytest.raises(ValueError, match="earliest or latest"):
                consumer(cluster, reset="middle")

    simulate(check)
