"""Tests what a restart makes of the files that it finds."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.log.index import OFFSET_ENTRY
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.recovery import RecoveryResult
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP
from assay.system_under_test.records.wrapper import wrap

from helpers.examples import some_of
from helpers.logs import stored
from helpers.producing import validated

CONFIG = LogConfig(segment_bytes=200, index_interval_bytes=60)
ONE = message_set.build([(None, b"v", 5)])
FIRST, SECOND = (f"t-0/{base:020d}" for base in (0, 5))


async def reopen(
    disk: SimDisk, *, clean: bool = False, recovery_point: int = 0, config: LogConfig = CONFIG
) -> tuple[Log, RecoveryResult]:
    return await Log.open(
        disk.storage(fsync_delay=lambda: 0),
        "t-0",
        config,
        clean=clean,
        recovery_point=recovery_point,
        wall_clock=lambda: 0.0,
    )


async def twelve_messages() -> SimDisk:
    """Segments 0-4, 5-9, 10-11, cleanly closed."""
    disk = SimDisk(Random(1))
    log, _ = await reopen(disk)
    for _ in range(12):
        log.append(validated(ONE))
    assert log.segment_offsets == (0, 5, 10)
    await log.close()
    return disk


@pytest.mark.parametrize("clean", [True, False])
def test_missing_and_mangled_indexes_are_made_again(clean: bool) -> None:
    async def scenario() -> None:
        disk = await twelve_messages()
        disk.remove(FIRST + ".index")
        disk.write(SECOND + ".index", b"\xff" * 13)
        disk.write(f"t-0/{77:020d}.index", b"orphan")
        log, recovery = await reopen(disk, clean=clean, recovery_point=12)
        assert (recovery.damaged, recovery.problem) == (False, None)
        assert [m.offset for m in stored(log, 0, 12)] == list(range(12))
        assert log.read(12, 1).size == 0
        await log.close()
        for path in (FIRST, SECOND):
            segment = {position: offset for position, _, offset in message_set.scan(disk.read(path + ".log"))}
            base = min(segment.values())
            entries = list(OFFSET_ENTRY.iter_unpack(disk.read(path + ".index")))
            assert len(entries) >= 2
            assert all(segment[position] == base + offset for offset, position in entries)
        assert f"t-0/{77:020d}.index" not in disk.files()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 8, 12])
def test_an_empty_segment_in_the_middle_of_another_is_what_a_failing_disk_left_of_a_roll(
    clean: bool, recovery_point: int
) -> None:
    async def scenario() -> None:
        disk = await twelve_messages()
        disk.write(f"t-0/{7:020d}.log", b"")
        log, recovery = await reopen(disk, clean=clean, recovery_point=recovery_point)
        assert recovery == RecoveryResult(12, 0, damaged=False, problem=None)
        assert log.segment_offsets == (0, 5, 10)
        assert [m.offset for m in stored(log, 0, 12)] == list(range(12))
        assert f"t-0/{7:020d}.log" not in disk.files()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 8, 12])
@pytest.mark.parametrize("base", [3, 7])
def test_a_foreign_file_in_the_middle_of_a_segment_costs_no_message(
    clean: bool, recovery_point: int, base: int
) -> None:
    async def scenario() -> None:
        disk = await twelve_messages()
        disk.write(f"t-0/{base:020d}.log", b"hello")
        log, recovery = await reopen(disk, clean=clean, recovery_point=recovery_point)
        assert recovery == RecoveryResult(12, len(b"hello"), damaged=False, problem=None)
        assert log.segment_offsets == (0, 5, 10)
        assert [m.offset for m in stored(log, 0, 12)] == list(range(12))

    asyncio.run(scenario())


def test_the_report_tells_what_was_cut() -> None:
    async def scenario() -> None:
        disk = await twelve_messages()
        content = bytearray(disk.read(SECOND + ".log"))
        content[2 * len(ONE) + 20] ^= 1
        disk.write(SECOND + ".log", bytes(content))
        log, recovery = await reopen(disk, recovery_point=5)
        assert recovery.end == 7
        assert recovery.truncated_bytes == 5 * len(ONE)
        assert not recovery.damaged
        assert recovery.problem is not None
        assert "CRC" in recovery.problem
        assert SECOND in recovery.problem
        assert log.segment_offsets == (0, 5)
        log, recovery = await reopen(disk, recovery_point=7)
        assert (recovery.problem, recovery.truncated_bytes) == (None, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False])
def test_an_offset_that_no_index_of_the_segment_could_hold_is_damage(clean: bool) -> None:
    async def scenario() -> None:
        compacted = LogConfig(compacted=True, index_interval_bytes=60)
        for bit in range(64):
            disk = SimDisk(Random(1))
            log, _ = await reopen(disk, config=compacted)
            for _ in range(4):
                log.append(validated(ONE))
            await log.close()
            content = bytearray(disk.read(FIRST + ".log"))
            content[3 * len(ONE) + 7 - bit // 8] ^= 1 << bit % 8
            disk.write(FIRST + ".log", bytes(content))
            log, recovery = await reopen(disk, clean=clean, config=compacted)
            fits = 3 ^ 1 << bit in range(3, 1 << 32)
            assert (log.end_offset, recovery.problem is None) == ((3 ^ 1 << bit) + 1 if fits else 3, fits)
            await log.close()

    asyncio.run(scenario())


def flip(disk: SimDisk, path: str, position: int, bit: int) -> None:
    content = bytearray(disk.read(path))
    content[position] ^= 1 << bit
    disk.write(path, bytes(content))


def log_files(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.read(path) for path in disk.files() if path.endswith(".log")}


def compacted(segment_bytes: int) -> LogConfig:
    return LogConfig(compacted=True, segment_bytes=segment_bytes, index_interval_bytes=60)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("index_is_lost", [True, False])
@pytest.mark.parametrize("number", [0, 20, 50, 58, 59])
@pytest.mark.parametrize("segment_bytes", [10 * len(ONE), 1000 * len(ONE)])
def test_an_offset_that_a_flipped_bit_has_raised_above_the_recovery_point_costs_no_fsynced_record(
    clean: bool, index_is_lost: bool, number: int, segment_bytes: int
) -> None:
    async def scenario() -> None:
        disk, config = SimDisk(Random(1)), compacted(segment_bytes)
        log, _ = await reopen(disk, config=config)
        for _ in range(60):
            log.append(validated(ONE))
        base = max(base for base in log.segment_offsets if base <= number)
        await log.close()
        flip(disk, f"t-0/{base:020d}.log", (number - base) * len(ONE) + 5, 4)
        if index_is_lost:
            disk.remove(f"t-0/{base:020d}.index")
        before = log_files(disk)
        log, recovery = await reopen(disk, clean=clean, recovery_point=60, config=config)
        if number == 59 and not clean:
            assert log.end_offset == (59 ^ 1 << 20) + 1, "nothing shows that this was not the log's end"
            return
        for offset in range(recovery.end):
            try:
                assert stored(log, offset, offset + 1)[0].offset == offset
            except CorruptLog:
                assert log.damage is not None
        assert log.damage is not None
        if recovery.damaged:
            assert recovery.end == number
        with pytest.raises(CorruptLog) if not recovery.damaged else nullcontext():
            stored(log, 0, recovery.end)
        await log.close()
        assert log_files(disk) == before

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [b"", b"hello", b"a file of another program"])
@pytest.mark.parametrize("base", [3, 77])
def test_a_file_without_entries_in_or_behind_a_compacted_log_is_no_damage(content: bytes, base: int) -> None:
    async def scenario() -> None:
        disk, config = SimDisk(Random(1)), compacted(5 * len(ONE))
        log, _ = await reopen(disk, config=config)
        for _ in range(12):
            log.append(validated(ONE))
        await log.close()
        disk.write(f"t-0/{base:020d}.log", content)
        log, recovery = await reopen(disk, clean=True, recovery_point=12, config=config)
        assert (recovery.end, recovery.truncated_bytes, recovery.damaged) == (12, len(content), False)
        assert log.segment_offsets == (0, 5, 10)
        assert [m.offset for m in stored(log, 0, 12)] == list(range(12))

    asyncio.run(scenario())


def test_the_recovery_point_of_a_damaged_log_is_old_and_hides_no_record_after_a_clean_stop() -> None:
    async def scenario() -> None:
        disk, config = SimDisk(Random(1)), compacted(5 * len(ONE))
        log, _ = await reopen(disk, config=config)
        for _ in range(12):
            log.append(validated(ONE))
        log.mark_damaged(CorruptLog("t-0", 0, 11, "found by a read"))
        await log.note_damage()
        await log.close()
        log, recovery = await reopen(disk, clean=True, recovery_point=7, config=config)
        assert (recovery.end, recovery.truncated_bytes, recovery.damaged) == (12, 0, True)
        assert log.damage == str(CorruptLog("t-0", 0, 11, "found by a read"))

    asyncio.run(scenario())


@settings(max_examples=some_of(400), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans(), st.integers(0, 40)), min_size=1, max_size=25
    ),
    st.integers(100, 600),
    st.booleans(),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["offset", "log", "any"]),
)
def test_a_flipped_bit_in_a_compacted_log_costs_no_record_or_is_damage_that_keeps_every_byte(
    sets: list[tuple[int, int, bool, int]], segment_bytes: int, clean: bool, place: float, where: str
) -> None:
    async def scenario() -> None:
        disk, config = SimDisk(Random(1)), compacted(segment_bytes)
        log, _ = await reopen(disk, config=config)
        values: list[bytes | None] = []
        for skipped, count, compressed, size in sets:
            records: list[message_set.Record] = [
                (b"k", b"%d:" % (len(values) + number) + bytes(size), 5) for number in range(count)
            ]
            data = message_set.build(records, 1, log.end_offset + skipped)
            log.append_replicated(wrap(message_set.decode(data), GZIP) if compressed else data)
            values += [value for _, value, _ in records]
        end = log.end_offset
        await log.close()
        files = [path for path in disk.files() if disk.read(path) and (where == "any" or path.endswith(".log"))]
        content = {path: disk.read(path) for path in files}
        bits = [
            (path, position, bit)
            for path in files
            for position in range(len(content[path]))
            for bit in range(8)
            if where != "offset" or any(0 <= position - at < 8 for at, _, _ in message_set.scan(content[path]))
        ]
        flip(disk, *bits[int(place * len(bits))])
        before = log_files(disk)
        log, recovery = await reopen(disk, clean=clean, recovery_point=end, config=config)
        if clean:
            assert recovery.damaged or recovery.end == end
        with suppress(CorruptLog):
            served = [message.value for message in stored(log, log.start_offset, log.end_offset)]
            assert served == (values if log.damage is None else values[: len(served)])
        assert log.damage is not None or recovery.truncated_bytes == 0
        await log.close()
        assert log_files(disk) == before

    asyncio.run(scenario())


def test_damage_below_the_recovery_point_keeps_every_byte() -> None:
    async def scenario() -> None:
        disk = await twelve_messages()
        content = bytearray(disk.read(SECOND + ".log"))
        content[2 * len(ONE) + 20] ^= 1
        disk.write(SECOND + ".log", bytes(content))
        before = {path: disk.read(path) for path in disk.files() if path.endswith(".log")}
        log, recovery = await reopen(disk, recovery_point=8)
        assert recovery.damaged
        assert log.end_offset == 7
        await log.close()
        assert {path: disk.read(path) for path in disk.files() if path.endswith(".log")} == before

    asyncio.run(scenario())


def test_a_segment_that_is_gone_is_a_hole_and_nothing_behind_it_is_served() -> None:
    async def scenario() -> None:
        for recovery_point, damaged in ((12, True), (5, False)):
            disk = await twelve_messages()
            disk.remove(SECOND + ".log")
            log, recovery = await reopen(disk, clean=True, recovery_point=recovery_point)
            assert recovery.damaged == damaged
            assert log.end_offset == 5

    asyncio.run(scenario())


def test_what_a_killed_process_left_in_the_page_cache_is_durable_once_the_log_is_open() -> None:
    async def scenario() -> None:
        for seed in range(20):
            disk = SimDisk(Random(seed))
            log, _ = await reopen(disk)
            for _ in range(12):
                log.append(validated(ONE))
            log, _ = await reopen(disk)  # the first process was killed
            assert log.flushed_offset == 12
            disk.cut_power()
            _, recovery = await reopen(disk, recovery_point=12)
            assert (recovery.end, recovery.damaged) == (12, False)

    asyncio.run(scenario())


def test_a_cut_to_a_gap_that_a_killed_process_left_is_durable_once_the_log_is_open() -> None:
    """The recovery point is then the base of the empty segment behind the segment that was cut."""

    async def scenario() -> None:
        config = compacted(1000 * len(ONE))
        for seed in range(20):
            disk = SimDisk(Random(seed))
            log, _ = await reopen(disk, config=config)
            for offset in (3, 7, 8, 20, 31):
                log.append_replicated(message_set.build([(None, b"v", 5)], 1, offset))
            await log.flush()
            await log.prepare_truncation(15)
            log.truncate_to(15)
            log, recovery = await reopen(disk, recovery_point=15, config=config)  # the first process was killed
            assert (recovery.end, recovery.damaged) == (15, False)
            log.append(validated(ONE))
            await log.flush()
            disk.cut_power()
            log, recovery = await reopen(disk, recovery_point=16, config=config)
            assert (recovery.end, recovery.damaged) == (16, False)
            assert [m.offset for m in stored(log, 0, 16)] == [3, 7, 8, 15]

    asyncio.run(scenario())


def test_a_copy_of_the_last_record_behind_it_is_garbage_and_does_not_accuse_that_record() -> None:
    """Also if the record follows a gap, which a flipped bit in its offset could have made."""

    async def scenario() -> None:
        config, disk = compacted(1000 * len(ONE)), SimDisk(Random(1))
        log, _ = await reopen(disk, config=config)
        for offset in (3, 7, 20):
            log.append_replicated(message_set.build([(None, b"v", 5)], 1, offset))
        await log.flush()
        content = disk.read(FIRST + ".log")
        disk.write(FIRST + ".log", content + content[-len(ONE) :])
        log, recovery = await reopen(disk, recovery_point=21, config=config)
        assert (recovery.end, recovery.truncated_bytes, recovery.damaged) == (21, len(ONE), False)
        assert [m.offset for m in stored(log, 0, 21)] == [3, 7, 20]
        assert disk.read(FIRST + ".log") == content

    asyncio.run(scenario())


def test_a_long_scan_lets_others_run() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(0))
        big = LogConfig()
        storage = disk.storage(fsync_delay=lambda: 0)
        log, _ = await Log.open(storage, "t-0", big, clean=True, recovery_point=0, wall_clock=lambda: 0.0)
        for _ in range(40):
            log.append(validated(message_set.build([(None, bytes(100_000), 5)])))
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        scan = Log.open(storage, "t-0", big, clean=False, recovery_point=0, wall_clock=lambda: 0.0)
        _, recovery = await scan
        task.cancel()
        assert recovery.end == 40
        assert turns >= 3

    asyncio.run(scenario())
