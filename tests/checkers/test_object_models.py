"""Histories of a small register, queue or group with one bug: what no correct one can have given is accused.

And nothing else is: neither what a correct one may have given, nor the same cut short at a random instant.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from assay.checkers.check import Family
from assay.checkers.contract import Contract
from assay.checkers.groups.commits import MISMATCHES
from assay.checkers.groups.family import GENERATIONS
from assay.checkers.objects.emptiness import EMPTINESS
from assay.checkers.objects.queues import QUEUES
from assay.checkers.register.family import REGISTER, REGISTER_CAS

from helpers.group_possible import possible
from helpers.log_histories import Row
from helpers.model_histories import accused, accused_by_both, cut_at_random
from helpers.object_models import GroupModel, Model, QueueModel, RegisterModel
from helpers.object_oracle import bag_linearizable
from helpers.register_oracle import linearizable


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
    steps: int = 22
    contract: Contract = field(default_factory=Contract)


CASES: Final = (
    Case(RegisterModel, linearizable, (REGISTER, REGISTER_CAS)),
    Case(QueueModel, bag, (QUEUES, EMPTINESS), contract=Contract(linearizable_queues=True)),
    Case(GroupModel, possible, (REGISTER, *GENERATIONS, MISMATCHES), steps=60),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model.__name__)
@pytest.mark.parametrize(("each", "seed"), [(40, 1), pytest.param(14_000, 2, marks=pytest.mark.long)])
def test_what_is_impossible_is_accused_and_nothing_else(case: Case, each: int, seed: int, tmp_path: Path) -> None:
    kinds = (None, *case.model.bugs)
    shown: Counter[str | None] = Counter()
    missed: list[tuple[str | None, int]] = []
    for first in range(0, each * len(kinds), 5_000):
        numbers = range(first, min(first + 5_000, each * len(kinds)))
        bugs = {number: kinds[number % len(kinds)] for number in numbers}
        histories = {
            number: case.model(number, bug, random.Random(f"{seed}/{number}")).history(case.steps)
            for number, bug in bugs.items()
        }
        found = accused(tmp_path / str(first), list(histories.values()), case.families, case.contract)
        innocent = [number for number in numbers if case.possible(histories[number])]
        assert {number: found[f"m-{number}"] for number in innocent if f"m-{number}" in found} == {}
        guilty = set(numbers) - set(innocent)
        shown.update(bugs[number] for number in guilty)
        missed += [(bugs[number], number) for number in sorted(guilty) if f"m-{number}" not in found]
        cut = [cut_at_random(histories[number], number) for number in innocent]
        assert accused(tmp_path / f"cut-{first}", cut, case.families, case.contract, ended=False) == {}
    assert shown[None] == 0
    assert all(shown[bug] > each // 20 for bug in case.model.bugs), shown
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
