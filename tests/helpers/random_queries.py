"""Queries over the tables a, b and c with the columns x and y, with much by which rows come of none. Some are wrong."""

from __future__ import annotations

from random import Random

DEEPEST = 3
SOURCES = ("a", "a", "b", "b", "c", '"a"', "A", "(values (1, 2))", "range(2)", "(select count(*) as x, 1 as y from a)")
JOINS = ("join", "inner join", "left join", "left join", "left outer join", "right join", "full join", "anti join",
         "natural join")  # fmt: skip
COLUMNS = (
    "count(*)", "max({0}.x)", "coalesce(max({0}.x), 0)", "-(min({0}.y))", "max({0}.x) filter (where {0}.y > 1)",
    "case when count({0}.x) = 0 then (1) end", "({0}.x).max()", "[count(*)]", "sum(count(*)) over ()",
    "count(*) over ()", "max({0}.y) over (partition by {0}.x)", "row_number() over (order by count(*))",
    "{0}.x", "{0}.x", "{0}.x", "{0}.x", "1", "'from a'", "cast({0}.x as int)", "-({0}.x)", "coalesce({0}.x, 0)",
    "case when {0}.x is distinct from 1 then 1 else (2) end", "exists (select 1 from a)",
    "(select max({0}.x))", "(select max(t.x) from a t)", '1 as "y from c where", 2',
)  # fmt: skip
CONDITIONS = (
    "", "", "", "where {0}.y > 0", "where 1 = 0", "where 1 = 1 or 1 = 0", "where exists (select 1 from a t)",
    "where not exists (select 1 from a t where t.x = {0}.x)", "where {0}.x in (select max(x) from a) or 1 = 1",
    "where ({0}.y = 7) is not distinct from false", "where {0}.x not in (select t.x from a t)",
)  # fmt: skip
GROUPS = (
    "", "", "", "", "group by {0}.x", "group by ({0}.x)",
    "group by ()", "group by {0}.x, ()", "group by all", "group by 1, 2",
)  # fmt: skip
ENDS = (
    "", "", "", "", "having count(*) = 0", "having count(*) > 0", "having mode() within group (order by 1) is null",
    "order by count(*)", "order by max({0}.x) nulls first", "order by {0}.y nulls first limit 3", "limit 2",
    "qualify row_number() over (order by count(*)) = 1", "window w as (order by count(*))",
)  # fmt: skip


def query(rng: Random, depth: int = 0) -> str:
    """Returns a random query, with columns x and y if it is valid."""
    kind = rng.random() if depth < DEEPEST else 1.0
    if kind < 0.15:
        verb = rng.choice(("union all", "union all", "union", "union by name", "except", "intersect"))
        return f"{_part(rng, depth)} {verb} {_part(rng, depth)}"
    if kind < 0.3:
        name = rng.choice(("a", "b", "d", '"a"', '"d"'))
        return f"with {name} as ({query(rng, depth + 1)}) {_select(rng, depth, (name, name.strip(chr(34))))}"
    if kind < 0.35:
        shown = rng.choice(("1", "count(*)", "(select count(*) from a)"))
        return f"select {shown} as x, 2 as y {rng.choice(CONDITIONS[:3] + CONDITIONS[4:6])}"
    return _select(rng, depth, SOURCES)


def _part(rng: Random, depth: int) -> str:
    made = query(rng, depth + 1)
    return rng.choice((f"({made})", f"select x, y from ({made}) as part", made))


def _select(rng: Random, depth: int, sources: tuple[str, ...]) -> str:
    names = ["p"]
    tables = f"{_source(rng, depth, sources)} p"
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        name, on = f"q{number}", f"on q{number}.x = {rng.choice(names)}.x"
        joined = f"{_source(rng, depth, SOURCES)} {name}"
        if rng.random() < 0.2:
            tables += rng.choice((f", {joined}", f" cross join {joined}"))
        elif rng.random() < 0.2:  # the second join belongs to the first one
            inner = f"{_source(rng, depth, SOURCES)} r{number}"
            within = rng.choice((f"cross join {inner}", f"{rng.choice(JOINS[:5])} {inner} on r{number}.x = {name}.x"))
            tables += f" {rng.choice(JOINS[:5])} {joined} {within} {on}"
        else:
            tables += f" {rng.choice(JOINS)} {joined} {on}"
        names.append(name)
    rest = " ".join(rng.choice(some) for some in (CONDITIONS, GROUPS, ENDS))
    x, y, distinct = rng.choice(COLUMNS), rng.choice(COLUMNS), rng.choice(("", "", "distinct "))
    return f"select {distinct}{x} as x, {y} as y from {tables} {rest}".format(rng.choice(names))


def _source(rng: Random, depth: int, sources: tuple[str, ...]) -> str:
    return f"({query(rng, depth + 1)})" if depth < DEEPEST and rng.random() < 0.2 else rng.choice(sources)
