"""Tests that what is asked of some keys after others is what is asked of all.

Verdicts, findings and numbers, to the last word.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from assay.checkers.check import Answer
from assay.checkers.engine import DuckDB
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.early_checks import may_have_lost_records
from assay.checkers.judging.history_views import open_history, register_data_sets
from assay.checkers.judging.judge import judge
from assay.checkers.partitioned_by_key import (
    FEW_ROWS,
    PartitionAnswers,
    PartitionQuestion,
    combine_answers,
    reads_beyond_key,
)

from helpers.judging import without_times
from helpers.log_histories import Row, SimulatedLog, broken, write
from helpers.object_histories import broken as broken_object
from helpers.object_histories import counter, max_register, queue, some_ids, some_set
from helpers.parted import Parted
from helpers.register_histories import SimulatedRegister
from helpers.register_histories import broken as broken_register
from helpers.statement_oracle import recorded
from helpers.stored_runs import FIXTURES

STORED = sorted(path.parent for path in FIXTURES.glob("format_*/**/ops") if path.is_dir())
OBJECTS = {"counter": counter, "max-register": max_register, "queue": queue, "set": some_set, "unique-ids": some_ids}
WITH: Final = {"log": ("statements",), "reported": ("statements",), "register-cas": ("register",),
        "queue-false-empty": ("queue",), "set-fork": ("set",)}  # fmt: skip
"""Families that are asked of the histories of others, too."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if number % 40 == 0 else pytest.mark.long) for number, path in enumerate(STORED)],
    ids=lambda path: "/".join(path.parts[-3:-1]),
)
def test_stored_runs_are_judged_by_key_as_ever(path: Path) -> None:
    history = open_history(path)
    contract = Contract(unflushed=9_999)
    with DuckDB(threads=1, small=True) as duck:
        expected = without_times(judge(history, contract, duck))
        lost = may_have_lost_records(duck, contract)
    with Parted(3) as parted:
        assert without_times(judge(history, contract, parted)) == expected
    assert not (lost and parted.answered), "what a loss of power may have taken is taken of all keys"


def logs(*, said: bool) -> list[Row]:
    """Returns logs of forty keys. With ``said`` they have all that clients say of records."""
    rng, found = random.Random(21), []
    for number in range(40):
        compacted = number % 5 == 4
        log = SimulatedLog(f"{'c' if compacted else 't'}-{number}", rng, number * 10_000, compacted=compacted).run(40)
        log = broken(log, rng) if number % 3 else log
        found += recorded(log, rng, number) if said and log else log
    return found


def registers() -> list[Row]:
    rng, found = random.Random(22), []
    for number in range(60):
        one = SimulatedRegister(f"r-{number}", rng, number * 1000, versions=number % 2 == 0).run(rng.randint(3, 14))
        found += broken_register(one, rng) if number % 3 else one
    return found


def objects(family: str) -> list[Row]:
    rng, found = random.Random(23), []
    for number in range(60):
        one = OBJECTS[family](f"k-{number}", rng, number * 100)
        found += broken_object(one, rng) if number % 3 else one
    return found


@pytest.mark.parametrize(
    ("make", "family"),
    [
        pytest.param(partial(logs, said=False), "log", id="log", marks=pytest.mark.long),
        pytest.param(partial(logs, said=True), "statements", id="statements"),
        pytest.param(registers, "register", id="register", marks=pytest.mark.long),
        *(
            pytest.param(partial(objects, family), family, id=family, marks=pytest.mark.long if number % 2 else ())
            for number, family in enumerate(OBJECTS)
        ),
    ],
)
def test_random_histories_have_the_same_answers(tmp_path: Path, make: Callable[[], list[Row]], family: str) -> None:
    """They are none that could have happened, as their keys share the times, so no judge would take them."""
    rows = make()
    history = open_history(write(tmp_path / "history", rows))
    compacted = tuple(f"c-{number}" for number in range(4, 40, 5))
    contract = Contract(linearizable_ends=True, linearizable_queues=True, compacted=compacted)
    families = tuple(
        one.name for one in FAMILIES if one.by_key and (one.name == family or family in WITH.get(one.name, ()))
    )
    question = PartitionQuestion(contract, families, frozenset(row["kind"] for row in rows))
    with Parted(1) as whole, Parted(3) as parted:
        for engine in (whole, parted):
            register_data_sets(engine, history)
            engine.ask_each_part(history, question, lambda done, total: None)
    (expected,) = whole.answered
    assert len(parted.answered) == 3
    answers = combine_answers(parted.answered)
    assert answers.checks == expected.checks
    for name, table in expected.tables.items():
        assert _rows(answers.tables[name]) == _rows(table), name
    found = [answer for answer in answers.checks.values() if answer.instances]
    assert found, "none had anything to find"
    assert all(answer.examined for answer in found)


def _rows(table: pa.Table | None) -> list[str]:
    assert table is not None
    return sorted(map(str, table.to_pylist()))


def test_what_is_put_together_is_a_sum_only_where_each_part_knows() -> None:
    known, unknown = (
        PartitionAnswers({"duplicate": Answer(2, 1, [{"key": "y"}])}),
        PartitionAnswers({"duplicate": Answer(3)}),
    )
    assert combine_answers([known, known]).checks == {"duplicate": Answer(4, 2, [{"key": "y"}] * 2)}
    assert combine_answers([known, unknown]).checks == {"duplicate": Answer(5)}
    later = PartitionAnswers({"duplicate": Answer(1, 30, [{"key": "x"}] * 20)})
    assert combine_answers([known, later]).checks["duplicate"].evidence_rows == [{"key": "x"}] * 20, (
        "by key, and no more than are explained"
    )


def test_tables_of_many_rows_stay_where_they_are() -> None:
    small, large = pa.table({"key": ["a"]}), pa.table({"key": ["b"] * (FEW_ROWS - 1)})
    parts = [PartitionAnswers(tables={"t": small}), PartitionAnswers(tables={"t": large})]
    whole = combine_answers(parts).tables["t"]
    assert whole is not None
    assert whole.num_rows == FEW_ROWS
    assert combine_answers([*parts, parts[0]]).tables == {"t": None}
    assert combine_answers([*parts, PartitionAnswers(tables={"t": None})]).tables == {"t": None}


def test_what_looks_at_other_keys_is_asked_of_all() -> None:
    assert reads_beyond_key("select * from ops")
    assert reads_beyond_key("select * from log_strays s join log_values v on s.key = v.key")
    assert reads_beyond_key("found_position_jump"), "by way of a view that reads operations"
    assert not reads_beyond_key("select * from found_lost_write")
    assert not reads_beyond_key("select 'ops' as name from log_values"), "a text"
