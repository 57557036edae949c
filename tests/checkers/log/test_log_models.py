"""Histories of a small log with one bug: what no correct log can have given is accused, and nothing else is."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.checkers.check import build
from assay.checkers.contract import Contract
from assay.checkers.engine import DuckDB
from assay.checkers.log.family import LOG, STATEMENTS
from assay.checkers.source import register_contract, register_history

from helpers.cut_short import seen_until
from helpers.log_histories import Row, write
from helpers.log_model import BUGS, history
from helpers.log_possible import possible

STEPS = 22
KINDS = (None, *BUGS)


def accused(folder: Path, histories: Sequence[Sequence[Row]], *, ended: bool = True) -> dict[str, set[str]]:
    """The anomalies of each key; thousands of histories are keys of one, so that they cost little."""
    found: dict[str, set[str]] = defaultdict(set)
    with DuckDB() as engine:
        register_history(engine, write(folder, [row for rows in histories for row in rows]))
        register_contract(engine, Contract(linearizable_ends=True, dense_offsets=True))
        for family in (LOG, STATEMENTS):
            build(engine, family.views)
            if family.prepare is not None:
                family.prepare(engine)
            for check in family.checks:
                if check.needs_end and not ended:
                    continue
                build(engine, check.views)
                for row in engine.rows(f"select key from {check.found} group by key"):
                    found[row["key"]].add(check.anomaly)
    return found


@pytest.mark.parametrize(("each", "seed"), [(12, 1), pytest.param(14_600, 2, marks=pytest.mark.long)])
def test_what_is_impossible_is_accused_and_nothing_else(each: int, seed: int, tmp_path: Path) -> None:
    """By night some 100,000 that are impossible, over 1,000 of each bug, and more that are possible."""
    shown: Counter[str] = Counter()
    for first in range(0, each * len(KINDS), 5_000):
        numbers = range(first, min(first + 5_000, each * len(KINDS)))
        bugs = {number: KINDS[number % len(KINDS)] for number in numbers}
        histories = {number: history(number, bug, seed, STEPS) for number, bug in bugs.items()}
        found = accused(tmp_path / str(first), list(histories.values()))
        for number, bug in bugs.items():
            can_be = possible(histories[number])
            assert can_be or bug is not None, number
            assert can_be == (not found[f"m-{number}"]), (number, bug, found[f"m-{number}"])
            shown[str(bug)] += not can_be
        cut = [cut_at_random(histories[number], number) for number in numbers if possible(histories[number])]
        assert accused(tmp_path / f"cut-{first}", cut, ended=False) == {}
    assert all(shown[bug] > each // 20 for bug in BUGS), shown


def cut_at_random(rows: Sequence[Row], number: int) -> list[Row]:
    """As far as it went at some instant."""
    at = random.Random(number).choice([row["call"] for row in rows])
    return [kept for row in rows if row["call"] <= at and (kept := seen_until(row, at)) is not None]
