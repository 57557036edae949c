"""DuckDB and SQLite make what is read, when it is read, of what the names stood for when it was declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay.checkers.engine import DuckDB, EngineError, SQLite, empty_relations, lazy_relations
from assay.checkers.engine.empty_relations import EmptinessCondition, IsEmpty
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge
from assay.checkers.judging.verdict import Judgement
from assay.harness.synthetic.catalogue import CATALOGUE
from assay.harness.synthetic.generate import generate
from assay.harness.synthetic.plan import OPERATIONS_PER_ANOMALY, Plan

from helpers.stored_runs import FIXTURES

ONE = pa.table({"x": [1]})
STORED = sorted(FIXTURES.glob("format_*/*/history"))


def stored(number: int, path: Path) -> Any:
    marks = [pytest.mark.long] if number % 90 else []
    return pytest.param(path, id="/".join(path.parts[-3:-1]), marks=marks)


HERE = DuckDB | SQLite
VIEWS = "select view_name as name from duckdb_views() where temporary and not internal"
TABLES = "select table_name as name from duckdb_tables() where temporary and not internal"
MADE = {"duckdb": f"{VIEWS} union all {TABLES}", "sqlite": "select name from sqlite_master"}


def made(engine: HERE) -> set[str]:
    return {name for (name,) in engine._connection.execute(MADE[engine.name]).fetchall()}


@pytest.fixture(params=[DuckDB, partial(DuckDB, small=True), SQLite], ids=["duckdb", "small-duckdb", "sqlite"])
def engine(request: pytest.FixtureRequest) -> HERE:
    with request.param() as opened:
        opened.load("here", ONE)
        yield opened


def test_what_nothing_reads_is_not_made(engine: HERE) -> None:
    engine.view("seen_of_it", "select x from here")
    engine.table("kept", "select x + 1 as x from seen_of_it")
    engine.table("other", "select nothing from seen_of_it")
    assert made(engine) == {"here"}
    assert engine.rows("select x from kept") == [{"x": 2}]
    assert made(engine) == {"here", "seen_of_it", "kept"}
    with pytest.raises(EngineError, match="nothing"):
        engine.rows("select * from other")


def test_what_cannot_have_rows_is_not_made(engine: HERE) -> None:
    engine.table("few", "select x from here where x > 1")
    engine.view("seen_of_it", "select x from few")
    engine.table("found", "select x, nothing as key from seen_of_it")
    assert engine.is_surely_empty("found")
    assert made(engine) == {"here", "few"}
    assert engine.rows("select x from found order by x nulls first") == []
    assert engine.rows("select count(*) as many from few left join here on here.x = few.x") == [{"many": 0}]
    engine.table("outer_joined", "select here.x, few.x as y from here left join few on here.x = few.x")
    assert not engine.is_surely_empty("outer_joined")
    assert engine.rows("select * from outer_joined") == [{"x": 1, "y": None}]


def test_an_empty_table_has_its_columns(engine: HERE) -> None:
    engine.table("few", "select x from here where x > 1")
    engine.table("fewer", "select x, cast(x as bigint) as y from few")
    assert engine.is_surely_empty("fewer")
    assert engine.rows("select h.x, f.y from here h left join fewer f on h.x = f.x") == [{"x": 1, "y": None}]


def test_a_table_is_of_what_its_names_stood_for_and_a_view_of_what_they_stand_for(engine: HERE) -> None:
    engine.view("seen_of_it", "select x from here")
    engine.table("kept", "select x from seen_of_it")
    engine.view("seen", "select x from seen_of_it")
    engine.table("kept_of_kept", "select x from kept")
    engine.load("here", pa.table({"x": [7]}))
    assert engine.rows("select x from kept_of_kept") == [{"x": 1}]
    assert engine.rows("select x from seen") == [{"x": 7}]
    engine.table("kept", "select x from seen_of_it")
    assert engine.rows("select x from kept") == [{"x": 7}], "the same text, and other rows"
    engine.table("few", "select x from here where x > 7")
    engine.view("seen_of_it", "select x from few")
    assert engine.is_surely_empty("seen")
    assert not engine.is_surely_empty("kept")
    engine.load("here", pa.table({"x": [8]}))
    engine.table("few", "select x from here where x > 7")
    assert not engine.is_surely_empty("seen")
    assert engine.rows("select x from seen") == [{"x": 8}]


def test_a_view_that_was_read_reads_what_its_names_stand_for_later(engine: HERE) -> None:
    """Also for a query that has rows in any case, of which nothing is asked before."""
    engine.table("few", "select x from here")
    engine.view("seen", "select x from few")
    greatest = "select max(x) as greatest from seen"
    assert engine.rows(greatest) == [{"greatest": 1}]
    engine.table("few", "select x + 1 as x from here")
    assert engine.rows(greatest) == [{"greatest": 2}]


@pytest.mark.parametrize("kind", [partial(DuckDB, small=True), SQLite], ids=["small-duckdb", "sqlite"])
def test_two_sessions_have_nothing_in_common(kind: Callable[[], HERE]) -> None:
    with kind() as first, kind() as second:
        first.load("here", ONE)
        with pytest.raises(EngineError):
            second.rows("select x from here")
        second.close()
        assert first.rows("select x from here") == [{"x": 1}]


def test_a_view_lacks_nothing_that_was_declared_after_it(engine: HERE) -> None:
    """It is not among those that are asked again when that becomes another."""
    engine.view("seen", "select x from few")
    engine.table("few", "select x from here where x > 1")
    assert not engine.is_surely_empty("seen")
    engine.table("few", "select x from here")
    with pytest.raises(EngineError, match="few"):
        engine.rows("select x from seen")


class Said:
    """Runs each text of which it is said, from the text alone, that it has no rows."""

    def __init__(self, engine: HERE) -> None:
        self._engine = engine
        self.texts: Counter[str] = Counter()

    def rowless(self, sql: str) -> EmptinessCondition:
        says = empty_relations.find_rowless_condition(sql)

        def checked(lacks: IsEmpty) -> bool:
            if not says(lacks):
                return False
            self._engine._relations.ensure(sql)
            rows = self._engine._connection.execute(f"select 1 from ({sql}) as found limit 1").fetchall()
            assert rows == [], f"it has rows: {sql}"
            self.texts[sql] += 1
            return True

        return checked


def test_each_text_that_is_spared_is_checked(engine: HERE, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said(engine)
    monkeypatch.setattr(lazy_relations, "find_rowless_condition", said.rowless)
    engine.load("few", pa.table({"x": pa.array([], pa.int64())}))
    assert engine.rows("select x from few") == []
    assert said.texts.keys() == {"select x from few"}
    monkeypatch.setattr(empty_relations, "find_rowless_condition", lambda sql: lambda lacks: True)
    with pytest.raises(AssertionError, match="it has rows: select x from here"):
        engine.rows("select x from here")


def judged(history: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Judgement, int]:
    """With all that is said checked; how many texts that were."""
    with DuckDB(small=True) as engine, monkeypatch.context() as patch:
        said = Said(engine)
        patch.setattr(lazy_relations, "find_rowless_condition", said.rowless)
        judgement = judge(open_history(history), Contract(), engine)
        nothing_by_lack_of_one(engine)
        return judgement, len(said.texts)


def nothing_by_lack_of_one(engine: DuckDB) -> None:
    """Each text that has been declared has no rows as soon as one that it needs has none, whatever the others have."""
    for relation in list(engine._relations._relations.values()):
        if relation.sql is None or not relation.is_current:
            continue
        engine._relations.ensure(relation.sql)
        for name in relation.reads:
            if not empty_relations.find_rowless_condition(relation.sql)(lambda one, name=name: one == name):
                continue
            some = "select made.* from (select 1) as one left join temp.{0} as made on true"
            made = [f"{name} as (select * from temp.{name} limit 0)"]
            made += [f"{other} as ({some.format(other)})" for other in relation.reads if other != name]
            sql = f"with {', '.join(made)} select 1 from ({relation.sql}) as found limit 1"
            assert engine._connection.execute(sql).fetchall() == [], f"without rows in {name}: {relation.sql}"


BY_DAY = ("log", "txn")


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=() if model in BY_DAY else pytest.mark.long) for model in CATALOGUE]
)
def test_what_is_said_to_have_no_rows_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """Texts said to have no rows, while a history with many anomalies is judged, run after all and return none."""
    plant = CATALOGUE[model].anomalies[:6]
    generate(
        model,
        Plan(operations=OPERATIONS_PER_ANOMALY * len(plant), clients=6, keys=40, seed=5, plant=plant),
        tmp_path / "made",
    )
    judgement, texts = judged(tmp_path / "made" / "history", monkeypatch)
    assert len(judgement.anomalies) >= len(plant) // 2
    assert texts > 3


@pytest.mark.long
@pytest.mark.parametrize("history", [stored(number, path) for number, path in enumerate(STORED)])
def test_of_a_stored_history_too(monkeypatch: pytest.MonkeyPatch, history: Path) -> None:
    _, texts = judged(history, monkeypatch)
    assert texts > 3
