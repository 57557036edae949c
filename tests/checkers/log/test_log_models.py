"""Histories of a small log with one bug: what no correct log can have given is accused, and nothing else is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.log.family import LOG, STATEMENTS

from helpers.log_model import BUGS, history
from helpers.log_possible import possible
from helpers.model_histories import accused, accused_by_both, cut_at_random, loose

pytestmark = pytest.mark.slow

STEPS = 22
KINDS = (None, *BUGS)
FAMILIES = (LOG, STATEMENTS)
NAMED = {
    "inconsistent-offset", "duplicate", "aborted-read", "phantom", "lost-write", "vanished", "real-time-order",
    "nonmonotonic-send", "send-skip", "nonmonotonic-poll", "poll-skip", "misplaced-ack", "position-jump",
    "altered-record",
}  # fmt: skip
PROMISED = Contract(linearizable_ends=True, dense_offsets=True)


@pytest.mark.parametrize(
    ("each", "seed", "least"), [(16, 1, 0), pytest.param(14_600, 2, 1_000, marks=pytest.mark.long)]
)
def test_what_is_impossible_is_accused_and_nothing_else(each: int, seed: int, least: int, tmp_path: Path) -> None:
    """By night some 100,000 that are impossible, at least 1,000 of each bug, and more that are possible.

    A history that is accused when cut short is impossible by then. The operations that a finding names are impossible
    by themselves, whatever became of all others.
    """
    shown: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for first in range(0, each * len(KINDS), 5_000):
        numbers = range(first, min(first + 5_000, each * len(KINDS)))
        bugs = {number: KINDS[number % len(KINDS)] for number in numbers}
        histories = {number: history(number, bug, seed, STEPS) for number, bug in bugs.items()}
        findings: list[Finding] = []
        found = accused(tmp_path / str(first), list(histories.values()), FAMILIES, PROMISED, explained=findings)
        for number, bug in bugs.items():
            can_be = possible(histories[number])
            assert can_be or bug is not None, number
            assert can_be == (not found[f"m-{number}"]), (number, bug, found[f"m-{number}"])
            shown[str(bug)] += not can_be
        assert loose(findings, {f"m-{number}": rows for number, rows in histories.items()}, possible) == []
        named.update(finding.anomaly for finding in findings)
        cut = {f"m-{number}": cut_at_random(rows, number) for number, rows in histories.items()}
        early = accused(tmp_path / f"cut-{first}", list(cut.values()), FAMILIES, PROMISED, ended=False)
        assert {name: early[name] for name, rows in cut.items() if early.get(name) and possible(rows)} == {}
        shown["cut"] += len(early)
    assert named.keys() >= NAMED, named
    assert shown["cut"] > each // 4, shown
    print(dict(shown))
    assert all(shown[bug] > least for bug in BUGS), shown


@pytest.mark.spark
@pytest.mark.long
def test_both_engines_accuse_the_same_histories_of_the_same(tmp_path: Path, application: Any) -> None:
    sample = [history(number, KINDS[number % len(KINDS)], 3, STEPS) for number in range(100 * len(KINDS))]
    assert len(accused_by_both(tmp_path, sample, FAMILIES, PROMISED, application)) > len(sample) // 10
