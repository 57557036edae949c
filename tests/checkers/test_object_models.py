"""Histories of a small register, queue or group with one bug: what no correct one can have given is accused.

And nothing else is: neither what a correct one may have given, nor any of them cut short at a random instant, unless
that is impossible by itself. The operations that a finding names are impossible whatever became of all others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from assay.checkers.check import Family
from assay.checkers.groups.commits import COMMIT_MISMATCHES
from assay.checkers.groups.family import GENERATIONS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES, QUEUES
from assay.checkers.register.family import REGISTER, REGISTER_CAS

from helpers.group_possible import possible
from helpers.log_histories import Row
from helpers.model_histories import accused, accused_by_both, cut_at_random, loose, name_of, with_unknown
from helpers.object_models import GroupModel, Model, QueueModel, RegisterModel
from helpers.object_oracle import bag_linearizable
from helpers.register_oracle import linearizable

pytestmark = pytest.mark.slow


def bag(rows: Sequence[Row]) -> bool:
    """A drain that found the end is a dequeue that found nothing."""
    return bag_linearizable([
        row | {"kind": "queue-dequeue", "value": None} if row["kind"] == "queue-drained" else row for row in rows
    ])  # fmt: skip


@dataclass(frozen=True)
class Case:
    model: type[Model]
    possible: Callable[[Sequence[Row]], bool]
    families: tuple[Family, ...]
    anomalies: set[str]
    """Anomalies that are found in such histories, every time."""
    steps: int = 22
    contract: Contract = field(default_factory=Contract)


CASES: Final = (
    Case(RegisterModel, linearizable, (REGISTER, REGISTER_CAS), {"missing-writer", "stale-read", "lost-update"}),
    Case(
        QueueModel,
        bag,
        (QUEUES, LINEARIZABLE_QUEUES),
        {"queue-lost", "queue-duplicate", "queue-phantom", "queue-false-empty"},
        contract=Contract(linearizable_queues=True),
    ),
    Case(
        GroupModel, possible, (REGISTER, *GENERATIONS, COMMIT_MISMATCHES),
        {"missing-writer", "stale-read", "zombie-commit", "double-ownership", "commit-mismatch"}, steps=60,
    ),
)  # fmt: skip


COVERS: Final = {"queue-lost", "queue-false-empty"}
"""About sets: an element may be excused by each dequeue of unknown outcome. Without what these name there is one less
of them, which is what can be said of one element."""


def _renamed(rows: Sequence[Row], number: int) -> list[Row]:
    """Returns the rows as history ``number``, because there may be several of one history."""
    first = min(row["op"] for row in rows)
    return [row | {"key": f"m-{number}", "op": number * 1_000 + row["op"] - first} for row in rows]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__)
@pytest.mark.parametrize(
    ("each", "seed", "least"), [(20, 1, 0), pytest.param(14_000, 2, 1_000, marks=pytest.mark.long)]
)
def test_what_is_impossible_is_accused_and_nothing_else(
    case: Case, each: int, seed: int, least: int, tmp_path: Path
) -> None:
    kinds = (None, *case.model.bugs)
    shown: Counter[str | None] = Counter()
    named: Counter[str] = Counter()
    cut_and_accused = 0
    missed: list[tuple[str | None, int]] = []
    for first in range(0, each * len(kinds), 5_000):
        numbers = range(first, min(first + 5_000, each * len(kinds)))
        bugs = {number: kinds[number % len(kinds)] for number in numbers}
        histories = {
            number: case.model(number, bug, random.Random(f"{seed}/{number}")).history(case.steps)
            for number, bug in bugs.items()
        }
        names = {f"m-{number}": rows for number, rows in histories.items()}
        findings: list[Finding] = []
        judged = partial(accused, families=case.families, contract=case.contract)
        found = judged(tmp_path / str(first), list(names.values()), explained=findings)
        innocent = [number for number in numbers if case.possible(histories[number])]
        assert {number: found[f"m-{number}"] for number in innocent if f"m-{number}" in found} == {}
        guilty = set(numbers) - set(innocent)
        shown.update(bugs[number] for number in guilty)
        missed += [(bugs[number], number) for number in sorted(guilty) if f"m-{number}" not in found]
        cut = {name: cut_at_random(rows, number) for number, (name, rows) in zip(numbers, names.items(), strict=True)}
        early = judged(tmp_path / f"cut-{first}", list(cut.values()), ended=False)
        assert {name: early[name] for name, rows in cut.items() if early.get(name) and case.possible(rows)} == {}
        cut_and_accused += len(early)
        whole = [finding for finding in findings if finding.anomaly not in COVERS]
        assert loose(whole, names, case.possible) == []
        named.update(finding.anomaly for finding in findings)
        covers = [finding for finding in findings if finding.anomaly in COVERS]
        without = [_renamed(with_unknown(names[name_of(str(one.key))], one.operations.__contains__), number)
                   for number, one in enumerate(covers)]  # fmt: skip
        left = judged(tmp_path / f"without-{first}", without) if covers else {}
        for number, one in enumerate(covers):
            assert left.get(f"m-{number}", Counter())[one.anomaly] < found[name_of(str(one.key))][one.anomaly], one
    assert shown[None] == 0
    assert cut_and_accused > each // 4
    assert set(named) == case.anomalies, named
    print(dict(shown))
    assert all(shown[bug] > least for bug in case.model.bugs), shown
    assert not missed, (missed, shown)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__)
def test_both_engines_accuse_the_same_histories_of_the_same(case: Case, tmp_path: Path, application: Any) -> None:
    kinds = (None, *case.model.bugs)
    models = [case.model(n, kinds[n % len(kinds)], random.Random(f"3/{n}")) for n in range(100 * len(kinds))]
    sample = [model.history(case.steps) for model in models]
    found = accused_by_both(tmp_path, sample, case.families, case.contract, application)
    assert len(found) > len(sample) // 10
