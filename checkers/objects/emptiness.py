"""A linearizable queue that claimed to be empty when it was not.

This applies only if the contract declares queues linearizable (``linearizable_queues``). In other queues an element may
be on its way, or given out and put back. Rows are those of ``objects.queues``; an ok ``queue-dequeue`` without a value
is the judged answer.

1. An element is certainly inside from the return of its acknowledged enqueue to the call of a dequeue that returned it.
2. From its call on, a dequeue of unknown outcome may have taken any one element that no other dequeue returned later. A
   drain of unknown outcome may have taken any number of them.
3. The queue may have been empty at an instant under two conditions. No element that is returned later was certainly
   inside. The other elements inside were no more than the called dequeues of unknown outcome.
4. The answer is false if there is no such instant from its call to its return. At each instant another element may be
   the one inside.

Equal elements count as often as they are inside. The surplus of enqueues over dequeues may never be returned.
"""

from typing import Final

from assay.checkers.check import Check, Table, View, family_of
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import first_rows_subquery, greatest_before, order_by, sum_so_far

ANY: Final = 2**32
"""More elements than a queue has: the number that a drain of unknown outcome may have taken."""


QUEUE_FALSE_EMPTY: Final = Check(
    anomaly="queue-false-empty",
    meaning="a queue said that it was empty while acknowledged elements were inside",
    views=(
        Table(
            "queue_empties",
            """
            select key, op, sub, call, ret from queue_rows
            where kind = 'queue-dequeue' and outcome = 'ok' and value is null
            """,
        ),
        View(
            "queue_spare",
            """
            select key, value, cast(sum(weight) as bigint) as spare
            from (
                select key, value, 1 as weight from queue_adds
                union all select key, value, -1 from queue_takes) as turns
            group by key, value having cast(sum(weight) as bigint) > 0
            """,
        ),
        View(
            "queue_element_steps",
            f"""
            select t.key, t.time, t.late, t.weight, coalesce(s.spare, 0) as spare,
                {sum_so_far("t.weight", by="t.key, t.value", order="t.time, t.late, t.op, t.sub")} as copies
            from (
                select key, value, ret as time, 1 as late, 1 as weight, op, sub from queue_adds where ret < {INFINITY}
                union all select key, value, call, 0, -1, op, sub from queue_takes) t
                left join queue_spare s on t.key = s.key and t.value = s.value
            """,
        ),
        View(
            "queue_levels",
            f"""
            select key, time, late, inside, due, unknown,
                lead(time) over (partition by key {order_by("time, late")}) as following
            from (
                select key, time, late, {sum_so_far("element", by="key", order="time, late")} as inside,
                    {sum_so_far("returned", by="key", order="time, late")} as due,
                    {sum_so_far("doubt", by="key", order="time, late")} as unknown
                from (
                    select key, time, late, cast(sum(element) as bigint) as element,
                        cast(sum(returned) as bigint) as returned, cast(sum(doubt) as bigint) as doubt
                    from (
                        select key, time, late, greatest(copies, 0) - greatest(copies - weight, 0) as element,
                            greatest(copies - spare, 0) - greatest(copies - weight - spare, 0) as returned, 0 as doubt
                        from queue_element_steps
                        union all
                        select key, call, 0, 0, 0, 1 from queue_rows where kind = 'queue-dequeue' and outcome = 'info'
                        union all select key, call, 0, 0, 0, {ANY} from queue_open_drains
                        union all select key, ret, 0, 0, 0, 0 from queue_empties
                        union all select key, -1, 0, 0, 0, 0 from queue_empties) as changes
                    group by key, time, late) as folded) as summed
            """,
        ),
        View(
            "queue_last_empty",
            f"""
            select key, time, late, inside, due, unknown,
                {greatest_before("until", by="key", order="time, late")} as empty_until
            from (
                select key, time, late, inside, due, unknown,
                    case when due = 0 and inside <= unknown then coalesce(following, {INFINITY}) end as until
                from queue_levels) as ended
            """,
        ),
        Table(
            "found_queue_false_empty",
            """
            select e.key, e.op, e.sub, e.call, e.ret, l.inside, l.due, l.unknown
            from queue_empties e join queue_last_empty l on e.key = l.key and e.ret = l.time and l.late = 0
            where (l.due > 0 or l.inside > l.unknown) and l.empty_until < e.call
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.op as empty_op, f.sub, f.inside, f.due, f.unknown, a.op as add_op, a.value
        from {first_rows_subquery("found_queue_false_empty", "key, op, sub")} f
            left join (
                select f.op, f.sub, min(a.op) as add_op
                from {first_rows_subquery("found_queue_false_empty", "key, op, sub")} f
                    join queue_adds a on f.key = a.key and a.ret < f.call
                    left join queue_takes t on a.key = t.key and a.value = t.value
                where t.key is null group by f.op, f.sub) w on f.op = w.op and f.sub = w.sub
            left join (select key, op, min(value) as value from queue_adds group by key, op) a
            on f.key = a.key and w.add_op = a.op
        {order_by("f.key, f.op, f.sub")}
        """,
    examined="select count(*) as examined from queue_empties",
    claim="{empty_op} found {key} empty between {empty_op:called} and {empty_op:returned}, but at every moment of "
    "this time acknowledged elements were inside that no dequeue of unknown outcome may have taken: {inside} at its "
    f"end, of which {{due}} were dequeued later, and [unknown<{ANY}?{{unknown}}|any number of] such dequeues[add_op?; "
    "one of them is {value}, acknowledged to {add_op} at {add_op:returned}].",
    about=("[add_op?[due=0?element {value} of {key} by operation {add_op:number}]]",),
    explained_by=("queue-lost",),
    seen_again=True,
    needs_close=True,
)
"""``empty_until``: the last time at which the queue may have been empty, before the answer's return. ``late``: dequeue
calls come before enqueue returns of the same moment.
"""

EMPTINESS: Final = family_of(
    QUEUE_FALSE_EMPTY,
    applies="""
        effects e cross join queue_declared d
        where d.linearizable_queues = 1 and e.kind = 'queue-dequeue' and e.outcome = 'ok' and e.value is null
        """,
    kinds=("queue-dequeue",),
)
"""Must come after the queues' own family, whose tables it reads."""
