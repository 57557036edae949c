"""Tests what a person who waits for ``assay check`` sees.

How far it is, what is known at Ctrl-C, where the time went.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.time_estimate import TimeEstimate
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.stored.by_contract import open_stored

from helpers.stored_runs import TODAY

FAILS = TODAY / "synthetic-set-set-lost"
STAGES = ("validating", "checking", "looking through the files")

Step = tuple[str, float, float]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    found: list[Step] = []
    monkeypatch.setattr(TimeEstimate, "step", lambda _, *step: found.append(step))
    return found


def of(steps: list[Step], stage: str) -> list[Step]:
    return [step for step in steps if step[0].startswith(stage)]


def test_each_stage_says_how_far_it_is(steps: list[Step]) -> None:
    assert main(["check", str(FAILS)]) == ExitCode.FAIL
    assert [step for stage in STAGES for step in of(steps, stage)] == steps, "one after the other, and no other"
    for stage in STAGES:
        mine = of(steps, stage)
        assert len(mine) > 1
        assert [done for _, done, _ in mine] == sorted(done for _, done, _ in mine)
        assert len({total for _, _, total in mine[1:]}) == 1
    history = open_stored(FAILS).open_complete_part()
    rows = sum(map(history.rows, DATA_SETS))
    assert steps[-1] == ("looking through the files", rows, rows), "each value is read once"


@pytest.mark.parametrize(
    ("stage", "word", "reason"),
    [
        ("validating", "UNKNOWN", "interrupted before the first check: the history was still being validated"),
        ("checking, now set-lost", "UNKNOWN", "interrupted; of the checks, only these were done: "),
        ("looking through the files", "FAIL", None),
    ],
)
def test_ctrl_c_leaves_what_is_known(
    stage: str, word: str, reason: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pressed: list[str] = []

    def step(_: TimeEstimate, what: str, done: float, total: float) -> None:
        if what.startswith(stage) and not pressed:
            pressed.append(what)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TimeEstimate, "step", step)
    assert main(["check", str(FAILS)]) == ExitCode.INTERRUPTED
    said = capsys.readouterr()
    assert said.out.startswith(word)
    assert reason is None or reason in said.out
    assert said.err == "assay: interrupted\n"


def test_a_failure_that_was_not_compared_with_the_digest_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(_: TimeEstimate, what: str, done: float, total: float) -> None:
        if what == "looking through the files" and done == total:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TimeEstimate, "step", step)
    assert main(["check", str(FAILS), "--json"]) == ExitCode.INTERRUPTED
    judgement = json.loads(capsys.readouterr().out)
    assert judgement["verdict"] == "fail"
    assert judgement["interrupted"]
    assert "interrupted before all files were compared with what the run wrote" in judgement["unknown"]


def test_the_time_of_all_stages_is_accounted_for(steps: list[Step], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FAILS), "--json"]) == ExitCode.FAIL
    judgement: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(judgement["stages"]) == [
        "starting the command",
        "opening the files",
        "starting the engine",
        "validating",
        "checking",
        "looking through the files",
        "looking up the operations",
    ]
    assert all(seconds >= 0 for seconds in judgement["stages"].values())
    judged = judgement["stages"]["validating"] + judgement["stages"]["checking"]
    assert judged == pytest.approx(judgement["seconds"], abs=1e-5)
    assert sum(one["seconds"] for one in judgement["examined"]) <= judgement["stages"]["checking"]
