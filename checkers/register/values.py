"""Register values: a read returns only written values, not before they were written; one CAS at most replaces a value.

The tables of ``register.views`` and ``register.chains`` are read here:

- ``register_kept``: the writes and CAS operations that count, because they were acknowledged, read or expected
- ``register_seen``: reads, each with the write of its value
- ``register_links``: each kept CAS, with the writer of the value that it expected
- ``register_clusters``: aggregates of all operations on each value; ``register_versioned``: the keys with versions
- ``register_ancestors``: the chain of each value that a CAS wrote

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import VALUE, Check, View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.register.views import INITIAL
from assay.checkers.sql_idioms import (
    EARLIEST,
    first_rows_subquery,
    order_by,
    previous,
    select_first,
    select_nearest_pairs,
)


def describe_value(column: str, *, capital: bool = False) -> str:
    """Returns a template of a column's value in words."""
    initial, value = ("The initial value", "Value") if capital else ("the initial value", "value")
    return f"[{column}={INITIAL}?{initial}|{value} {{{column}}}|{initial}]"


OBSERVERS: Final = View(
    "register_observers",
    """
    select key, value, min(op) as op from (
        select key, value, op from register_seen
        union all select key, expected, op from register_links) as seers
    group by key, value
    """,
)
"""By value, an operation that proves that the register held it. An unanswered CAS proves nothing by itself."""


MISSING_WRITER: Final = Check(
    anomaly="missing-writer",
    meaning="a register was read with a value that no one wrote",
    views=parse_views(f"""
        -- Values that were read, or expected by a kept CAS, and that no one wrote.
        create view register_unwritten as
        select key, value, op from register_seen where write_op is null and value <> {INITIAL}
        union all
        select key, expected, op from register_links where write_op is null and expected <> {INITIAL}

        -- Values whose chain has no start.
        create table register_cycles as
        select key, value from register_ancestors where no_start = 1

        -- Values that were seen at several versions.
        create table register_version_changes as
        select key, value, low_version, high_version from register_clusters where low_version < high_version
        """),
    violations="""
        select key, value, 'unwritten' as why, min(op) as seen_op, count(*) as observed,
            cast(null as bigint) as low_version, cast(null as bigint) as high_version
        from register_unwritten group by key, value
        union all
        select a.key, min(a.value), 'circle', min(k.op), count(*), cast(null as bigint), cast(null as bigint)
        from register_cycles a join register_kept k on a.key = k.key and a.value = k.value group by a.key
        union all
        select c.key, c.value, 'version', min(s.op), count(*), min(c.low_version), max(c.high_version)
        from register_version_changes c join register_seen s on c.key = s.key and c.value = s.value
        where s.write_op is not null group by c.key, c.value
        """,
    evidence=f"""
        select f.key, f.value, f.why, f.seen_op, f.observed, f.low_version, f.high_version, min(w.op) as failed_op,
            min(s.op) as shown_op
        from {first_rows_subquery("found_missing_writer", "key, value, why")} f
            left join (select * from register_rows where kind in ('write', 'cas') and outcome = 'fail') w
            on f.key = w.key and f.value = w.value
            left join register_links c on f.key = c.key and f.seen_op = c.op and c.ret = {INFINITY}
            left join register_observers s on c.key = s.key and c.value = s.value
        group by f.key, f.value, f.why, f.seen_op, f.observed, f.low_version, f.high_version
        {order_by("f.key, f.value, f.why")}
        """,
    examined="select (select count(*) from register_seen) + (select count(*) from register_links) as examined",
    evidence_views=(OBSERVERS,),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim=describe_value("value", capital=True)
    + " of {key} was observed by {seen_op} at {seen_op:called}, but [why=circle?the CAS operations that lead to it go "
    "round in a circle: no one ever began it|why=version?at versions {low_version} and {high_version}, though it was "
    "written once|failed_op?its write by {failed_op} at {failed_op:called} had definitely failed|no one wrote it].",
    operations=("seen_op", "failed_op", "shown_op"),
    more="{observed-1}",  # how many operations are not listed
    about=(VALUE,),  # subjects of a finding
    explained_by=("refused-but-done",),
    needs_close=True,  # proves nothing about a run that was cut short
)


FUTURE_READ: Final = Check(
    anomaly="future-read",
    meaning="a value was read before it was written",
    violations="""
        select key, value, op, sub, ret, write_op, write_call from register_seen where ret < write_call
        union all
        select key, expected, op, sub, ret, write_op, write_call from register_links where ret < write_call
        """,
    evidence=select_first("found_future_read", "key, op, sub", also="op as seen_op"),
    examined=MISSING_WRITER.examined,
    claim=describe_value("value")
    + " of {key} was observed by {seen_op} by {ret:time}, before {write_op} began to write it at {write_call:time}.",
)


_FIRST: Final = first_rows_subquery("found_lost_update", "key, why, expected, version")

LOST_UPDATE: Final = Check(
    anomaly="lost-update",
    meaning="two conditional writes both replaced the same value",
    views=parse_views(f"""
        -- Values in the order of their versions, each with the previous value (`former`).
        create view register_order as
        select key, value, expected, chained, low_version,
            coalesce({previous("value", by="key", order="low_version, value")},
                {INITIAL}) as former
        from (
            select c.key, c.value, c.expected, c.chained, c.low_version
            from register_clusters c join register_versioned v on c.key = v.key
            where c.value <> {INITIAL}) as versions

        -- One operation that wrote or read each value.
        create view register_holders as
        select key, value, min(op) as op from (
            select key, value, op from register_kept union all select key, value, op from register_seen) as users
        group by key, value

        -- Versions with several values.
        create table register_clashes as
        select key, low_version as version, min(value) as low_value, max(value) as high_value, count(*) as rivals
        from register_clusters where low_version is not null and value <> {INITIAL}
        group by key, low_version having count(*) > 1

        -- CAS operations whose expected value is not the value of the previous version.
        create table register_leaps as
        select o.key, o.low_version as version, o.expected, o.former as low_value, o.value as high_value
        from register_order o
            left join register_clashes c on o.key = c.key and o.low_version = c.version
            left join register_clusters e on o.key = e.key and o.expected = e.value
        where o.chained = 1 and o.former <> o.expected and c.key is null
            and (e.key is not null or o.expected = {INITIAL})
        """),
    violations="""
        select key, 'successors' as why, expected, cast(null as bigint) as version, min(op) as low_op,
            max(op) as high_op, cast(null as bigint) as low_value, cast(null as bigint) as high_value,
            count(*) as rivals
        from register_links group by key, expected having count(*) > 1
        union all
        select c.key, 'version', cast(null as bigint), c.version, min(a.op), min(b.op), c.low_value, c.high_value,
            c.rivals
        from register_clashes c
            left join register_holders a on c.key = a.key and c.low_value = a.value
            left join register_holders b on c.key = b.key and c.high_value = b.value
        group by c.key, c.version, c.low_value, c.high_value, c.rivals
        union all
        select l.key, 'leap', l.expected, l.version, min(a.op), min(b.op), l.low_value, l.high_value, 2
        from register_leaps l
            left join register_holders a on l.key = a.key and l.low_value = a.value
            left join register_holders b on l.key = b.key and l.high_value = b.value
        group by l.key, l.expected, l.version, l.low_value, l.high_value
        """,
    evidence=f"""
        select f.key, f.why, f.expected, f.version, coalesce(n.former_op, f.low_op) as low_op,
            coalesce(n.op, f.high_op) as high_op, coalesce(f.low_value, n.former_side) as low_value,
            coalesce(f.high_value, n.side) as high_value, f.rivals, n.seen_op as high_seen_op,
            n.former_seen_op as low_seen_op, {EARLIEST}
        from {_FIRST} f left join ({
        select_nearest_pairs(
            f'''
            select f.key, f.expected, c.value as side, c.call as moment, c.op,
                case when c.ret = {INFINITY} then s.op end as seen_op
            from {_FIRST} f join register_links c on f.key = c.key and f.expected = c.expected
                left join register_observers s on c.key = s.key and c.value = s.value
            where f.why = 'successors'
            ''',
            "key, expected",
            carry="seen_op",
        )
    }) n on f.why = 'successors' and f.key = n.key and f.expected = n.expected
        {order_by("f.key, f.why, f.expected, f.version")}
        """,
    evidence_views=(OBSERVERS,),
    examined="""
        select case when k.links > 0 then k.links else w.tried end as examined
        from (select count(*) as links from register_links) k
            cross join (select count(*) as tried from register_rows where kind = 'cas') w
        """,
    lacks="no compare-and-set is known to have been done",
    claim=f"[why=successors?{describe_value('expected', capital=True)} of {{key}} was replaced twice: by CAS to value "
    "{low_value} ({low_op}, called at {low_op:called}) and by CAS to value {high_value} ({high_op}, called at "
    "{high_op:called})[rivals>2?, by {rivals} in all]|why=version?Version {version} of {key} holds value {low_value} "
    f"({{low_op}}) and value {{high_value}} ({{high_op}})|{{high_op:capital}} replaced {describe_value('expected')} "
    "of {key} by CAS with value {high_value} at version {version}, but the version before it holds "
    f"{describe_value('low_value')}].",
    operations=("high_op", "low_op", "high_seen_op", "low_seen_op"),
    more="{rivals-2}",  # how many operations are not listed
)
"""If no CAS is known to have taken effect, ``examined`` counts those that were tried."""
