"""Links and other special files with the names of a log's files: nothing behind them is read, written or removed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.log import cleaner
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.errors import DamagedLog
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.recovery import RecoveryResult
from assay.system_under_test.log.swap import format_swap_name
from assay.system_under_test.records import message_set
from assay.system_under_test.runtime import IrregularFileError
from assay.system_under_test.storage.local import LocalStorage

from helpers.logs import stored
from helpers.producing import validated

ONE = message_set.build([(b"k", b"v", 5)])
TOPIC = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
PRECIOUS = ONE * 3
"""Bytes of others, which could be a segment."""
KINDS = ("link", "link to nowhere", "FIFO", "folder")
PLANTED = [*((".log", kind) for kind in KINDS), (".index", "link"), (".timeindex", "link to nowhere")]


class Bench:
    """A log of segments of three messages on the real disk, and a file of others."""

    def __init__(self, place: Path) -> None:
        self.storage = LocalStorage(str(place / "data"))
        self.folder = place / "data" / "t-0"
        self.precious = place / "precious"
        self.precious.write_bytes(PRECIOUS)

    async def open(
        self, *, clean: bool = False, recovery_point: int = 0, compacted: bool = False
    ) -> tuple[Log, RecoveryResult]:
        config = LogConfig(segment_bytes=3 * len(ONE), index_interval_bytes=1, compacted=compacted)
        return await Log.open(
            self.storage, "t-0", config, clean=clean, recovery_point=recovery_point, wall_clock=lambda: 0.0
        )

    async def fill(self, count: int, *, compacted: bool = False) -> Log:
        log, _ = await self.open(compacted=compacted)
        for _ in range(count):
            log.append(validated(ONE))
        await log.flush()
        return log

    def plant(self, name: str, kind: str = "link") -> Path:
        path = self.folder / name
        path.unlink(missing_ok=True)
        match kind:
            case "link":
                path.symlink_to(self.precious)
            case "link to nowhere":
                path.symlink_to(self.folder.parent / "nowhere")
            case "FIFO":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
        return path

    def segments(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("*.log") if path.is_file()}

    def check_untouched(self, planted: Path) -> None:
        assert self.precious.read_bytes() == PRECIOUS
        assert not (self.folder.parent / "nowhere").exists()
        assert planted.is_symlink() or not planted.is_file(), "it is still there"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(("suffix", "kind"), PLANTED)
def test_a_roll_does_not_write_through_a_planted_file(bench: Bench, suffix: str, kind: str) -> None:
    async def scenario() -> None:
        log = await bench.fill(3)
        planted = bench.plant(f"{3:020d}{suffix}", kind)
        with pytest.raises(IrregularFileError, match=rf"a regular file belongs here.*{planted.name}"):
            log.append(validated(ONE))
        assert log.end_offset == 3
        bench.check_untouched(planted)

    asyncio.run(scenario())


@pytest.mark.parametrize(("suffix", "kind"), PLANTED)
@pytest.mark.parametrize("base", [0, 3, 10])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_start_keeps_all_bytes_and_opens_the_log_damaged(
    bench: Bench, base: int, suffix: str, kind: str, clean: bool, compacted: bool
) -> None:
    async def scenario() -> None:
        await (await bench.fill(8, compacted=compacted)).close()
        if base > 6:
            (bench.folder / f"{base:020d}.log").touch()
        planted = bench.plant(f"{base:020d}{suffix}", kind)
        before = bench.segments()
        log, recovery = await bench.open(clean=clean, recovery_point=6, compacted=compacted)
        assert recovery.damaged
        assert recovery.problem is not None
        assert f"/t-0/{planted.name}: " in recovery.problem
        assert "a regular file belongs here" in recovery.problem
        assert "\n" not in recovery.problem
        end = min(base, 8)
        assert (log.start_offset, log.end_offset) == (0, end)
        assert [message.offset for message in stored(log, 0, end)] == list(range(end))
        with pytest.raises(DamagedLog):
            log.append(validated(ONE))
        with pytest.raises(DamagedLog):
            log.truncate_to(0) if end else log.append_entries(ONE, (5, 0), 0, 0)
        await log.note_damage()
        await log.close()
        assert bench.segments() == before
        bench.check_untouched(planted)

    asyncio.run(scenario())


@pytest.mark.parametrize(("suffix", "kind"), [planted for planted in PLANTED if planted[1] != "folder"])
@pytest.mark.parametrize("base", [0, 3, 9])
def test_a_damaged_log_that_is_copied_again_removes_the_link_but_not_the_file_behind_it(
    bench: Bench, base: int, suffix: str, kind: str
) -> None:
    async def scenario() -> None:
        await (await bench.fill(8)).close()
        if base > 6:
            (bench.folder / f"{base:020d}.log").touch()
        bench.plant(f"{base:020d}{suffix}", kind)
        log, _ = await bench.open(recovery_point=6)
        log.reset(3)
        await log.flush()
        log.append(validated(ONE))
        await log.close()
        assert bench.precious.read_bytes() == PRECIOUS
        assert bench.segments().keys() == {f"{3:020d}.log"}

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_compaction_does_not_write_through_a_planted_file(bench: Bench, kind: str) -> None:
    async def scenario() -> None:
        log = await bench.fill(8, compacted=True)
        planted = bench.plant(f"{0:020d}.log.cleaned", kind)
        plan = cleaner.plan_cleaning(log, 0, 8, TOPIC)
        assert plan is not None
        with pytest.raises(IrregularFileError, match=rf"a regular file belongs here.*{planted.name}"):
            await cleaner.clean(log, plan, 100, lambda count: None)
        assert [message.offset for message in stored(log, 0, 8)] == list(range(8))
        bench.check_untouched(planted)
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_does_not_swap_in_a_planted_file(bench: Bench, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        await (await bench.fill(8, compacted=True)).close()
        planted = bench.plant(format_swap_name(0, 6, len(PRECIOUS)), kind)
        log, recovery = await bench.open(clean=True, recovery_point=8, compacted=True)
        assert (recovery.damaged, log.end_offset) == (False, 8)
        assert [message.offset for message in stored(log, 0, 8)] == list(range(8))
        bench.check_untouched(planted)
        assert [name for name in caplog.messages if planted.name in name and "a regular file belongs here" in name]
        await log.close()

    asyncio.run(scenario())
