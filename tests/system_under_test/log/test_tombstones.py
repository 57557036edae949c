"""When tombstones may go: what is noted, kept over a restart, and cut with the log."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.tombstones import TOMBSTONES, Tombstones

PATH = f"orders-0/{TOMBSTONES}"


def opened(disk: SimDisk) -> Tombstones:
    storage = disk.storage(fsync_delay=lambda: 0)
    storage.mkdir("orders-0")
    return Tombstones(storage, "orders-0")


def test_the_horizon_is_where_the_time_is_over_and_survives_a_power_loss() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        tombstones = opened(disk)
        assert not tombstones.may_have_gaps
        await disk.storage().fsync_directory("")
        await tombstones.record_cleaning(0, 10, 1000)
        await tombstones.record_cleaning(0, 20, 2000)
        await tombstones.record_cleaning(0, 15, 3000)
        disk.cut_power()
        tombstones = opened(disk)
        assert tombstones.may_have_gaps
        assert tombstones.rows() == ((10, 1000), (20, 2000)), "those below 20 were noted before"
        horizons = [tombstones.find_expired_offset(now, 500, 100) for now in (0, 1499, 1500, 2499, 2500)]
        assert horizons == [0, 0, 10, 10, 20]
        assert tombstones.find_expired_offset(2500, 500, 19) == 10
        await tombstones.record_cleaning(10, 30, 1)
        assert tombstones.rows() == ((20, 2000), (30, 2000)), "a clock that went back makes nothing older"

    asyncio.run(check())


def test_a_cut_keeps_what_is_noted_of_what_stays() -> None:
    async def check() -> None:
        tombstones = opened(SimDisk(Random(1)))
        for offset, time in ((5, 1), (20, 2), (30, 3)):
            await tombstones.record_cleaning(0, offset, time)
        await tombstones.truncate(40)
        assert tombstones.rows() == ((5, 1), (20, 2), (30, 3))
        await tombstones.truncate(10)
        assert tombstones.rows() == ((5, 1), (10, 2))
        await tombstones.truncate(0)
        assert tombstones.rows() == ()
        assert tombstones.may_have_gaps

    asyncio.run(check())


def test_gaps_are_allowed_up_to_an_offset_which_a_cut_lowers() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        tombstones = opened(disk)
        await tombstones.truncate(3)
        assert not tombstones.may_have_gaps, "a log that is not compacted has no such file"
        for allowed in (30, 20):
            await tombstones.allow_gaps(lambda allowed=allowed: allowed)
        assert (tombstones.gaps, opened(disk).gaps) == (30, 30)
        await tombstones.truncate(25)
        assert (tombstones.gaps, opened(disk).gaps) == (25, 25)

    asyncio.run(check())


def test_a_gap_may_begin_no_earlier_than_noted_which_a_cut_forgets() -> None:
    async def check() -> None:
        disk = SimDisk(Random(1))
        tombstones = opened(disk)
        await tombstones.allow_gaps(lambda: 30)
        await tombstones.add_ends(lambda: {20: 15})
        assert opened(disk).allows_gap(1, 30), "an earlier version, too, would have noted no more"
        await tombstones.set_ends(lambda: {10: 7, 20: 15})
        await tombstones.add_ends(lambda: {20: 14, 30: 28})
        await tombstones.add_ends(lambda: {20: 16})
        for one in (tombstones, opened(disk)):
            assert [one.allows_gap(*gap) for gap in ((7, 10), (6, 10), (14, 20), (13, 20), (28, 30), (24, 25))] == [
                True, False, True, False, True, False,
            ]  # fmt: skip
        await tombstones.truncate(25, 22, 21)
        for one in (tombstones, opened(disk)):
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
    tombstones = opened(disk)
    assert tombstones.damage is not None
    assert TOMBSTONES in tombstones.damage.problem
    assert tombstones.may_have_gaps
    assert tombstones.gaps > 10**18
