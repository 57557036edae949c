"""Runs that once showed an error of the broker, the harness or the simulation: the correct build passes them.

Each file of ``tests/regressions`` is one example of a search, with what it showed. A seed alone would not do: with any
other number of packets it means another run, so the nightly run plays each example with its neighbours as well.
"""

from __future__ import annotations

import importlib
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings
from assay.harness.search.example import Example
from assay.harness.search.player import Player, PlayOutcome
from assay.nemesis.schedule.schedule import FaultSchedule, decode_schedule
from assay.system_under_test.defects import DEFECTS

FOLDER = Path(__file__).parent / "regressions"
ROOT = Path(__file__).parent.parent
TRIES = 20
AFTERWARDS = 14.0
"""Seconds of a run after its last fault has begun."""


class Regression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``why``: what it showed; ``test``: ``module:function`` of the workload."""

    why: str
    test: str
    example: Example


def found(test: str) -> Experiment:
    module, _, name = test.partition(":")
    experiment = find_experiment(getattr(importlib.import_module(module), name))
    assert experiment is not None
    return experiment


BY_NIGHT = {"power-loss-of-all", "replaced-leader-wakes"}
"""By day other tests play the same fault on that workload, or look at what was mended by itself."""


def by_day(path: Path) -> Any:
    return pytest.param(path, marks=[pytest.mark.long] if path.stem in BY_NIGHT else [], id=path.stem)


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", [by_day(path) for path in sorted(FOLDER.glob("*.json"))])
def test_what_once_failed_passes(path: Path, seeds: int, tmp_path: Path) -> None:
    regression = msgspec.json.decode(path.read_bytes(), type=Regression)
    player = Player(found(regression.test), Settings(0, store=tmp_path), tmp_path / "schedules", Engines("duckdb"))
    for seed in range(regression.example.seed, regression.example.seed + seeds):
        outcome = player.play(msgspec.structs.replace(regression.example, seed=seed))
        assert not outcome.failures, f"{regression.why}\n{outcome.text}\n{outcome.problem}"


def of(defect: str) -> dict[str, Any]:
    """Returns the settings in the command of the run that catches a defect.

    They are ``test`` (module and function), ``nodes``, ``rate``, ``mix`` and ``configuration``.
    """
    path, *options = shlex.split(DEFECTS[defect].run)
    given = [option.removeprefix("--").partition("=") for option in options]
    named = {name: value for name, _, value in given}
    module = Path(path).stem
    chosen = f"test_{options[options.index('-k') + 1]}" if "-k" in options else module
    return {
        "test": f"{module}:{chosen}",
        "nodes": int(named.get("nodes", 3)),
        "rate": float(named["rate"]),
        "mix": tuple(value for name, _, value in given if name == "workload-mix"),
        "configuration": tuple(value for name, _, value in given if name == "set"),
    }


BY_COMMAND = (
    "double-failover", "early-isr-rejoin", "epoch-not-recorded", "fetch-append-race", "former-incarnation",
    "last-replica", "stale-leader-and-isr", "wiped-replica", "zombie-follower",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "test", "nodes", "rate", "first", "afterwards"),
    [
        pytest.param(*("truncate-to-hw", "test_log", 5, 200.0, 5, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("divergent-tail", "test_log", 3, 200.0, 1, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("no-crc-recovery", "test_log", 3, 200.0, 1, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("index-trusted", "test_storage", 3, 100.0, 2, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("hw-checkpoint-lost", "test_storage", 5, 100.0, 3, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("read-above-hw", "test_log", 3, 200.0, 1, AFTERWARDS), marks=pytest.mark.long),
        ("cached-zk-version", "test_log", 3, 50.0, 1, 8.0),
        pytest.param(*("lost-registration", "test_controller", 3, 100.0, 1, AFTERWARDS), marks=pytest.mark.long),
        pytest.param(*("retry-reorders", "test_async_sends", 3, 60.0, 1, AFTERWARDS), marks=pytest.mark.long),
    ],
)
def test_a_shrunk_schedule_finds_its_defect_and_nothing_without_it(
    defect: str, test: str, nodes: int, rate: float, first: int, afterwards: float, tmp_path: Path
) -> None:
    """A shrunk schedule fails with some seeds only: three to ten of ten. ``first``: one of them, tried first.

    The defects of the tests marked ``long`` are found by other tests as well.
    """
    schedule = shrunk(defect)
    limit = max(step.at for step in schedule.steps) + afterwards
    example = Example(first, schedule, nodes, 1, 6, rate, limit)
    finds(defect, found(f"assay.workloads.{test}:{test}"), example, Settings(0, store=tmp_path))


UNANSWERED = {"double-failover", "last-replica"}
"""Without the defect the run is unknown.

Nothing can succeed under the faults of ``last-replica``. The third fault of ``double-failover`` waits for a leader that
the correct broker may choose too late.
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("defect", BY_COMMAND)
def test_a_shrunk_schedule_finds_its_defect_by_the_command_that_does(defect: str, tmp_path: Path) -> None:
    """Only its schedule and its time limit differ. At least six of ten seeds find the defect, the first one at once."""
    run, schedule = of(defect), shrunk(defect)
    limit = max(step.until for step in schedule.steps) + 10
    example = Example(21, schedule, run["nodes"], 1, 6, run["rate"], limit, run["configuration"])
    settings = Settings(0, store=tmp_path, workload_mix=run["mix"])
    finds(defect, found(f"assay.workloads.{run['test']}"), example, settings)


def shrunk(defect: str) -> FaultSchedule:
    return decode_schedule((ROOT / "schedules" / "shrunk" / f"{defect}.json").read_bytes())


def finds(defect: str, experiment: Experiment, example: Example, settings: Settings) -> None:
    """With the seed of the example and those after it, until one run has found the defect; and once without it."""

    def play(seed: int, switched_on: str | None) -> PlayOutcome:
        chosen = replace(settings, defect=switched_on)
        player = Player(experiment, chosen, settings.store / "schedules", Engines("duckdb"))
        return player.play(msgspec.structs.replace(example, seed=seed))

    without = play(1, None)
    assert not without.failures, without.text
    assert without.verdict == "pass" or defect in UNANSWERED, without.problem
    seen: set[str] = set()
    for seed in range(example.seed, example.seed + TRIES):
        seen |= play(seed, defect).failures
        if seen & set(DEFECTS[defect].anomalies):
            return
    pytest.fail(f"{defect} was not found in {TRIES} runs, only {sorted(seen)}")
