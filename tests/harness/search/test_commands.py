"""``--explore`` and ``assay shrink`` on a small system: what they find, keep, print and refuse."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.harness.cli.command import Exit
from assay.harness.cli.main import main
from assay.harness.search import exploration, explore, shrunk
from assay.harness.search.workers import search
from assay.nemesis.schedule import Schedule, decode

pytestmark = pytest.mark.slow

PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
SMALL = ("--nodes=1", "--time-limit=4", "--rate=50", "--store=runs", "--seed=5")


def test_a_search_finds_a_defect_and_needs_no_fault_for_it(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for of_a_rate in ("MOST_REPETITIONS", "RATE_RUNS"):
        monkeypatch.setattr(explore, of_a_rate, 2)  # the defect shows in every run
    one = functools.partial(search, workers=1)  # a second one finds the same, and makes it small for nothing
    monkeypatch.setattr(exploration, "search", lambda make, workers, note: one(make, note=note))
    done = toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--explore=4", "--defect=forgetful", "--nemesis=kill")
    done.assert_outcomes(failed=1)
    told = done.stdout.str()
    assert "lost-write" in told
    assert "to 0; with other seeds it fails 2 of 2, 95 % 34-100 %" in told
    assert "the same again in other plays and another process" in told
    assert "replay: pytest " in told
    kept = list((toy_project.path / "runs" / "found").glob("*.json"))
    assert len(kept) == 1
    assert decode(kept[0].read_bytes()) == Schedule(0)
    assert (toy_project.path / "runs" / "latest" / "report.html").exists()


def test_a_search_that_finds_nothing_passes_and_tells_what_it_did(toy_project: pytest.Pytester) -> None:
    done = toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--explore=3", "--nemesis=clock")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["explored * examples in *pass*states reached*"])
    assert not (toy_project.path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--explore=5", "--cluster=docker"), "searches in the simulation"),
        (("--explore=5", "--repeat=2"), "draws its own schedules"),
        (("--explore=soon",), "is not a whole number"),
        (("--explore=0",), "must be at least 1"),
        (("--set=partitions",), "is not NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(toy_project: pytest.Pytester, options: tuple[str, ...], message: str) -> None:
    done = toy_project.runpytest_inprocess(*PLAIN, *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr.str() + done.stdout.str()


def in_this_process(project: pytest.Pytester, patch: pytest.MonkeyPatch) -> None:
    """What the first command of ``assay shrink`` shows, no other has to: the rest start no interpreter."""
    commands: list[list[str]] = []
    start = subprocess.run

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if len(commands) == 1:
            return start(command, **given)
        assert command[:3] == commands[0][:3]
        result = project.runpytest_inprocess(*PLAIN, *command[3:])
        return subprocess.CompletedProcess(command, int(result.ret), result.stdout.str(), result.stderr.str())

    patch.setattr(shrunk, "subprocess", SimpleNamespace(run=run))


def test_a_failing_run_is_made_small(
    toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (*PLAIN, *SMALL, "--cluster=sim", "--nemesis=kill", "--nemesis-target=one", "--nemesis-interval=1.5")
    run = (*run, "--defect=forgetful", "--concurrency=1")
    toy_project.runpytest_inprocess(*run, "--reports=never").assert_outcomes(failed=1)
    capfd.readouterr()
    in_this_process(toy_project, monkeypatch)
    assert main(["shrink", "runs/latest", "--replays=1"]) == Exit.PASS
    told = capfd.readouterr().out
    assert "from 1 steps to 0" in told
    assert "it failed 1 of 1" in told
    assert "not minimal" not in told
    assert "replay: pytest " in told
    found = list(Path("runs/found").glob("*.json"))
    kept = [decode(path.read_bytes()) for path in found]
    assert [one.steps for one in kept if isinstance(one, Schedule)] == [()]
    (page,) = Path("runs").glob("*/2*/report.html")
    assert f"report: {page.absolute()}" in told
    assert len(list(Path("runs").glob("*/2*/verdict.json"))) > 2


def test_a_run_that_found_nothing_is_not_made_small(
    toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--cluster=sim", "--reports=never").assert_outcomes(passed=1)
    capfd.readouterr()
    assert main(["shrink", "runs/latest"]) == Exit.USAGE
    assert "nothing to be made small" in capfd.readouterr().err
