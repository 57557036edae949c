"""Histories that are judged together are judged as each alone: on stored runs, and on runs with every sort of end."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.checkers.engine import DuckDB, EngineError, Engines
from assay.checkers.engine.batch import HistoryBatch
from assay.checkers.engine.duck import SMALL_ROWS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.harness.core.history import HistoryReader
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.reader import InMemoryHistoryReader
from assay.harness.run.judging import (
    MOST_SEPARATE,
    VERY_SMALL_ROWS,
    UnjudgedRun,
    judge_run,
    judge_together,
    open_together,
)
from assay.harness.run.registry import Registry

from helpers.examples import some_of
from helpers.judging import without_times
from helpers.stored_runs import FIXTURES

STORED = sorted(path.parent for path in FIXTURES.glob("format_[47]/**/ops") if path.is_dir())


def in_memory(path: Path) -> InMemoryHistoryReader:
    stored = open_history(path)
    tables = {name: stored.table(name) for name in DATA_SETS}
    columns = {name: [column.to_pylist() for column in table.columns] for name, table in tables.items()}
    return InMemoryHistoryReader({name: columns[name] if table.num_rows else [] for name, table in tables.items()})


@pytest.mark.parametrize(
    ("copies", "which"),
    [
        pytest.param(1, slice(None), marks=pytest.mark.long),
        pytest.param(2, slice(None), marks=pytest.mark.long),
        (2, slice(0, 8, 3)),
    ],
    ids=["all", "all twice", "some twice"],
)
def test_stored_runs_are_judged_together_as_each_alone(copies: int, which: slice) -> None:
    """Twice over, as what a second run asks again is asked for all of them."""
    once: list[HistoryReader] = [in_memory(path) for path in STORED[which]]
    assert len(once) > 2
    histories = once * copies
    contract, registry = Contract(), Registry.standard()
    engines = Engines("duckdb", threads=1)
    together = judge_together([UnjudgedRun(history, contract) for history in histories], engines, registry)
    alone = [judge_run(history, contract, engines, registry) for history in once] * copies
    assert [without_times(one) for one in together] == [without_times(one) for one in alone]
    assert any(one.anomalies for one in alone), "some of them fail"
    assert any(not one.anomalies for one in alone), "and some do not"


def test_one_by_itself_is_not_asked_as_many_are() -> None:
    """It would take half as long again, and each play of a failure that is made small is judged by itself."""
    history = in_memory(STORED[0])
    for number, alone in ((0, []), (1, [True]), (2, [False, False])):
        with open_together([history] * number, Engines("duckdb")) as given:
            assert [isinstance(opens, Engines) for opens in given] == alone


def test_a_few_very_small_ones_have_sqlite_for_themselves() -> None:
    """Unless another engine was asked for. Many of them, or a few beside a larger one, are asked at once."""
    histories = sorted(map(in_memory, STORED), key=lambda history: history.rows("effects"))
    tiny, large = histories[0], histories[-1]
    assert tiny.rows("ops") + tiny.rows("effects") <= VERY_SMALL_ROWS < large.rows("ops") + large.rows("effects")
    for those, engine, alone in (
        ([tiny] * MOST_SEPARATE, "auto", True),
        ([tiny] * MOST_SEPARATE, "duckdb", False),
        ([tiny] * (MOST_SEPARATE + 1), "auto", False),
        ([tiny, large], "auto", False),
    ):
        with open_together(those, Engines(engine)) as given:
            assert [isinstance(opens, Engines) for opens in given] == [alone] * len(those)
            for history, opens in zip(those, given, strict=True):
                with opens.open(history) as opened:
                    assert opened.name == ("sqlite" if alone else "duckdb")


TEXTS = (
    "select key, count(*) as many, max(place) as most from e group by key",
    "select count(*) as many from e",
    "select key as run, max(place) as run_1 from e group by key",
    "select key, place, lag(place) over (partition by key order by place, number) as former from e",
    "with most as (select key, max(place) as place from e group by key) "
    "select e.key, e.number from e join most m on e.key = m.key and e.place = m.place",
    "select number from e where exists (select 1 from e other where other.key = e.key and other.place > e.place)",
    "select e.number, (select count(*) from e other where other.key = e.key) as alike from e",
    "select key from e union all select number from e where place > 2",
    "select a.key, b.least from e a left join (select key, min(place) as least from e where place > 1 group by key) b "
    "on a.key = b.key",
    "select (select count(*) from e) as every, (select count(*) from (select key from e where place > 3) f) as found",
)
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=6)


@settings(max_examples=some_of(40))
@given(st.lists(ROWS, min_size=1, max_size=4), st.permutations(TEXTS), st.sampled_from([0, SMALL_ROWS + 1]))
def test_every_shape_of_text_answers_for_each_run_what_it_answers_alone(
    runs: list[list[tuple[int, int]]], texts: list[str], effects: int
) -> None:
    """As a query, and through a kept table and a view over it; runs without any row among them; few and many rows."""
    names = ("number", "key", "place")
    tables = [
        pa.table(dict(zip(names, map(list, zip(*numbered, strict=True)), strict=True)))
        if (numbered := [(number, key, place) for number, (key, place) in enumerate(rows)])
        else pa.schema([(name, pa.int64()) for name in names]).empty_table()
        for rows in runs
    ]
    together = HistoryBatch(len(runs), effects)
    together.load("e", tables)
    try:
        for run, table in enumerate(tables):
            engine = together.engine(run)
            with DuckDB(small=True) as alone:
                alone.load("e", table)
                for text in texts:
                    for one in (engine, alone):
                        one.table("kept", text)
                        one.view("seen", "select * from kept")
                    for query in (text, "select * from seen", "select count(*) as many from seen"):
                        assert sorted(map(str, engine.rows(query))) == sorted(map(str, alone.rows(query))), query
    finally:
        together.close()


@pytest.mark.parametrize("order", ["order by", "ORDER  BY", "order\nby"])
def test_rows_that_have_an_order_keep_it_for_each_run(order: str) -> None:
    text = f"select number from e {order} number desc limit 3"
    together = HistoryBatch(2, 0)
    together.load("e", [pa.table({"number": list(range(each, each + 6))}) for each in (0, 10)])
    for _ in range(2):
        for run in (0, 1):
            found = [row["number"] for row in together.engine(run).rows(text)]
            assert found == [10 * run + 5, 10 * run + 4, 10 * run + 3]
    together.close()


def test_a_relation_that_one_run_declares_otherwise_is_its_own() -> None:
    together = HistoryBatch(2, 0)
    together.load("e", [pa.table({"number": [1, 2]}), pa.table({"number": [3]})])
    first, second = together.engine(0), together.engine(1)
    for engine, least in ((first, 2), (second, 0)):
        engine.view("few", f"select number from e where number >= {least}")
        engine.table("counted", "select count(*) as many from few")
    first.load("mine", pa.table({"number": [9]}))
    first.view("few", "select number from mine")
    assert first.rows("select many from counted") == [{"many": 1}], "made of what the name stood for then"
    assert second.rows("select many from counted") == [{"many": 1}]
    assert first.rows("select number from few") == [{"number": 9}]
    assert second.rows("select number from few") == [{"number": 3}]
    together.close()


def test_what_goes_wrong_only_as_rows_come_is_an_error_of_the_engine() -> None:
    """DuckDB works on most rows of a large answer when they are asked for. Another run's rows are not concerned."""
    many = pa.table({"number": pa.array([*range(200_000), 2**63 - 1], pa.int64())})
    together = HistoryBatch(2, 0)
    together.load("e", [many, pa.table({"number": [3]})])
    with DuckDB(small=True) as alone:
        alone.load("e", many)
        for engine in (together.engine(0), alone):
            with pytest.raises(EngineError, match="Overflow in addition"):
                engine.rows("select number + 1 as more from e")
    assert together.engine(1).rows("select number + 1 as more from e") == [{"more": 4}]
    together.close()
