"""Counters: fetch-and-add(1), and reads, of an object that begins at 0.

A workload records itself in ``effects`` as follows (``key`` is the counter's name):

- ``counter-add``: ``value`` is the returned count, *before* the add; null if the outcome is info.
- ``counter-read``: ``value`` is the count; only ok reads count.

The check has three parts:

1. Slot v is the place of the add that returned v. A read of v is between slots v - 1 and v. So the order is known, and
   rule U applies: no operation may have a lower place than an operation that had returned before its call. The place of
   an add is 2v, and that of a read 2v - 1. Each late call is one instance of ``counter-order``.
2. No two adds fill one slot.
3. Below any returned count, slots that no acknowledged add filled must have been filled by adds of unknown outcome.
   Such an add can fill a slot if it was called no later than the earliest return of a higher count.

In part 3 the latest possible call rises with the slot, so it is best to give the k-th missing slot to the k-th
earliest-called add (exchange argument). This suffices: adds of unknown outcome have no return, so they never constrain
each other, and surplus adds may never have happened. A counter is linearizable iff all three parts hold.

``exposure_bound`` has the time of the last heal (``checkers.exposure``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, UndecidedKeys, parse_views
from assay.checkers.exposure import Exposure
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import (
    EARLIEST,
    RETURNED,
    ROWS_BEFORE,
    ROWS_SO_FAR,
    first_rows_subquery,
    order_by,
    previous,
    row_number,
    select_last_before,
    select_late_calls,
    select_nearest_pairs,
    total_of,
)

COUNTER_VIEWS: Final = parse_views(f"""
    -- Adds that did not fail (`adds` is 1), and reads.
    create table counter_rows as
    select e.op, e.sub, e.key, case when e.kind = 'counter-add' then 1 else 0 end as adds,
        case when e.outcome = 'ok' then e.value end as value, e.call, {RETURNED} as ret, e.outcome
    from effects e where (e.kind = 'counter-add' and e.outcome <> 'fail')
        or (e.kind = 'counter-read' and e.outcome = 'ok' and e.value is not null)

    -- Keys that cannot be judged, because an acknowledged add fills an unknown slot.
    create table counter_unclear as
    select key, min(op) as op from counter_rows where outcome = 'ok' and value is null group by key

    -- Operations with a known count, of keys that can be judged.
    create view counter_known as
    select r.key, r.value, r.adds, r.op, r.sub, r.call, r.ret
    from counter_rows r left join counter_unclear u on r.key = u.key
    where r.outcome = 'ok' and r.value >= 0 and u.key is null

    -- Operations aggregated by place: `adds` 0 is the place 2v - 1, 1 the place 2v.
    create table counter_places as
    select key, value, adds, count(*) as many, min(op) as low_op, max(op) as high_op, max(call) as last_call,
        min(ret) as first_ret
    from counter_known group by key, value, adds
    """)

_REPEATED: Final = first_rows_subquery("found_counter_duplicate", "key, value")

COUNTER_DUPLICATE: Final = Check(
    anomaly="counter-duplicate",
    meaning="two adds to a counter returned the same count, so one of them was lost",
    violations="select key, value, many, low_op, high_op from counter_places where adds = 1 and many > 1",
    evidence=f"""
        select f.key, f.value, f.many, n.former_op as low_op, n.op as high_op, {EARLIEST}
        from {_REPEATED} f join ({
        select_nearest_pairs(
            f'''
            select k.key, k.value, k.op as side, k.call as moment, k.op
            from {_REPEATED} f join counter_known k on f.key = k.key and f.value = k.value and k.adds = 1
            ''',
            "key, value",
        )
    }) n on f.key = n.key and f.value = n.value
        {order_by("f.key, f.value")}
        """,
    examined=f"select {total_of('many')} as examined from counter_places where adds = 1",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}: {low_op} (called at {low_op:called}) and {high_op} (called at {high_op:called})[many>2?, and "
    "{many-2} others] were given the same {value}, so their adds count as one.",
    more="{many-2}",  # how many operations are not listed
)


COUNTER_ORDER: Final = Check(
    anomaly="counter-order",
    meaning="a count was returned after a higher one was already known",
    violations=select_late_calls("counter_places", "value, adds"),
    evidence=select_last_before(
        first_rows_subquery("found_counter_order", "key, before"), "counter_known", ("value", "adds")
    ),
    examined=f"select {total_of('many')} as examined from counter_places",
    exposure=Exposure(
        rows=f"""
            select k.key, count(*) as claims,
                {total_of("case when n.last > greatest(k.ret, b.since) then 1 else 0 end")} as exposed
            from counter_known k cross join exposure_bound b
                left join (select key, max(last_call) as last from counter_places group by key) n on k.key = n.key
            where k.adds = 1 group by k.key
            """,
        nouns="adds",
        asserted="acknowledged",
        observed="followed by a read or another add",
        remedy="read each counter at the end",
        each_key=True,
    ),
    claim="{key}: {late_op} has [late_adds=1?been given {late_value} by an add|read {late_value}] called at "
    "{before:time}, although {first_op} had [adds=1?been given {value} by an add|read {value}] by {first_op:returned}.",
    more="{overtaken-1}",  # how many operations are not listed
)


COUNTER_PHANTOM: Final = Check(
    anomaly="counter-phantom",
    meaning="a count was returned that is higher than the adds made by then",
    views=parse_views(f"""
        -- Adds of unknown outcome, numbered by call (`rank`).
        create table counter_spare as
        select r.key, r.op, r.call, {row_number(by="r.key", order="r.call, r.op, r.sub")} as rank
        from counter_rows r where r.outcome = 'info'

        -- The number of adds of unknown outcome.
        create view counter_spares as
        select key, count(*) as spare from counter_spare group by key

        -- `filled`: number of slots below the value that acknowledged adds filled. `needed`: number of the other slots.
        -- `missing`: number of needed slots from the previous known value (`floor_value`) on. `floor_filled`: 1 if an
        -- acknowledged add filled the slot of the previous known value (its `own`). `bound`: the earliest return of
        -- this or a higher value.
        create view counter_levels as
        select key, value, bound, value - filled as needed, value - floor_value - floor_filled as missing from (
            select key, value, first_ret, filled,
                coalesce({previous("value", by="key", order="value")}, 0) as floor_value,
                coalesce({previous("own", by="key", order="value")}, 0) as floor_filled,
                min(first_ret) over (partition by key {order_by("depth")} {ROWS_SO_FAR}) as bound
            from (
                select key, value, 0 - value as depth, first_ret, own,
                    cast(coalesce(sum(own) over (partition by key {order_by("value")} {ROWS_BEFORE}), 0) as bigint)
                    as filled
                from (select key, value, min(first_ret) as first_ret, max(adds) as own
                    from counter_places group by key, value) as folded) as counted) as bounded
        """),
    violations="""
        select l.key, l.value, l.bound, l.needed, s.call as late, s.op as late_op, coalesce(t.spare, 0) as spare,
            cast(null as bigint) as below_op
        from counter_levels l left join counter_spares t on l.key = t.key
            left join counter_spare s on l.key = s.key and l.needed = s.rank
        where l.missing > 0 and (s.key is null or s.call > l.bound)
        union all
        select r.key, r.value, min(r.ret), null, null, null, 0, min(r.op)
        from counter_rows r where r.value < 0 group by r.key, r.value
        """,
    evidence=f"""
        select f.key, f.value, f.bound, f.needed, f.late, f.late_op, f.spare,
            coalesce(f.below_op, min(t.op)) as first_op, min(t.value) as first_value, min(t.adds) as first_adds
        from {first_rows_subquery("found_counter_phantom", "key, value")} f
            left join counter_known t on f.key = t.key and f.bound = t.ret and t.value >= f.value
        group by f.key, f.value, f.bound, f.needed, f.late, f.late_op, f.spare, f.below_op
        {order_by("f.key, f.value")}
        """,
    examined="select count(*) as examined from counter_places",
    claim="{key}: {first_op} [needed?had [first_adds=1?been given {first_value} by an add|read {first_value}] by "
    "{bound:time}. Only {value-needed} of the {value} adds below {value} had been acknowledged, and [of those of "
    "unknown outcome number {needed} was called only at {late:time}|only {spare} adds of unknown outcome exist]|was "
    "answered {value}, and the counter began at 0].",
    operations=("first_op", "late_op"),
    needs_close=True,  # proves nothing about a run that was cut short
)


_DOUBTS: Final = UndecidedKeys(
    "counter_unclear",
    lambda row: (
        f"counter {row['key']} cannot be judged: its add {row['op']} was acknowledged, and its result is not known"
    ),
    lambda more: f"nor can {more} other counters, for the same reason",
)


COUNTERS: Final = declare_family("counter", (COUNTER_DUPLICATE, COUNTER_ORDER, COUNTER_PHANTOM), COUNTER_VIEWS, _DOUBTS)

COUNTER_ANOMALIES: Final = COUNTERS.anomalies
