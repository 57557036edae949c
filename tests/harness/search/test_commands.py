"""``--explore`` and ``assay shrink`` on a small system: what they find, keep, print and refuse."""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run import store
from assay.harness.run.settings import Settings
from assay.harness.search import exploration, explore, shrink_run
from assay.harness.search.coverage_report import load_reports
from assay.harness.search.example import Example
from assay.harness.search.workers import run_search
from assay.harness.stored import replay
from assay.nemesis.schedule.schedule import FaultSchedule, decode_schedule

from helpers.commands import in_this_process

pytestmark = pytest.mark.slow

PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
SMALL = ("--nodes=1", "--time-limit=4", "--rate=20", "--store=runs", "--seed=5")


@pytest.mark.long
def test_a_search_finds_a_defect_and_needs_no_fault_for_it(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for of_a_rate in ("MOST_REPETITIONS", "RATE_RUNS"):
        monkeypatch.setattr(explore, of_a_rate, 2)  # the defect shows in every run
    monkeypatch.setattr(explore, "SHRINK_SECONDS", 0.0)  # by Hypothesis; what follows it takes out each step by itself
    one = functools.partial(run_search, workers=1)  # a second one finds the same, and makes it small for nothing
    monkeypatch.setattr(exploration, "run_search", lambda make, workers, note: one(make, note=note))
    done = toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--explore=4", "--defect=forgetful", "--nemesis=kill")
    done.assert_outcomes(failed=1)
    recorded = done.stdout.str()
    assert "lost-write" in recorded
    assert "to 0; with other seeds it fails 2 of 2 times (95 % confidence interval: 34-100 %)" in recorded
    assert "equal in other plays and another process" in recorded
    assert "replay: pytest " in recorded
    kept = list((toy_project.path / "runs" / "found").glob("*.json"))
    assert len(kept) == 1
    assert decode_schedule(kept[0].read_bytes()) == FaultSchedule(0)
    assert (toy_project.path / "runs" / "latest" / "report.html").exists()


@pytest.mark.long
def test_a_search_that_is_interrupted_says_what_it_had_found_and_leaves_its_schedule(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C at a terminal, which sends the signal to all processes, while the failure is made small."""
    scratch = toy_project.mkdir("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    asked = (*SMALL, "--explore=10min", "--defect=forgetful", "--nemesis=kill")
    searching = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PLAIN, *asked], cwd=toy_project.path, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert searching.stdout is not None
        begun = list(iter_until(searching.stdout, "; shrinking"))
        os.killpg(searching.pid, signal.SIGINT)
        rest, _ = searching.communicate(timeout=60)
    finally:
        searching.kill()
    text = "".join(begun) + rest
    assert searching.returncode == pytest.ExitCode.INTERRUPTED, text
    found = text[text.index("\nFOUND ") + 1 :].splitlines()
    (kept,) = (toy_project.path / "runs" / "found").glob("*.json")
    schedule = decode_schedule(kept.read_bytes())
    assert isinstance(schedule, FaultSchedule)
    steps = len(schedule.steps)
    assert "lost-write" in found[0].partition(" after ")[0]
    small = re.fullmatch(
        r"interrupted while it was made small: (\d+) of (\d+) steps are left; it was not played again", found[1]
    )
    assert small is not None, found
    assert steps == int(small[1]) <= int(small[2])
    assert found[2].startswith("  1 node, "), "what else the run needs"
    assert all(" s  kill " in line for line in found[3 : 3 + steps]), "a line for each step"
    assert found[3 + steps] == f"schedule: {kept}"
    assert found[4 + steps].startswith("replay: pytest ")
    kept_there = sorted(one.name for one in (toy_project.path / "runs").iterdir())
    assert kept_there == ["found", "searches"], "what it has reached is there, and nothing was played"
    assert list(scratch.iterdir()) == [], "nor is anything else left"
    again = [sys.executable, "-m", *shlex.split(found[4 + steps].removeprefix("replay: ")), *PLAIN]
    played = subprocess.run(again, cwd=toy_project.path, capture_output=True, text=True, timeout=120, check=False)
    assert played.returncode == pytest.ExitCode.TESTS_FAILED
    assert "FAIL inconsistent-offset" in played.stdout


def iter_until(lines: Iterable[str], last: str) -> Iterator[str]:
    """As far as the first one that has this."""
    for line in lines:
        yield line
        if last in line:
            return


@pytest.mark.long
def test_a_search_that_finds_nothing_passes_and_tells_what_it_did(toy_project: pytest.Pytester) -> None:
    done = toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--explore=3", "--nemesis=clock")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["assay: a search found nothing in 3 examples"])
    done.stdout.fnmatch_lines(["explored * examples in *pass*states reached*"])
    assert [one.name for one in (toy_project.path / "runs").iterdir()] == ["searches"], "no run, and no schedule"
    (reached,) = load_reports(toy_project.path / "runs")
    assert reached.verdicts == {"pass": 3}


def test_what_a_search_reaches_of_the_systems_code_is_shown(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy is one module; without its defect it never forgets. With ``off`` nothing is counted."""
    one = functools.partial(run_search, workers=1)
    monkeypatch.setattr(exploration, "run_search", lambda make, workers, note: one(make, note=note))
    source = (toy_project.path / "toy_log.py").read_text()
    forgets = next(number for number, line in enumerate(source.splitlines(), 1) if "self.defect ==" in line)
    for wanted in ("auto", "off"):
        runs = toy_project.path / wanted
        options = ("--explore=1", "--nemesis=clock", f"--code-coverage={wanted}", f"--store={runs}")
        toy_project.runpytest_inprocess(*PLAIN, *SMALL[:-2], "--seed=5", *options).assert_outcomes(passed=1)
        (reached,) = load_reports(runs)
        if wanted == "off":
            assert reached.code == ()
            continue
        (module,) = reached.code
        assert module.file == "toy_log.py"
        assert (forgets, True) in module.untaken
        assert (forgets, False) not in module.untaken
        assert "ToySystem.with_defect" in [function.name for function in module.uncalled]
        assert "Server.serve" not in [function.name for function in module.uncalled]
        assert main(["search", "show", str(runs)]) == ExitCode.PASS
        assert f"{forgets} never true" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--explore=5", "--cluster=docker"), "searches in the simulation"),
        (("--explore=5", "--repeat=2"), "draws its own schedules"),
        (("--explore=soon",), "is not a whole number"),
        (("--explore=0",), "--explore=0 must be between 0.001 and 1,000,000,000 examples, or seconds"),
        (("--code-coverage=on",), "needs --explore"),
        (("--explore=5", "--code-coverage=perhaps"), "is not one of auto, on, off"),
        (("--set=partitions",), "is not written as NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(toy_project: pytest.Pytester, options: tuple[str, ...], message: str) -> None:
    done = toy_project.runpytest_inprocess(*PLAIN, *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr.str() + done.stdout.str()


def test_a_failing_run_is_made_small(
    toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (*PLAIN, *SMALL, "--cluster=sim", "--nemesis=kill", "--nemesis-target=one", "--nemesis-interval=1.5")
    run = (*run, "--defect=forgetful", "--concurrency=1")
    toy_project.runpytest_inprocess(*run, "--reports=never").assert_outcomes(failed=1)
    capfd.readouterr()
    in_this_process(toy_project, monkeypatch, replay, *PLAIN)
    assert main(["shrink", "runs/latest", "--replays=1", "--yes"]) == ExitCode.PASS
    recorded = capfd.readouterr().out
    assert "from 1 step to 0" in recorded
    assert "failure rate: before 1 of 1" in recorded
    assert "not minimal" not in recorded
    assert "replay: pytest " in recorded
    found = list(Path("runs/found").glob("*.json"))
    kept = [decode_schedule(path.read_bytes()) for path in found]
    assert [one.steps for one in kept if isinstance(one, FaultSchedule)] == [()]
    (page,) = Path("runs").glob("*/2*/report.html")
    assert f"report: {page.absolute()}" in recorded
    assert len(list(Path("runs").glob("*/2*/verdict.json"))) > 2
    for run in Path("runs").glob("*/2*/run.json"):
        played = re.search(r"--replay=(\S+)", run.read_text())
        assert played is None or Path(played[1].rstrip('",')).is_file(), (
            "the command of a run that is kept can be given"
        )
    monkeypatch.setattr(shrink_run, "time", SimpleNamespace(monotonic=iter((0.0, math.inf)).__next__))
    assert main(["shrink", "runs/latest", "--replays=2", "--budget=1", "--store=other", "--yes"]) == ExitCode.USAGE
    assert "--budget=1 ended after 1 of 2 replays; 1 of them failed." in capfd.readouterr().err


BESIDE = """
import sys
from pathlib import Path

import msgspec

from assay.checkers.judging.verdict import Judgement, Verdict
from assay.cluster.owner import current_owner
from assay.harness.run import store

PASSED = Judgement(verdict=Verdict.PASS, anomalies={}, forbidden=(), tolerated=(), findings=(), examined=(), unknown=(),
                   operations=1, effects=1, seconds=0.0, engine="sqlite")

def made(name, command, owner):
    run = Path("runs/t") / name
    run.mkdir(parents=True)
    info = store.RunInfo(test="t", status="finished", started="", owner=owner, seed=1, cluster="sim", nemesis="none",
                         command=command)
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    (run / "verdict.json").write_bytes(msgspec.json.encode(PASSED))
    store.swap_link(Path("runs") / store.LATEST, run)

def test_it():
    command = " ".join(word for word in sys.argv if "::" in word or word.startswith("--"))
    made("1", command, str(current_owner()))
    made("2", command, "")
"""


def test_the_run_of_another_session_is_neither_judged_nor_deleted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=BESIDE)
    root, settings = pytester.path / "runs", Settings(seed=7, cluster="sim")
    first = store.RunInfo(
        test="t", status="finished", started="", owner="", seed=1, cluster="sim", nemesis="none", command="pytest"
    )
    runner = shrink_run._Runner(first, "test_it.py::test_it", settings, root, frozenset({"lost-write"}), print, None)
    assert not runner.fails(Example.of(settings, FaultSchedule(0)))
    assert [one.name for one in (root / "t").iterdir()] == ["2"]
    assert list((root / shrink_run.FOLDER).iterdir()) == [], "nor is the schedule left of one that did not fail"


def test_a_run_that_found_nothing_is_not_made_small(
    toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    toy_project.runpytest_inprocess(*PLAIN, *SMALL, "--cluster=sim", "--reports=never").assert_outcomes(passed=1)
    capfd.readouterr()
    assert main(["shrink", "runs/latest"]) == ExitCode.USAGE
    assert "nothing to shrink" in capfd.readouterr().err
