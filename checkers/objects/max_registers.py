"""Max registers: a read returns the largest value written so far (Aspnes, Attiya, Censor: "Max registers, counters, and
monotone circuits", PODC 2009).

A workload records itself in ``effects`` as follows (``key`` is the register's name; values need not be unique):

- ``max-write``: ``value``; outcomes ok, fail or info.
- ``max-read``: ``value``, null if nothing was written yet; only ok reads count.

**The rule.** For each value u that was read, let e(u) be the earliest-called write of u that did not fail. If there is
no such write, the value is a phantom. Each operation has a place:

- 2u for e(u),
- 2u + 1 for a read of u,
- 2v for any other acknowledged write of v. *Its call does not count.*

A history is linearizable iff it has no phantom and its places obey rule U: no operation has a lower place than an
operation that had returned before its call.

**The rule is necessary.** Some write of u precedes every read of u or of a larger value; choosing the earliest-called
write loses nothing. No read shows less than an earlier read. A write of v comes after all reads of smaller values, so
also after the e(u) of these values. Therefore none of these operations may be called after the write's return. But no
operation must come *after* a write that is no e(u), because another write of v, or of a larger value, may hide it. So
the call of such a write does not count.

**The rule is sufficient.** The writes that are no e(u) move up, in order of return, until rule U holds for their
calls, too. Let w be such a write of v.

1. If operations at places above 2v had returned before w was called, w moves up to the highest of their places. Then no
   operation at a higher place had returned before w was called.
2. It remains to show that no operation y at a lower place was called after w had returned. If w stays at 2v, this is
   the rule itself. If w moves to the place of an operation z, then z had returned before w was called. So y would have
   been called after z had returned, which the rule excludes (or this argument for z, if z has moved).

So the new places obey rule U for all operations. A read of u still finds u: e(u) has a strictly lower place, and no
write of more than u has a place below 2u + 2.

``exposure_bound`` has the time of the last heal (``checkers.exposure``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import (
    RETURNED,
    first_rows_subquery,
    order_by,
    select_last_before,
    select_late_calls,
    total_of,
)

INITIAL: Final = -INFINITY
"""Stands for the initial value, below all others."""

MAX_VIEWS: Final = parse_views(f"""
    -- Writes that did not fail, and reads (`reads` is 1).
    create table max_rows as
    select e.op, e.sub, e.key, case when e.kind = 'max-read' then 1 else 0 end as reads,
        coalesce(e.value, {INITIAL}) as value, e.call, {RETURNED} as ret
    from effects e
    where (e.kind = 'max-write' and e.outcome <> 'fail' and e.value is not null)
        or (e.kind = 'max-read' and e.outcome = 'ok')

    -- Operations aggregated by value; `write_call` is the call of e(u), and `looked` the number of reads.
    create table max_levels as
    select key, value, min(case when reads = 1 then ret end) as read_ret, max(case when reads = 1 then call end) as
        read_call, min(case when reads = 0 then call end) as write_call, min(case when reads = 0 then ret end) as
        write_ret, cast(sum(reads) as bigint) as looked, min(case when reads = 1 then op end) as read_op
    from max_rows group by key, value
    """)


# `[condition?text|other text]` is a choice: see `checkers.claims`.
def _describe_value(column: str) -> str:
    return f"[{column}={INITIAL}?the initial value|{{{column}}}]"


_THERE: Final = f"{{first_op}} had [reads=1?read|written] {_describe_value('value')} by {{first_op:returned}}"


MAX_PHANTOM: Final = Check(
    anomaly="max-phantom",
    meaning="a max register was read with a value that no one wrote",
    violations=f"""
        select key, value, read_op, looked from max_levels
        where looked > 0 and write_call is null and value <> {INITIAL}
        """,
    evidence=f"""
        select f.key, f.value, f.read_op, f.looked, min(w.op) as failed_op
        from {first_rows_subquery("found_max_phantom", "key, value")} f
            left join (select key, value, op from effects where kind = 'max-write' and outcome = 'fail') w
            on f.key = w.key and f.value = w.value
        group by f.key, f.value, f.read_op, f.looked {order_by("f.key, f.value")}
        """,
    examined=f"select {total_of('looked')} as examined from max_levels",
    claim="{key}: {read_op} read {value} at {read_op:called}, but [its write by {failed_op} at {failed_op:called} had "
    "definitely failed|no one wrote it].",
    more="{looked-1}",  # how many operations are not listed
    needs_close=True,  # proves nothing about a run that was cut short
)


MAX_ORDER: Final = Check(
    anomaly="max-order",
    meaning="a read of a max register returned less than a value that it already had",
    views=parse_views("""
        -- Each place (a value, and 1 in `reads` for reads) with the last call that counts there, and the first return.
        create view max_places as
        select key, value, 0 as reads, case when looked > 0 then write_call end as last_call, write_ret as first_ret
        from max_levels where write_call is not null
        union all
        select key, value, 1, read_call, read_ret from max_levels where looked > 0
        """),
    violations=select_late_calls("max_places", "value, reads"),
    evidence_views=parse_views("""
        -- Operations with the call that counts by the rule, or null.
        create view max_uses as
        select r.op, r.key, r.reads, r.value, r.ret, case when r.reads = 1 or l.looked > 0 then r.call end as call
        from max_rows r join max_levels l on r.key = l.key and r.value = l.value
        """),
    evidence=f"""
        select o.*, case when o.late_reads = 0 and o.late_value <> o.value then l.read_op end as read_op
        from ({
        select_last_before(first_rows_subquery("found_max_order", "key, before"), "max_uses", ("value", "reads"))
    }) o
            left join max_levels l on o.key = l.key and o.late_value = l.value
        {order_by("o.key, o.before")}
        """,
    examined="select count(*) as examined from max_rows",
    exposure=Exposure(
        rows=f"""
            select w.key, count(*) as claims,
                {total_of("case when r.last > greatest(w.ret, b.since) then 1 else 0 end")} as exposed
            from max_rows w cross join exposure_bound b
                left join (select key, max(call) as last from max_rows where reads = 1 group by key) r on w.key = r.key
            where w.reads = 0 and w.ret < {INFINITY} group by w.key
            """,
        nouns="writes",
        asserted="acknowledged",
        observed="followed by a read",
        remedy="read each register at the end",
        each_key=True,
    ),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim=f"{{key}}: [late_reads=1?{{late_op}} read {_describe_value('late_value')}, called at {{before:time}}, "
    f"although {_THERE}|late_value={{value}}?{_THERE}, and no one began to write it before {{late_op}} did at "
    f"{{before:time}}|{_describe_value('late_value')} was read as the largest by {{read_op}}, and no one began to "
    f"write it before {{late_op}} did at {{before:time}}, although {_THERE}].",
    operations=("late_op", "first_op", "read_op"),
    more="{overtaken-1}",  # how many operations are not listed
)

MAX_REGISTERS: Final = declare_family("max-register", (MAX_PHANTOM, MAX_ORDER), MAX_VIEWS)

MAX_REGISTER_ANOMALIES: Final = MAX_REGISTERS.anomalies
