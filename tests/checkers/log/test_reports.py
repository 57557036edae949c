"""Tests what a producer says of a message besides its outcome: each contradiction, and its legal neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.engine import DuckDB, Engine, SQLite
from assay.checkers.judging.history_views import register_history
from assay.checkers.log.reports import CONTRADICTED_OUTCOME
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.workloads.broker.bursts import Burst

from helpers.judging import Opens
from helpers.log_histories import Row, effect, write

S = 1_000_000_000
APPENDED = ("append", "ok", 4, None)
REFUSED = ("append", "fail", None, None)
IN_DOUBT = ("append", "info", None, None)


Said = Sequence[tuple[str, str, int | None, str | None]]
"""Rows of value 7: kind, outcome, position, name."""


def rows(op: int, said: Said) -> list[Row]:
    call = (2 * op + 1) * S
    return [
        effect(op, rank, kind, "orders-0", call, call + S, value=7, process=op, outcome=outcome, position=position,
               source=name)
        for rank, (kind, outcome, position, name) in enumerate(said)
    ]  # fmt: skip


def claims(engine: Engine, folder: Path) -> list[str]:
    register_history(engine, folder)
    create_views(engine, CONTRADICTED_OUTCOME.views)
    return [finding.claim for finding in read_findings(engine, CONTRADICTED_OUTCOME)]


def found(folder: Path, said: Said) -> list[str]:
    """Returns what is found when one operation leaves these rows."""
    with SQLite() as engine:
        return claims(engine, write(folder / "history", rows(3, said)))


RIGHT: list[Said] = [
    (APPENDED, ("reported", "ok", 4, "done")),
    (REFUSED, ("reported", "fail", None, "done"), ("reported", "fail", None, "account")),
    (IN_DOUBT, ("reported", "info", None, "done"), ("reported", "info", None, "stages")),
    (APPENDED, IN_DOUBT, IN_DOUBT, ("reported", "ok", 4, "done")),
]
WRONG: list[tuple[Said, str]] = [
    ((APPENDED, ("reported", "fail", None, "done")), "done said that it was certainly not appended"),
    ((APPENDED, ("reported", "ok", 5, "stages")), "stages said that it was appended at offset 5"),
    ((REFUSED, ("reported", "info", None, "account")), "account said that it was of unknown fate"),
    ((APPENDED, ("unreported", "ok", None, "done")), "done was not informed of it at all"),
    ((APPENDED, ("reported", "ok", 4, "done"), ("reported", "ok", 4, "done")), "done was informed 2 times"),
    ((APPENDED, IN_DOUBT, ("reported", "info", None, "done")), "done said that it was of unknown fate"),
]


@pytest.mark.parametrize("said", RIGHT, ids=["appended", "refused", "in-doubt", "perhaps-appended-again"])
def test_reports_that_are_the_outcome_are_right(tmp_path: Path, said: Said) -> None:
    assert found(tmp_path, said) == []


@pytest.mark.parametrize(
    ("said", "words"),
    WRONG,
    ids=["failed", "elsewhere", "unsure", "silence", "twice", "as-its-repetition"],
)
def test_a_report_that_is_not_the_outcome_is_found(tmp_path: Path, said: Said, words: str) -> None:
    (claim,) = found(tmp_path, said)
    assert words in claim


def test_two_engines_say_the_same_of_all_cases(tmp_path: Path, other: Opens) -> None:
    cases = [*RIGHT, *(said for said, _ in WRONG)]
    folder = write(tmp_path / "history", [row for op, said in enumerate(cases) for row in rows(op, said)])
    with other(len(cases)) as second, DuckDB() as duck:
        by_other, by_duck = (claims(engine, folder) for engine in (second, duck))
    assert by_other == by_duck
    assert len(by_duck) == len(WRONG)


def test_a_burst_says_who_was_informed_of_what_and_who_was_not() -> None:
    known = {"outcome": "ok", "offset": 4, "node": "n1", "error": None}
    lost = {"outcome": "fail", "offset": None, "node": None, "error": "refused"}
    reports = [[7, "stages", "ok", 4], [7, "done", "ok", 4], [8, "stages", "fail", None]]
    completion = Completion(Outcome.OK, {"sets": [known, lost], "reports": reports})
    operation = Operation(Burst.f, "orders-0", {"values": [7, 8], "habit": "single"})
    rows = Burst.effects(Completed(41, 3, "w3", operation, completion, 10, 20))
    assert [(row.kind, row.value, row.source, row.position) for row in rows] == [
        ("append", 7, None, 4),
        ("append", 8, None, None),
        ("reported", 7, "stages", 4),
        ("reported", 7, "done", 4),
        ("reported", 8, "stages", None),
        ("unreported", 8, "done", None),
    ]


@pytest.mark.parametrize(("habit", "rows"), [("insistent", 5), ("leader-only", 1), ("unheard", 1), ("together", 1)])
def test_what_may_be_appended_again_or_may_not_stay_is_in_doubt(habit: str, rows: int) -> None:
    known = {"outcome": "ok", "offset": 4, "node": "n1", "error": None}
    operation = Operation(Burst.f, "orders-0", {"values": [7], "habit": habit})
    done = Completed(41, 3, "w3", operation, Completion(Outcome.OK, {"sets": [known]}), 10, 20)
    made = list(Burst.effects(done))
    assert len(made) == rows
    stays = habit in ("insistent", "together")
    assert (made[0].outcome, made[0].position) == ((Outcome.OK, 4) if stays else (Outcome.INFO, None))
    assert {row.outcome for row in made[1:]} <= {Outcome.INFO}
