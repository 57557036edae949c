"""Tests that what the rest of a run would have excused is not held against one that was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.run.settings import Settings
from assay.workloads import (
    test_async_sends,
    test_controller,
    test_draft_group,
    test_group,
    test_log,
    test_migration,
    test_offsets,
    test_storage,
    test_zookeeper_group,
)

from helpers.attempts import played
from helpers.cut_short import cut_short, moments, passing
from helpers.judging import judge
from helpers.nightly import by_night
from helpers.stored_runs import FIXTURES


def judged(run: Path, at: int, folder: Path) -> Judgement:
    settings = json.loads((run / "settings.json").read_text())
    contract = Contract.from_json(json.dumps(settings["contract"]))
    return judge(cut_short(open_history(run / "history"), at, folder), contract, interrupted=True)


MOMENTS: Final = (2_500, 3_700, 4_300, 5_500, 6_700, 7_500)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "cuts"),
    [(1, MOMENTS[::2]), *(pytest.param(seed, MOMENTS, marks=pytest.mark.long) for seed in (1, 2, 3, 4239495943))],
)
def test_of_a_log_that_lost_power_everywhere(seed: int, cuts: tuple[int, ...], tmp_path: Path) -> None:
    """Which of its last records are gone is not known before someone has read that far."""
    settings = Settings(
        seed, nemesis=("power-loss",), nemesis_target="all", nemesis_interval=3.0, time_limit=8.0, rate=100.0,
        store=tmp_path,
    )  # fmt: skip
    whole = played(test_storage.test_unflushed, settings)
    assert whole.judgement is not None
    assert whole.judgement.verdict is Verdict.PASS
    assert whole.judgement.anomalies.get("unflushed-loss", 0) > 0
    for number, at in enumerate(cuts):
        cut = judged(whole.folder.path, at * 1_000_000, tmp_path / str(number))
        assert cut.verdict is Verdict.UNKNOWN, (at, cut.findings)


WORKLOADS: Final = (
    test_log.test_log, test_offsets.test_offsets, test_async_sends.test_async_sends, test_controller.test_controller,
    test_controller.test_moves, test_storage.test_storage, test_storage.test_unflushed, test_group.test_group,
    test_draft_group.test_draft_group, test_zookeeper_group.test_zookeeper_group, test_migration.test_migration,
)  # fmt: skip


SEEDS: Final[dict[object, int]] = {test_storage.test_unflushed: 7}
"""Seeds of workloads whose run with seed 5 is unknown, because its faults are shorter than a failover."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "cuts"),
    [
        (WORKLOADS[0], 2),
        *((test, 20) for test in WORKLOADS),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_of_every_workload_with_all_that_may_be_drawn(test: object, cuts: int, tmp_path: Path) -> None:
    """Operations and faults of every kind, by the seed."""
    settings = Settings(
        SEEDS.get(test, 5), nemesis=("mix",), workload_mix=("random",), nemesis_interval=1.5, time_limit=8.0, rate=60.0,
        store=tmp_path,
    )  # fmt: skip
    whole = played(test, settings)
    assert whole.judgement is not None
    assert whole.judgement.verdict is Verdict.PASS, whole.judgement
    for number, at in enumerate(moments(open_history(whole.folder.path / "history"), cuts)):
        cut = judged(whole.folder.path, at, tmp_path / str(number))
        assert cut.verdict is Verdict.UNKNOWN, (at, cut.findings)


STORED: Final = passing(FIXTURES)
BY_DAY: Final = [(run, 2) for run in STORED if run.name == "log-pass-mixed"][:1]


@pytest.mark.parametrize(
    ("run", "cuts"), [*BY_DAY, *(by_night(run, 20) for run in STORED)], ids=lambda given: getattr(given, "name", given)
)
def test_of_every_workload(run: Path, cuts: int, tmp_path: Path) -> None:
    for number, at in enumerate(moments(open_history(run / "history"), cuts)):
        cut = judged(run, at, tmp_path / str(number))
        assert cut.verdict is Verdict.UNKNOWN, (at, cut.findings)
