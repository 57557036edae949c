"""Compaction, property by property; the laws under any sequence of events are in ``test_log_laws``."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk, SimFile, SimStorage
from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log import cleaner, swap
from assay.system_under_test.log.checkpoints import format_lines
from assay.system_under_test.log.cleaner import CleaningInterrupted, CleaningResult
from assay.system_under_test.log.compaction_note import COMPACTION_NOTE
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange, SwapUnfinished
from assay.system_under_test.log.files import format_segment_name
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.retention import remove_expired_segments
from assay.system_under_test.log.segment import SliceRemoved
from assay.system_under_test.log.swap import format_swap_name
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.wrapper import wrap

from helpers.logs import stored
from helpers.producing import validated

DIRECTORY = "orders-0"
ENTRY = len(message_set.build([(b"k", b"v", 5)]))
KEEP_MS = 60_000
TOPIC = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=KEEP_MS)

Stored = list[tuple[int, bytes | None, bytes | None]]


class Bench:
    """A disk, a clock, and a compacted log of segments of three messages."""

    def __init__(self) -> None:
        self.disk = SimDisk(Random(7))
        self.now = 1000.0
        self.clean_to = 0
        self.replaced: list[int] = []
        self.log: Log

    async def open(self, *, clean: bool = False, recovery_point: int = 0, **config: Any) -> Log:
        shape: dict[str, Any] = {"compacted": True, "segment_bytes": 3 * ENTRY, "index_interval_bytes": 1, **config}
        self.log, recovery = await Log.open(
            self.disk.storage(fsync_delay=lambda: 0),
            DIRECTORY,
            LogConfig(**shape),
            clean=clean,
            recovery_point=recovery_point,
            wall_clock=lambda: self.now,
        )
        assert not recovery.damaged, recovery.problem
        return self.log

    async def fill(self, *pairs: tuple[bytes | None, bytes | None]) -> None:
        for key, value in pairs:
            self.log.append(validated(message_set.build([(key, value, 5)])))
        await self.log.flush()

    async def clean(
        self, *, limit: int | None = None, max_keys: int = 100, topic: TopicConfig = TOPIC
    ) -> CleaningResult:
        """A pass, which must be due."""
        work = cleaner.plan_cleaning(self.log, self.clean_to, self.log.end_offset if limit is None else limit, topic)
        assert work is not None, "not due"
        done = await cleaner.clean(self.log, work, max_keys, self.replaced.append)
        assert await cleaner.note_cleaning(self.log, done)
        self.clean_to = done.end
        return done

    def is_due(self, topic: TopicConfig = TOPIC, limit: int | None = None) -> bool:
        return (
            cleaner.plan_cleaning(self.log, self.clean_to, self.log.end_offset if limit is None else limit, topic)
            is not None
        )

    def stored(self) -> Stored:
        found = stored(self.log, self.log.start_offset, self.log.end_offset)
        return [(m.offset, m.key, m.value) for m in found]

    def offsets(self) -> list[int]:
        return [offset for offset, _, _ in self.stored()]

    def files(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.disk.files() if ".log" in path]


def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Bench()))


def values(*text: str) -> list[tuple[bytes, bytes | None]]:
    """``a1``: value 1 for key a; ``a-``: none any more."""
    return [(one[:1].encode(), None if one[1:] == "-" else one[1:].encode()) for one in text]


def test_of_each_key_the_last_value_stays_at_its_offset_and_small_segments_become_one() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "b1", "c1", "a2", "b2", "d1", "a3", "e1", "f1", "a4"))
        assert log.segment_offsets == (0, 3, 6, 9)
        done = await bench.clean()
        kept = [(2, b"c", b"1"), (4, b"b", b"2"), (5, b"d", b"1"), (6, b"a", b"3"), (7, b"e", b"1"), (8, b"f", b"1")]
        assert bench.stored() == [*kept, (9, b"a", b"4")], "the last segment is never touched"
        assert (done.end, done.messages, done.size_before, done.size_after) == (9, 3, 9 * ENTRY, 6 * ENTRY)
        await bench.fill(*values("b3", "c2", "g1"))
        await bench.clean()
        assert bench.offsets() == [5, 7, 8, 9, 10, 11, 12]
        assert log.segment_offsets == (0, 6, 9, 12), "as they were, 2 and 3 and 3 messages do not fit into one"
        await bench.fill(*values("x1", "y1", "d2"))
        await bench.clean()
        assert log.segment_offsets == (0, 9, 12, 15), "now 1 and 2 do"
        for clean in (False, True):
            before = bench.stored()
            await log.close()
            log = await bench.open(clean=clean, recovery_point=log.end_offset)
            assert bench.stored() == before
            assert log.segment_offsets == (0, 9, 12, 15)

    run(scenario)


async def cleaned_with_gaps(bench: Bench) -> None:
    """Offset 2 is gone at the end of the first segment, and 4 in the middle of the second one."""
    await bench.open()
    await bench.fill(*values("a1", "b1", "c1", "d1", "e1", "c2", "e2", "f1", "g1", "h1"))
    await bench.clean()
    assert (bench.offsets(), bench.log.segment_offsets) == ([0, 1, 3, 5, 6, 7, 8, 9], (0, 3, 6, 9))
    await bench.log.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("base", "kept", "end"), [(0, 1, 1), (0, 0, 0), (3, 1, 4), (3, 0, 3), (6, 2, 8)])
def test_a_segment_that_has_lost_its_last_entries_damages_a_cleaned_log(
    clean: bool, base: int, kept: int, end: int
) -> None:
    """The hole would pass for a gap that compaction has left. All bytes are kept."""

    async def scenario(bench: Bench) -> None:
        await cleaned_with_gaps(bench)
        path = f"{DIRECTORY}/{format_segment_name(base)}.log"
        bench.disk.write(path, bench.disk.read(path)[: kept * ENTRY])
        before = {path: bench.disk.read(path) for path in bench.disk.files() if path.endswith(".log")}
        storage, config = bench.disk.storage(fsync_delay=lambda: 0), bench.log.config
        _, recovery = await Log.open(
            storage, DIRECTORY, config, clean=clean, recovery_point=10, wall_clock=lambda: bench.now
        )
        assert (recovery.damaged, recovery.end) == (True, end)
        assert recovery.problem is not None
        assert f"but {end} comes next" in recovery.problem
        assert {path: bench.disk.read(path) for path in before} == before

    run(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_gaps_that_an_earlier_version_has_left_are_noted_by_the_next_pass(clean: bool) -> None:
    async def scenario(bench: Bench) -> None:
        await cleaned_with_gaps(bench)
        path = f"{DIRECTORY}/{COMPACTION_NOTE}"
        lines = bench.disk.read(path).split(b"\n", 1)[1].decode().splitlines()
        assert lines[1:3] == ["gaps 9", "ends 3 2"]
        bench.disk.write(path, format_lines(["gaps 9"]))
        await bench.open(clean=clean, recovery_point=10)
        assert bench.offsets() == [0, 1, 3, 5, 6, 7, 8, 9]
        await bench.fill(*values("h2", "i1", "j1"))
        await bench.clean()
        assert b"\nends 3 2\n" in bench.disk.read(path)
        await bench.log.close()
        await bench.open(clean=clean, recovery_point=13)
        assert bench.offsets() == [0, 1, 3, 5, 6, 7, 8, 10, 11, 12]

    run(scenario)


def test_a_gap_that_was_noted_and_not_made_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed before it exchanges the first segment."""

    async def killed(*_: Any) -> bool:
        raise asyncio.CancelledError

    async def scenario(bench: Bench) -> None:
        await bench.open()
        await bench.fill(*values("a1", "b1", "c1", "d1", "e1", "c2", "e2", "f1", "g1", "h1"))
        monkeypatch.setattr(swap, "exchange_segments", killed)
        with pytest.raises(asyncio.CancelledError):
            await bench.clean()
        monkeypatch.undo()
        await bench.open(clean=False, recovery_point=10)
        assert bench.offsets() == [*range(10)]

    run(scenario)


def flip_bit(disk: SimDisk, base: int, position: int) -> None:
    """Flips the lowest bit of one byte of a segment, on the disk and not in memory."""
    path = f"{DIRECTORY}/{format_segment_name(base)}.log"
    content = bytearray(disk.read(path))
    content[position] ^= 1
    disk.write(path, bytes(content))


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize(
    "place",
    [ENTRY - 6, ENTRY - 1, 7, 2 * ENTRY + 7, 2 * ENTRY + 5],
    ids=["key", "value", "offset", "last offset, lower", "last offset, higher"],
)
def test_a_damaged_record_costs_no_other_record_and_damages_the_log(place: int, is_reopened: bool) -> None:
    """In the segment from offset 3. With its key flipped from ``c`` to ``b``, offset 3 would replace offset 1."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "b1", "a2", "c1", "d1", "e1", "c2", "f1", "g1", "a3"))
        if is_reopened:
            await log.close()
            log = await bench.open(clean=True, recovery_point=10)
            bench.offsets()  # a reader has had every block checked
        flip_bit(bench.disk, 3, place)
        before = {path: bench.disk.read(path) for path in bench.disk.files() if path.endswith(".log")}
        with pytest.raises(CorruptLog):
            await bench.clean()
        assert log.damage is not None
        assert not bench.is_due(), "no pass is due for a damaged log"
        first = f"{DIRECTORY}/{format_segment_name(0)}.log"
        after = {path: bench.disk.read(path) for path in bench.disk.files() if path.endswith(".log")}
        assert {path for path in before if after[path] != before[path]} <= {first}
        kept = [m.key for m in message_set.decode(after[first])]
        assert b"b" in kept, "nothing but the damaged record says that there is another"

    run(scenario)


def test_a_record_that_is_damaged_after_its_key_was_read_stops_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset has no CRC: at offset 2, the last value of ``c`` at offset 3 would look obsolete."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "b1", "a2", "c1", "d1", "e1", "a3"))
        allow_gaps = log.compaction_note.allow_gaps_below

        async def damage_and_allow_gaps(find_end: Callable[[], int]) -> None:
            flip_bit(bench.disk, 3, 7)
            await allow_gaps(find_end)

        monkeypatch.setattr(log.compaction_note, "allow_gaps_below", damage_and_allow_gaps)
        with pytest.raises(CorruptLog):
            await bench.clean()
        assert log.damage is not None
        assert b"c" in {m.key for m in message_set.decode(bench.disk.read(f"{DIRECTORY}/{format_segment_name(3)}.log"))}

    run(scenario)


def test_readers_find_their_way_over_the_gaps() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        for index in range(30):
            log.append(validated(message_set.build([(b"%d" % (index % 7 if index % 5 else 99), b"v", 100 + index)])))
        await log.flush()
        await bench.clean()
        for again in range(2):
            left = bench.offsets()
            assert len(left) < 12
            for offset in range(log.end_offset):
                expected = next(at for at in left if at >= offset)
                assert message_set.decode(log.read(offset, 1).read())[0].offset == expected
                assert log.find_offset_for_time(100 + offset) == (100 + expected, expected)
            assert log.read(30, 1).size == 0
            assert log.find_offset_for_time(130) is None
            if not again:
                log = await bench.open()

    run(scenario)


def test_nothing_is_touched_at_or_above_the_high_watermark_or_before_it_is_on_the_disk() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values(*["a1"] * 9))
        log.append(validated(message_set.build([(b"a", b"x", 5)])))
        assert not bench.is_due(limit=3), "a reader that has read all below 3 could not tell that it has"
        await bench.clean(limit=4)
        assert bench.offsets() == [2, 3, 4, 5, 6, 7, 8, 9]
        await bench.clean(limit=100)
        assert bench.offsets() == [5, 6, 7, 8, 9], "the message at 9 is not flushed"
        await log.flush()
        await bench.clean()
        assert bench.offsets() == [8, 9]

    run(scenario)


def test_it_waits_until_enough_is_dirty_and_spares_what_is_young() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.open()
        await bench.fill(*values("a1", "b1", "c1", "d1", "e1", "f1", "g1"))
        await bench.clean()
        assert not bench.is_due()
        await bench.fill(*values("h1", "i1", "j1"))
        half = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.5)
        third = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.33)
        assert not bench.is_due(half), "three of nine messages are new"
        assert bench.is_due(third)
        lag = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=999_996)
        assert not bench.is_due(lag)
        bench.now += 1
        assert bench.is_due(lag)

    run(scenario)


def test_a_tombstone_stays_for_its_time_after_it_was_first_cleaned_over() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "b1", "a-", "c1"))
        bench.now += 10 * KEEP_MS
        await bench.clean()
        assert bench.stored() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
        bench.now += KEEP_MS / 1000 - 1
        assert not bench.is_due()
        await bench.fill(*values("b-", "d1", "e1"))
        await bench.clean()
        assert bench.offsets() == [2, 3, 4, 5, 6]
        log = await bench.open(recovery_point=log.end_offset)
        bench.now += 1
        await bench.clean()
        assert bench.offsets() == [3, 4, 5, 6], "the other one was cleaned over 59 s later"
        assert not bench.is_due()
        bench.now += KEEP_MS / 1000 - 1
        await bench.clean()
        assert bench.offsets() == [3, 5, 6]
        bench.now += 10 * KEEP_MS
        assert not bench.is_due(), "nothing waits for its time any more"

    run(scenario)


def test_a_compressed_set_is_made_again_with_what_is_left_of_it() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(segment_bytes=200)
        packed = message_set.build([(b"a", b"1", 5), (b"b", b"2" * 50, 9), (b"a", b"3", 7), (b"c", b"4", 6)])
        for _ in range(2):
            log.append(validated(wrap(message_set.decode(packed), GZIP)))
        await bench.fill(*values("x1", "x2", "x3", "x4", "x5", "x6"))
        await bench.clean()
        assert [m for m in bench.stored() if m[1] != b"x"] == [
            (5, b"b", b"2" * 50),
            (6, b"a", b"3"),
            (7, b"c", b"4"),
        ]
        (position, size, offset), *_ = message_set.scan(log.read(0, 1).read())
        assert (position, offset) == (0, 7), "still one set"
        assert log.find_offset_for_time(8) == (9, 5)
        assert message_set.decode(log.read(6, 1).read())[0].offset == 5
        assert size < len(wrap(message_set.decode(packed), GZIP))

    run(scenario)


def test_a_pass_that_may_remember_few_keys_cleans_as_far_as_it_can() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.open()
        await bench.fill(*values("a1", "b1", "a2", "b2", "c1", "a3", "c2", "b3", "d1", "e1"))
        done = await bench.clean(max_keys=2)
        assert done.end == 4, "c is one too many"
        assert bench.offsets() == [2, 3, 4, 5, 6, 7, 8, 9]
        while bench.is_due():
            await bench.clean(max_keys=2)
        assert bench.offsets() == [5, 6, 7, 8, 9]

    run(scenario)


def test_readers_of_what_was_cleaned_go_on_until_it_is_purged() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values(*["a1"] * 7))
        slices = [log.read(0, 1000), log.read(3, 1000)]
        await bench.clean()
        assert bench.replaced == [1, 1]
        assert bench.offsets() == [5, 6]
        assert [m.offset for s in slices for m in message_set.decode(s.read())] == [0, 1, 2, 3, 4, 5]
        log.purge_retired(2)
        for old in slices:
            with pytest.raises(SliceRemoved):
                old.read()
        assert bench.offsets() == [5, 6]

    run(scenario)


@pytest.mark.parametrize("start_over", [False, True])
def test_a_cut_ends_the_pass_and_nothing_of_what_was_cut_comes_back(start_over: bool) -> None:
    async def scenario(bench: Bench) -> None:
        for steps in range(40):
            bench.disk, bench.clean_to = SimDisk(Random(steps)), 0
            log = await bench.open()
            await bench.fill(*values("a1", "b1", "a2", "c1", "b2", "a3", "c2", "a4"))
            before = bench.stored()
            work = cleaner.plan_cleaning(log, 0, 8, TOPIC)
            assert work is not None
            pass_ = asyncio.ensure_future(cleaner.clean(log, work, 100, bench.replaced.append))
            for _ in range(steps):
                await asyncio.sleep(0)
            under_way = not pass_.done()
            if start_over:
                log.reset(100)
            else:
                log.truncate_to(4)
            expected = bench.stored()
            assert expected == [one for one in before if one in expected and one[0] < 4]
            await log.flush()
            try:
                assert not await cleaner.note_cleaning(log, await pass_)
            except CleaningInterrupted:
                assert under_way
            for _ in range(2):
                assert bench.stored() == expected
                assert log.end_offset == (100 if start_over else 4)
                assert not [name for name in bench.files() if "cleaned" in name or "swap" in name]
                bench.disk.cut_power()
                log = await bench.open()

    run(scenario)


def test_a_crash_at_any_instant_of_a_pass_leaves_each_key_its_last_value() -> None:
    async def scenario(bench: Bench) -> None:
        outcomes = set()
        for seed in range(150):
            bench.disk, bench.clean_to = SimDisk(Random(seed)), 0
            await bench.open()
            await bench.fill(*values("a1", "b1", "a2", "c1", "b2", "a3", "c2", "a4"))
            last = {key: (offset, value) for offset, key, value in bench.stored()}
            budget = 10_000

            def check() -> None:
                nonlocal budget
                budget -= 1
                if budget < 0:
                    raise ProcessLookupError

            await bench.log.close()
            log, _ = await Log.open(
                bench.disk.storage(check, lambda: 0),
                DIRECTORY,
                bench.log.config,
                clean=True,
                recovery_point=8,
                wall_clock=lambda: 0.0,
            )
            budget = seed
            work = cleaner.plan_cleaning(log, 0, 8, TOPIC)
            assert work is not None
            try:
                await cleaner.note_cleaning(log, await cleaner.clean(log, work, 100, bench.replaced.append))
            except (ProcessLookupError, SwapUnfinished):
                outcomes.add("interrupted")
            if seed % 3:
                bench.disk.cut_power()
            log = await bench.open(recovery_point=8)
            outcomes.add(str(bench.offsets()))
            assert {key: (offset, value) for offset, key, value in bench.stored()} == last
            assert (log.start_offset, log.end_offset) == (0, 8)
            assert not [name for name in bench.files() if "cleaned" in name or "swap" in name]
        assert "interrupted" in outcomes
        assert len(outcomes) >= 3, "before it, and after it"

    run(scenario)


def test_a_hole_that_a_power_loss_has_left_is_not_taken_for_the_work_of_compaction() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values(*["a1"] * 7))
        await bench.clean()
        for key, value in values("b1", "b2", "b3", "b4", "b5", "b6"):
            log.append(validated(message_set.build([(key, value, 5)])))
        assert log.segment_offsets == (0, 3, 6, 9, 12)
        path = f"{DIRECTORY}/{6:020d}.log"
        bench.disk.write(path, bench.disk.read(path)[: 2 * ENTRY])  # what comes after was written back, this was not
        await bench.open(recovery_point=7)
        assert bench.offsets() == [5, 6, 7]
        assert bench.log.end_offset == 8

    run(scenario)


def test_a_log_that_was_compacted_may_have_gaps_for_good() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values(*["a1"] * 7))
        await bench.clean()
        assert COMPACTION_NOTE in [path.rpartition("/")[2] for path in bench.disk.files()]
        log = await bench.open(compacted=False, recovery_point=7)
        assert bench.offsets() == [5, 6]
        await log.configure(LogConfig(compacted=False))
        assert log.config.compacted

    run(scenario)


def test_a_log_becomes_a_compacted_one_while_it_is_open() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(compacted=False)
        await bench.fill(*values("a1", "b1", "a2", "a3"), (None, b"without a key"))
        await log.configure(LogConfig(compacted=True, segment_bytes=3 * ENTRY))
        log.append_replicated(message_set.build([(b"z", b"1", 5)], 1, 10))
        await log.flush()
        assert log.end_offset == 11
        await bench.clean()
        assert bench.offsets() == [1, 3, 10], "what has no key goes"

    run(scenario)


def test_retention_takes_segments_of_which_compaction_has_left_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values(*["a1"] * 3), *values("b1", "c1", "d1"), *values("a1"))
        await bench.clean()
        bench.clean_to = 0
        await bench.fill(*values(*["a1"] * 3))
        await bench.clean()
        assert bench.offsets() == [3, 4, 5, 8, 9]
        assert await remove_expired_segments(log, lambda: 10, retention_ms=-1, retention_bytes=3 * ENTRY) == 1
        assert log.start_offset == log.segment_offsets[0] > 0
        with pytest.raises(OffsetOutOfRange):
            log.read(0, 1)

    run(scenario)


@pytest.mark.parametrize("operation", ["rename", "remove", "open", "append"])
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_disk_that_fails_in_a_swap_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, operation: str, power_loss: bool
) -> None:
    """Neither at once nor at the next start: what is half done counts, or is undone."""

    async def scenario(bench: Bench) -> None:
        instant, ended = 0, False
        while not ended:
            bench.disk, bench.clean_to = SimDisk(Random(instant)), 0
            log = await bench.open()
            await bench.fill(*values("a1", "b1", "c1", "d1", "e1", "f1", "a2", "b2", "d2", "e2", "g1", "h1", "g2"))
            await bench.clean()  # leaves small segments, which the next pass makes one of
            await bench.fill(*values("i1", "i2", "i3", "i4"))
            last = {key: (offset, value) for offset, key, value in bench.stored()}
            calls, owner = instant, SimFile if operation == "append" else SimStorage
            real = getattr(owner, operation)

            def fails(self: Any, *arguments: Any) -> Any:
                nonlocal calls
                calls -= 1
                if calls == -1:
                    raise OSError(errno.EIO, "the device fails")
                return real(self, *arguments)  # noqa: B023

            unfinished = False
            with monkeypatch.context() as patch:
                patch.setattr(owner, operation, fails)
                try:
                    await bench.clean()
                except OSError:
                    pass
                except SwapUnfinished:
                    unfinished = True
            ended = calls >= 0
            assert {key: (offset, value) for offset, key, value in bench.stored()} == last
            if not unfinished:
                assert {f"{format_segment_name(base)}.log" for base in log.segment_offsets} <= set(bench.files())
            if power_loss:
                bench.disk.cut_power()
            await bench.open(recovery_point=17)
            assert {key: (offset, value) for offset, key, value in bench.stored()} == last, f"at {instant}"
            assert not [name for name in bench.files() if "swap" in name]
            instant += 1
        assert instant > 4

    run(scenario)


def swap_name(base: int, end: int, size: int | None = None) -> str:
    """Without a size: the name in earlier versions."""
    if size is not None:
        return format_swap_name(base, end, size)
    return f"{format_segment_name(base)}-{format_segment_name(end)}.log.swap"


async def four_segments(bench: Bench, *, compacted: bool = True) -> dict[str, bytes]:
    """A closed log of the segments 0, 3, 6 and 9; returns the bytes of the first two."""
    await bench.open(compacted=compacted)
    await bench.fill(*values("a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1"))
    assert bench.log.segment_offsets == (0, 3, 6, 9)
    await bench.log.close()
    return {
        name: bench.disk.read(f"{DIRECTORY}/{format_segment_name(base)}.log") for name, base in (("0", 0), ("3", 3))
    }


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("0-1000.log.swap", b"mine"),
        ("0-9.log.swap", b""),
        (swap_name(0, 90), b""),
        (swap_name(0, 9), b"mine"),
        (swap_name(0, 9), b""),
        (swap_name(0, 9, 6 * ENTRY), b""),
        (swap_name(0, 9, 6 * ENTRY), "0"),
        (swap_name(0, 9, 0), "0"),
        (swap_name(0, 3), "0 and 3"),
        (swap_name(1, 9), "3"),
        ("mine.log.swap", b"mine"),
        ("mine.log.cleaned", b"mine"),
    ],
)
def test_a_start_takes_no_records_for_a_file_that_is_no_swap_file(
    name: str, content: bytes | str, clean: bool, compacted: bool
) -> None:
    async def scenario(bench: Bench) -> None:
        segments = await four_segments(bench, compacted=compacted)
        mine = content if isinstance(content, bytes) else b"".join(segments[one] for one in content.split(" and "))
        bench.disk.write(f"{DIRECTORY}/{name}", mine)
        log = await bench.open(clean=clean, recovery_point=10, compacted=compacted)
        assert bench.offsets() == [*range(10)]
        assert log.segment_offsets == (0, 3, 6, 9)
        assert (name in bench.files()) == (not name.startswith("00000")), "only the broker's own names are removed"

    run(scenario)


@pytest.mark.parametrize("empty", [True, False])
def test_a_start_takes_no_records_of_a_log_that_was_never_compacted(empty: bool) -> None:
    """Even for a file that could replace its segments."""

    async def scenario(bench: Bench) -> None:
        segments = await four_segments(bench, compacted=False)
        bench.disk.write(f"{DIRECTORY}/{swap_name(0, 9)}", b"" if empty else segments["0"])
        await bench.open(recovery_point=10, compacted=False)
        assert bench.offsets() == [*range(10)]

    run(scenario)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", [[], [3]])
@pytest.mark.parametrize("size", [6 * ENTRY, None])
def test_a_start_finishes_a_swap_of_which_a_part_was_done(size: int | None, gone: list[int], clean: bool) -> None:
    async def scenario(bench: Bench) -> None:
        segments = await four_segments(bench)
        bench.disk.write(f"{DIRECTORY}/{swap_name(0, 6, size)}", segments["0"] + segments["3"])
        for base in gone:
            bench.disk.remove(f"{DIRECTORY}/{format_segment_name(base)}.log")
        log = await bench.open(clean=clean, recovery_point=10)
        assert bench.offsets() == [*range(10)]
        assert log.segment_offsets == (0, 6, 9)
        assert not [name for name in bench.files() if "swap" in name]

    run(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_finishes_a_swap_after_which_nothing_is_left_of_the_segments(clean: bool) -> None:
    async def scenario(bench: Bench) -> None:
        await four_segments(bench)
        await bench.open(clean=True, recovery_point=10)
        await bench.log.compaction_note.allow_gaps_below(lambda: 6)
        await bench.log.close()
        bench.disk.write(f"{DIRECTORY}/{swap_name(0, 6, 0)}", b"")
        await bench.open(clean=clean, recovery_point=10)
        assert bench.offsets() == [*range(6, 10)]

    run(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_swap_file_whose_segments_are_partly_gone_damages_the_log(clean: bool) -> None:
    """The gap would pass for one that compaction has left. All bytes are kept."""

    async def scenario(bench: Bench) -> None:
        segments = await four_segments(bench)
        await bench.open(clean=True, recovery_point=10)
        await bench.log.compaction_note.allow_gaps_below(lambda: 9)
        await bench.log.close()
        swapped = bytearray(segments["0"] + segments["3"])
        swapped[-1] ^= 1
        bench.disk.write(f"{DIRECTORY}/{swap_name(0, 6)}", bytes(swapped))
        bench.disk.remove(f"{DIRECTORY}/{format_segment_name(3)}.log")
        before = bench.files()
        storage = bench.disk.storage(fsync_delay=lambda: 0)
        config, wall_clock = bench.log.config, lambda: 0.0
        log, recovery = await Log.open(storage, DIRECTORY, config, clean=clean, recovery_point=3, wall_clock=wall_clock)
        assert recovery.damaged
        assert recovery.problem is not None
        assert swap_name(0, 6) in recovery.problem
        assert bench.files() == before
        log.reset(0)
        assert bench.files() == [f"{format_segment_name(0)}.log"], "a later start finds no reason for damage"

    run(scenario)


def test_a_cut_waits_until_what_was_to_replace_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a start would bring back what was cut."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "a2", "a3", "a4", "a5", "a6", "b1"))
        fsync = log.storage.fsync_directory
        refused = []

        async def busy(path: str) -> None:
            await fsync(path)
            if log.swap_file is not None and not refused:
                with monkeypatch.context() as patch:
                    patch.setattr(SimStorage, "remove", broken)
                    with pytest.raises(OSError, match="the device fails") as error:
                        log.truncate_to(1)
                refused.append(error)

        def broken(self: SimStorage, path: str) -> None:
            raise OSError(errno.EIO, "the device fails")

        monkeypatch.setattr(log.storage, "fsync_directory", busy)
        await bench.clean()
        assert refused
        assert log.end_offset == 7

    run(scenario)


def test_what_is_appended_while_segments_are_swapped_stays_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends do not wait: they may begin segments while the folder is being made durable."""

    async def scenario(bench: Bench) -> None:
        log = await bench.open()
        await bench.fill(*values("a1", "a2", "a3", "a4", "a5", "a6", "b1"))
        fsync, appended = log.storage.fsync_directory, []

        async def busy(path: str) -> None:
            await fsync(path)
            if log.swap_file is not None and not appended:
                segments = len(log.segment_offsets)
                while len(log.segment_offsets) == segments or log.end_offset % 3 != 2:
                    appended.append(log.end_offset)
                    log.append(validated(message_set.build([(b"c%d" % len(appended), b"new", 5)])))

        monkeypatch.setattr(log.storage, "fsync_directory", busy)
        await bench.clean()
        assert len(appended) > 2
        assert bench.offsets() == [5, 6, *appended]
        await bench.fill(*values("d1"))
        assert bench.offsets() == [5, 6, *appended, appended[-1] + 1]
        assert log.flushed_offset == log.end_offset
        kept = bench.stored()
        bench.disk.cut_power()
        await bench.open(recovery_point=log.flushed_offset)
        assert bench.stored() == kept

    run(scenario)


def test_a_log_that_is_copied_from_one_with_gaps_may_have_them() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.open(compacted=False)
        with pytest.raises(CorruptMessage):
            log.append_replicated(message_set.build([(b"a", b"1", 5)], base_offset=7))
        await log.allow_gaps()
        assert log.append_replicated(message_set.build([(b"a", b"1", 5)], base_offset=7)) == 8
        await log.flush()
        bench.disk.cut_power()
        await bench.open(compacted=False, recovery_point=8)
        assert bench.offsets() == [7], "that is known at the next start, too"

    run(scenario)
