"""Laws of the log under any sequence of appends, rolls, flushes, cuts, retention, kills, power losses and damage."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.sim.disk import SimDisk
from system_under_test.log import CorruptLog, Log, LogConfig, OffsetOutOfRange, Recovery, segment
from system_under_test.records import message_set
from system_under_test.records.compression import GZIP, LZ4, SNAPPY
from system_under_test.records.wrapper import wrap

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=90)
DIRECTORY = "orders-0"
NOW = 60
"""Milliseconds."""

FRACTION = st.floats(0, 1)
GARBAGE = st.sampled_from(["none", "noise", "zeros", "copy of the first message", "half of the first message"])
CODECS = st.sampled_from([0, 0, GZIP, SNAPPY, LZ4])
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 80), CODECS),
    st.tuples(st.just("replicate"), st.integers(1, 4), st.integers(0, 80), CODECS),
    st.tuples(st.just("retain"), FRACTION, st.none() | st.integers(0, 1200), st.none() | st.integers(0, 60)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("truncate"), FRACTION),
    st.tuples(st.just("reset"), st.integers(0, 50)),
    st.tuples(st.just("read"), FRACTION, FRACTION, st.integers(0, 300)),
    st.tuples(st.just("kill"), GARBAGE, FRACTION),
    st.tuples(st.just("power"), GARBAGE, FRACTION),
    st.tuples(st.just("clean restart")),
)


class Model:
    """What the log must hold, beside the log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        self.serial = 0
        self.start = 0
        self.values: list[bytes | None] = []
        self.flushed = 0
        """Messages that no crash may take."""
        self.firsts: dict[int, int] = {}
        """Offset to that of the first message of its set, where the set was compressed."""
        self.before_cuts: tuple[dict[int, int], list[bytes | None]] | None = None
        """Sets and content before the cuts that are not flushed: a power loss may undo these."""
        self.log: Log

    async def open(self, *, clean: bool, recovery_point: int) -> Recovery:
        storage = self.disk.storage(fsync_delay=lambda: 0)
        self.log, recovery = await Log.open(
            storage, DIRECTORY, CONFIG, clean=clean, recovery_point=recovery_point, wall_clock=lambda: NOW / 1000
        )
        return recovery

    @property
    def end(self) -> int:
        return self.start + len(self.values)

    def records(self, count: int, size: int) -> list[message_set.Record]:
        self.serial += count
        times = [self.random.randrange(60) for _ in range(count)]
        return [(None, b"%d:%d:" % (time, self.serial + i) + b"x" * size, time) for i, time in enumerate(times)]

    def build(self, records: list[message_set.Record], base: int, codec: int) -> bytes:
        self.firsts.update(dict.fromkeys(range(self.end, self.end + len(records)), self.end) if codec else {})
        plain = message_set.build(records, 1, base)
        return wrap(message_set.decode(plain), codec) if codec else plain

    async def append(self, count: int, size: int, codec: int) -> None:
        await self.settle()
        records = self.records(count, size)
        assert self.log.append(self.build(records, 0, codec), count) == (self.end, self.end + count - 1)
        self.values += [value for _, value, _ in records]

    async def replicate(self, count: int, size: int, codec: int) -> None:
        await self.settle()
        records = self.records(count, size)
        tail = message_set.build(records[:1], 1, self.end + count)[:-1]
        assert self.log.append_replicated(self.build(records, self.end, codec) + tail) == self.end + count
        self.values += [value for _, value, _ in records]

    async def retain(self, limit_at: float, keep_bytes: int | None, age: int | None) -> None:
        """The clock stands at 60 ms, messages are made from 0 to 59: what is younger than ``age`` must stay."""
        await self.settle()
        limit, size = self.start + round(limit_at * len(self.values)), self.log.size
        ms = -1 if age is None else age
        await self.log.retain(lambda: limit, retention_ms=ms, retention_bytes=-1 if keep_bytes is None else keep_bytes)
        gone = self.log.start_offset - self.start
        assert 0 <= gone <= limit - self.start
        if keep_bytes is None:
            assert all(NOW - self.time(value) > ms for value in self.values[:gone])
        if gone and age is None and keep_bytes is not None:
            assert size > keep_bytes
            assert self.log.size >= min(keep_bytes, 1)  # the last segment is never taken for its bytes alone
        if self.random.random() < 0.5:
            self.log.purge()
        self.start += gone
        del self.values[:gone]
        self.flushed = max(0, self.flushed - gone)

    @staticmethod
    def time(value: bytes | None) -> int:
        return int((value or b"").partition(b":")[0])

    async def settle(self) -> None:
        if self.before_cuts is not None:
            await self.flush()

    async def flush(self) -> None:
        assert await self.log.flush() == self.log.flushed_offset == self.end
        self.flushed, self.before_cuts = len(self.values), None

    def truncate(self, fraction: float) -> None:
        keep = round(fraction * len(self.values))
        if keep < len(self.values):
            self.before_cuts = self.before_cuts or (dict(self.firsts), list(self.values))
            self.log.truncate_to(self.start + keep)
            # a compressed set goes as a whole
            keep = max(0, self.firsts.get(self.start + keep, self.start + keep) - self.start)
            del self.values[keep:]
            self.firsts = {offset: first for offset, first in self.firsts.items() if offset < self.end}
            self.flushed = min(self.flushed, keep)

    async def reset(self, start: int) -> None:
        self.log.reset(start)
        assert self.log.size == 0
        self.start, self.values, self.firsts = start, [], {}
        await self.flush()

    def read(self, at: float, limit_at: float, max_bytes: int) -> None:
        offset = self.start + round(at * len(self.values))
        limit = self.start + round(limit_at * len(self.values))
        data = self.log.read(offset, max_bytes, limit=limit).read()
        messages = message_set.decode(data)
        first = messages[0].offset if messages else offset
        assert first == (self.firsts.get(offset, offset) if messages else offset), "a compressed set comes whole"
        assert [m.offset for m in messages] == list(range(first, first + len(messages)))
        assert [m.value for m in messages] == self.values[first - self.start :][: len(messages)]
        assert not messages or messages[-1].offset < limit
        whole = [
            at for at in range(offset, self.end) if self.firsts.get(at + 1, at + 1) == at + 1 or at + 1 == self.end
        ]
        assert bool(messages) == any(at < limit for at in whole)
        assert len(data) <= max_bytes or len(list(message_set.scan(data))) == 1
        assert sum(size for _, size, _ in message_set.scan(data)) == len(data)

    async def crash(self, kind: str, garbage: str, fraction: float) -> None:
        expected, start, flushed = self.values, self.start, self.flushed
        assert self.log.flushed_offset == start + flushed
        if kind == "power":
            self.disk.power_loss()
            if self.before_cuts is not None:
                self.firsts, expected = self.before_cuts
        self.add_garbage(garbage)
        recovery_point = start + round(fraction * flushed)
        recovery = await self.open(clean=False, recovery_point=recovery_point)
        assert not recovery.damaged, recovery.problem
        found = [m.value for m in self.log.decode(self.log.start_offset, self.log.end_offset)]
        assert self.log.start_offset == start
        assert found == expected[: len(found)], "what recovery yields is a prefix"
        assert len(found) >= flushed, "and includes all that was fsynced"
        if kind == "kill":
            assert len(found) == len(expected), "a kill loses nothing"
        assert recovery.end_after == self.log.end_offset == self.log.flushed_offset
        self.values, self.flushed, self.before_cuts = found, len(found), None
        self.firsts = {offset: first for offset, first in self.firsts.items() if offset < self.end}

    def add_garbage(self, kind: str) -> None:
        logs = [path for path in self.disk.files() if path.endswith(".log")]
        if not logs:
            return
        content = self.disk.read(logs[-1])
        first = next((content[at : at + size] for at, size, _ in message_set.scan(content)), b"")
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
        await self.log.close()
        recovery = await self.open(clean=True, recovery_point=self.end)
        assert (recovery.damaged, recovery.truncated_bytes, recovery.problem) == (False, 0, None)
        self.flushed, self.before_cuts = len(self.values), None
        assert self.log.flushed_offset == self.end

    def check(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.flushed_offset <= self.log.end_offset
        for offset, value in enumerate(self.values, self.start):
            found = message_set.decode(self.log.read(offset, 1).read())
            assert (offset, value) in [(m.offset, m.value) for m in found]
            assert found[0].offset == self.firsts.get(offset, offset)
        timed = [(self.time(value), offset) for offset, value in enumerate(self.values, self.start)]
        for wanted in (0, 20, 40, 58, 60):
            assert self.log.offset_for_time(wanted) == next((found for found in timed if found[0] >= wanted), None)


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.lists(STEPS, max_size=25))
def test_whatever_happens_recovery_yields_a_prefix_with_all_that_was_fsynced(seed: int, steps: list[Any]) -> None:
    async def scenario() -> None:
        model = Model(seed)
        await model.open(clean=True, recovery_point=0)
        for name, *arguments in steps:
            if name == "append":
                await model.append(*arguments)
            elif name == "replicate":
                await model.replicate(*arguments)
            elif name == "flush":
                await model.flush()
            elif name == "truncate":
                model.truncate(*arguments)
            elif name == "reset":
                await model.reset(*arguments)
            elif name == "retain":
                await model.retain(*arguments)
            elif name == "read":
                model.read(*arguments)
            elif name == "clean restart":
                await model.restart_cleanly()
            else:
                await model.crash(name, *arguments)
            model.check()
        values = [m.value for m in model.log.decode(model.start, model.end)]
        assert values == model.values

    with mock.patch.object(segment, "RECENT_APPENDS", 2):  # or the index would rarely be asked
        asyncio.run(scenario())


@settings(max_examples=200, deadline=None)
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
            first = model.firsts.get(offset, offset)
            assert [m.offset for m in messages] == list(range(first, first + len(messages)))
            assert [m.value for m in messages] == model.values[first : first + len(messages)]
        assert seen_damage == (bool(paths) and suffix == ".log" and not harmless)
        assert (model.log.damage is not None) == seen_damage

    asyncio.run(scenario())
