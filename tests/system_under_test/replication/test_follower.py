"""Tests what a follower does with the leader's answer, where no healthy leader would ever give it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.config import BrokerConfig, TopicConfig
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EpochHistory, EpochStart
from assay.system_under_test.log.log import Log
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.internal import EpochAnswer, ReplicaFetchedPartition
from assay.system_under_test.records import message_set
from assay.system_under_test.replication.fetcher import LeaderFetcher
from assay.system_under_test.replication.follower import BACK_OFF, FollowerTerm
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.replication.replica import Replica, ReplicaEnvironment
from assay.system_under_test.replication.throttle import Throttle
from assay.system_under_test.replication.traits import CORRECT

from helpers.producing import validated


def following(log: Any, history: list[tuple[int, int]]) -> FollowerTerm:
    environment = SimpleNamespace(broker_id=2)
    replica: Any = SimpleNamespace(
        key="orders-0",
        log=log,
        high_watermark=0,
        traits=CORRECT,
        environment=environment,
        truncation_lock=asyncio.Lock(),
        forget_epochs_ahead=lambda: None,
    )
    update: Any = SimpleNamespace(leader_epoch=2, controller_epoch=1, leader=1, isr=[1, 2], elr=[])
    term = FollowerTerm(replica, update)
    term.reconciled = True
    term.history = history
    return term


@pytest.mark.parametrize("first", [8, 9, 2**40])
def test_offsets_left_out_before_an_epochs_start_are_rejected_not_waited_for(first: int) -> None:
    """The log ends at 5, epoch 2 starts at 8, and the leader, whose disk lies, sends nothing below that."""
    appended: list[bytes] = []
    config = SimpleNamespace(compacted=False)
    term = following(
        SimpleNamespace(end_offset=5, append_some_replicated=lambda data, _: (appended.append(data), 0), config=config),
        [(2, 8)],
    )
    records = message_set.build([(None, b"x", 0)], base_offset=first)
    answer = ReplicaFetchedPartition(
        topic="orders", partition=0, error_code=0, high_watermark=5, log_start=0, records=records
    )
    asyncio.run(term.apply_fetched(answer, now=100.0))
    assert appended == []
    assert not term.reconciled
    assert term.retry_at == 100.0 + BACK_OFF
    assert term.history == [(2, 8)]


def test_an_empty_log_beyond_the_leaders_end_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention has emptied it, and no history says where the leader's log ended."""
    discarded: list[int] = []

    async def discard(_: FollowerTerm, start: int, reason: str) -> None:
        discarded.append(start)

    monkeypatch.setattr(FollowerTerm, "discard", discard)
    term = following(SimpleNamespace(start_offset=100, end_offset=100, damage=None), [])
    answer = ReplicaFetchedPartition(
        topic="orders", partition=0, error_code=1, high_watermark=-1, log_start=10, records=b""
    )
    asyncio.run(term.apply_fetched(answer, now=100.0))
    assert discarded == [10]
    assert not term.reconciled


CUTS = [*(("truncate", at) for at in (3, 8, 15)), *(("discard", at) for at in (0, 3, 8, 15, 100))]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "target"), CUTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_in_a_cut_is_no_damage(how: str, target: int, seed: int) -> None:
    """The log is from 8 to 20, all of it durable and noted so; the power goes while the cut is made durable."""

    async def scenario() -> None:
        disk, delay = SimDisk(Random(seed)), [0.0]

        async def opened(recovery_point: int) -> Log:
            storage = disk.storage(fsync_delay=lambda: delay[0])
            config = LogConfig(segment_bytes=100)
            log, _ = await Log.open(
                storage, "t-0", config, clean=False, recovery_point=recovery_point, wall_clock=lambda: 0.0
            )
            return log

        log = await opened(0)
        log.reset(8)
        await log.flush()
        for number in range(12):
            log.append(validated(message_set.build([(None, b"%d" % number, 5)])))
        noted = [await log.flush()]
        assert (log.start_offset, noted) == (8, [20])

        async def prepare_truncation(_: object, offset: int) -> None:
            noted[0] = min(noted[0], offset)
            await log.prepare_truncation(offset)

        term = following(log, [])
        term.replica.environment.prepare_truncation = prepare_truncation
        delay[0] = 0.01
        cutting: Any = term.discard(target, "") if how == "discard" else term.truncate(target, "")
        task = asyncio.ensure_future(cutting)
        await asyncio.sleep(0.001)
        disk.cut_power()
        task.cancel()
        again = await opened(max(noted[0], log.flushed_offset))  # as it was noted, or again at that moment
        assert again.damage is None

    asyncio.run(scenario())


def update(epoch: int, leader: int) -> internal.PartitionStateUpdate:
    return internal.PartitionStateUpdate(
        topic="t",
        topic_czxid=1,
        partition=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1, 2, 3],
        member_epochs=[],
        elr=[],
        zk_version=epoch,
        replicas=[1, 2, 3],
    )


async def slow_replica(noted: asyncio.Event) -> Partition:
    """Its log ends at 12, the first seven records are of epoch 1. ``noted``: that a cut is to come. The fsyncs after
    that take long, until it is cleared.
    """
    storage = SimDisk(Random(1)).storage(fsync_delay=lambda: 0.05 if noted.is_set() else 0.0)
    log, _ = await Log.open(storage, "t-0", LogConfig(), clean=False, recovery_point=0, wall_clock=lambda: 0.0)
    for number in range(12):
        log.append(validated(message_set.build([(None, b"%d" % number, 5)])))
    await log.flush()
    events: Any = SimpleNamespace(emit=lambda *_, **__: None)

    async def prepare_truncation(replica: Replica, offset: int) -> None:
        await replica.log.prepare_truncation(offset)
        noted.set()

    environment = ReplicaEnvironment(
        broker_id=2,
        lag_time_max=10.0,
        events=events,
        traits=CORRECT,
        on_flush_messages_reached=lambda _: None,
        on_flush_ms_reached=lambda _: None,
        on_damage=lambda _: None,
        prepare_truncation=prepare_truncation,
        on_disk_error=lambda _: None,
        on_isr_wanted=lambda *_: None,
    )
    epochs = EpochHistory(storage, "t-0", [EpochStart(1, 0), EpochStart(2, 7)])
    return Partition("t", 0, log, epochs, 7, TopicConfig(), environment)


async def begin_cut(how: str) -> tuple[Partition, asyncio.Task[None]]:
    """The term of epoch 3 has begun to cut the log, and waits for the disk."""
    noted = asyncio.Event()
    replica = await slow_replica(noted)
    replica.follow(update(3, leader=1))
    term = replica.follower
    assert term is not None
    cutting = asyncio.ensure_future(term.truncate(7, "") if how == "truncate" else term.discard(0, ""))
    await noted.wait()
    noted.clear()
    return replica, cutting


@pytest.mark.parametrize("how", ["truncate", "discard"])
def test_a_cut_of_the_term_before_takes_nothing_from_what_the_next_leader_notes(how: str) -> None:
    async def scenario() -> None:
        replica, cutting = await begin_cut(how)
        await replica.lead(update(4, leader=2), now=0.0)
        await cutting
        end = {"truncate": 7, "discard": 0}[how]
        before = [EpochStart(1, 0)] if end else []
        assert list(replica.epochs.entries()) == [*before, EpochStart(4, end)]

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["truncate", "discard"])
def test_a_cut_of_the_term_before_takes_nothing_from_what_the_next_follower_copies(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader's epochs 2 and 4 begin where the log was cut; it answers at once."""
    end = {"truncate": 7, "discard": 0}[how]
    history = [*([(1, 0)] if end else []), (2, end), (4, end)]
    fetched = asyncio.Event()

    class Leader:
        async def call(self, request: object, version: int, patience: float) -> object:
            if not isinstance(request, internal.EpochEndRequest):
                fetched.set()
                return await asyncio.Future[None]()
            entries = [internal.EpochEntry(epoch=epoch, start_offset=start) for epoch, start in history]
            known = EpochAnswer(
                topic="t", partition=0, error_code=0, epoch=1, end_offset=end, log_start=0, history=entries
            )
            return internal.EpochEndResponse(error_code=0, partitions=[known])

        async def close(self) -> None: ...

    async def opened(*_: object) -> Any:
        return Leader()

    monkeypatch.setattr(Connection, "open", opened)

    async def scenario() -> None:
        replica, cutting = await begin_cut(how)
        leader = internal.LiveBroker(broker_id=3, host="n3", port=9092, broker_epoch=1)
        config = BrokerConfig(zookeeper="zk1:2181", host="n2", broker_id=2)
        fetcher = LeaderFetcher(leader, config, lambda: 1, Throttle())
        replica.follow(update(4, leader=3))
        assert replica.follower is not None
        fetcher.add(replica.follower)
        fetching = asyncio.ensure_future(fetcher.run())
        await cutting
        await asyncio.wait_for(fetched.wait(), 10)
        fetching.cancel()
        assert replica.follower.reconciled
        assert list(replica.epochs.entries()) == [EpochStart(*entry) for entry in history]

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["the next term", "a damaged message"])
def test_an_epoch_that_was_entered_ahead_of_its_records_does_not_keep_a_replica_from_leading(how: str) -> None:
    """The leader's compacted log goes on at 20, in an epoch that began at 15; this one ends at 12 and, after an unclean
    election, leads.
    """

    async def scenario() -> None:
        replica = await slow_replica(noted := asyncio.Event())
        await replica.log.allow_gaps()
        replica.follow(update(3, leader=1))
        term = replica.follower
        assert term is not None
        term.reconciled, term.history = True, [(3, 15)]
        records = message_set.build([(None, b"20", 5)], base_offset=20)
        if how == "a damaged message":
            records = records[:-1] + b"x"
        noted.set()
        answer = ReplicaFetchedPartition(
            topic="t", partition=0, error_code=0, high_watermark=21, log_start=0, records=records
        )
        copying = asyncio.ensure_future(term.apply_fetched(answer, 0.0))
        await asyncio.sleep(0)
        if how == "a damaged message":
            await copying
            assert replica.epochs.latest() == 2, "it is asked for when a leader is looked for"
        await replica.lead(update(4, leader=2), now=0.0)
        await copying
        assert replica.log.end_offset == 12
        assert list(replica.epochs.entries()) == [EpochStart(1, 0), EpochStart(2, 7), EpochStart(4, 12)]

    asyncio.run(scenario())
