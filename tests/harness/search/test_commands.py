"""``--explore`` and ``assay shrink`` on a small system: what they find, keep, print and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli.command import Exit
from assay.harness.cli.main import main
from assay.nemesis.schedule import Schedule, decode

pytestmark = pytest.mark.slow

PLAIN = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
SMALL = ("--nodes=1", "--time-limit=4", "--rate=50", "--store=runs", "--seed=5")


FEWER_RUNS = """
from assay.harness.search import explore

explore.MOST_REPETITIONS = explore.RATE_RUNS = 2
"""
"""For a defect that shows in every run."""


def test_a_search_finds_a_defect_and_needs_no_fault_for_it(toy_project: pytest.Pytester) -> None:
    toy_project.makeconftest(FEWER_RUNS)
    done = toy_project.runpytest_subprocess(*PLAIN, *SMALL, "--explore=20", "--defect=forgetful", "--nemesis=kill")
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
    done = toy_project.runpytest_subprocess(*PLAIN, *SMALL, "--explore=6", "--nemesis=clock")
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


def test_a_failing_run_is_made_small(toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str]) -> None:
    run = (*PLAIN, *SMALL, "--cluster=sim", "--nemesis=kill", "--nemesis-target=one", "--nemesis-interval=1.5")
    run = (*run, "--defect=forgetful", "--concurrency=1")
    toy_project.runpytest_inprocess(*run, "--reports=never").assert_outcomes(failed=1)
    capfd.readouterr()
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
