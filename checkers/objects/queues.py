"""Queues: after a drain, each enqueued element was dequeued exactly once, by any client. Order is not checked.

A workload records its operations in ``effects`` (``key`` is the queue's name; values need not be unique):

- ``queue-enqueue``: an element was enqueued; outcomes ok, fail or info.
- ``queue-dequeue``: ok with its ``value``, fail (nothing was taken), or info (an unknown element may have been taken).
  An ok dequeue without a value found the queue empty.
- ``queue-drained``: a drain found the end of the queue: all elements acknowledged before its call had been taken. Info:
  it is unknown how the drain ended, and which elements it took.

Each value is judged by multiplicity and time:

1. Each dequeue must be matched with its own enqueue, which was called no later than the dequeue returned.
2. Each element acknowledged before the call of the (last) drain must be matched with its own dequeue, which returned no
   earlier than the call of the element's enqueue. For each moment, take the number of enqueues called from then on,
   minus the number of dequeues returned from then on. By Hall's theorem (1935) the maximum of this difference is the
   number of unmatched elements. A single running sum, backwards in time, finds it.
3. Each dequeue of unknown outcome may have taken any one element of its queue. So n such dequeues excuse n losses.
4. A drain of unknown outcome may have taken any number of elements. Then no loss is proved, and the verdict is unknown
   if elements are missing.

``queue-false-empty``: if the contract declares queues linearizable (``linearizable_queues``), the queue must have been
empty at some moment of each ok dequeue without a value. In other queues an element may be in transit, or be given out
and put back.

1. An element is certainly inside from the return of its acknowledged enqueue to the call of a dequeue that returned it.
2. From its call on, a dequeue of unknown outcome may have taken one element: any element that no dequeue returned from
   then on. A drain of unknown outcome may have taken any number of such elements.
3. The queue may have been empty at a moment under two conditions. First, none of the elements certainly inside was
   returned by a later dequeue. Second, at least as many dequeues of unknown outcome had been called by then as elements
   were certainly inside.
4. The answer is false if there is no such moment from its call to its return. Different elements may be inside at
   different moments.

Each copy of an equal element counts. Copies enqueued beyond the number dequeued count as never returned.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, UndecidedKeys, family_of, parse_views
from assay.checkers.engine import INFINITY, Row
from assay.checkers.exposure import Exposure
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import (
    ALL_ROWS,
    RETURNED,
    first_rows_subquery,
    greatest_before,
    order_by,
    row_number,
    sum_so_far,
    total_of,
)

QUEUE_VIEWS: Final = parse_views(f"""
    -- Operations that did not fail.
    create table queue_rows as
    select e.op, e.sub, e.key, e.kind, e.value, e.call, {RETURNED} as ret, e.outcome
    from effects e where e.kind in ('queue-enqueue', 'queue-dequeue', 'queue-drained') and e.outcome <> 'fail'

    -- Enqueues. `rank` numbers those of one value by their calls.
    create table queue_adds as
    select key, value, op, sub, call, ret, {row_number(by="key, value", order="call, op, sub")} as rank
    from queue_rows where kind = 'queue-enqueue' and value is not null

    -- Dequeues that returned an element. `rank` numbers those of one value by their returns.
    create table queue_takes as
    select key, value, op, sub, call, ret, {row_number(by="key, value", order="ret, op, sub")} as rank
    from queue_rows where kind = 'queue-dequeue' and outcome = 'ok' and value is not null

    -- The call of the last drain that found the end of the queue.
    create table queue_drains as
    select key, max(call) as drained from queue_rows where kind = 'queue-drained' and outcome = 'ok' group by key

    -- The number of dequeues of unknown outcome, each of which excuses one loss.
    create table queue_excuses as
    select key, count(*) as excuses from queue_rows where kind = 'queue-dequeue' and outcome = 'info' group by key

    -- Queues with a drain of unknown outcome, and the first call of one.
    create table queue_open_drains as
    select key, min(call) as call from queue_rows where kind = 'queue-drained' and outcome = 'info' group by key

    -- Elements that were acknowledged before the last complete drain (`queue_drains`) was called.
    create table queue_acked as
    select a.key, a.value, a.op, a.sub, a.call, a.ret, d.drained
    from queue_adds a join queue_drains d on a.key = d.key where a.ret < d.drained

    -- For each value, the number of acknowledged copies that no dequeue returned (`short`). `ahead`: from the end back
    -- to a moment, the number of enqueues called minus that of dequeues returned (rule 2).
    create table queue_short as
    select key, value, max(ahead) as short from (
        select key, value, {sum_so_far("weight", by="key, value", order="back, weight, op, sub")} as ahead
        from (
            select key, value, 0 - call as back, 1 as weight, op, sub from queue_acked
            union all select key, value, 0 - ret, -1, op, sub from queue_takes) as steps) as counted
    group by key, value having max(ahead) > 0

    -- Queues without a complete drain, and queues whose `short` missing elements a drain of unknown outcome may have
    -- taken.
    create view queue_doubted as
    select o.key, cast(0 as bigint) as short
    from (select key from effect_kinds where kind in ('queue-enqueue', 'queue-dequeue', 'queue-drained') group by key) o
        left join queue_drains d on o.key = d.key
    where d.key is null
    union all
    select s.key, {total_of("s.short")}
    from queue_short s join queue_open_drains o on s.key = o.key group by s.key
    """)

_DRAINED: Final = "o.key is null and d.drained > greatest(a.ret, b.since)"
"""SQL: whether a complete drain was called late enough for the element ``a``, and no drain has an unknown outcome.

``exposure_bound`` (``b``) has the heal of the last fault, as ``since``.
"""

QUEUE_LOST: Final = Check(
    anomaly="queue-lost",
    meaning="an acknowledged element of a queue was never dequeued",
    views=parse_views(f"""
        -- One row for each lost copy of an element. Among equal copies, the last ones enqueued count as lost.
        create view queue_losses as
        select key, value, op, sub, ret, drained, {row_number(by="key", order="ret, op, sub")} as number,
            count(*) over (partition by key {order_by("key")} {ALL_ROWS}) as losses
        from (
            select a.key, a.value, a.op, a.sub, a.ret, a.drained, s.short,
                {row_number(by="a.key, a.value", order="a.call, a.op, a.sub")} as rank,
                count(*) over (partition by a.key, a.value {order_by("a.call")} {ALL_ROWS}) as copies
            from queue_acked a join queue_short s on a.key = s.key and a.value = s.value) as candidates
        where rank > copies - short
        """),
    violations="""
        select l.key, l.value, l.op, l.sub, l.ret, l.drained, l.losses, coalesce(x.excuses, 0) as excuses
        from queue_losses l left join queue_excuses x on l.key = x.key
            left join queue_open_drains o on l.key = o.key
        where l.number > coalesce(x.excuses, 0) and o.key is null
        """,
    evidence=f"""
        select f.key, f.value, f.ret, f.drained, f.losses, f.excuses, f.op as add_op, f.sub, min(d.op) as drain_op
        from {first_rows_subquery("found_queue_lost", "key, op, sub")} f
            join queue_rows d on f.key = d.key and d.kind = 'queue-drained' and f.drained = d.call
        group by f.key, f.value, f.ret, f.drained, f.losses, f.excuses, f.op, f.sub
        {order_by("f.key, f.op, f.sub")}
        """,
    examined="select count(*) as examined from queue_acked",
    exposure=Exposure(
        rows=f"""
            select c.key, c.claims, c.taken + greatest(c.missed - coalesce(x.excuses, 0), 0) as exposed
            from (
                select a.key, count(*) as claims, count(t.key) as taken,
                    {total_of(f"case when t.key is null and {_DRAINED} then 1 else 0 end")} as missed
                from queue_adds a cross join exposure_bound b
                    left join queue_drains d on a.key = d.key left join queue_open_drains o on a.key = o.key
                    left join (select key, value from queue_adds where rank = 2) n
                    on a.key = n.key and a.value = n.value
                    left join (select key, value from queue_takes where rank = 1) t
                    on a.key = t.key and a.value = t.value
                where a.ret < {INFINITY} and n.key is null
                group by a.key) c
                left join queue_excuses x on c.key = x.key
            """,
        nouns="elements",
        asserted="acknowledged and enqueued once",
        observed="dequeued, or missed by a complete drain,",
        remedy="drain each queue at the end (as queues.traffic() does)",
        each_key=True,
    ),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}: [excuses=0?{value} was acknowledged to {add_op} at {ret:time} and never dequeued, though the drain "
    "that was called at {drained:time} found the end|{losses} acknowledged elements were never dequeued, though the "
    "drain that was called at {drained:time} found the end, and only {excuses} dequeues have an unknown outcome; one "
    "of them is {value}, which was acknowledged to {add_op} at {ret:time}].",
    operations=("add_op", "drain_op"),
    about=("[excuses=0?element {value} of {key} by operation {add_op:number}]",),  # subjects of a finding
    needs_close=True,  # proves nothing about a run that was cut short
)
"""If n dequeues have an unknown outcome, they are assumed to have taken the n elements acknowledged first."""


QUEUE_DUPLICATE: Final = Check(
    anomaly="queue-duplicate",
    meaning="an element was dequeued more often than it was enqueued",
    violations="""
        select t.key, t.value, t.takes, a.adds
        from (select key, value, count(*) as takes from queue_takes group by key, value) t
            join (select key, value, count(*) as adds from queue_adds group by key, value) a
            on t.key = a.key and t.value = a.value
        where t.takes > a.adds
        """,
    evidence=f"""
        select f.key, f.value, f.takes, f.adds, min(t.op) as first_op, min(u.op) as again_op, min(a.op) as add_op
        from {first_rows_subquery("found_queue_duplicate", "key, value")} f
            join queue_takes t on f.key = t.key and f.value = t.value and t.rank = f.adds
            join queue_takes u on f.key = u.key and f.value = u.value and u.rank = f.adds + 1
            join queue_adds a on f.key = a.key and f.value = a.value
        group by f.key, f.value, f.takes, f.adds {order_by("f.key, f.value")}
        """,
    examined="select count(*) as examined from queue_takes",
    claim="{key}: {value} was enqueued [adds=1?once|{adds} times] and dequeued {takes} times, by {first_op} at "
    "{first_op:returned} and again by {again_op} at {again_op:returned}.",
    operations=("again_op", "first_op", "add_op"),
    more="{takes-2}",  # how many operations are not listed
    moments=("add_op",),  # further times of cause and effect
    needs_close=True,  # proves nothing about a run that was cut short
)


QUEUE_PHANTOM: Final = Check(
    anomaly="queue-phantom",
    meaning="an element was dequeued that no one had enqueued",
    violations="""
        select t.key, t.value, min(t.rank) as rank
        from queue_takes t left join queue_adds a on t.key = a.key and t.value = a.value and t.rank = a.rank
            left join (select key, value from queue_adds where rank = 1) e on t.key = e.key and t.value = e.value
        where e.key is null or a.call > t.ret group by t.key, t.value
        """,
    evidence=f"""
        select f.key, f.value, f.rank, min(t.op) as take_op, min(t.ret) as ret, min(a.op) as add_op,
            min(x.op) as failed_op
        from {first_rows_subquery("found_queue_phantom", "key, value")} f
            join queue_takes t on f.key = t.key and f.value = t.value and f.rank = t.rank
            left join queue_adds a on f.key = a.key and f.value = a.value and f.rank = a.rank
            left join (select key, value, op from effects where kind = 'queue-enqueue' and outcome = 'fail') x
            on f.key = x.key and f.value = x.value
        group by f.key, f.value, f.rank {order_by("f.key, f.value")}
        """,
    examined="select count(*) as examined from queue_takes",
    claim="{key}: {value} was dequeued by {take_op}, which returned at {ret:time}, [add_op?before {add_op} began to "
    "enqueue it[rank=1?| (copy {rank})] at {add_op:called}|but [its enqueue by {failed_op} at {failed_op:called} had "
    "definitely failed|no one enqueued it]].",
    needs_close=True,  # proves nothing about a run that was cut short
)


def _describe_doubt(row: Row) -> str:
    if not row["short"]:
        return "no drain reached the end of this queue"
    return f"{row['short']} acknowledged elements were never dequeued, but a drain ended with unknown outcome"


_DOUBTS: Final = UndecidedKeys(
    "queue_doubted",
    lambda row: f"queue-lost cannot be judged for {row['key']}: {_describe_doubt(row)}",
    lambda more: f"queue-lost cannot be judged for {more} other queues either, for the same reasons",
)
"""Queues without a complete drain, and queues with missing elements that a drain of unknown outcome may have taken."""


QUEUES: Final = declare_family("queue", (QUEUE_LOST, QUEUE_DUPLICATE, QUEUE_PHANTOM), QUEUE_VIEWS, _DOUBTS)

QUEUE_ANOMALIES: Final = QUEUES.anomalies


ANY_NUMBER: Final = 2**32
"""Stands for any number of elements, which a drain of unknown outcome may have taken. No queue has so many."""


QUEUE_FALSE_EMPTY: Final = Check(
    anomaly="queue-false-empty",
    meaning="a queue said that it was empty while acknowledged elements were inside",
    views=parse_views(f"""
        -- Answers that the queue is empty.
        create table queue_empties as
        select key, op, sub, call, ret from queue_rows
        where kind = 'queue-dequeue' and outcome = 'ok' and value is null

        -- The number of copies of an element that were enqueued but never returned.
        create view queue_spare as
        select key, value, cast(sum(weight) as bigint) as spare
        from (
            select key, value, 1 as weight from queue_adds
            union all select key, value, -1 from queue_takes) as steps
        group by key, value having cast(sum(weight) as bigint) > 0

        -- `copies`: the enqueues of an element that have returned, minus its dequeues that have been called. If it is
        -- below 0, none is certainly inside. `late` orders the events of one moment: 0 for calls of dequeues, 1 for
        -- returns of enqueues.
        create view queue_element_steps as
        select t.key, t.time, t.late, t.weight, coalesce(s.spare, 0) as spare,
            {sum_so_far("t.weight", by="t.key, t.value", order="t.time, t.late, t.op, t.sub")} as copies
        from (
            select key, value, ret as time, 1 as late, 1 as weight, op, sub from queue_adds where ret < {INFINITY}
            union all select key, value, call, 0, -1, op, sub from queue_takes) t
            left join queue_spare s on t.key = s.key and t.value = s.value

        -- For each moment, the numbers of elements inside, of elements inside that are returned later (`due`), and of
        -- elements that operations of unknown outcome may have taken (`unknown`). The moment -1 stands for the
        -- beginning, when the queue is empty.
        create view queue_levels as
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
                    union all select key, call, 0, 0, 0, {ANY_NUMBER} from queue_open_drains
                    union all select key, ret, 0, 0, 0, 0 from queue_empties
                    union all select key, -1, 0, 0, 0, 0 from queue_empties) as changes
                group by key, time, late) as folded) as summed

        -- `empty_until`: the last time before each moment at which the queue may have been empty.
        create view queue_last_empty as
        select key, time, late, inside, due, unknown,
            {greatest_before("until", by="key", order="time, late")} as empty_until
        from (
            select key, time, late, inside, due, unknown,
                case when due = 0 and inside <= unknown then coalesce(following, {INFINITY}) end as until
            from queue_levels) as ended
        """),
    violations="""
        select e.key, e.op, e.sub, e.call, e.ret, l.inside, l.due, l.unknown
        from queue_empties e join queue_last_empty l on e.key = l.key and e.ret = l.time and l.late = 0
        where (l.due > 0 or l.inside > l.unknown) and l.empty_until < e.call
        """,
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
    f"end, of which {{due}} were dequeued later, and [unknown<{ANY_NUMBER}?{{unknown}}|any number of] such dequeues"
    "[add_op?; one of them is {value}, acknowledged to {add_op} at {add_op:returned}].",
    about=("[add_op?[due=0?element {value} of {key} by operation {add_op:number}]]",),  # subjects of a finding
    explained_by=("queue-lost",),
    seen_again=True,  # one lost element may be found by many false answers
    needs_close=True,  # proves nothing about a run that was cut short
)

LINEARIZABLE_QUEUES: Final = family_of(
    QUEUE_FALSE_EMPTY,
    applies="""
        effects e cross join queue_declared d
        where d.linearizable_queues = 1 and e.kind = 'queue-dequeue' and e.outcome = 'ok' and e.value is null
        """,
    kinds=("queue-dequeue",),
)
"""Must come after ``QUEUES``, whose tables it reads."""
