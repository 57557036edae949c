"""Tables that the transaction checks share: writes, reads, and the order of each list's elements.

``assay.harness.core.transactions`` describes how transactions are recorded in ``effects``. A key is a list
(``txn-append``) or a register (``txn-write``). A key that is used as both, or to which null was
written, is *unclear* and proves nothing. A value that was written twice to a key is *ambiguous*: it is removed from the
reads, because it has no single writer.

Failed transactions never count as committed. A transaction of unknown outcome counts as committed if one of its writes
was read: either it was committed, or the read itself was wrong. A value that no such transaction wrote is removed from
the reads before any order is derived, and reported as ``G1a`` or ``garbage-read``.

Lists show their order (Kingsbury and Alvaro, Elle, VLDB 2020): each read is a prefix of the longest one. All reads
start at position 0, so they are prefixes of one order iff all agree on the element at each position. A single ``group
by`` tests this. Keys whose reads disagree are *disordered*, reported as such, and give no edges.
"""

from typing import Final

from assay.checkers.check import View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.sql_idioms import order_by, previous, row_number, sum_so_far, total_of

INITIAL: Final = -INFINITY
"""Stands for the initial value of a register, which is null in the history."""


def declare_exposure(written: str, *, asserted: str, remedy: str = "") -> Exposure:
    """Declares the exposure of ``written``: SQL of the columns ``key``, ``value`` and ``op`` of writes.

    ``asserted`` and ``remedy`` are fields of :class:`~assay.checkers.exposure.Exposure`.
    """
    is_read = "r.op <> w.op or r.last_op <> w.op"
    return Exposure(
        rows=f"""
            select w.key, count(*) as claims, {total_of(f"case when {is_read} then 1 else 0 end")} as exposed
            from ({written}) w left join txn_readers r on w.key = r.key and w.value = r.value group by w.key
            """,
        nouns="writes",
        asserted=asserted,
        observed="read by another transaction",
        remedy=remedy,
        at_any_time=True,
    )


ROWS: Final = View(
    "txn_rows",
    f"""
    select op, sub, process, key, kind, list_index as position, value, call, coalesce(ret, {INFINITY}) as ret, outcome,
        case when outcome = 'ok' or d.transaction_all_reads = 1 then 1 else 0 end as judged
    from effects cross join txn_declared d where kind in ('txn-append', 'txn-write', 'txn-read')
    """,
)
"""The effects of transactions, one row for each write and each element read. ``sub``: number of the row in its
transaction. ``judged``: 1 if the reads of the transaction are judged."""

SOURCE_VIEWS: Final = parse_views(f"""
    -- `final`: 1 for the last value that its transaction wrote to the key, 0 for an intermediate value.
    create table txn_written as
    select key, value, op, sub, call, ret, outcome, case when kind = 'txn-append' then 1 else 0 end as listed,
        case when lead(sub) over (partition by op, key {order_by("sub")}) is null then 1 else 0 end as final
    from txn_rows where kind in ('txn-append', 'txn-write')

    -- Keys that cannot be judged, each with a reason.
    create table txn_unclear as
    select key, max(why) as why from (
        select key, 'a write on it has no value' as why from txn_written where value is null
        union all
        select key, 'it is a list and a register at once' from txn_written group by key having min(listed) < max(listed)
        union all
        select w.key, 'it is a list and a register at once'
        from (select key, max(position) as most, count(*) - count(position) as single from txn_rows
                where kind = 'txn-read' and value is not null group by key) r
            join (select key, max(listed) as listed from txn_written group by key) w on r.key = w.key
        where (w.listed = 0 and r.most is not null) or (w.listed = 1 and r.single > 0)) as reasons
    group by key

    -- Values of clear keys that were written more than once.
    create table txn_ambiguous as
    select w.key, w.value, max(w.listed) as listed from txn_written w left join txn_unclear u on w.key = u.key
    where w.outcome <> 'fail' and u.key is null group by w.key, w.value having count(*) > 1

    -- Each unambiguous (key, value) that was certainly or possibly written, one row each.
    create table txn_possible as
    select w.key, w.value, w.op, w.sub, w.call, w.outcome, w.listed, w.final
    from txn_written w left join txn_unclear u on w.key = u.key
        left join txn_ambiguous a on w.key = a.key and w.value = a.value
    where w.outcome <> 'fail' and u.key is null and a.key is null

    -- The keys that are lists.
    create table txn_lists as
    select key from txn_written where listed = 1 group by key

    -- A list's read is identified by the `sub` of its first row.
    create table txn_elements as
    select r.op, r.sub - r.position as read_sub, r.key, r.position, r.value
    from txn_rows r left join txn_unclear u on r.key = u.key
    where r.kind = 'txn-read' and r.judged = 1 and r.position is not null and u.key is null

    -- One row for each element that reads show at a position: the first and the last operation that show it there.
    create table txn_shown_elements as
    select key, position, value, min(op) as op, max(op) as last_op, count(*) as reads
    from txn_elements group by key, position, value

    -- Reads of registers, except those of ambiguous values.
    create table txn_register_reads as
    select r.op, r.sub, r.key, r.value
    from txn_rows r left join txn_unclear u on r.key = u.key left join txn_lists l on r.key = l.key
        left join txn_ambiguous a on r.key = a.key and r.value = a.value
    where r.kind = 'txn-read' and r.judged = 1 and r.position is null and u.key is null and l.key is null
        and a.key is null

    -- Each value that was read, and the first and the last operation that read it.
    create view txn_readers as
    select key, value, min(op) as op, max(last_op) as last_op from (
        select key, value, op, last_op from txn_shown_elements
        union all select key, value, op, op from txn_register_reads where value is not null) as shown
    group by key, value

    -- Values that were read, although no transaction that may be committed wrote them.
    create table txn_never_committed as
    select s.key, s.value, min(s.op) as op, cast(sum(s.reads) as bigint) as reads, max(s.listed) as listed
    from (
        select key, value, op, reads, 1 as listed from txn_shown_elements
        union all select key, value, op, 1, 0 from txn_register_reads where value is not null) s
        left join txn_possible p on s.key = p.key and s.value = p.value
        left join txn_ambiguous a on s.key = a.key and s.value = a.value
    where p.key is null and a.key is null group by s.key, s.value

    -- Elements of lists that were never committed, or are ambiguous. They are removed from the reads.
    create view txn_removed as
    select key, value from txn_never_committed where listed = 1
    union all select key, value from txn_ambiguous where listed = 1

    -- The reads of lists with such elements, without those elements.
    create table txn_renumbered as
    select e.op, e.read_sub, e.key, e.value, {row_number(by="e.op, e.read_sub", order="e.position")} - 1 as position
    from txn_elements e join (select key from txn_removed group by key) k on e.key = k.key
        left join txn_removed f on e.key = f.key and e.value = f.value
    where f.key is null

    -- Reads of lists whose last element is ambiguous. So it is unknown whether they show an intermediate version.
    create table txn_ambiguous_ends as
    select e.op, e.read_sub
    from (select e.op, e.read_sub, max(e.position) as position
            from txn_elements e join (select key from txn_ambiguous group by key) k on e.key = k.key
            group by e.op, e.read_sub) l
        join txn_elements e on e.op = l.op and e.read_sub = l.read_sub and e.position = l.position
        join txn_ambiguous a on e.key = a.key and e.value = a.value

    -- The rows of `txn_shown_elements`, without removed elements.
    create table txn_ordered_elements as
    select c.key, c.position, c.value, c.op
    from txn_shown_elements c left join (select key from txn_removed group by key) k on c.key = k.key
    where k.key is null
    union all select key, position, value, min(op) from txn_renumbered group by key, position, value

    -- Lists whose reads disagree on a position, or show an element at two positions.
    create table txn_disordered as
    select key from (
        select key from txn_ordered_elements group by key, position having count(*) > 1
        union all select key from txn_ordered_elements group by key, value having count(*) > 1) as twice
    group by key

    -- Transactions of unknown outcome that count as committed, because one of their writes was read.
    create table txn_observed as
    select p.op from (select key, value, op from txn_possible where outcome = 'info') p join (
        select key, value from txn_shown_elements union all select key, value from txn_register_reads) s
        on p.key = s.key and p.value = s.value
    group by p.op

    -- The writes of all transactions that count as committed.
    create table txn_writers as
    select p.key, p.value, p.op, p.sub, p.call, p.listed, p.final
    from txn_possible p left join txn_observed o on p.op = o.op where p.outcome = 'ok' or o.op is not null

    -- Each list's order, one row per element. A *run* is a sequence of adjacent elements of one transaction.
    -- Runs count from 1; 0 stands for the empty list. `former` and `former_value`: the transaction and the value of the
    -- element before, null for the first one. `changed`: 1 at the first element of each run.
    create table txn_list_order as
    select key, position, value, op, sub, final, former, former_value, changed,
        {sum_so_far("changed", by="key", order="position")} as run
    from (
        select key, position, value, op, sub, final, former, former_value,
            case when former is null or former <> op then 1 else 0 end as changed
        from (
            select c.key, c.position, c.value, w.op, w.sub, w.final,
                {previous("w.op", by="c.key", order="c.position")} as former,
                {previous("w.value", by="c.key", order="c.position")} as former_value
            from txn_ordered_elements c join txn_writers w on c.key = w.key and c.value = w.value
                left join txn_disordered d on c.key = d.key
            where d.key is null) as placed) as compared

    -- Each read of a list, with the number of elements that it shows, without removed ones.
    create view txn_list_reads as
    select e.op, e.key, e.read_sub, max(e.position) + 1 as length
    from txn_elements e left join (select key from txn_removed group by key) k on e.key = k.key
    where k.key is null group by e.op, e.key, e.read_sub
    union all
    select e.op, e.key, e.read_sub, coalesce(max(r.position) + 1, 0)
    from txn_elements e join (select key from txn_removed group by key) k on e.key = k.key
        left join txn_renumbered r on e.op = r.op and e.read_sub = r.read_sub
    where e.position = 0 group by e.op, e.key, e.read_sub
    union all
    select r.op, r.key, r.sub, 0
    from txn_rows r join txn_lists l on r.key = l.key left join txn_unclear u on r.key = u.key
    where r.kind = 'txn-read' and r.judged = 1 and r.position is null and u.key is null

    -- Each read of an ordered list: its length, and the writer of its last element.
    create table txn_list_seen as
    select r.op, r.read_sub as sub, r.key, r.length, s.value, s.op as writer, s.final, coalesce(s.run, 0) as run
    from txn_list_reads r left join txn_list_order s on r.key = s.key and r.length - 1 = s.position
        left join txn_disordered d on r.key = d.key
    where d.key is null

    -- The first write of each transaction to each register.
    create view txn_first_writes as
    select op, key, min(sub) as sub from txn_written where listed = 0 group by op, key

    -- Each read of a register before its transaction wrote to the register itself. `rank`: 1 for the first such read.
    create table txn_register_seen as
    select r.op, r.sub, r.key, r.value, w.op as writer, w.final, {row_number(by="r.op, r.key", order="r.sub")} as rank
    from txn_register_reads r left join txn_first_writes f on r.op = f.op and r.key = f.key
        left join txn_writers w on r.key = w.key and r.value = w.value
        left join txn_never_committed x on r.key = x.key and r.value = x.value
    where (f.op is null or r.sub < f.sub) and x.key is null
    """)
