"""Consumers of the draft share a topic, whichever of them dies.

Everything is read. No partition has two owners in one generation, as both brokers and consumers report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.coordinated import CommitFailed, Position
from assay.system_under_test.client.draft_membership import DraftMemberState
from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.deployment import Broker
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.groups.offset_requests import OffsetRequests
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.draft_client import (
    PARTITIONS,
    Reader,
    check_ownership,
    coordinating,
    fill,
    quiet,
    read,
    together,
    with_readers,
)
from helpers.sim_brokers import Brokers, brokers, simulate, until

pytestmark = pytest.mark.slow

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_consumers_share_everything_and_the_next_ones_read_on(count: int) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            first = await fill(cluster, "first")
            readers = [Reader(cluster) for _ in range(count)]
            await quiet(*readers)
            second = await fill(cluster, "second")
            await until(lambda: read(*readers) >= first | second, "all is read", 30)
            await asyncio.sleep(1.0)
            for reader in readers:
                await reader.stop()
                await reader.consumer.close()
            third = await fill(cluster, "third")
            late = Reader(cluster)
            await until(lambda: read(late) >= third, "the next one reads on", 30)
            assert read(late) == third
            check_ownership(cluster, *readers, late)
            await late.stop()

    simulate(check)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [2, 3])
def test_the_others_take_over_from_one_that_dies(count: int, seed: int) -> None:
    async def act(cluster: Brokers, readers: list[Reader]) -> list[Reader]:
        await readers[0].die()
        return readers[1:]

    simulate(lambda: with_readers(count, seed, act), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [2, 3])
def test_consumers_read_on_while_they_look_for_a_new_coordinator(count: int, seed: int) -> None:
    """Members own the same partitions afterwards. Nothing has changed, so none has to stop."""

    async def act(cluster: Brokers, readers: list[Reader]) -> list[Reader]:
        before = readers[0].generation
        for reader in readers:
            reader.states.clear()
        await (await coordinating(cluster)).kill()
        await until(
            lambda: all(DraftMemberState.REDISCOVERING in reader.states for reader in readers), "all look for it"
        )
        consumed = await fill(cluster, "meanwhile")
        await until(lambda: read(*readers) >= consumed, "all is read", 60)
        await quiet(*readers)
        assert readers[0].generation == before
        assert {tuple(reader.states) for reader in readers} == {
            (DraftMemberState.REDISCOVERING, DraftMemberState.MEMBER)
        }
        return readers

    simulate(lambda: with_readers(count, seed, act), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_and_the_coordinator_die_at_once(seed: int) -> None:
    async def act(cluster: Brokers, readers: list[Reader]) -> list[Reader]:
        await (await coordinating(cluster)).kill()
        await readers[1].die()
        return [readers[0], readers[2]]

    simulate(lambda: with_readers(3, seed, act), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_that_are_added_are_given_out(seed: int) -> None:
    async def act(cluster: Brokers, readers: list[Reader]) -> list[Reader]:
        before = readers[0].generation
        admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
        cluster._open.append(admin)
        await admin.create_partitions("orders", PARTITIONS + 3)
        await until(lambda: all(reader.generation > before for reader in readers), "a new generation")
        await quiet(*readers)
        owned = [p for r in readers if r.consumer.generation is not None for p in r.consumer.generation.partitions]
        assert len(owned) == PARTITIONS + 3
        return readers

    simulate(lambda: with_readers(2, seed, act), seed)


def test_round_robin_deals_partitions_out_and_one_group_has_one_strategy() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            readers = [Reader(cluster, strategy="roundrobin") for _ in range(2)]
            await quiet(*readers)
            owned = sorted(
                sorted(i for _, i in r.consumer.generation.partitions) for r in readers if r.consumer.generation
            )
            assert owned == [[0, 2], [1, 3]]
            other = Reader(cluster, strategy="range")
            await asyncio.sleep(3.0)
            assert other.generation == -1
            assert together(*readers)()
            for reader in (*readers, other):
                await reader.stop()

    simulate(check)


def test_a_consumer_that_is_silent_is_missed_and_comes_back() -> None:
    async def act(cluster: Brokers, readers: list[Reader]) -> list[Reader]:
        silent, other = readers
        before = other.generation
        await silent.stop()  # a commit shows that it is there
        silent.consumer.fall_silent(6.0)
        await until(lambda: other.generation > before and len(other.owned[-1][2]) == PARTITIONS, "the other has all", 5)
        silent.read_on()
        await quiet(*readers)
        return readers

    simulate(lambda: with_readers(2, 0, act))


def test_other_topics_are_joined_for_and_what_was_owned_is_given_up_before() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            heard: list[tuple[str, int]] = []

            async def revoked(partitions: Sequence[tuple[str, int]]) -> None:
                heard.extend(partitions)

            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)
            await admin.create_topics([NewTopic("others", 2, 3)])
            reader = Reader(cluster, on_revoked=revoked)
            await quiet(reader)
            reader.consumer.subscribe(["others"])
            wanted = (("others", 0), ("others", 1))
            await until(lambda: reader.consumer.assignment == wanted, "the other topic", 10)
            assert heard == [("orders", index) for index in range(PARTITIONS)]
            assert reader.states[-2:] == [DraftMemberState.STOPPED, DraftMemberState.MEMBER]
            await reader.stop()

    simulate(check)


def test_a_consumer_that_slept_through_a_generation_cannot_commit_in_it() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x")
            one = Reader(cluster)
            await quiet(one)
            await one.stop()
            old = one.consumer._draft.generation
            assert old is not None
            two = Reader(cluster)
            await until(lambda: two.generation > old.number, "the next generation", 30)
            await quiet(two)
            with pytest.raises(CommitFailed) as refused:
                await one.consumer._draft.commit({("orders", 0): Position(1)}, old)
            assert (refused.value.outcome, refused.value.error) == (Certainty.NOT_DONE, ErrorCode.UNKNOWN_MEMBER_ID)
            await two.stop()

    simulate(check)


def test_a_commit_waits_for_a_coordinator_that_reads_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[ErrorCode] = []
    plain = OffsetRequests._check_commit

    def loading(self: OffsetRequests, *arguments: Any) -> None:
        if len(answers) < 3:
            answers.append(ErrorCode.GROUP_LOAD_IN_PROGRESS)
            raise GroupError(answers[-1])
        plain(self, *arguments)

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS)) as cluster:
            await fill(cluster, "x")
            one = Reader(cluster)
            await quiet(one)
            await one.stop()
            monkeypatch.setattr(OffsetRequests, "_check_commit", loading)
            await one.consumer.commit()
            assert len(answers) == 3

    simulate(check)
