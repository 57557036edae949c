"""Segments whose files are as large as they will grow: what is on the disk, and what a start makes of the zeros."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.preallocation import PREALLOCATED, strip_preallocated
from assay.system_under_test.log.recovery import RecoveryResult
from assay.system_under_test.records import message_set

from helpers.examples import some_of
from helpers.logs import stored
from helpers.producing import validated

SIZE = 300
RESERVED = LogConfig(segment_bytes=SIZE, index_interval_bytes=60, preallocate=True)
PLAIN = LogConfig(segment_bytes=SIZE, index_interval_bytes=60)
ONE = message_set.build([(None, b"v\0\0", 5)])
"""Ends in zeros."""
FIRST, SECOND = (f"t-0/{base:020d}.log" for base in (0, SIZE // len(ONE)))


async def reopen(
    disk: SimDisk, config: LogConfig = RESERVED, *, clean: bool = False, recovery_point: int | None = 0
) -> tuple[Log, RecoveryResult]:
    storage = disk.storage(fsync_delay=lambda: 0)
    return await Log.open(storage, "t-0", config, clean=clean, recovery_point=recovery_point, wall_clock=lambda: 0.0)


def sizes(disk: SimDisk) -> list[int]:
    return list(disk.sizes("t-0/*.log").values())


def test_a_segment_has_its_size_from_its_first_append_to_its_roll_or_a_close() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk)
        assert sizes(disk) == [0]
        log.append(validated(ONE))
        assert sizes(disk) == [SIZE]
        assert strip_preallocated(disk.read(FIRST)) == disk.read(FIRST)[: len(ONE)]
        while len(log.segment_offsets) == 1:
            log.append(validated(ONE))
        full = SIZE // len(ONE) * len(ONE)
        assert sizes(disk) == [full, SIZE]
        assert log.size == full + len(ONE), "what is preallocated counts for nothing"
        await log.close()
        assert sizes(disk) == [full, len(ONE)]
        log, recovery = await reopen(disk, clean=True, recovery_point=log.end_offset)
        assert (recovery.problem, recovery.truncated_bytes) == (None, 0)
        log.append(validated(ONE))
        assert sizes(disk) == [full, 2 * len(ONE)], "as in Kafka, what was there before stays as it is"
        await log.close()

    asyncio.run(scenario())


def test_a_log_without_the_setting_takes_up_what_it_holds() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk, PLAIN)
        log.append(validated(ONE))
        assert sizes(disk) == [len(ONE)]
        await log.configure(RESERVED)
        log.append(validated(ONE))
        assert sizes(disk) == [2 * len(ONE)]
        while len(log.segment_offsets) == 1:
            log.append(validated(ONE))
        assert sizes(disk)[-1] == SIZE, "from the next segment on"
        await log.configure(PLAIN)
        assert sizes(disk)[-1] == len(ONE), "and switched off, at once"

    asyncio.run(scenario())


def test_cuts_and_resets_leave_nothing_that_is_not_written() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk)
        for _ in range(3):
            log.append(validated(ONE))
        log.truncate_to(2)
        assert sizes(disk) == [2 * len(ONE)]
        log.reset(7)
        assert sizes(disk) == [0]
        await log.flush()
        log.append(validated(ONE))
        assert sizes(disk) == [SIZE]

    asyncio.run(scenario())


def test_an_append_for_which_the_disk_has_no_room_changes_nothing() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk, LogConfig(segment_bytes=SIZE, preallocate=True))  # its index stays empty
        disk.capacity = disk.used + SIZE - 1
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                log.append(validated(ONE))
            assert (log.end_offset, sizes(disk)) == (0, [0])
        disk.capacity += 1
        for _ in range(SIZE // len(ONE)):
            log.append(validated(ONE))  # after the first one the disk is full
        with pytest.raises(OSError, match="No space left"):
            log.append(validated(ONE))
        assert log.end_offset == SIZE // len(ONE)

    asyncio.run(scenario())


@pytest.mark.parametrize("recovery_point", [0, 2, None])
@pytest.mark.parametrize("config", [RESERVED, PLAIN], ids=["as it was", "the setting is not known yet"])
def test_zeros_that_a_killed_process_leaves_are_the_end_and_nothing_wrong(
    recovery_point: int | None, config: LogConfig
) -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk)
        for _ in range(2):
            log.append(validated(ONE))
        assert sizes(disk) == [SIZE]
        log, recovery = await reopen(disk, config, recovery_point=recovery_point)
        assert recovery == RecoveryResult(end=2, truncated_bytes=0, damaged=False, problem=None)
        assert sizes(disk) == [2 * len(ONE)]
        assert [message.value for message in stored(log, 0, 2)] == [b"v\0\0"] * 2

    asyncio.run(scenario())


def test_the_same_zeros_are_damage_where_nothing_was_ever_preallocated_and_no_one_knows_what_was_durable() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk, PLAIN)
        for _ in range(2):
            log.append(validated(ONE))
        await log.flush()
        disk.write(FIRST, disk.read(FIRST).ljust(SIZE, b"\0"))
        _, recovery = await reopen(disk, PLAIN, recovery_point=None)
        assert recovery.damaged
        assert sizes(disk) == [SIZE]
        _, recovery = await reopen(disk, PLAIN, recovery_point=2)
        assert not recovery.damaged
        assert recovery.truncated_bytes == SIZE - 2 * len(ONE)

    asyncio.run(scenario())


def test_anything_but_zeros_behind_the_last_message_is_still_wrong() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk)
        log.append(validated(ONE))
        content = bytearray(disk.read(FIRST))
        content[-1] = 1
        disk.write(FIRST, bytes(content))
        _, recovery = await reopen(disk, recovery_point=None)
        assert recovery.damaged
        disk.write(FIRST, bytes(content))
        _, recovery = await reopen(disk, recovery_point=0)
        assert (recovery.end, recovery.damaged, recovery.truncated_bytes) == (1, False, SIZE - len(ONE))

    asyncio.run(scenario())


def test_zeros_that_came_back_in_a_segment_which_is_not_the_last_hide_nothing() -> None:
    """It was rolled, and the power was lost before what was given back was on the disk."""

    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk)
        for _ in range(SIZE // len(ONE) + 2):
            log.append(validated(ONE))
        await log.flush()
        end = log.end_offset
        disk.write(FIRST, disk.read(FIRST).ljust(SIZE, b"\0"))
        for point in (0, log.segment_offsets[1], end, None):
            _, recovery = await reopen(disk, recovery_point=point)
            assert recovery == RecoveryResult(end, truncated_bytes=0, damaged=False, problem=None)
        assert sizes(disk)[0] == SIZE // len(ONE) * len(ONE)

    asyncio.run(scenario())


@settings(max_examples=some_of(150), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=14),
    st.sampled_from(["kill", "power"]),
    st.booleans(),
    st.sampled_from([RESERVED, PLAIN]),
)
def test_a_start_finds_all_that_was_fsynced_whatever_zeros_are_left(
    seed: int, appends: list[tuple[int, bool]], crash: str, noted: bool, config: LogConfig
) -> None:
    """Values are of zeros, too. ``noted``: the recovery point is known."""

    async def scenario() -> None:
        disk = SimDisk(Random(seed))
        log, _ = await reopen(disk)
        values = [bytes(size) for size, _ in appends]
        for value, (_, flushed) in zip(values, appends, strict=True):
            log.append(validated(message_set.build([(None, value, 5)])))
            if flushed:
                await log.flush()
        durable = log.flushed_offset
        if crash == "power":
            disk.cut_power()
        log, recovery = await reopen(disk, config, recovery_point=durable if noted else 0)
        assert not recovery.damaged
        assert durable <= log.end_offset <= len(values)
        assert crash == "power" or (log.end_offset, recovery.problem) == (len(values), None)
        assert [message.value for message in stored(log, 0, log.end_offset)] == values[: log.end_offset]
        assert sum(sizes(disk)) == log.size, "nothing is left behind the last message"
        log.append(validated(ONE))
        await log.close()
        log, recovery = await reopen(disk, config, clean=True, recovery_point=log.end_offset)
        assert (recovery.problem, log.end_offset) == (None, recovery.end)

    asyncio.run(scenario())


def test_the_note_is_durable_before_the_first_file_is_preallocated_and_not_written_into_a_folder_that_goes() -> None:
    async def scenario() -> None:
        disk = SimDisk(Random(1))
        log, _ = await reopen(disk, PLAIN)
        assert f"t-0/{PREALLOCATED}" not in disk.files()
        await log.configure(RESERVED)
        disk.cut_power()
        assert f"t-0/{PREALLOCATED}" in disk.files()
        other = SimDisk(Random(1))
        log, _ = await reopen(other, PLAIN)
        await log.close_notes()
        await log.configure(RESERVED)
        assert f"t-0/{PREALLOCATED}" not in other.files()

    asyncio.run(scenario())
