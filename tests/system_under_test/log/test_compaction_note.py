"""When tombstones may go: what is noted, kept over a restart, and cut with the log."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.compaction_note import COMPACTION_NOTE, CompactionNote

PATH = f"orders-0/{COMPACTION_NOTE}"


def opened(disk: SimDisk) -> CompactionNote:
    storage = disk.storage(fsync_delay=lambda: 0)
    storage.mkdir("orders-0")
    return CompactionNote(storage, "orders-0")


def test_the_horizon_is_where_the_time_is_over_and_survives_a_power_loss() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        note = opened(disk)
        assert not note.may_have_gaps
        await disk.storage().fsync_directory("")
        await note.record_cleaning(0, 10, 1000)
        await note.record_cleaning(0, 20, 2000)
        await note.record_cleaning(0, 15, 3000)
        disk.cut_power()
        note = opened(disk)
        assert note.may_have_gaps
        assert note.rows() == ((10, 1000), (20, 2000)), "those below 20 were noted before"
        horizons = [note.find_expired_offset(now, 500, 100) for now in (0, 1499, 1500, 2499, 2500)]
        assert horizons == [0, 0, 10, 10, 20]
        assert note.find_expired_offset(2500, 500, 19) == 10
        await note.record_cleaning(10, 30, 1)
        assert note.rows() == ((20, 2000), (30, 2000)), "a clock that went back makes nothing older"

    asyncio.run(check())


def test_a_cut_keeps_what_is_noted_of_what_stays() -> None:
    async def check() -> None:
        note = opened(SimDisk(Random(1)))
        for offset, time in ((5, 1), (20, 2), (30, 3)):
            await note.record_cleaning(0, offset, time)
        await note.truncate(40)
        assert note.rows() == ((5, 1), (20, 2), (30, 3))
        await note.truncate(10)
        assert note.rows() == ((5, 1), (10, 2))
        await note.truncate(0)
        assert note.rows() == ()
        assert note.may_have_gaps

    asyncio.run(check())


def test_gaps_are_allowed_up_to_an_offset_which_a_cut_lowers() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        note = opened(disk)
        await note.truncate(3)
        assert not note.may_have_gaps, "a log that is not compacted has no such file"
        for allowed in (30, 20):
            await note.allow_gaps_below(lambda allowed=allowed: allowed)
        assert (note.gaps_below, opened(disk).gaps_below) == (30, 30)
        await note.truncate(25)
        assert (note.gaps_below, opened(disk).gaps_below) == (25, 25)

    asyncio.run(check())


def test_a_gap_may_begin_no_earlier_than_noted_which_a_cut_forgets() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        note = opened(disk)
        await note.allow_gaps_below(lambda: 30)
        await note.add_gaps(lambda: {20: 15})
        assert opened(disk).allows_gap(1, 30), "an earlier version, too, would have noted no more"
        await note.set_gaps(lambda: {10: 7, 20: 15})
        await note.add_gaps(lambda: {20: 14, 30: 28})
        await note.add_gaps(lambda: {20: 16})
        for one in (note, opened(disk)):
            assert [one.allows_gap(*gap) for gap in ((7, 10), (6, 10), (14, 20), (13, 20), (28, 30), (24, 25))] == [
                True, False, True, False, True, False,
            ]  # fmt: skip
        await note.truncate(25, 22, 21)
        for one in (note, opened(disk)):
            assert [one.allows_gap(*gap) for gap in ((7, 10), (14, 20), (21, 22), (20, 22), (28, 30))] == [
                True, True, True, False, False,
            ]  # fmt: skip

    asyncio.run(check())


@pytest.mark.parametrize(
    "rows",
    [
        *(b"0\n", b"1\n5 1\n", b"1\ngaps\n", b"1\ngaps x\n", b"1\nrows 1\n"),
        *(b"2\ngaps 1\n5 x\n", b"2\ngaps 1\n5\n", b"3\ngaps 1\n5 1\n5 2\n", b"3\ngaps 1\n5 2\n6 1\n", b"3\ngaps 1\n"),
        *(b"2\ngaps 1\nends 5\n", b"2\ngaps 1\nends 5 x\n", b"2\ngaps 1\nends 5 4 5 3\n", b"2\ngaps 1\nend 5 4\n"),
    ],
)
def test_a_file_that_makes_no_sense_is_damage_of_the_log_and_any_gap_may_be_meant(rows: bytes) -> None:
    disk = SimDisk(Random(1))
    disk.write(PATH, b"0\n" + rows)
    note = opened(disk)
    assert note.damage is not None
    assert COMPACTION_NOTE in note.damage.problem
    assert note.may_have_gaps
    assert note.gaps_below > 10**18
