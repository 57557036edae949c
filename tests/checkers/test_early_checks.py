"""Tests that what is said of a run while it goes on is said of it as a whole, too."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

import pytest

from assay.checkers.check import Check, Family, Table
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.early_checks import LATE_NOTE, LATE_TABLES, is_judged_late, select_early_checks
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement

from helpers.cut_short import Row, cut_short, moments, passing
from helpers.judging import judge
from helpers.stored_runs import FIXTURES, TODAY

FAILING: Final = tuple(
    path.parent
    for path in sorted(FIXTURES.glob("format_*/*/expected.json"))
    if json.loads(path.read_text())["judgement"]["verdict"] == "fail"
)


LATER: Final = {"lost-write": "vanished"}
"""A loss may have another name in the end, when someone has seen what was lost."""


class Lagging:
    """Whether a row is there at an instant: of each node, what it reported until some moment before it."""

    def __init__(self, at: int, seed: int) -> None:
        self._at = at
        self._chance = random.Random(seed)
        self._until: dict[str, int] = {}

    def __call__(self, name: str, row: Row) -> bool:
        if name not in LATE_TABLES:
            return True
        node = str(row.get("node"))
        if node not in self._until:
            self._until[node] = self._chance.randint(0, self._at)
        return bool(row["time"] <= self._until[node])


def still_running(run: Path, at: int, folder: Path) -> Judgement:
    """Returns what is known of a stored run at this instant, while the event logs of its nodes lag behind."""
    settings = run / "settings.json"
    own = json.loads(settings.read_text())["contract"] if settings.exists() else None
    contract = Contract() if own is None else Contract.from_json(json.dumps(own))
    cut = cut_short(open_history(run / "history"), at, folder, there=Lagging(at, at))
    return judge(cut, contract, still_running=True)


@pytest.mark.parametrize(
    ("run", "cuts"),
    [
        *((run, 1) for run in passing(FIXTURES)[::16]),
        *(pytest.param(run, 12, marks=pytest.mark.long) for run in passing(FIXTURES)),
    ],
    ids=lambda given: getattr(given, "name", str(given)),
)
def test_no_run_that_passes_is_accused_on_its_way(run: Path, cuts: int, tmp_path: Path) -> None:
    for number, at in enumerate(moments(open_history(run / "history"), cuts)):
        judged = still_running(run, at, tmp_path / str(number))
        assert not set(judged.anomalies) & set(judged.forbidden), (at, judged.findings)


@pytest.mark.parametrize(
    ("run", "cuts"),
    [
        *((run, 1) for run in FAILING[::24]),
        *(pytest.param(run, 12, marks=pytest.mark.long) for run in FAILING),
    ],
    ids=lambda given: getattr(given, "name", str(given)),
)
def test_what_is_found_on_the_way_is_found_in_the_end(run: Path, cuts: int, tmp_path: Path) -> None:
    whole = json.loads((run / "expected.json").read_text())["judgement"]["anomalies"]
    for number, at in enumerate(moments(open_history(run / "history"), cuts)):
        judged = still_running(run, at, tmp_path / str(number))
        found = {LATER.get(name, name) if name not in whole else name for name in judged.anomalies}
        assert found <= set(whole), (at, judged.findings)


EARLY: Final = (
    "log-vanished", "log-inconsistent-offset", "offsets-stale-read", "synthetic-set-set-lost",
)  # fmt: skip


@pytest.mark.parametrize("name", EARLY)
def test_what_clients_saw_is_found_while_the_run_goes_on(name: str, tmp_path: Path) -> None:
    run = TODAY / name
    whole = json.loads((run / "expected.json").read_text())["judgement"]
    history = open_history(run / "history")
    last = max(row["call"] for row in history.table("ops").select(["call"]).to_pylist())
    judged = still_running(run, last + 60_000_000_000, tmp_path / "h")
    assert set(judged.anomalies) & set(whole["forbidden"])


def test_a_check_that_reads_what_comes_late_waits() -> None:
    late = {check.anomaly for family in FAMILIES for check in family.checks if is_judged_late(family, check)}
    assert {"two-leaders", "early-acknowledgement", "replica-divergence", "unseen", "zombie-commit"} <= late
    assert late.isdisjoint({"lost-write", "vanished", "stale-read", "set-lost", "G1c", "offset-regression"})
    for family in FAMILIES:
        kept = {check.anomaly for check in select_early_checks(family).checks}
        assert kept == {check.anomaly for check in family.checks} - late


def _check(sql: str) -> Check:
    return Check(
        anomaly="own",
        meaning="it is so",
        violations=sql,
        evidence="select 1",
        examined="select 1",
        claim="it is so",
    )


def test_a_check_of_ones_own_waits_if_it_reads_events_by_way_of_another_view() -> None:
    by_way = Table("own_deleted", "select key from events where event = 'segment-deleted'")
    direct = Family("own", (_check("select key from effects"),), "select count(*) from effects")
    assert not is_judged_late(direct, direct.checks[0])
    indirect = Family("own", (_check("select key from own_deleted"),), "select 1", views=(by_way,))
    assert is_judged_late(indirect, indirect.checks[0])


def test_a_family_that_prepares_itself_in_python_waits_unless_it_says_otherwise() -> None:
    unknown = Family("own", (_check("select key from effects"),), "select 1", prepare=lambda engine: [])
    assert is_judged_late(unknown, unknown.checks[0])
    known = Family("own", unknown.checks, "select 1", prepare=lambda engine: [], prepares_early=True)
    assert not is_judged_late(known, known.checks[0])


def test_what_waits_is_named(tmp_path: Path) -> None:
    run = TODAY / "log-pass"
    judged = still_running(run, 10**12, tmp_path / "h")
    assert "leader-completeness" in {one.check for one in judged.examined if one.note == LATE_NOTE}
