"""The log, property by property; the laws under any sequence of events are in ``test_log_laws``."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log import segment
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.directory import make_root
from assay.system_under_test.log.errors import CorruptLog, DamagedLog, OffsetOutOfRange, UnflushedTruncation
from assay.system_under_test.log.log import EARLIEST, LATEST, Log
from assay.system_under_test.log.retention import remove_expired_segments
from assay.system_under_test.log.segment import SliceRemoved
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.storage.local import LocalStorage

from helpers.logs import stored
from helpers.producing import as_appended, validated

DIRECTORY = "data/orders-0"
ENTRY = len(message_set.build([(None, b"0", 5)]))


class Bench:
    """A disk, a clock, and logs on them."""

    def __init__(self) -> None:
        self.disk = SimDisk(Random(7))
        self.disk.make_folder("data")
        self.now = 1000.0
        self.uptime = 50.0
        self.delay = 0.0

    async def open(self, *, clean: bool = False, recovery_point: int = 0, **config: Any) -> Log:
        storage = self.disk.storage(fsync_delay=lambda: self.delay)
        log, _ = await Log.open(
            storage,
            DIRECTORY,
            LogConfig(**config),
            clean=clean,
            recovery_point=recovery_point,
            wall_clock=lambda: self.now,
            monotonic_clock=lambda: self.uptime,
        )
        return log


def fill(log: Log, count: int, timestamp: int = 5) -> None:
    for _ in range(count):
        value = b"%d" % (log.end_offset % 10)
        log.append(validated(message_set.build([(None, value, timestamp)])))


def values(data: bytes) -> list[bytes | None]:
    return [message.value for message in message_set.decode(data)]


def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Bench()))


def test_a_read_gives_whole_messages_from_the_offset_up_to_the_limits() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(index_interval_bytes=50)
        fill(log, 10)
        assert values(log.read(3, 10_000).read()) == [b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
        assert values(log.read(3, 10_000, limit=5).read()) == [b"3", b"4"]
        assert values(log.read(3, 2 * ENTRY + 1).read()) == [b"3", b"4"]
        assert values(log.read(3, 2 * ENTRY).read()) == [b"3", b"4"]
        assert values(log.read(3, 1).read()) == [b"3"]
        assert log.read(3, ENTRY - 1, at_least_one=False).size == 0
        assert values(log.read(3, ENTRY, at_least_one=False).read()) == [b"3"]
        assert log.read(3, 10_000, limit=3).size == log.read(10, 10_000).size == 0
        for outside in (-1, 11):
            with pytest.raises(OffsetOutOfRange) as raised:
                log.read(outside, 100)
            assert (raised.value.start, raised.value.end) == (0, 10)

    run(scenario)


def test_an_append_is_refused_whole() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        two = message_set.build([(None, b"a", 5), (None, b"b", 5)])
        with pytest.raises(ValueError, match="a set without messages"):
            log.append(validated(b""))
        with pytest.raises(CorruptMessage):
            log.append(validated(two[:-1]))
        with pytest.raises(CorruptMessage, match="CRC"):
            log.append_replicated(two[:-1] + b"c")
        with pytest.raises(CorruptMessage, match="offset 4 where 0 belongs"):
            log.append_replicated(as_appended(two, 4)[0])
        assert (log.size, log.end_offset) == (0, 0)
        assert log.append_replicated(two[:-1]) == 1

    run(scenario)


def test_a_compacted_log_takes_gaps_and_finds_its_way_over_them_after_a_restart() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(compacted=True, segment_bytes=100, index_interval_bytes=40)
        for offset in (3, 7, 8, 20, 31):
            log.append_replicated(message_set.build([(None, b"%d" % offset, 5)], 1, offset))
        with pytest.raises(CorruptMessage):
            log.append_replicated(message_set.build([(None, b"x", 5)], 1, 31))
        for _ in range(2):
            assert log.end_offset == 32
            assert [m.offset for m in stored(log, 9, 32)] == [20, 31]
            assert log.read(9, 100, limit=15).size == 0
            log = await bench.open(compacted=True, segment_bytes=100, index_interval_bytes=40)
        for end in (15, 8, 6):
            log.truncate_to(end)
            await log.flush()
            assert log.end_offset == end, "no offset is given twice, also when compaction has taken what was there"
            log = await bench.open(compacted=True, segment_bytes=100, index_interval_bytes=40)
            assert log.end_offset == end
        assert [m.offset for m in stored(log, 0, 6)] == [3]

    run(scenario)


@given(
    st.integers(1, 10_000), st.integers(0, 20_000), st.lists(st.text(max_size=9), min_size=20, max_size=20, unique=True)
)
def test_jitter_shortens_the_life_of_each_segment_by_its_own_share(age: int, jitter: int, paths: list[str]) -> None:
    config = LogConfig(segment_ms=age, segment_jitter_ms=jitter)
    lives = [config.lifetime_ms(path) for path in paths]
    assert lives == [config.lifetime_ms(path) for path in paths]
    assert all(max(1, age - jitter) <= life <= age for life in lives)
    assert min(age, jitter) < 1000 or len(set(lives)) > 1


def test_a_segment_is_rolled_when_its_own_life_is_over() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_ms=60_000, segment_jitter_ms=50_000)
        life = log.config.lifetime_ms(log.active.path)
        assert 10_000 < life < 60_000
        fill(log, 1)
        bench.now += life / 1000 - 0.001
        fill(log, 1)
        assert log.segment_offsets == (0,)
        bench.now += 0.002
        fill(log, 1)
        assert log.segment_offsets == (0, 2)

    run(scenario)


def test_segments_roll_by_size_by_age_and_when_their_index_is_full() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=3 * ENTRY)
        fill(log, 7)
        assert log.segment_offsets == (0, 3, 6)
        log.reset(0)
        await log.close()
        log = await bench.open(segment_ms=60_000)
        fill(log, 2)
        bench.now += 59
        fill(log, 1)
        bench.now += 1
        fill(log, 1)
        bench.now -= 3600
        fill(log, 1)
        assert log.segment_offsets == (0, 3), "a clock that went back rolls nothing"
        log.reset(0)
        await log.close()
        log = await bench.open(index_max_bytes=16, index_interval_bytes=1)
        fill(log, 8)
        assert log.segment_offsets == (0, 3, 6)

    run(scenario)


def test_a_cut_log_takes_no_append_before_it_is_flushed() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        fill(log, 4)
        log.truncate_to(4)
        fill(log, 1)
        log.truncate_to(2)
        assert (log.end_offset, log.flushed_offset) == (2, 0)
        with pytest.raises(UnflushedTruncation):
            fill(log, 1)
        assert await log.flush() == 2
        fill(log, 1)
        assert values(log.read(0, 1000).read()) == [b"0", b"1", b"2"]

    run(scenario)


@pytest.mark.parametrize(("interval", "keep"), [(0, 7), (4096, 7), (4096, 8)])
def test_a_cut_removes_no_record_that_a_damaged_offset_seems_to_put_behind_it(interval: int, keep: int) -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(index_interval_bytes=interval)
        fill(log, 10)
        await log.flush()
        path = log.active.path
        content = bytearray(bench.disk.read(path))
        content[6 * ENTRY + 7] ^= 8  # offset 6 becomes 14
        bench.disk.write(path, bytes(content))
        with pytest.raises(CorruptLog):
            log.truncate_to(keep)
        assert log.damage is not None
        assert bench.disk.read(path) == content

    run(scenario)


@pytest.mark.parametrize("gone", [False, True], ids=["closed", "deleted"])
def test_nothing_is_noted_for_the_cut_of_a_log_that_was_closed(gone: bool) -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(compacted=True, segment_bytes=2 * ENTRY)
        fill(log, 5)
        await (log.delete() if gone else log.close())
        left = bench.disk.snapshot()
        await log.prepare_truncation(3)
        assert bench.disk.snapshot() == left

    run(scenario)


@pytest.mark.parametrize("recent", [2, 256], ids=["by index", "by recent appends"])
def test_every_offset_is_found_however_often_a_segment_was_cut_and_written_again(recent: int) -> None:
    async def scenario(bench: Bench) -> None:
        random = Random(11)
        log = await bench.open(index_interval_bytes=90)
        kept: list[bytes | None] = []
        for _ in range(300):
            batch = [b"%d" % random.randrange(1000) + bytes(random.randrange(60)) for _ in range(random.randint(1, 3))]
            log.append(validated(message_set.build([(None, value, 5) for value in batch])))
            kept += batch
            if random.random() < 0.15:
                del kept[random.randint(len(kept) // 2, len(kept)) :]
                log.truncate_to(len(kept))
                await log.flush()
                for offset, value in enumerate(kept):
                    assert [(m.offset, m.value) for m in stored(log, offset, offset + 1)] == [(offset, value)]

    with mock.patch.object(segment, "RECENT_APPENDS", recent):
        run(scenario)


def test_any_flipped_bit_of_an_index_is_noticed_whatever_is_read_first() -> None:
    async def scenario(bench: Bench) -> None:
        for compacted in (False, True):
            shape: dict[str, Any] = {"index_interval_bytes": 2 * ENTRY, "compacted": compacted}
            bench.disk = SimDisk(Random(3))
            bench.disk.make_folder("data")
            log = await bench.open(**shape)
            fill(log, 12)
            await log.close()
            path = f"{DIRECTORY}/{0:020d}.index"
            stored = bench.disk.read(path)
            assert len(stored) == 3 * 8
            for bit in range(8 * len(stored)):
                for offset in range(12):
                    damaged = bytearray(stored)
                    damaged[bit // 8] ^= 1 << bit % 8
                    bench.disk.write(path, bytes(damaged))
                    log = await bench.open(clean=True, recovery_point=12, **shape)
                    assert values(log.read(offset, 1).read()) == [b"%d" % (offset % 10)]

    run(scenario)


@pytest.mark.long
def test_any_flipped_bit_of_an_index_by_time_is_noticed_whatever_is_looked_up_first() -> None:
    """After a clean stop, when it is believed. Unnoticed, retention would take a segment too early, or never."""
    stamps = [10, 20, 15, 15, 20, 30, 20, 40, 40, 50, 10, 60]

    async def scenario(bench: Bench) -> None:
        log = await bench.open(index_interval_bytes=1)
        for stamp in stamps:
            log.append(validated(message_set.build([(None, b"v", stamp)])))
        await log.close()
        path = f"{DIRECTORY}/{0:020d}.timeindex"
        stored = bench.disk.read(path)
        assert len(stored) > 3 * 12
        for bit in range(8 * len(stored)):
            damaged = bytearray(stored)
            damaged[bit // 8] ^= 1 << bit % 8
            for wanted in range(5, 65, 5):
                bench.disk.write(path, bytes(damaged))
                log = await bench.open(clean=True, recovery_point=12, index_interval_bytes=1)
                found = ((stamp, offset) for offset, stamp in enumerate(stamps) if stamp >= wanted)
                assert log.find_offset_for_time(wanted) == next(found, None)
                assert log.segments[0].times.newest() == 60

    run(scenario)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_has_lost_its_end_is_completed(suffix: str) -> None:
    """Also after a second clean stop. Retention would take an old segment with fresh records in its last messages."""
    stamps = [10, 20, 15, 15, 20, 30, 20, 40, 40, 50, 10, 60]

    async def scenario(bench: Bench) -> None:
        log = await bench.open(index_interval_bytes=1)
        for stamp in stamps:
            log.append(validated(message_set.build([(None, b"v", stamp)])))
        await log.close()
        path = f"{DIRECTORY}/{0:020d}.{suffix}"
        stored = bench.disk.read(path)
        for size in range(len(stored)):
            for wanted in range(5, 65, 5):
                bench.disk.write(path, stored[:size])
                log = await bench.open(clean=True, recovery_point=12, index_interval_bytes=1)
                found = ((stamp, offset) for offset, stamp in enumerate(stamps) if stamp >= wanted)
                assert log.find_offset_for_time(wanted) == next(found, None)
                await log.close()
                log = await bench.open(clean=True, recovery_point=12, index_interval_bytes=1)
                assert log.segments[0].times.newest() == 60
                await log.close()
                assert bench.disk.read(path) == stored

    run(scenario)


@pytest.mark.parametrize("entries", range(4))
def test_retention_spares_fresh_records_that_the_index_by_time_has_lost(entries: int) -> None:
    async def scenario(bench: Bench) -> None:
        shape: dict[str, Any] = {"segment_bytes": 4 * ENTRY, "index_interval_bytes": 1}
        log = await bench.open(**shape)
        now = int(bench.now * 1000)
        for age in (900, 800, 700, 1, 1):
            fill(log, 1, now - age)
        await log.close()
        path = f"{DIRECTORY}/{0:020d}.timeindex"
        assert len(bench.disk.read(path)) == 4 * 12
        bench.disk.write(path, bench.disk.read(path)[: entries * 12])
        log = await bench.open(clean=True, recovery_point=5, **shape)
        assert await remove_expired_segments(log, lambda: 5, retention_ms=500, retention_bytes=-1) == 0
        assert log.start_offset == 0

    run(scenario)


def test_a_flush_does_not_count_what_came_after_it_began() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        bench.delay = 0.01
        fill(log, 3)
        pending = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0.001)
        fill(log, 2)
        assert (await pending, log.flushed_offset, log.end_offset) == (3, 3, 5)

    run(scenario)


def test_a_flush_does_not_count_what_was_cut_and_written_again_meanwhile() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=3 * ENTRY)
        bench.delay = 0.01
        fill(log, 8)
        first = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0.001)
        log.truncate_to(2)
        second = asyncio.ensure_future(log.flush())
        assert await first == 2
        with pytest.raises(UnflushedTruncation):
            fill(log, 1)
        assert await second == 2
        fill(log, 1)
        assert log.flushed_offset == 2
        assert await log.flush() == 3

        fill(log, 3)
        third = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0.001)
        log.reset(100)
        assert await third == 0, "until its own flush"
        assert await log.flush() == log.flushed_offset == log.end_offset == 100

    run(scenario)


@pytest.mark.parametrize("asked", [[], [0], [1], [0, 1], [3]], ids=str)
@pytest.mark.parametrize("interval", [1, 2 * ENTRY, 5 * ENTRY, 4096])
def test_look_ups_are_right_in_every_life_whatever_the_last_one_read(interval: int, asked: list[int]) -> None:
    """After a kill, segments below the recovery point are believed unread, and what is asked fills their indexes."""
    times = [30, 10, 40, 20, 50, 5, 60, 55, 70, 80, 65, 90, 15]

    async def scenario(bench: Bench) -> None:
        shape = {"segment_bytes": 4 * ENTRY, "index_interval_bytes": interval}
        log = await bench.open(**shape)
        for number, time in enumerate(times):
            fill(log, 1, time)
            assert log.end_offset == number + 1
        await log.flush()
        log = await bench.open(recovery_point=len(times), **shape)
        for index in asked:
            log.segments[index].times.newest()
        for clean in (True, True, False, True):
            await log.close()
            log = await bench.open(clean=clean, recovery_point=len(times), **shape)
            for wanted in range(0, 100, 5):
                first = next(((time, at) for at, time in enumerate(times) if time >= wanted), None)
                assert log.find_offset_for_time(wanted) == first

    run(scenario)


@pytest.mark.parametrize("start", [0, 5, 100])
def test_a_power_loss_between_a_reset_and_its_flush_is_no_damage(start: int) -> None:
    """Any prefix of the old log may be left, or none of it; the checkpoint may be written at that moment."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=3 * ENTRY)
        left = set()
        for _ in range(40):
            fill(log, 10)
            await log.flush()
            log.reset(start)
            recovery_point = log.flushed_offset
            bench.disk.cut_power()
            log = await bench.open(segment_bytes=3 * ENTRY, recovery_point=recovery_point)
            assert log.damage is None
            left.add(log.end_offset - log.start_offset)
        assert len(left) > 2, "the power went at different moments"

    run(scenario)


def test_what_retention_takes_counts_as_flushed_once_the_new_start_is_durable() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=3 * ENTRY)
        bench.delay = 0.01
        fill(log, 8)
        pending = asyncio.ensure_future(remove_expired_segments(log, lambda: 8, retention_ms=-1, retention_bytes=0))
        await asyncio.sleep(0.001)
        assert (log.start_offset, log.flushed_offset) == (3, 0)
        await pending
        assert log.flushed_offset >= 3

        fill(log, 8)
        pending = asyncio.ensure_future(remove_expired_segments(log, lambda: 16, retention_ms=-1, retention_bytes=0))
        await asyncio.sleep(0.001)
        log.reset(100)
        await pending
        assert log.flushed_offset == 0, "its flush is still to come"

    run(scenario)


def test_concurrent_flushes_share_an_fsync() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await log.flush()
        fsyncs = 0

        def count() -> float:
            nonlocal fsyncs
            fsyncs += 1
            return 0.001

        storage = bench.disk.storage(fsync_delay=count)
        shared, _ = await Log.open(
            storage, "data/x-0", LogConfig(), clean=True, recovery_point=0, wall_clock=lambda: 0.0
        )
        await shared.flush()
        fsyncs = 0
        fill(shared, 1)
        flushes = [asyncio.ensure_future(shared.flush())]
        await asyncio.sleep(0)
        for _ in range(5):
            fill(shared, 1)
            flushes.append(asyncio.ensure_future(shared.flush()))
        assert [await flush for flush in flushes][1:] == [6] * 5
        assert fsyncs == 2

    run(scenario)


def test_a_slice_that_was_cut_is_never_sent() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        fill(log, 4)
        found = log.read(0, 1000)
        fill(log, 1)
        assert values(found.read()) == [b"0", b"1", b"2", b"3"]
        log.truncate_to(2)
        await log.flush()
        log.append(validated(message_set.build([(None, b"x", 5), (None, b"y", 5)])))
        with pytest.raises(OSError, match="removed from the log"):
            found.read()
        found = log.read(0, 1000)
        await log.close()
        with pytest.raises(OSError, match="removed from the log"):
            found.read()

    run(scenario)


def test_an_append_that_fails_leaves_the_log_as_it_was() -> None:
    async def scenario(bench: Bench) -> None:
        full = False

        def check() -> None:
            if full:
                raise OSError(28, "No space left on device")

        log, _ = await Log.open(
            bench.disk.storage(check, lambda: 0),
            DIRECTORY,
            LogConfig(index_interval_bytes=1),
            clean=True,
            recovery_point=0,
            wall_clock=lambda: 0.0,
        )
        fill(log, 3)
        full = True
        with pytest.raises(OSError, match="No space"):
            fill(log, 1)
        full = False
        assert log.end_offset == 3
        fill(log, 3)
        assert values(log.read(0, 1000).read()) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    run(scenario)


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_a_roll_that_fails_half_way_costs_no_record_that_is_flushed(preallocate: bool, seed: int | None) -> None:
    """A small set may still fit into the segment before a roll. ``seed``: of a power loss."""

    async def scenario(bench: Bench) -> None:
        instant, left, struck = 0, 0, True
        while struck:
            bench.disk, left = SimDisk(Random(seed)), 1 << 30

            def check() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise OSError(errno.EIO, "the device fails")

            storage = bench.disk.storage(check, lambda: 0)
            config = LogConfig(segment_bytes=5 * ENTRY, preallocate=preallocate, index_interval_bytes=1)
            await make_root(storage, "data")
            log, _ = await Log.open(
                storage, DIRECTORY, config, clean=False, recovery_point=0, wall_clock=lambda: bench.now
            )
            fill(log, 4)
            await log.flush()
            left, after = instant + 1, 2
            for count in (2, 1, 3, 1, 3, 2):
                with contextlib.suppress(OSError):
                    log.append(validated(message_set.build([(None, b"%d" % n, 5) for n in range(count)])))
                after -= left <= 0
                if after < 0:
                    break
            struck, left = left <= 0, 0
            await log.flush()
            kept = stored(log, 0, log.end_offset)
            assert len(kept) == log.flushed_offset == log.end_offset
            names = [path.rpartition("/")[2] for path in bench.disk.files() if path.endswith(".log")]
            assert names == [f"{base:020d}.log" for base in log.segment_offsets]
            if seed is not None:
                bench.disk.cut_power()
            again = await bench.open(segment_bytes=5 * ENTRY)
            assert stored(again, 0, again.end_offset) == kept, f"failed at operation {instant}"
            instant += 1
        assert instant > 20

    run(scenario)


def test_offsets_by_time() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        for timestamp in (10, 30, 20, 50, 40):
            fill(log, 1, timestamp)
            bench.now += 1
        for _ in range(2):
            assert log.find_offset_for_time(0) == (10, 0)
            assert log.find_offset_for_time(11) == log.find_offset_for_time(30) == (30, 1)
            assert log.find_offset_for_time(31) == (50, 3)
            assert log.find_offset_for_time(51) is None
            await log.close()
            log = await bench.open(clean=True, recovery_point=5, segment_bytes=2 * ENTRY)
        log.truncate_to(3)
        assert log.find_offset_for_time(31) is None

    run(scenario)


def test_offsets_before_a_time_are_where_segments_begin() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        assert log.find_offsets_before(LATEST, 5) == log.find_offsets_before(EARLIEST, 5) == [0]
        for _ in range(5):
            fill(log, 1)
            bench.now += 1
        assert log.find_offsets_before(LATEST, 5) == [5, 4, 2, 0]
        assert log.find_offsets_before(LATEST, 1) == [5]
        assert log.find_offsets_before(EARLIEST, 5) == [0]
        assert log.find_offsets_before(1_001_000, 5) == [0]
        assert log.find_offsets_before(1_003_000, 5) == [2, 0]
        assert log.find_offsets_before(999_999, 5) == []
        assert log.find_offsets_before(2_000_000, 5) == [5, 4, 2, 0]

    run(scenario)


def test_a_log_shorter_than_its_recovery_point_is_damaged_and_takes_nothing_until_it_is_reset() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        fill(log, 6)
        await log.close()
        path = bench.disk.files()[1]
        bench.disk.write(path, bench.disk.read(path)[: 4 * ENTRY + 3])
        kept = bench.disk.read(path)
        log = await bench.open(recovery_point=6)
        assert log.damage is not None
        assert "not all there" in log.damage
        assert values(log.read(0, 1000).read()) == [b"0", b"1", b"2", b"3"]
        with pytest.raises(DamagedLog, match="not all there"):
            fill(log, 1)
        with pytest.raises(DamagedLog, match="not all there"):
            log.truncate_to(2)
        await log.close()
        assert bench.disk.read(path) == kept, "every byte is kept"
        log = await bench.open(recovery_point=6)
        log.reset(4)
        await log.flush()
        fill(log, 1)
        assert log.damage is None
        log = await bench.open(recovery_point=5)
        assert (log.damage, log.start_offset, log.end_offset) == (None, 4, 5)

    run(scenario)


def test_damage_met_by_a_read_is_gone_once_the_log_has_started_over() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=3 * ENTRY, index_interval_bytes=1)
        fill(log, 9)
        await log.close()
        path = f"{DIRECTORY}/{3:020d}.log"
        content = bytearray(bench.disk.read(path))
        content[ENTRY + 20] ^= 1
        bench.disk.write(path, bytes(content))
        log = await bench.open(clean=True, recovery_point=9, segment_bytes=3 * ENTRY, index_interval_bytes=1)
        assert log.damage is None, "a clean start looks at each segment's last block only"
        with pytest.raises(CorruptLog, match="offset 4"):
            log.read(4, 1000)
        assert values(log.read(7, 1000).read()) == [b"7", b"8"]
        log.reset(20)
        assert (log.start_offset, log.end_offset, log.damage) == (20, 20, None)
        await log.flush()
        fill(log, 1)
        await log.close()

    run(scenario)


def test_a_deleted_log_never_leaves_a_part_of_itself_under_its_name() -> None:
    async def scenario() -> None:
        for seed in range(40):
            bench = Bench()
            bench.disk = SimDisk(Random(seed))
            budget = 10_000

            def check() -> None:
                nonlocal budget
                budget -= 1
                if budget < 0:
                    raise ProcessLookupError

            storage = bench.disk.storage(check, lambda: 0)
            log, _ = await Log.open(
                storage, "a-0", LogConfig(segment_bytes=50), clean=False, recovery_point=0, wall_clock=lambda: 0.0
            )
            fill(log, 4)
            await log.flush()
            before = bench.disk.files()
            budget = seed % 20
            with contextlib.suppress(ProcessLookupError):
                await log.delete()
            bench.disk.cut_power()
            left = [path for path in bench.disk.files() if path.startswith("a-0/") and path.endswith(".log")]
            assert left in ([], [path for path in before if path.endswith(".log")])

    asyncio.run(scenario())


def test_it_works_on_a_real_file_system(tmp_path: Any) -> None:
    async def scenario() -> None:
        for clean in (False, True, False):
            storage = LocalStorage(str(tmp_path))
            log, recovery = await Log.open(
                storage,
                "orders-0",
                LogConfig(segment_bytes=200),
                clean=clean,
                recovery_point=0,
                wall_clock=lambda: 0.0,
            )
            assert recovery.problem is None
            before = log.end_offset
            fill(log, 10)
            assert await log.flush() == before + 10
            log.truncate_to(before + 7)
            await log.close()
            assert recovery.end == before
        assert before == 14
        storage = LocalStorage(str(tmp_path))
        log, _ = await Log.open(storage, "orders-0", LogConfig(), clean=True, recovery_point=21, wall_clock=lambda: 0.0)
        assert [m.offset for m in stored(log, 0, 21)] == list(range(21))
        await log.delete()
        assert storage.listdir("") == []

    asyncio.run(scenario())


def test_a_search_by_time_reads_little_even_after_a_restart() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(index_interval_bytes=200)
        for number in range(1000):
            log.append(validated(message_set.build([(None, b"%d" % number, 10 * number)])))
        await log.close()
        log = await bench.open(clean=True, recovery_point=1000, index_interval_bytes=200)
        assert [log.find_offset_for_time(t) for t in (0, 4995, 9990, 9991)] == [(0, 0), (5000, 500), (9990, 999), None]
        original = segment.Segment._read_block
        with mock.patch.object(segment.Segment, "_read_block", autospec=True, side_effect=original) as read:
            assert log.find_offset_for_time(5005) == (5010, 501)
        assert read.call_count <= 6, "also to compare the entry with the messages"

    run(scenario)


def test_retention_goes_by_the_messages_own_time_from_the_oldest_segment_on() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        for minute in (0, 0, 9, 1, 2, 2, 15, 15):  # the second segment has a young message, and the third hides behind
            log.append(validated(message_set.build([(None, b"0", int(bench.now * 1000) + minute * 60_000)])))
        bench.now += 14 * 60
        assert await remove_expired_segments(log, lambda: 8, retention_ms=10 * 60_000, retention_bytes=-1) == 1
        assert (log.start_offset, log.segment_offsets) == (2, (2, 4, 6))
        bench.now += 6 * 60
        assert await remove_expired_segments(log, lambda: 8, retention_ms=10 * 60_000, retention_bytes=-1) == 2
        assert log.start_offset == 6
        bench.now += 60 * 60
        assert await remove_expired_segments(log, lambda: 8, retention_ms=10 * 60_000, retention_bytes=-1) == 1
        assert (log.start_offset, log.end_offset, log.segment_offsets) == (8, 8, (8,))
        fill(log, 1)
        assert values(log.read(8, 1000).read()) == [b"8"]

    run(scenario)


HOUR = 3_600_000


async def remove_after_an_hour(log: Log) -> int:
    return await remove_expired_segments(log, lambda: log.end_offset, retention_ms=HOUR, retention_bytes=-1)


@pytest.mark.parametrize("clean", [None, True, False])
@pytest.mark.parametrize("copied", [False, True])
def test_a_fresh_message_without_a_timestamp_is_kept_behind_an_old_stamped_one(
    copied: bool, clean: bool | None
) -> None:
    """Also in a follower, which gets all of them at once, and after a restart."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        old = int(bench.now * 1000) - 2 * HOUR
        data = message_set.build([(None, b"a", None), (None, b"b", old), (None, b"c", None)])
        log.append_replicated(data) if copied else log.append(validated(data))
        if clean is not None:
            await (log.close() if clean else log.flush())
            log = await bench.open(clean=clean, recovery_point=3)
        assert await remove_after_an_hour(log) == 0
        bench.now += 3500
        bench.uptime += 3500
        assert await remove_after_an_hour(log) == 0
        fill(log, 1, old)  # the last append counts, because the segment does not note each message's
        bench.now += 3500
        bench.uptime += 3500
        assert await remove_after_an_hour(log) == 0
        bench.now += 101
        bench.uptime += 101
        assert await remove_after_an_hour(log) == 1

    bench = Bench()
    bench.now = 1_700_000_000.0
    asyncio.run(scenario(bench))


def test_no_step_of_the_wall_clock_ages_messages_without_timestamps() -> None:
    async def scenario(bench: Bench) -> None:
        right, unstamped = 1_700_000_000.0, message_set.build([(None, b"a", None)])
        bench.now = 1.0  # a machine that starts without a clock
        log = await bench.open()
        log.append(validated(unstamped))
        bench.now = right
        assert await remove_after_an_hour(log) == 0
        bench.now = 1.0
        await log.close()
        log = await bench.open(clean=True, recovery_point=1)
        bench.now = right
        assert await remove_after_an_hour(log) == 0
        log.append(validated(unstamped))
        bench.now += 30 * 86400
        assert await remove_after_an_hour(log) == 0
        bench.now = right
        bench.uptime += 3601
        assert await remove_after_an_hour(log) >= 1
        assert log.start_offset == log.end_offset == 2

    run(scenario)


def test_retention_keeps_so_many_bytes_and_all_that_is_not_committed() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        fill(log, 10)
        assert await remove_expired_segments(log, lambda: 4, retention_ms=-1, retention_bytes=3 * ENTRY) == 2
        assert log.start_offset == 4
        assert await remove_expired_segments(log, lambda: 10, retention_ms=-1, retention_bytes=3 * ENTRY) == 1
        assert log.size == 4 * ENTRY
        assert await remove_expired_segments(log, lambda: 10, retention_ms=-1, retention_bytes=3 * ENTRY) == 0

    run(scenario)


def test_a_reader_of_a_retired_segment_goes_on_until_it_is_purged() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        fill(log, 5)
        slice_ = log.read(0, 1000)
        await remove_expired_segments(log, lambda: 5, retention_ms=-1, retention_bytes=0)
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 1000)
        assert values(slice_.read()) == [b"0", b"1"]
        log.purge_retired()
        with pytest.raises(SliceRemoved):
            slice_.read()
        assert not [path for path in bench.disk.files() if "deleted" in path]

    run(scenario)


def test_a_purge_takes_those_alone_whose_time_has_come() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        fill(log, 6)
        early, late = log.read(0, 1000), log.read(2, 1000)
        assert await remove_expired_segments(log, lambda: 2, retention_ms=-1, retention_bytes=0) == 1
        assert await remove_expired_segments(log, lambda: 4, retention_ms=-1, retention_bytes=0) == 1
        log.purge_retired(1)
        with pytest.raises(SliceRemoved):
            early.read()
        assert values(late.read()) == [b"2", b"3"]
        log.purge_retired()
        with pytest.raises(SliceRemoved):
            late.read()

    run(scenario)


def test_what_was_retired_is_cleared_away_at_the_next_opening() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=2 * ENTRY)
        fill(log, 5)
        await remove_expired_segments(log, lambda: 5, retention_ms=-1, retention_bytes=0)
        assert [path for path in bench.disk.files() if "deleted" in path]
        log = await bench.open(segment_bytes=2 * ENTRY)
        assert (log.start_offset, log.end_offset) == (5, 5), "an empty segment tells where the log starts"
        assert not [path for path in bench.disk.files() if "deleted" in path]

    run(scenario)
