"""What a follower does with the leader's answer, where no healthy leader would ever give it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.log import Log
from assay.system_under_test.protocol.internal import ReplicaFetchedPartition
from assay.system_under_test.records import message_set
from assay.system_under_test.replication.following import BACK_OFF, FollowerTerm
from assay.system_under_test.replication.traits import CORRECT


def following(log: Any, history: list[tuple[int, int]]) -> FollowerTerm:
    environment = SimpleNamespace(broker_id=2)
    replica: Any = SimpleNamespace(key="orders-0", log=log, high_watermark=0, traits=CORRECT, environment=environment)
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
    term = following(SimpleNamespace(end_offset=5, append_replicated=appended.append, config=config), [(2, 8)])
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
            log.append(message_set.build([(None, b"%d" % number, 5)]), 1)
        noted = [await log.flush()]
        assert (log.start_offset, noted) == (8, [20])

        async def before_cut(_: object, offset: int) -> None:
            noted[0] = min(noted[0], offset)
            await log.before_cut(offset)

        term = following(log, [])
        term.replica.environment.before_cut = before_cut
        delay[0] = 0.01
        cutting: Any = term.discard(target, "") if how == "discard" else term.truncate(target, "")
        task = asyncio.ensure_future(cutting)
        await asyncio.sleep(0.001)
        disk.power_loss()
        task.cancel()
        again = await opened(max(noted[0], log.flushed_offset))  # as it was noted, or again at that moment
        assert again.damage is None

    asyncio.run(scenario())
