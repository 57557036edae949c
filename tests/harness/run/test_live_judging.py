"""The process that judges a run while it goes on: what comes back from it, and that it ends with the run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.run import live_judging as module
from assay.harness.run.interrupt import Interrupt
from assay.harness.run.live_judging import (
    FAILED_FAST,
    MAX_LINE,
    UNWATCHED,
    LiveJudge,
    LiveJudgement,
    encode_judgement,
)
from assay.harness.run.progress import RunTally, SilentProgress

from helpers.growing_run import GrowingRun
from helpers.nightly import by_night

LONGEST = 60.0


@dataclass
class Heard(SilentProgress):
    """Progress that keeps the alarms."""

    alarms: list[str] = field(default_factory=list)

    def alarm(self, text: str) -> None:
        self.alarms.append(text)


async def until(it_is: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST):
        while not it_is():  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.05)


def watched(run: GrowingRun, *, fail_fast: bool = False) -> tuple[LiveJudge, Heard, Interrupt, RunTally]:
    heard, interrupt, tally = Heard(), Interrupt(), RunTally()
    return LiveJudge(run.path, heard, tally, interrupt, fail_fast), heard, interrupt, tally


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("fail_fast", [by_night(False), True])
def test_a_loss_is_reported_once_while_the_run_goes_on(fail_fast: bool, tmp_path: Path) -> None:
    async def play() -> None:
        run = GrowingRun(tmp_path)
        watch, heard, interrupt, tally = watched(run, fail_fast=fail_fast)
        await watch.start()
        try:
            run.add(1)
            run.read(1)
            run.history.flush()
            await until(lambda: tally.judged_until is not None)
            assert heard.alarms == []
            assert not interrupt.requested
            run.read()
            run.history.flush()
            await until(lambda: bool(heard.alarms))
            run.read()
            run.history.flush()
            known = tally.judged_until
            await until(lambda: tally.judged_until != known)
        finally:
            process = watch.process
            await watch.stop()
        assert process is not None
        assert gone(process.pid)
        assert len(heard.alarms) == 1
        assert heard.alarms[0].startswith("at 0.0 s, while the run goes on: FAIL set-vanished: ")
        assert watch.found == {"set-vanished"}
        assert watch.problems == []
        assert interrupt.requested is fail_fast
        assert not interrupt.by_user
        assert interrupt.reason == (FAILED_FAST if fail_fast else None)

    asyncio.run(play())


@pytest.mark.long
def test_it_leaves_no_temporary_files_when_it_is_asked_to_end_at_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(module, "END_SECONDS", LONGEST)

    async def play() -> None:
        run = GrowingRun(tmp_path / "store")
        run.adding(0)  # what is under way is copied for as long as it is looked at
        for element in range(1, 3_000):
            run.add(element)
        run.history.flush()
        watch, _, _, _ = watched(run)
        await watch.start()
        try:
            await until(lambda: any(scratch.glob("*/assay-watch-*")))
        finally:
            await watch.stop()
        assert list(scratch.iterdir()) == []
        assert watch.problems == []

    asyncio.run(play())


def test_it_leaves_no_temporary_files_when_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    async def play() -> None:
        run = GrowingRun(tmp_path / "store")
        run.add(0)
        run.history.flush()
        watch, _, _, _ = watched(run)
        await watch.start()
        try:
            (folder,) = scratch.iterdir()
            (folder / "left").write_text("by a process that was killed")
            assert watch.process is not None
            watch.process.kill()
            await watch.process.wait()
        finally:
            await watch.stop()
        assert list(scratch.iterdir()) == []

    asyncio.run(play())


@pytest.mark.long
def test_that_it_ended_early_is_a_problem_of_the_run(tmp_path: Path) -> None:
    async def play() -> None:
        run = GrowingRun(tmp_path)
        (run.path / "run.json").write_text("{")
        watch, heard, _, _ = watched(run)
        await watch.start()
        await until(lambda: bool(heard.alarms))
        (problem,) = watch.problems
        assert problem.startswith("--watch ended early: assay watch exited with 64: ")
        assert "run" in problem
        assert heard.alarms == [f"at 0.0 s: {problem}; {UNWATCHED}"], "said at once, and not at the run's end"
        await watch.stop()
        assert watch.problems == [problem]
        assert len(heard.alarms) == 1

    asyncio.run(play())


def in_place_of_it(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell script that behaves as no ``assay watch`` should."""
    monkeypatch.setattr(module, "make_watch_command", lambda run: ["sh", "-c", script])


SEEN = LiveJudgement(until=3.5, taken=0.1, operations=1, found={}, text="", ended=False)


def test_what_it_complains_of_never_holds_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more_than_any_pipe = 4 * MAX_LINE
    in_place_of_it(
        monkeypatch,
        f"yes | head -c {more_than_any_pipe} >&2; echo '{encode_judgement(SEEN)}'; echo no more >&2; exit 3",
    )

    async def play() -> None:
        watch, heard, interrupt, tally = watched(GrowingRun(tmp_path), fail_fast=True)
        await watch.start()
        await until(lambda: bool(heard.alarms))
        assert tally.judged_until == SEEN.until, "it came as far as its line"
        assert not interrupt.requested
        await watch.stop()
        (problem,) = watch.problems
        assert problem.startswith("--watch ended early: assay watch exited with 3: ")
        assert problem.endswith("no more")
        assert heard.alarms == [f"at 0.0 s: {problem}; {UNWATCHED}, so --fail-fast cannot end it"]

    asyncio.run(play())


def test_what_it_prints_and_no_one_understands_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_it(monkeypatch, "echo nonsense; exec sleep 1000")

    async def play() -> None:
        watch, heard, _, _ = watched(GrowingRun(tmp_path))
        await watch.start()
        process = watch.process
        await until(lambda: bool(heard.alarms))
        await watch.stop()
        assert process is not None
        assert gone(process.pid)
        (problem,) = watch.problems
        assert problem.startswith("--watch ended early: assay watch printed what is no judgement: ")

    asyncio.run(play())


def test_its_end_with_the_run_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_it(monkeypatch, f"echo '{encode_judgement(SEEN)}'; exec sleep 1000")

    async def play() -> None:
        watch, heard, _, tally = watched(GrowingRun(tmp_path))
        await watch.start()
        await until(lambda: tally.judged_until is not None)
        await watch.stop()
        assert (watch.problems, heard.alarms) == ([], [])

    asyncio.run(play())


def test_its_end_leaves_a_run_that_is_not_watched_alone(tmp_path: Path) -> None:
    async def play() -> None:
        watch, _, interrupt, _ = watched(GrowingRun(tmp_path))
        await watch.stop()
        assert watch.problems == []
        assert not interrupt.requested

    asyncio.run(play())


def test_the_watcher_imports_no_library_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('executed')")
    done = subprocess.run(
        module.make_watch_command(tmp_path / "none"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "executed" not in done.stderr
    assert done.returncode == ExitCode.USAGE
