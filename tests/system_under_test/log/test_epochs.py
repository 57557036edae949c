"""The leader-epoch history: KIP-101's laws, and its file."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.checkpoints import CheckpointError
from assay.system_under_test.log.epochs import EpochHistory

HISTORIES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=6).map(
    lambda steps: [
        (sum(e for e, _ in steps[: i + 1]) - 1, sum(o for _, o in steps[: i + 1])) for i in range(len(steps))
    ]
)


def history(entries: list[tuple[int, int]], disk: SimDisk | None = None) -> EpochHistory:
    disk = disk or SimDisk(Random(0))
    disk.write("t-0/log", b"")
    made = EpochHistory(disk.storage(fsync_delay=lambda: 0), "t-0")
    made.replace(entries)
    return made


def epoch_of(entries: list[tuple[int, int]], offset: int) -> int:
    """By brute force: the last epoch that began at or before the offset."""
    return max([epoch for epoch, start in entries if start <= offset], default=-1)


@given(HISTORIES.filter(bool), st.integers(0, 25), st.integers(0, 5))
def test_the_end_of_an_epoch_divides_the_log_by_epochs(entries: list[tuple[int, int]], epoch: int, more: int) -> None:
    log_end = entries[-1][1] + more
    found, end = history(entries).end_offset_for(epoch, log_end)
    assert found == max([e for e, _ in entries if e <= epoch], default=-1)
    for offset in range(entries[0][1], log_end):
        assert (epoch_of(entries, offset) <= epoch) == (offset < end)
    assert entries[0][1] <= end <= log_end


def test_an_unknown_history_answers_that_it_knows_nothing() -> None:
    assert history([]).end_offset_for(3, 100) == (-1, -1)
    assert history([(2, 0)]).end_offset_for(-1, 100) == (-1, -1)
    assert history([(2, 40)]).end_offset_for(1, 100) == (-1, 40)
    assert history([]).latest() == -1


def test_an_idle_epoch_is_kept_and_ends_where_it_began() -> None:
    """KAFKA-7415: nothing was appended in epoch 5."""
    epochs = history([(4, 10)])
    assert epochs.assign(5, 100)
    assert epochs.assign(6, 100)
    assert epochs.end_offset_for(5, 120) == (5, 100)
    assert epochs.end_offset_for(4, 120) == (4, 100)
    assert epochs.end_offset_for(6, 120) == (6, 120)


def test_assigning_the_latest_epoch_again_changes_nothing_and_going_back_is_refused() -> None:
    epochs = history([(4, 10)])
    assert not epochs.assign(4, 30)
    assert epochs.entries() == ((4, 10),)
    for epoch, offset in ((3, 50), (5, 9), (-1, 50)):
        with pytest.raises(ValueError, match="cannot follow"):
            epochs.assign(epoch, offset)


@given(HISTORIES, st.integers(0, 30))
def test_truncation_drops_the_entries_at_or_beyond_and_no_other(entries: list[tuple[int, int]], at: int) -> None:
    epochs = history(entries)
    epochs.truncate_from_end(at)
    assert list(epochs.entries()) == [entry for entry in entries if entry[1] < at]


@given(HISTORIES, st.integers(0, 2**32))
def test_what_was_flushed_is_loaded_after_a_power_loss(entries: list[tuple[int, int]], seed: int) -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(seed))
        epochs = history(entries, disk)
        await epochs.flush()
        epochs.assign(1000, 1000)
        disk.cut_power()
        loaded = await EpochHistory.load(disk.storage(), "t-0")
        assert list(loaded.entries()) == entries

    asyncio.run(scenario())


def test_a_flush_covers_a_change_made_while_another_was_under_way() -> None:
    async def scenario() -> None:
        for seed in range(20):
            disk = SimDisk(Random(seed))
            disk.write("t-0/log", b"")
            epochs = EpochHistory(disk.storage(fsync_delay=lambda: 0.001), "t-0")
            epochs.assign(1, 0)
            first = asyncio.ensure_future(epochs.flush())
            await asyncio.sleep(0)
            epochs.assign(2, 5)
            await asyncio.gather(first, epochs.flush())
            disk.cut_power()
            assert (await EpochHistory.load(disk.storage(), "t-0")).entries() == ((1, 0), (2, 5))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "text", ["", "1\n0\n", "0\n2\n1 0\n", "0\n1\nx 0\n", "0\n1\n1 0 0\n", "0\n2\n2 0\n1 5\n", "0\n2\n1 5\n2 0\n"]
)
def test_a_damaged_file_is_a_clear_error(text: str) -> None:
    disk = SimDisk(Random(0))
    disk.write("t-0/leader-epoch-checkpoint", text.encode())
    with pytest.raises(CheckpointError, match="t-0/leader-epoch-checkpoint"):
        asyncio.run(EpochHistory.load(disk.storage(), "t-0"))


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(1, 0), (2, 10), (3, 20), (4, 20)]),
        (5, [(1, 5), (2, 10), (3, 20), (4, 20)]),
        (10, [(2, 10), (3, 20), (4, 20)]),
        (15, [(2, 15), (3, 20), (4, 20)]),
        (20, [(3, 20), (4, 20)]),
        (99, [(4, 99)]),
    ],
)
def test_the_epochs_below_the_logs_start_go_and_the_one_at_the_start_begins_there(
    start: int, left: list[tuple[int, int]]
) -> None:
    async def check() -> None:
        history = EpochHistory(SimDisk(Random(1)).storage(), "t-0")
        for entry in ((1, 0), (2, 10), (3, 20), (4, 20)):
            history.assign(*entry)
        history.truncate_from_start(start)
        assert list(history.entries()) == left
        assert history.latest() == 4

    asyncio.run(check())
