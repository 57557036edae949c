"""A history in memory is the one that would be in files: the same rows, the same digest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.history import HistoryError, HistoryReader, HistoryWriter
from assay.harness.core.history.data_sets import DATA_SETS, DIGESTED
from assay.harness.core.history.digest import BLOCK_ROWS, HistoryDigest
from assay.harness.core.history.in_memory import Columns, HistoryInMemory, compute_digest
from assay.harness.core.history.reader import InMemoryHistoryReader
from assay.harness.core.history.rows import History
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase

VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "string": st.text(max_size=5),
    "bool": st.booleans(),
}


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    made: Columns = {}
    for name, kinds in DATA_SETS.items():
        rows = draw(st.integers(0, 4)) if name in DIGESTED else 0
        values = [VALUES[kind.type] | (st.none() if kind.nullable else st.nothing()) for kind in kinds if rows]
        made[name] = [draw(st.lists(one, min_size=rows, max_size=rows)) for one in values]
    return made


@given(columns())
def test_the_digest_of_plain_columns_is_that_of_their_arrow_batches(made: Columns) -> None:
    handed = InMemoryHistoryReader(made)
    assert compute_digest(made) == handed.digest()
    by_row = HistoryDigest()
    for name in DIGESTED:
        for row in range(handed.rows(name)):
            by_row.update(name, handed.table(name).slice(row, 1))
    assert compute_digest(made) == by_row.hexdigest()


def test_long_runs_of_nulls_are_hashed_like_other_values() -> None:
    """Columns that have had only nulls share a hash, which each leaves with its first value."""
    plain = {"int64": 7, "int32": 7, "string": "x", "bool": True}
    rows = BLOCK_ROWS + 3
    made: Columns = {name: [] for name in DATA_SETS}
    made["faults"] = [
        [None] * (rows - 1) + [plain[column.type]] if column.nullable and place % 2 else [plain[column.type]] * rows
        for place, column in enumerate(DATA_SETS["faults"])
    ]
    digest, faults = HistoryDigest(), InMemoryHistoryReader(made).table("faults")
    for first, count in ((0, BLOCK_ROWS + 1), (BLOCK_ROWS + 1, 1), (BLOCK_ROWS + 2, 1)):
        digest.update("faults", faults.slice(first, count))
    assert compute_digest(made) == digest.hexdigest()


def written(history: History) -> None:
    for index in range(3):
        operation = Operation("send", f"orders-{index % 2}", [index], Phase.MAIN)
        completion = Completion(Outcome.OK if index else Outcome.INFO, {"offset": index}, None if index else "timeout")
        ret = 10 * index + 5 if index else None
        completed = Completed(index, 4, "w4", operation, completion, 10 * index, ret, None)
        history.completed(completed, [Effect(key="orders-0", kind="append", value=index, tombstone=index == 1)])
    history.fault(id=1, fault="kill", targets=["n1"], phase="injected", time=7, detail={"at": 0.1}, took_effect=True)
    history.event(time=3, node="n1", incarnation=1, seq=1, event="became-leader", key="orders-0", epoch=2, isr=[1, 2])
    history.replica(node="n1", key="orders-0", position=0, value=1, below_hw=True, in_isr=False)
    history.look(look=1, time=5, ended=6, what="look", wall_ms=12)


def test_the_same_calls_leave_the_same_rows_in_memory_and_in_files(tmp_path: Path) -> None:
    memory, files = HistoryInMemory(), HistoryWriter(tmp_path / "history")
    for history in (memory, files):
        written(history)
    assert memory.digest() == files.digest()
    files.close()
    reader, handed = HistoryReader(tmp_path / "history"), InMemoryHistoryReader(memory.columns())
    for name in DATA_SETS:
        assert handed.table(name).equals(reader.table(name)), name
        assert reader.rows(name) == handed.rows(name) > 0


def test_whole_numbers_of_another_type_are_those_numbers() -> None:
    """As a client of a user's has them: Arrow takes them, too."""
    plain, other = HistoryInMemory(), HistoryInMemory()
    for history, number in ((plain, 3), (other, np.int64(3))):
        operation = Operation("send", "orders-0", [1], Phase.MAIN)
        completed = Completed(1, 4, "w4", operation, Completion(Outcome.OK, {}), 10, 15, None)
        history.completed(completed, [Effect(key="orders-0", kind="append", value=number)])  # type: ignore[arg-type]
    assert plain.digest() == other.digest() == InMemoryHistoryReader(other.columns()).digest()


def test_what_no_file_would_take_is_refused_in_memory_too() -> None:
    history = HistoryInMemory()
    with pytest.raises(HistoryError, match="key of a row of replicas is None"):
        history.replica(node="n1", key=None, position=0, below_hw=True, in_isr=False)
    completed = Completed(0, 0, "w0", Operation("send"), Completion(Outcome.OK), 1, 2)
    history.completed(completed, [Effect("append", None)])  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match="column key"):
        history.columns()
    with pytest.raises(HistoryError, match="has no column colour"):
        HistoryInMemory().look(look=1, time=5, ended=6, what="look", colour=3)
    history.close()
    with pytest.raises(HistoryError, match="closed"):
        written(history)
