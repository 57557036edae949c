"""Laws of the log under any sequence of appends, rolls, flushes, cuts, retention, compaction, kills, power losses and
damage.

The model holds each message that the log has. Messages that a pass of the cleaner under way takes out are *doomed*:
they may or may not be there until the pass has ended. All others must be there, and no message that was taken out comes
back.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log import cleaner, segment
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import CorruptLog, OffsetOutOfRange
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.preallocation import strip_preallocated
from assay.system_under_test.log.recovery import RecoveryResult
from assay.system_under_test.log.retention import remove_expired_segments
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP, LZ4, SNAPPY
from assay.system_under_test.records.wrapper import wrap

from helpers.examples import some_of
from helpers.logs import stored
from helpers.producing import validated

DIRECTORY = "orders-0"
KEEP_MS = 40
"""For how long tombstones stay."""
TOPIC = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=KEEP_MS)

FRACTION = st.floats(0, 1)
GARBAGE = st.sampled_from(["none", "noise", "zeros", "copy of the first message", "half of the first message"])
CODECS = st.sampled_from([0, 0, GZIP, SNAPPY, LZ4])
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 80), CODECS),
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 80), CODECS),
    st.tuples(st.just("replicate"), st.integers(1, 4), st.integers(0, 80), CODECS, st.integers(0, 3)),
    st.tuples(st.just("retain"), FRACTION, st.none() | st.integers(0, 1200), st.none() | st.integers(0, 60)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("clean"), FRACTION, st.integers(1, 8), st.integers(0, 40) | st.just(1000)),
    st.tuples(st.just("clean"), st.just(1.0), st.just(100), st.just(1000)),
    st.tuples(st.just("power loss in a swap"), GARBAGE, FRACTION),
    st.tuples(st.just("turns"), st.integers(1, 20)),
    st.tuples(st.just("wait"), st.integers(1, 50)),
    st.tuples(st.just("truncate"), FRACTION),
    st.tuples(st.just("reset"), st.integers(0, 50)),
    st.tuples(st.just("read"), FRACTION, FRACTION, st.integers(0, 300)),
    st.tuples(st.just("kill"), GARBAGE, FRACTION),
    st.tuples(st.just("power"), GARBAGE, FRACTION),
    st.tuples(st.just("clean restart")),
)


class Held(NamedTuple):
    """A message. ``time``: its timestamp; ``set``: messages of one compressed set have the same."""

    key: bytes | None
    value: bytes | None
    time: int
    set: int


class Content(NamedTuple):
    """Messages of a log by offset, the offsets that may be gone, and its end."""

    held: dict[int, Held]
    doomed: frozenset[int]
    end: int

    def first(self, offset: int) -> int:
        """Returns the first offset of the set in which this message lies."""
        return min(at for at, one in self.held.items() if one.set == self.held[offset].set)

    def last(self, offset: int) -> int:
        return max(at for at, one in self.held.items() if one.set == self.held[offset].set)


class Model:
    """A log, and a model of the messages that it must hold."""

    def __init__(self, seed: int, *, compacted: bool = False, preallocate: bool = False) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        self.config = LogConfig(
            segment_bytes=400, index_interval_bytes=90, compacted=compacted, preallocate=preallocate
        )
        self.now = 60
        """Milliseconds."""
        self.serial = 0
        self.start = 0
        self.content = Content({}, frozenset(), 0)
        self.flushed = 0
        """The messages below this offset no crash may take."""
        self.before_cuts: Content | None = None
        """Before the cuts that are not flushed: a power loss may undo these."""
        self.clean_to = 0
        self.noted: dict[int, int] = {}
        """When the tombstone at an offset began to be noted as one that was cleaned over."""
        self.truncation_lock = asyncio.Lock()
        self.run: asyncio.Task[None] | None = None
        self.alive = [True]
        self.log: Log

    async def open(self, *, clean: bool, recovery_point: int) -> RecoveryResult:
        self.alive = alive = [True]

        def check() -> None:
            if not alive[0]:
                raise ProcessLookupError

        storage = self.disk.storage(check, fsync_delay=lambda: 0)
        self.log, recovery = await Log.open(
            storage,
            DIRECTORY,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            wall_clock=lambda: self.now / 1000,
        )
        return recovery

    @property
    def held(self) -> dict[int, Held]:
        return self.content.held

    @property
    def end(self) -> int:
        return self.content.end

    def at(self, fraction: float) -> int:
        """An offset from the start to the end."""
        return self.start + round(fraction * (self.end - self.start))

    def found(self) -> dict[int, Held]:
        """Returns the messages of the log. Sets are the model's: a rebuilt set holds some messages of the old one."""
        known = self.before_cuts.held | self.held if self.before_cuts else self.held
        messages = stored(self.log, self.log.start_offset, self.log.end_offset)
        return {m.offset: Held(m.key, m.value, m.timestamp or 0, known[m.offset].set) for m in messages}

    def settle(self) -> None:
        """The model takes over what is there; what is not there must have been doomed."""
        found = self.found()
        assert all(self.held[offset] == one for offset, one in found.items())
        assert self.held.keys() - found.keys() <= self.content.doomed
        self.content = Content(found, self.content.doomed & found.keys(), self.end)

    # -- what happens to it ----------------------------------------------------------------------------------------

    def records(self, count: int, size: int) -> list[message_set.Record]:
        records: list[message_set.Record] = []
        for _ in range(count):
            self.serial += 1
            key = b"%d" % self.random.randrange(5) if self.config.compacted else None
            value = b"%d:" % self.serial + b"x" * size
            erases = key is not None and self.random.random() < 0.2
            records.append((key, None if erases else value, self.random.randrange(1, 60)))
        return records

    def take(self, records: list[message_set.Record], base: int, codec: int) -> None:
        for offset, (key, value, time) in enumerate(records, base):
            self.held[offset] = Held(key, value, time or 0, base if codec else offset)
        self.content = self.content._replace(end=base + len(records))

    @staticmethod
    def build(records: list[message_set.Record], base: int, codec: int) -> bytes:
        plain = message_set.build(records, 1, base)
        return wrap(message_set.decode(plain), codec) if codec else plain

    async def append(self, count: int, size: int, codec: int) -> None:
        await self.make_cuts_durable()
        records = self.records(count, size)
        assert self.log.append(validated(self.build(records, 0, codec))) == (self.end, self.end + count - 1)
        self.take(records, self.end, codec)

    async def replicate(self, count: int, size: int, codec: int, skipped: int) -> None:
        await self.make_cuts_durable()
        records = self.records(count, size)
        base = self.end + (skipped if self.config.compacted else 0)
        tail = message_set.build(records[:1], 1, base + count)[:-1]
        assert self.log.append_replicated(self.build(records, base, codec) + tail) == base + count
        self.take(records, base, codec)

    async def retain(self, limit_at: float, keep_bytes: int | None, age: int | None) -> None:
        """Messages are made from 1 to 59 ms: what is younger than ``age`` must stay."""
        await self.make_cuts_durable()
        self.settle()
        limit, size = self.at(limit_at), self.log.size
        ms = -1 if age is None else age
        await remove_expired_segments(
            self.log, lambda: limit, retention_ms=ms, retention_bytes=-1 if keep_bytes is None else keep_bytes
        )
        assert self.start <= self.log.start_offset <= max(limit, self.start)
        gone = [one for offset, one in self.held.items() if offset < self.log.start_offset]
        if keep_bytes is None:
            assert all(self.now - one.time > ms for one in gone)
        if gone and age is None and keep_bytes is not None:
            assert size > keep_bytes
            if not self.content.doomed:
                assert self.log.size >= min(keep_bytes, 1)  # the last segment is never taken for its bytes alone
        if self.random.random() < 0.5:
            self.log.purge_retired()
        self.start = self.log.start_offset
        kept = {offset: one for offset, one in self.held.items() if offset >= self.start}
        self.content = self.content._replace(held=kept)
        self.flushed = max(self.start, self.flushed)

    async def clean(self, limit_at: float, max_keys: int, turns: int) -> None:
        """Begins a pass, if one is due and none is under way, and lets it go on for a while."""
        if self.config.compacted and self.run is None:
            self.settle()
            limit = self.at(limit_at)
            work = cleaner.plan_cleaning(self.log, self.clean_to, limit, TOPIC)
            if work is not None:
                assert work.end < min(limit, self.flushed)
                self.content = self.content._replace(doomed=self.doom(work, max_keys))
                self.run = asyncio.get_running_loop().create_task(self.go_over(work, max_keys))
        await self.turns(turns)

    def doom(self, work: cleaner.CleaningPlan, max_keys: int) -> frozenset[int]:
        """Exactly what a pass is to take out."""
        expired = {at for at, time in self.noted.items() if self.now - time >= KEEP_MS and at < work.end}
        erasing = {at for at, one in self.held.items() if one.value is None and at < work.horizon}
        assert erasing == expired & self.held.keys(), "tombstones go when their time has come, and not before"
        last: dict[bytes | None, int] = {}
        end = work.end
        for offset, one in sorted(self.held.items()):
            if work.dirty_from <= offset < end:
                if one.key not in last and len(last) == max_keys:
                    end = offset
                    break
                last[one.key] = offset
        return frozenset(
            at for at, one in self.held.items() if at < end and (last.get(one.key, at) > at or at in erasing)
        )

    async def go_over(self, work: cleaner.CleaningPlan, max_keys: int) -> None:
        try:
            done = await cleaner.clean(self.log, work, max_keys, lambda _: None)
        except cleaner.CleaningInterrupted:
            assert self.log.truncations != work.truncations or self.log.start_offset > work.segments[0].base_offset
            self.content = self.content._replace(doomed=frozenset(self.content.doomed))
            return
        async with self.truncation_lock:
            if self.log.truncations == done.truncations:
                for offset, one in self.held.items():
                    if offset < done.end and one.value is None and offset not in self.content.doomed:
                        self.noted.setdefault(offset, self.now)
            if await cleaner.note_cleaning(self.log, done):
                self.clean_to = done.end
                assert not self.found().keys() & self.content.doomed, "all that was to go is gone"

    async def turns(self, count: int) -> None:
        """Lets what is under way go on."""
        for _ in range(count):
            if self.run is None:
                return
            if self.run.done():
                self.run.result()
                self.end_run()
                return
            await asyncio.sleep(0)

    def end_run(self) -> None:
        self.run = None
        self.settle()
        self.content = self.content._replace(doomed=frozenset())

    async def make_cuts_durable(self) -> None:
        if self.before_cuts is not None:
            await self.flush()

    async def flush(self) -> None:
        assert await self.log.flush() == self.log.flushed_offset == self.end
        self.flushed, self.before_cuts = self.end, None

    async def truncate(self, fraction: float) -> None:
        """As replication does it: what is noted is made true first."""
        target = self.at(fraction)
        if target >= self.end:
            return
        async with self.truncation_lock:
            self.clean_to = min(self.clean_to, target)
            await self.log.prepare_truncation(target)
        if self.log.flushed_offset > self.flushed:
            self.flushed, self.before_cuts = self.end, None
        self.settle()
        self.before_cuts = self.before_cuts or self.content._replace(held=dict(self.held))
        self.log.truncate_to(target)
        # a compressed set goes as a whole
        cut = [self.content.first(at) for at in self.held if at >= target and self.content.first(at) < target]
        self.forget_from(min([target, *cut]))

    def forget_from(self, end: int) -> None:
        held = {offset: one for offset, one in self.held.items() if offset < end}
        self.content = Content(held, self.content.doomed & held.keys(), end)
        self.flushed = min(self.flushed, end)
        self.noted = {offset: time for offset, time in self.noted.items() if offset < end}

    async def reset(self, start: int) -> None:
        async with self.truncation_lock:
            self.clean_to = min(self.clean_to, start)
            await self.log.compaction_note.truncate(start)
        self.log.reset(start)
        assert self.log.size == 0
        self.start = start
        self.content = Content({}, frozenset(), start)
        self.noted, self.before_cuts = {}, None
        await self.flush()

    def read(self, at: float, limit_at: float, max_bytes: int) -> None:
        offset, limit = self.at(at), self.at(limit_at)
        data = self.log.read(offset, max_bytes, limit=limit).read()
        messages = message_set.decode(data)
        rest = [at for at in sorted(self.held) if at >= offset]
        if messages:
            first = self.content.first(rest[0])
            expected = [at for at in sorted(self.held) if at >= first][: len(messages)]
            assert [m.offset for m in messages] == expected, "a compressed set comes whole, and nothing is left out"
            assert [(m.key, m.value) for m in messages] == [self.held[at][:2] for at in expected]
            assert messages[-1].offset < limit
        assert bool(messages) == any(self.content.last(at) == at < limit for at in rest)
        assert len(data) <= max_bytes or len(list(message_set.scan(data))) == 1
        assert sum(size for _, size, _ in message_set.scan(data)) == len(data)

    # -- crashes -----------------------------------------------------------------------------------------------------

    async def crash(self, kind: str, garbage: str, fraction: float) -> None:
        before = self.before_cuts if kind == "power" and self.before_cuts is not None else self.content
        undone = before is not self.content
        assert self.log.flushed_offset == self.flushed
        self.alive[0] = False
        await self.stop_run()
        if kind == "power":
            self.disk.cut_power()
        self.add_garbage(garbage)
        recovery_point = self.start + round(fraction * (self.flushed - self.start))
        recovery = await self.open(clean=False, recovery_point=recovery_point)
        if recovery.damaged:
            # The cut was there, and the name of the segment that tells where it left the log's end was not.
            assert undone, recovery.problem
            assert not [at for at in before.held if self.log.end_offset <= at < recovery_point], recovery.problem
            await self.reset(recovery_point)
            return
        self.before_cuts = before
        found, end = self.found(), self.log.end_offset
        expected = {offset: one for offset, one in before.held.items() if offset < end}
        assert self.log.start_offset == self.start
        assert all(expected.get(offset) == one for offset, one in found.items()), "what recovery yields is a prefix"
        assert expected.keys() - found.keys() <= before.doomed
        assert not [at for at in before.held if end <= at < self.flushed], "and includes all that was fsynced"
        assert end <= before.end
        assert undone or end >= self.flushed
        if kind == "kill":
            assert end == before.end, "a kill loses nothing"
        assert recovery.end == self.log.end_offset == self.log.flushed_offset
        self.content, self.flushed, self.before_cuts = Content(found, frozenset(), end), end, None
        self.noted = {offset: time for offset, time in self.noted.items() if offset < end}

    async def crash_in_a_swap(self, garbage: str, fraction: float) -> None:
        """When the new segment is read already, and its name not yet durable."""
        await self.clean(1.0, 100, 0)
        size = self.log.size
        for _ in range(1000):
            if self.run is None or self.run.done() or self.log.size != size:
                break
            await asyncio.sleep(0)
        await self.crash("power", garbage, fraction)

    async def stop_run(self) -> None:
        if self.run is not None:
            self.run.cancel()
            with contextlib.suppress(asyncio.CancelledError, ProcessLookupError):
                await self.run
            self.run = None

    def add_garbage(self, kind: str) -> None:
        logs = [path for path in self.disk.files() if path.endswith(".log")]
        if not logs:
            return
        content = self.disk.read(logs[-1])
        first = next((content[at : at + size] for at, size, _ in message_set.scan(strip_preallocated(content))), b"")
        extra = {
            "none": b"",
            "noise": self.random.randbytes(70),
            "zeros": bytes(70),
            "copy of the first message": first,
            "half of the first message": first[: len(first) // 2],
        }[kind]
        if extra:
            self.disk.write(logs[-1], content + extra)

    async def restart_cleanly(self) -> None:
        await self.stop_run()
        await self.log.close()
        recovery = await self.open(clean=True, recovery_point=self.end)
        assert (recovery.damaged, recovery.truncated_bytes, recovery.problem) == (False, 0, None)
        self.flushed, self.before_cuts = self.end, None
        assert self.log.flushed_offset == self.end
        self.end_run()

    def check(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.flushed_offset <= self.log.end_offset
        self.settle()
        offsets = sorted(self.held)
        for offset in range(self.start, self.end):
            found = message_set.decode(self.log.read(offset, 1).read())
            following = next((at for at in offsets if at >= offset), None)
            assert bool(found) == (following is not None)
            if following is not None:
                one = self.held[following]
                assert (following, one.key, one.value) in [(m.offset, m.key, m.value) for m in found]
                assert found[0].offset == self.content.first(following)
        for wanted in (0, 20, 40, 58, 60):
            timed = ((self.held[at].time, at) for at in offsets)
            assert self.log.find_offset_for_time(wanted) == next((one for one in timed if one[0] >= wanted), None)


@settings(max_examples=some_of(400), deadline=None)
@example(0, True, False, [("replicate", 1, 0, 0, 1), ("truncate", 0.5), ("kill", "none", 0.0)])
@example(
    137, True, False, [("replicate", 1, 0, 0, 1), ("truncate", 0.5), ("kill", "none", 0.0), ("power", "none", 0.0)]
)
@example(0, True, False, [("append", 2, 0, 1), ("replicate", 2, 0, 1, 1), ("truncate", 0.75), ("clean restart",)])
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.lists(STEPS, max_size=25))
def test_whatever_happens_recovery_yields_a_prefix_with_all_that_was_fsynced(
    seed: int, compacted: bool, preallocate: bool, steps: list[Any]
) -> None:
    async def scenario() -> None:
        model = Model(seed, compacted=compacted, preallocate=preallocate)
        await model.open(clean=True, recovery_point=0)
        actions = {
            "append": model.append,
            "replicate": model.replicate,
            "flush": model.flush,
            "retain": model.retain,
            "clean": model.clean,
            "power loss in a swap": model.crash_in_a_swap,
            "turns": model.turns,
            "truncate": model.truncate,
            "reset": model.reset,
            "clean restart": model.restart_cleanly,
        }
        for name, *arguments in steps:
            if name == "read":
                model.read(*arguments)
            elif name == "wait":
                model.now += arguments[0]
            elif name in actions:
                await actions[name](*arguments)
            else:
                await model.crash(name, *arguments)
            model.check()
        await model.turns(10_000)
        model.check()

    # small, or the index would rarely be asked, and a pass would be over before anything else happened
    with mock.patch.object(segment, "RECENT_APPENDS", 2), mock.patch.object(cleaner, "YIELD_BYTES", 1):
        asyncio.run(scenario())


@settings(max_examples=some_of(200), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 80)), min_size=1, max_size=12),
    st.sampled_from([".log", ".index"]),
    st.sampled_from(["flip", "cut", "wipe"]),
    st.booleans(),
)
def test_no_wrong_byte_is_ever_served_from_damaged_files(
    seed: int, batches: list[tuple[int, int]], suffix: str, damage: str, clean: bool
) -> None:
    async def scenario() -> None:
        model = Model(seed)
        await model.open(clean=True, recovery_point=0)
        for count, size in batches:
            await model.append(count, size, model.random.choice([0, GZIP, LZ4]))
        await model.log.close()
        paths = [p for p in model.disk.files() if p.endswith(suffix) and model.disk.read(p)]
        if paths:
            path = model.random.choice(paths)
            before = model.disk.read(path)
            content = bytearray(before)
            at = model.random.randrange(len(content))
            if damage == "flip":
                content[at] ^= 1 << model.random.randrange(8)
            elif damage == "cut":
                del content[at:]
            else:
                content[at:] = bytes(len(content) - at)
            model.disk.write(path, bytes(content))
            harmless = content == before  # what was wiped had been zeros
        recovery = await model.open(clean=clean, recovery_point=model.end)
        seen_damage = recovery.damaged
        offsets = list(range(model.end))
        model.random.shuffle(offsets)  # each must be right even as the first that is read
        for offset in offsets:
            try:
                messages = message_set.decode(model.log.read(offset, 10_000).read())
            except (CorruptLog, OffsetOutOfRange):
                seen_damage = True
                continue
            if not messages:
                assert model.log.end_offset == offset
                continue
            first = model.content.first(offset)
            assert [m.offset for m in messages] == list(range(first, first + len(messages)))
            assert [m.value for m in messages] == [model.held[m.offset].value for m in messages]
        assert seen_damage == (bool(paths) and suffix == ".log" and not harmless)
        assert (model.log.damage is not None) == seen_damage

    asyncio.run(scenario())
