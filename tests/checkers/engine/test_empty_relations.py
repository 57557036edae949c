"""From its text alone: without which relations a query has no rows, and that DuckDB and SQLite say the same."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import duckdb
import pytest

from assay.checkers.engine.duck import _create_database
from assay.checkers.engine.empty_relations import find_rowless_condition, find_words

from helpers.random_queries import query

NEEDS = [
    ("select x from a", "a"),
    ("select x from a where x > 1 and exists (select 1 from b)", "a"),
    ("select a.x from a join b on a.x = b.x cross join c", "a b c"),
    ("select a.x from a, b c, (select x from d where x in (1, 2)) as e", "a b d"),
    ("select a.x from a left join b on a.x = b.x join c on c.x = a.x", "a c"),
    ("select x, max(x) over (partition by x order by x nulls first) as y from a", "a"),
    ("select x, count(*) as y from a group by x having count(*) > 1 order by x limit 3", "a"),
    ("select case when x is not distinct from y then 1 end as z from a", "a"),
    ("with c as (select x from a) select x from c", "a"),
    ("with c as (select x from a), d as (select x from c) select d.x from b join d on b.x = d.x", "a b"),
    ("select coalesce(cast(x as int), 0) - (y) as z, least(x, (select x from b limit 1)) as w from a", "a"),
    ('select "from".x as y from "a" as "from"', "a"),
    ("select x from A", "a"),
    ("select a.x from a left join b using (x) join c using (x)", "a c"),
    ("select a.x from a join b on left(a.x, 1) = 'y' join c on c.x = a.x", "a b c"),
]
NOTHING = [
    "select count(*) as many from a",
    "select count(*) as many from a e where e.group is not null",
    "select coalesce(sum(x), 0) as total from a",
    "select max(max(x)) over () as y from a",
    "select case when min(x) > 1 then 1 end as y from a having count(*) = 0",
    "select own_aggregate(x) as y from a",
    "select least(x, (select max(x) from b)) as y from a",
    "select (select count(*) from a) as many",
    "select x from a right join b on a.x = b.x",
    "select x from a full join b on a.x = b.x",
    "select x from a except select x from b",
    "select x, count(*) from a group by rollup (x)",
    "select x, count(*) from a group by ()",
    "select x from (values (1), (2)) as named (x)",
    "select x from range(3) as named (x)",
    "select x from (a left join b on a.x = b.x)",
    "select x from a -- it's a comment",
    "select x from a natural join b",
    "select a.x from a asof join b on a.x >= b.x",
    "select a.x from a cross join lateral (select 1 as y) d",
    "select a.x from a positional join b",
    "select a.x from a semi join b on a.x = b.x",
    "select a.x from a anti join b on a.x = b.x",
    "select x from a intersect select x from b",
    "select x, count(*) from a group by x, cube (y)",
    "select x, count(*) from a group by x, grouping sets ((y))",
    "select * from a pivot (count(*) for x in (1, 2))",
    "select * from a unpivot (value for name in (x, y))",
    "select x[1] from a",
    "select {'x': x} from a",
    "select x from a where y = $1",
    "select x from a where y::text = ''",
    "select x from a where y = 'unended",
    "values (1)",
    "select x from a; select 1 as x",
    "select x from a group by",
    "select 1 where 1 >= 0",
    "select 1 as x",
]
EMPTY = ("", "a", "b", "c", "ab", "ac", "bc", "abc")
"""Which of the tables a, b and c have no rows."""
MADE_OF_NONE = [
    "select count(*) as x where 1 = 0",
    "select 1 as x where 1 = 1 or 1 = 0",
    "select (select sum(a.x)) as x from a",
    "select exists (select max(a.x)) as x from a",
    "select 1 as x from a order by count(*)",
    "select 1 as x from a order by max(x) nulls first",
    "select 1 as x from a qualify row_number() over (order by count(*)) = 1",
    "select row_number() over w as x from a window w as (order by count(*))",
    "select 1 as x from a having mode() within group (order by x) is null",
    "select count(*) over () as x from a group by ()",
    "select count(*) as x from a group by grouping sets ((), (x))",
    "select count(*) as x from a group by cube (x)",
    'with "a" as (select 1 as x) select x from a',
    'with a as (select 1 as x) select x from "a"',
    'with "a" as (select 1 as x), c as (select x from a) select x from c',
    "select 1 as x -- from a",
    "select 1 as x /* from a */",
    r"select e'\'' as x, ' from a where ' as y, e'\'' as z from b",
    "select 1 as x from a having 1 = 1",
    "with a as materialized (select 1 as x) select x from a",
    "with a (x) as (select 1) select x from a",
    "with recursive a as (select 1 as x union all select x + 1 from a where x < 3) select x from a",
    "with c as (with a as (select 1 as x) select x from a) select x from c",
    'select 1 as "p from a where", x from b',
    "select x, $$it's$$ as y from b where 'from a' <> $$it's$$",
    r"select e'\' from a where ' as x, 'y' as y from b",
    "select x from a: b",
    "select b.x from b left join c join a on a.x = c.x on b.x = c.x",
    "select b.x from b left join c cross join a on b.x = c.x",
    "select b.x from b left join (c join a on a.x = c.x) on b.x = c.x",
    "select p.x from (select x, x as a from b) p left join c on c.x in [7, a]",
    "select b.x from b left outer join a on a.x = b.x",
    "select b.x from b left join c on left('ab', 1) = 'a' left join a on a.x = b.x",
    "select b.x from b full join a on a.x = b.x",
    "select b.x from a right join b on a.x = b.x",
    "select b.x from b join (c left join a on a.x = c.x) on true",
    "select b.x from b natural left join a",
    "select b.x from b anti join a on a.x = b.x",
    "select b.x from b positional join a",
    "select b.x from b asof left join a on b.x >= a.x",
    "select b.x from b left join lateral (select 1 from a) d on true",
    "select * from (select x from a) pivot (count(*) for x in (1, 2))",
    "select x from b except select x from a",
    "select x from b union select x from a",
    "select x from a union all select 1 as x",
    "select x from a union by name select 1 as y",
    "select x from a union all select count(*) from a",
    "select b.x from b, (select count(*) as many from a) as d",
    "select x from b where not exists (select 1 from a)",
    "select x from b where x not in (select x from a)",
    "select x from b where (select count(*) from a) = 0",
    "select coalesce((select max(x) from a), 0) as x from b",
    "from a select count(*)",
    "select * from (summarize a)",
    "select a.x.sum() as x from a",
    "select (x).sum() as x from a",
    "select distinct count(*) as x from a",
    "select max(x) filter (where x > 1) as x from a",
    "select [count(*)] as x from a",
    "select min(columns(*)) from a",
    "select * replace (count(*) as x) from (select x from a)",
    "select x from (values (1)) as a (x)",
    "select range as x from generate_series(1, 2) as a (range)",
]
"""Each has rows where a has none, or all of a, b and c."""


def connected_to_duckdb() -> Any:
    return duckdb.connect(config={"threads": 1})


def connected_to_small_duckdb() -> Any:
    return _create_database(0)


def connected_to_sqlite() -> Any:
    return sqlite3.connect(":memory:")


@pytest.fixture(scope="module", params=[connected_to_duckdb, connected_to_small_duckdb])
def tables(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """By those that are empty."""
    made = {}
    for empty in EMPTY:
        made[empty] = request.param()
        for name in "abc":
            rows = "select * from (select 1 as x, 2 as y union all select 2, 2) as made"
            made[empty].execute(f"create table {name} as {rows} where {name not in empty}")
    yield made
    for one in made.values():
        one.close()


@pytest.mark.parametrize("sql", MADE_OF_NONE)
def test_rows_that_are_made_of_none_are_expected(tables: dict[str, Any], sql: str) -> None:
    assert any(tables[empty].execute(sql).fetchall() for empty in ("a", "abc")), "it is here because it has some"
    for empty, database in tables.items():
        if find_rowless_condition(sql)(lambda name, empty=empty: name in empty):
            assert database.execute(sql).fetchall() == [], empty


@pytest.mark.parametrize("tables", [connected_to_duckdb, connected_to_small_duckdb, connected_to_sqlite], indirect=True)
@pytest.mark.parametrize("seeds", [range(400), pytest.param(range(400, 20_000), marks=pytest.mark.long)], ids=len)
def test_a_query_that_is_said_to_have_no_rows_has_none(tables: dict[str, Any], seeds: range) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        sql = query(Random(seed))
        for empty, database in tables.items():
            if find_rowless_condition(sql)(lambda name, empty=empty: name in empty):
                try:
                    rows = database.execute(sql).fetchall()
                except (duckdb.Error, sqlite3.Error):
                    found["wrong"] += 1
                    continue
                assert rows == [], f"seed {seed}, without rows in {empty}: {sql}"
                found["right"] += 1
    assert found["right"] > len(seeds) / 10


@pytest.mark.parametrize(("sql", "needed"), NEEDS, ids=[sql for sql, _ in NEEDS])
def test_what_a_query_needs_rows_of(sql: str, needed: str) -> None:
    says = find_rowless_condition(sql)
    assert {name for name in "abcdef" if says(lambda one, name=name: one == name)} == set(needed.split())


@pytest.mark.parametrize("sql", NOTHING)
def test_what_is_not_surely_understood_needs_nothing(sql: str) -> None:
    assert not find_rowless_condition(sql)(lambda name: True)


def test_a_union_has_no_rows_when_no_part_of_it_has() -> None:
    says = find_rowless_condition(
        "select x from a union all select x from b join c on b.x = c.x union all (select x from c)"
    )
    assert not says(lambda name: name in "ab")
    assert not says(lambda name: name == "c")
    assert says(lambda name: name in "ac")


def test_a_query_that_is_never_true_has_no_rows() -> None:
    says = find_rowless_condition("select cast(null as int) as x where 1 = 0")
    assert says(lambda name: False)
    assert find_rowless_condition("select x from a join (select 1 as x where 1 = 0) b on a.x = b.x")(lambda name: False)


def test_the_names_in_a_text_are_in_order_and_no_texts() -> None:
    assert find_words("select Few.x from few where kind = 'many' or \"other\" = 1") == (
        "select", "few", "x", "from", "where", "kind", "or", "other", "1"
    )  # fmt: skip
    assert "b" in find_words("select x from a -- don't\njoin b on x = 'y'")


@pytest.mark.parametrize("apostrophe", ['"it\'s"', "$$it's$$", r"e'\''"])
def test_an_apostrophe_that_begins_no_text_hides_no_name(apostrophe: str) -> None:
    assert "b" in find_words(f"select {apostrophe} as x from b where 'x' = 'x'")
