"""Sets: elements are added, and a read returns all elements. Each element is judged separately.

A workload records itself in ``effects`` as follows (``key`` is the set's name):

- ``set-add`` and ``set-remove``: ``value`` is the element; outcomes ok, fail or info. Adding an element again changes
  nothing.
- ``set-read``: one row per element that the read returned, or one row with a null ``value`` if it returned none. Only
  ok reads count.

An element that was not removed is in the set from some moment on. That moment must be

- after its first add was called,
- before an add of it was acknowledged,
- before a read that shows it returned, and
- after the call of every read that lacks it.

Such a moment exists unless two of these conditions contradict each other, so the checks are exact for each element. An
element that may have been removed may rightly be missing. It is reported only if a read shows it and it was never
added.

Reads that lack an element are counted, not listed: the number of reads called after a moment, minus the number of these
reads that show the element.

``set-fork``: if the contract declares sets linearizable (``linearizable_sets``), reads must agree on the order in which
elements were added. Elements that may have been removed are ignored. The set then only grows, one element at a time, so
one of two reads must show all elements of the other. Reads are sorted by their number of elements. If each read
contains the previous one, all reads agree.

``exposure_bound`` has the time of the last heal (``checkers.exposure``). ``set_declared`` holds values of the contract.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, name_violations, parse_views
from assay.checkers.exposure import Exposure
from assay.checkers.objects.kinds import declare_family
from assay.checkers.sql_idioms import (
    ALL_ROWS,
    RETURNED,
    first_rows_subquery,
    order_by,
    row_number,
    select_nearest_pairs,
    sum_so_far,
    total_of,
)

SET_VIEWS: Final = parse_views(f"""
    -- Adds and removals that did not fail, and the rows of reads.
    create table set_rows as
    select e.op, e.key, e.kind, e.value, e.call, {RETURNED} as ret, e.outcome, e.node
    from effects e where (e.kind in ('set-add', 'set-remove') and e.outcome <> 'fail')
        or (e.kind = 'set-read' and e.outcome = 'ok')

    -- Reads, one row each.
    create table set_reads as
    select key, op, min(call) as call, min(ret) as ret from set_rows where kind = 'set-read' group by key, op

    -- The elements that each read shows.
    create table set_shown as
    select key, value, op, min(call) as call, min(ret) as ret from set_rows
    where kind = 'set-read' and value is not null group by key, value, op

    -- `added`: the first call of an add. `acked`, `seen`: the first return of an add, and of a read that shows it.
    -- `adds`: the number of adds that did not fail.
    create table set_elements as
    select key, value, min(added) as added, min(acked) as acked, min(seen) as seen, max(removed) as removed,
        count(added) as adds
    from (
        select key, value, case when kind = 'set-add' then call end as added,
            case when kind = 'set-add' and outcome = 'ok' then ret end as acked, cast(null as bigint) as seen,
            case when kind = 'set-remove' then 1 else 0 end as removed
        from set_rows where kind in ('set-add', 'set-remove') and value is not null
        union all select key, value, null, null, ret, 0 from set_shown) as moments
    group by key, value

    -- The moments after which reads must show the element: an acknowledgement, or a read that shows it (`by_read`).
    create view set_since as
    select key, value, acked as since, 0 as by_read from set_elements where removed = 0 and acked is not null
    union all select key, value, seen, 1 from set_elements where removed = 0 and seen is not null

    -- How many reads were called after each such moment.
    create view set_due as
    select key, moment, total - begun as due from (
        select key, moment, is_since, {sum_so_far("reads", by="key", order="moment, is_since")} as begun,
            cast(sum(reads) over (partition by key {order_by("moment, is_since")} {ALL_ROWS}) as bigint) as total
        from (
            select key, call as moment, 0 as is_since, count(*) as reads from set_reads group by key, call
            union all select key, since, 1, 0 from set_since group by key, since) as moments) as counted
    where is_since = 1

    -- How many of the reads that must show an element lack it. `by_read` 1: because an earlier read shows it; 0:
    -- because its add was acknowledged.
    create table set_missing as
    select s.key, s.value, s.by_read, min(s.since) as since, min(d.due) - count(w.op) as missing
    from set_since s join set_due d on s.key = d.key and s.since = d.moment
        left join set_shown w on s.key = w.key and s.value = w.value and w.call > s.since
    group by s.key, s.value, s.by_read having min(d.due) > count(w.op)
    """)


def _declare_exposure(since: str, *, once: bool, remedy: str = "") -> Exposure:
    """Declares the exposure of elements that must stay from a moment on. ``since``: the column of ``set_elements`` that
    has this moment.

    Each read shows the whole set, so an element is exposed if the last read of its set was called late enough. With
    ``once``, only elements that were added once are claims, and the read must also follow the last fault.
    """
    bound = f"greatest(e.{since}, b.since)" if once else f"e.{since}"
    return Exposure(
        rows=f"""
            select e.key, count(*) as claims, {total_of(f"case when r.last > {bound} then 1 else 0 end")} as exposed
            from set_elements e cross join exposure_bound b
                left join (select key, max(call) as last from set_reads group by key) r on e.key = r.key
            where e.removed = 0 and e.{since} is not null {"and e.adds = 1" if once else ""}
            group by e.key
            """,
        nouns="elements",
        asserted="acknowledged" if since == "acked" else "shown by a read",
        observed="read",
        no_claims="no acknowledged element was added exactly once and never removed",
        remedy=remedy,
        each_key=bool(remedy),
    )


def _select_evidence(found: str) -> str:
    """Returns SQL with two operations for each violation, the nearest in time. After the first, the element is in the
    set (side 0). The second is a later read that lacks the element (side 1).

    - ``known_op``: the first operation, of the kind ``known_by``: an add, or a read that shows the element
    - ``reader_op``: the later read
    - ``third_op``: further evidence. For a read as the first operation, it is the add. For an add, it is the first read
      that shows the element.
    - ``contradicted_at``: the time from which the element was in the set, by the first operation that says so
    - ``earliest``, ``earliest_op``: the call of the first later read that lacks the element, and this read

    The subquery ``n`` has the two operations (``select_nearest_pairs``): the first as ``former_op``, the later as
    ``op``.
    """
    few = first_rows_subquery(found, "key, value")
    return f"""
        select f.key, f.value, f.seen, f.missing, f.known_by, min(n.former_op) as known_op,
            min(n.op) as reader_op, min(n.contradicted_at) as contradicted_at, min(n.earliest) as earliest,
            min(n.earliest_op) as earliest_op, min(w.op) as shown_op, min(a.node) as node,
            min(b.op) as add_op, min(b.node) as add_node,
            case when f.known_by = 'set-read' then f.acked end as acked,
            case when f.known_by = 'set-read' then min(b.op) else min(w.op) end as third_op
        from {few} f join ({
        select_nearest_pairs(
            f'''
            select k.key, k.value, 0 as side, k.ret as moment, k.op
            from {few} f join set_rows k on f.key = k.key and f.value = k.value and f.known_by = k.kind
            where k.outcome = 'ok'
            union all
            select f.key, f.value, 1, r.call, r.op
            from {few} f join set_reads r on f.key = r.key
                left join set_shown w on f.key = w.key and f.value = w.value and r.op = w.op
            where r.call > f.since and w.op is null
            ''',
            "key, value",
            known_first=True,
        )
    }) n on f.key = n.key and f.value = n.value
            left join set_shown w on f.key = w.key and f.value = w.value and f.seen = w.ret
            left join set_rows a on f.key = a.key and f.value = a.value and n.former_op = a.op
            left join set_rows b on f.key = b.key and f.value = b.value and b.kind = 'set-add' and b.outcome = 'ok'
                and b.ret = f.acked
        group by f.key, f.value, f.seen, f.missing, f.known_by, f.acked
        {order_by("f.key, f.value")}
        """


_LACKED_LATER: Final = (
    "and the read by {reader_op}, called at {reader_op:called}, lacks it[missing>1? (and {missing-1} more reads)]"
)
_READ_BEFORE: Final = (
    "{value} was in a read by {known_op} that returned at {known_op:returned}, "
    + _LACKED_LATER
    + "[add_op?; its add by {add_op} was acknowledged[ by {add_node}] at {add_op:returned}]"
)
"""Claim about an element that an earlier read showed."""
_ADDED_BEFORE: Final = (
    "the add of {value} by {known_op} was acknowledged[ by {node}] at {known_op:returned}, "
    + _LACKED_LATER
    + "; [seen?the first to show it, by {shown_op}, returned at {seen:time}|no read ever showed it]"
)
"""Claim about an element that was added."""


def _declare_absence_check(anomaly: str, meaning: str, condition: str, exposure: Exposure) -> Check:
    """Declares a check of elements that a read lacks. ``condition``: SQL over ``m`` (``set_missing``) and ``e``
    (``set_elements``); ``v`` has the elements that one read showed and a later read lacks."""
    return Check(
        anomaly=anomaly,
        meaning=meaning,
        violations=f"""
            select m.key, m.value, m.since, e.seen, e.acked, m.missing,
                case when m.by_read = 1 then 'set-read' else 'set-add' end as known_by
            from set_missing m join set_elements e on m.key = e.key and m.value = e.value
                left join (select key, value from set_missing where by_read = 1) v
                on m.key = v.key and m.value = v.value
            where {condition}
            """,
        evidence=_select_evidence(name_violations(anomaly)),
        examined="select count(*) as examined from set_elements where removed = 0",
        exposure=exposure,
        # `[condition?text|other text]` is a choice: see `checkers.claims`.
        claim=f"{{key}}: [known_by=set-read?{_READ_BEFORE}|{_ADDED_BEFORE}].",
        operations=("known_op", "reader_op", "third_op"),
        more="{missing-1}",  # how many operations are not listed
        moments=("contradicted_at", "acked"),  # further times of cause and effect
        about=("what read {reader_op:number} lacks[ by {node}]",),  # subjects of a finding
        needs_close=True,
        seen_again=True,  # a read may lack many elements for one reason
        explained_by=() if anomaly == "set-lost" else ("set-lost",),
    )


SET_LOST: Final = _declare_absence_check(
    "set-lost",
    "an acknowledged element is missing from a later read, and no read ever showed it",
    "m.by_read = 0 and e.seen is null",
    _declare_exposure("acked", once=True, remedy="add a final read (sets.final_reads())"),
)
SET_STALE: Final = _declare_absence_check(
    "set-stale",
    "an acknowledged element is missing from a later read, though it was shown afterwards",
    "m.by_read = 0 and v.key is null and e.seen is not null",
    _declare_exposure("acked", once=False),
)
SET_VANISHED: Final = _declare_absence_check(
    "set-vanished",
    "an element that a read had shown is missing from a later one",
    "m.by_read = 1",
    _declare_exposure("seen", once=False),
)
"""A read may lack rows if the history was not closed, so these checks set ``needs_close``."""


SET_PHANTOM: Final = Check(
    anomaly="set-phantom",
    meaning="a set was read with an element that no one had added",
    violations="""
        select key, value, seen, added from set_elements where seen is not null and coalesce(added > seen, true)
        """,
    evidence=f"""
        select f.key, f.value, f.seen, f.added, min(w.op) as reader_op, min(a.op) as add_op, min(x.op) as failed_op
        from {first_rows_subquery("found_set_phantom", "key, value")} f
            join set_shown w on f.key = w.key and f.value = w.value and f.seen = w.ret
            left join set_rows a on f.key = a.key and f.value = a.value and f.added = a.call and a.kind = 'set-add'
            left join (select key, value, op from effects where kind = 'set-add' and outcome = 'fail') x
            on f.key = x.key and f.value = x.value
        group by f.key, f.value, f.seen, f.added {order_by("f.key, f.value")}
        """,
    examined="select count(*) as examined from set_shown",
    claim="{key}: {value} was in a read by {reader_op} that returned at {seen:time}, [add_op?before {add_op} began to "
    "add it at {added:time}|but [its add by {failed_op} at {failed_op:called} had definitely failed|no one added it]].",
    needs_close=True,  # proves nothing about a run that was cut short
)


SETS: Final = declare_family("set", (SET_LOST, SET_VANISHED, SET_STALE, SET_PHANTOM), SET_VIEWS)

SET_ANOMALIES: Final = SETS.anomalies


SET_FORK: Final = Check(
    anomaly="set-fork",
    meaning="of two reads of a set, each shows an element that the other lacks",
    views=parse_views(f"""
        -- Elements that reads show and that no one may have removed.
        create table set_lasting as
        select w.key, w.op, w.value from set_shown w left join set_elements e on w.key = e.key and w.value = e.value
        where coalesce(e.removed, 0) = 0

        -- The reads in order of their number of elements.
        create table set_snapshots as
        select key, op, size, {row_number(by="key", order="size, op")} as rank
        from (select key, op, count(*) as size from set_lasting group by key, op) as sizes

        -- How many elements a read shares with the next one.
        create view set_common as
        select a.key, a.rank, count(*) as common
        from set_snapshots a
            join set_lasting x on a.key = x.key and a.op = x.op
            join set_snapshots b on a.key = b.key and b.rank = a.rank + 1
            join set_lasting y on b.key = y.key and b.op = y.op and x.value = y.value
        group by a.key, a.rank
        """),
    violations="""
        select a.key, a.rank, a.op as small_op, b.op as large_op
        from set_snapshots a join set_snapshots b on a.key = b.key and b.rank = a.rank + 1
            left join set_common c on a.key = c.key and a.rank = c.rank
        where coalesce(c.common, 0) < a.size
        """,
    evidence=f"""
        select f.key, f.rank, f.small_op, f.large_op, min(l.value) as lacked, min(o.value) as other
        from {first_rows_subquery("found_set_fork", "key, rank")} f
            join (
                select f.key, f.rank, x.value
                from {first_rows_subquery("found_set_fork", "key, rank")} f
                    join set_lasting x on f.key = x.key and f.small_op = x.op
                    left join set_lasting y on f.key = y.key and f.large_op = y.op and x.value = y.value
                where y.op is null) l on f.key = l.key and f.rank = l.rank
            join (
                select f.key, f.rank, y.value
                from {first_rows_subquery("found_set_fork", "key, rank")} f
                    join set_lasting y on f.key = y.key and f.large_op = y.op
                    left join set_lasting x on f.key = x.key and f.small_op = x.op and x.value = y.value
                where x.op is null) o on f.key = o.key and f.rank = o.rank
        group by f.key, f.rank, f.small_op, f.large_op {order_by("f.key, f.rank")}
        """,
    examined="select count(*) as examined from set_snapshots",
    claim="{key}: the read by {small_op}, called at {small_op:called}, shows {lacked} and not {other}; that by "
    "{large_op}, called at {large_op:called}, shows {other} and not {lacked}, and neither was removed.",
    explained_by=("set-lost", "set-stale", "set-vanished"),
    needs_close=True,  # proves nothing about a run that was cut short
)

LINEARIZABLE_SETS: Final = family_of(
    SET_FORK,
    applies="""
        effects e cross join set_declared d
        where d.linearizable_sets = 1 and e.kind = 'set-read' and e.outcome = 'ok'
        """,
    kinds=("set-read",),
)
"""Must come after ``SETS``, whose tables it reads."""
