"""From its text alone: without which relations a query has no rows, and that DuckDB says the same."""

from __future__ import annotations

import pytest

from assay.checkers.engine.needs import rowless, words

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
    ("select coalesce(cast(x as int), 0) - (y) as z, least(x, (select max(x) from b)) as w from a", "a"),
    ('select "from".x as y from "a" as "from"', "a"),
    ("select x from A", "a"),
]
NOTHING = [
    "select count(*) as many from a",
    "select count(*) as many from a e where e.group is not null",
    "select coalesce(sum(x), 0) as total from a",
    "select max(max(x)) over () as y from a",
    "select case when min(x) > 1 then 1 end as y from a having count(*) = 0",
    "select own_aggregate(x) as y from a",
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
    "values (1)",
    "select 1 where 1 >= 0",
    "select 1 as x",
]


@pytest.mark.parametrize(("sql", "needed"), NEEDS, ids=[sql for sql, _ in NEEDS])
def test_what_a_query_needs_rows_of(sql: str, needed: str) -> None:
    says = rowless(sql)
    assert {name for name in "abcdef" if says(lambda one, name=name: one == name)} == set(needed.split())


@pytest.mark.parametrize("sql", NOTHING)
def test_what_is_not_surely_understood_needs_nothing(sql: str) -> None:
    assert not rowless(sql)(lambda name: True)


def test_a_union_has_no_rows_when_no_part_of_it_has() -> None:
    says = rowless("select x from a union all select x from b join c on b.x = c.x union all (select x from c)")
    assert not says(lambda name: name in "ab")
    assert not says(lambda name: name == "c")
    assert says(lambda name: name in "ac")


def test_a_query_that_is_never_true_has_no_rows() -> None:
    says = rowless("select cast(null as int) as x where 1 = 0")
    assert says(lambda name: False)
    assert rowless("select x from a join (select 1 as x where 1 = 0) b on a.x = b.x")(lambda name: False)


def test_the_names_in_a_text_are_in_order_and_no_texts() -> None:
    assert words("select Few.x from few where kind = 'many' or \"other\" = 1") == (
        "select", "few", "x", "from", "where", "kind", "or", "other", "1"
    )  # fmt: skip
    assert "b" in words("select x from a -- don't\njoin b on x = 'y'")
