"""A history shared out by key: every effect goes to the part of its key, once; and the verdict is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.engine import DuckDB, EngineError, spark_parts
from assay.checkers.engine.parquet_stats import find_columns_with_values
from assay.checkers.engine.spark_parts import (
    BUCKETS,
    RowGroupRange,
    ShuffleTask,
    assign_parts,
    divide_into_ranges,
    find_bucket,
)
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import count_kinds, open_history, register_data_sets
from assay.checkers.judging.judge import judge
from assay.checkers.judging.verdict import Verdict
from assay.checkers.partitioned_by_key import PartitionQuestion
from assay.harness.synthetic.generate import HISTORY, generate
from assay.harness.synthetic.plan import Plan

from helpers.judging import without_times


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 2_000_000), max_size=30), st.integers(1, 5))
def test_parts_are_as_even_as_keys_allow(keys: dict[str, int], tasks: int) -> None:
    found, said = assign_parts(keys.items(), tasks)
    parts = len(said)
    assert parts % tasks == 0
    assert len(found) == BUCKETS
    assert set(found) <= set(range(parts))
    sizes, loads = [0] * BUCKETS, [0] * parts
    for key, many in keys.items():
        sizes[find_bucket(key)] += many
        loads[found[find_bucket(key)]] += many
    assert said == loads
    assert max(loads) - min(loads) <= max(sizes)


ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9), st.none() | st.text(max_size=2)), max_size=60)


@given(ROWS, st.integers(1, 4), st.integers(1, 20), st.integers(1, 30))
def test_every_row_goes_to_the_part_of_its_key(
    rows: list[tuple[str, int, str | None]], parts: int, group: int, most: int
) -> None:
    table = pa.table(
        {
            "key": pa.array([key for key, _, _ in rows], pa.string()),
            "op": pa.array([op for _, op, _ in rows], pa.int64()),
            "name": pa.array([name for _, _, name in rows], pa.string()),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group)
    of_bucket = [number % parts for number in range(BUCKETS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_parts, "RANGE_ROWS", most)
        path = _stored(sink)
        found: dict[int, list[Any]] = {}
        for one in divide_into_ranges([path]):
            for part, blob in ShuffleTask(("key", "op", "name", "absent"), of_bucket)(one):
                found.setdefault(part, []).extend(pa.ipc.open_stream(blob).read_all().to_pylist())
        path.unlink()
    for part, got in found.items():
        mine = [row for row in table.to_pylist() if of_bucket[find_bucket(row["key"])] == part]
        assert got == mine, "in the order of the file"
    assert sum(map(len, found.values())) == len(rows)


def _stored(sink: pa.BufferOutputStream) -> Path:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".parquet", delete=False) as file:
        file.write(sink.getvalue())
    return Path(file.name)


def test_ranges_are_of_whole_groups_and_together_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_parts, "RANGE_ROWS", 5)
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path in paths:
        pq.write_table(pa.table({"key": ["x"] * 10}), path, row_group_size=3)
    assert divide_into_ranges(paths) == [
        RowGroupRange(str(path), groups) for path in paths for groups in ((0, 1), (2, 3))
    ]


def test_only_columns_that_have_values_go_along(tmp_path: Path) -> None:
    kinds = {"key": pa.string(), "some": pa.int64(), "none": pa.int64(), "unknown": pa.int64()}
    for name, some in (("a", None), ("b", 3)):
        row = {"key": "x", "some": some, "none": None, "unknown": None}
        table = pa.table({column: pa.array([value], kinds[column]) for column, value in row.items()})
        pq.write_table(table, tmp_path / f"{name}.parquet", write_statistics=["key", "some", "none"])
    paths = sorted(tmp_path.glob("*.parquet"))
    found = find_columns_with_values(paths, [*kinds, "absent"])
    assert found == ["key", "some", "unknown"], "what the file does not say is taken along"


def shared(application: Any, *, here: bool) -> Any:
    """Returns the engine of large histories, forced to treat any history as large."""
    from assay.checkers.engine.spark_application import DuckDBInSpark

    spark = application.engine(effects=None)
    return DuckDBInSpark(spark) if here else spark


PLANTED = {
    "log": ("lost-write", "duplicate", "high-watermark-regression", "phantom"),
    "register": ("stale-read", "lost-update"),
    "group": ("double-ownership", "zombie-commit", "orphaned-partition"),
}


@pytest.mark.spark
@pytest.mark.parametrize("here", [True, pytest.param(False, marks=pytest.mark.long)], ids=["beside", "all on Spark"])
@pytest.mark.parametrize(
    "model", ["log", *(pytest.param(model, marks=pytest.mark.long) for model in ("register", "group"))]
)
def test_a_history_is_judged_in_tasks_as_ever(
    tmp_path: Path, application: Any, monkeypatch: pytest.MonkeyPatch, model: str, here: bool
) -> None:
    """Several parts to each task, and several ranges of rows."""
    monkeypatch.setattr(spark_parts, "PART_ROWS", 500)
    monkeypatch.setattr(spark_parts, "RANGE_ROWS", 500)
    plan = Plan(operations=2_500, clients=3, keys=7, seed=5, plant=PLANTED[model])
    generate(model, plan, tmp_path / "made")
    history = open_history(tmp_path / "made" / HISTORY)
    with DuckDB(threads=1, small=True) as duck:
        expected = without_times(judge(history, Contract(), duck))
    assert set(expected.anomalies) >= set(PLANTED[model])
    steps: list[tuple[str, int, int]] = []
    with shared(application, here=here) as spark:
        found = judge(history, Contract(), spark, progress=lambda *step: steps.append(step))
    assert without_times(found) == msgspec.structs.replace(expected, engine="spark")
    totals = {total for what, _, total in steps if what == "checking key by key"}
    assert len(totals) == 1
    assert min(totals) > 4, "parts and ranges"


@pytest.mark.spark
def test_what_goes_wrong_in_a_task_is_said_in_its_own_words(tmp_path: Path, application: Any) -> None:
    generate("log", Plan(operations=200, clients=3, keys=3, seed=5), tmp_path / "made")
    history = open_history(tmp_path / "made" / HISTORY)
    without: Any = None
    with shared(application, here=True) as spark:
        register_data_sets(spark, history)
        count_kinds(spark, spark)
        with pytest.raises(EngineError) as raised:
            spark.ask_each_part(history, PartitionQuestion(without, (), frozenset()), lambda done, total: None)
    said = str(raised.value)
    assert said.startswith("Spark could not run judge by key: AttributeError: 'NoneType' object has no attribute")
    assert "\n" not in said


@pytest.mark.spark
def test_ctrl_c_ends_the_tasks(tmp_path: Path, application: Any) -> None:
    generate("log", Plan(operations=200, clients=3, keys=3, seed=5), tmp_path / "made")
    history = open_history(tmp_path / "made" / HISTORY)

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "checking key by key":
            raise KeyboardInterrupt

    with shared(application, here=True) as spark:
        judged = judge(history, Contract(), spark, progress=interrupt)
    assert judged.interrupted
    assert judged.verdict is Verdict.UNKNOWN
