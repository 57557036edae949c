"""Values that a transaction may read: committed final values of other transactions, and its own writes.

- ``G1a`` and ``G1b`` are Adya's aborted and intermediate reads.
- ``garbage-read``: a read shows a value that no one wrote.
- ``internal``: a transaction contradicts itself. A read lacks a value that the transaction wrote before, shows a value
  that it wrote only later, or shows its own elements in another order than it appended them. Two reads that differ by
  writes of *other* transactions are reported as the cycle that they form, because weaker isolation levels allow it.
- ``duplicate-elements``: a list has an element twice.
- ``incompatible-order``: two reads of a key differ within the length of the shorter one.

``views`` creates the tables ``txn_...`` that these checks read, and explains them.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.sql_idioms import first_rows_subquery, order_by, previous, select_first, total_of
from assay.checkers.transactions.views import declare_exposure

_READS: Final = """
    select (select count(*) from txn_shown_elements) + (select count(*) from txn_register_reads where value is not null)
        as examined
    """


G1A: Final = Check(
    anomaly="G1a",
    meaning="a transaction read a write of another that certainly failed",
    violations="""
        select f.key, f.value, f.op as read_op, min(w.op) as write_op, f.reads
        from txn_never_committed f join txn_written w on f.key = w.key and f.value = w.value
        group by f.key, f.value, f.op, f.reads
        """,
    evidence=select_first("found_g1a", "key, value"),
    examined=_READS,
    exposure=Exposure(
        rows=f"""
            select w.key, count(*) as claims, {total_of("case when r.key is not null then 1 else 0 end")} as exposed
            from txn_written w left join (select key from txn_readers group by key) r on w.key = r.key
            where w.outcome = 'fail' group by w.key
            """,
        nouns="writes",
        asserted="rejected",
        observed="to a key that was read",
        at_any_time=True,
    ),
    claim="Transaction {read_op:number} of {read_op} read {value} of {key}, the write of which by transaction "
    "{write_op:number} had definitely failed.",
    more="{reads-1}",  # how many operations are not listed
)


GARBAGE_READ: Final = Check(
    anomaly="garbage-read",
    meaning="a transaction read a value that no transaction wrote",
    violations="""
        select f.key, f.value, f.op as read_op, f.reads
        from txn_never_committed f left join txn_written w on f.key = w.key and f.value = w.value where w.key is null
        """,
    evidence=select_first("found_garbage_read", "key, value"),
    examined=_READS,
    claim="Transaction {read_op:number} of {read_op} read {value} of {key}, which no transaction wrote.",
    more="{reads-1}",  # how many operations are not listed
    needs_close=True,  # proves nothing about a run that was cut short
)


G1B: Final = Check(
    anomaly="G1b",
    meaning="a transaction read an intermediate write, which its writer replaced before it ended",
    violations="""
        select key, value, writer as write_op, min(op) as read_op, count(*) as reads from (
            select s.key, s.value, s.writer, s.op
            from txn_list_seen s left join txn_ambiguous_ends b on s.op = b.op and s.sub = b.read_sub
            where s.final = 0 and s.writer <> s.op and b.op is null
            union all
            select r.key, r.value, w.op, r.op from txn_register_reads r
                join txn_writers w on r.key = w.key and r.value = w.value
            where w.final = 0 and w.op <> r.op) as seen
        group by key, value, writer
        """,
    evidence=f"""
        select f.key, f.value, f.write_op, f.read_op, f.reads, w.value as last
        from {first_rows_subquery("found_g1b", "key, value")} f
            join txn_written w on f.key = w.key and f.write_op = w.op and w.final = 1
        {order_by("f.key, f.value")}
        """,
    examined=_READS,
    exposure=declare_exposure(
        """
        select p.key, f.value, p.op from txn_possible p join txn_possible f on p.key = f.key and p.op = f.op
        where p.outcome = 'ok' and p.final = 0 and f.final = 1
        """,
        asserted="replaced by their own transaction",
    ),
    claim="Transaction {read_op:number} of {read_op} read {key} as transaction {write_op:number} left it with "
    "{value}, and not with {last}, the last that it wrote there.",
    more="{reads-1}",  # how many operations are not listed
)


INTERNAL: Final = Check(
    anomaly="internal",
    meaning="a transaction's reads contradict its own writes",
    views=parse_views("""
        -- Appends of a transaction to a list that it also read: one row for each pair of append and read.
        create view txn_own_lists as
        select w.key, w.op, w.value, w.sub, r.read_sub
        from txn_writers w join (
            select op, key, read_sub from txn_elements where position = 0
            union all
            select r.op, r.key, r.sub from txn_rows r
            where r.kind = 'txn-read' and r.judged = 1 and r.position is null) r
            on w.op = r.op and w.key = r.key
        where w.listed = 1

        -- Reads of a register after a write of the reading transaction. `sub`: the last such write before the read.
        create view txn_own_registers as
        select r.op, r.key, r.sub as read_sub, r.value as read_value, max(w.sub) as sub
        from txn_register_reads r join txn_writers w on r.op = w.op and r.key = w.key
        where w.sub < r.sub group by r.op, r.key, r.sub, r.value
        """),
    # `why` is `lacks` if a read lacks an earlier write of its transaction. It is `early` if a read shows a later write,
    # and `order` if reads show two appends of the transaction in the wrong order.
    violations=f"""
        select o.key, o.op as read_op, o.value, min(o.read_sub) as sub,
            case when o.sub < o.read_sub then 'lacks' else 'early' end as why
        from txn_own_lists o left join txn_elements e
            on o.op = e.op and o.read_sub = e.read_sub and o.key = e.key and o.value = e.value
        where (o.sub < o.read_sub and e.op is null) or (o.sub > o.read_sub and e.op is not null)
        group by o.key, o.op, o.value, case when o.sub < o.read_sub then 'lacks' else 'early' end
        union all
        select o.key, o.op, w.value, min(o.read_sub), 'lacks'
        from txn_own_registers o join txn_writers w on o.op = w.op and o.key = w.key and o.sub = w.sub
        where o.read_value is distinct from w.value group by o.key, o.op, w.value
        union all
        select r.key, r.op, r.value, min(r.sub), 'early'
        from txn_register_seen r where r.writer = r.op group by r.key, r.op, r.value
        union all
        select key, op, value, sub, 'order' from (
            select key, op, value, sub, position, {previous("position", by="key, op", order="sub")} as former
            from (
                select w.key, w.op, w.value, w.sub, coalesce(s.position, {INFINITY}) as position
                from txn_writers w left join txn_list_order s on w.key = s.key and w.value = s.value
                    left join txn_disordered d on w.key = d.key
                where w.listed = 1 and d.key is null) as placed) as paired
        where former > position
        """,
    evidence=f"""
        select key, read_op, value, why from found_internal
        {order_by("key, read_op, sub, value, why")}
        limit {MOST_FINDINGS}
        """,
    examined="select (select count(*) from txn_shown_elements) + (select count(*) from txn_register_reads) as examined",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="Transaction {read_op:number} of {read_op} [why=lacks?wrote {value} to {key}, and then read {key} without "
    "it|why=early?read {value} of {key} before it wrote it itself|appended {value} to {key} after another element of "
    "its own, which reads show behind {value} or do not show].",
)


DUPLICATE_ELEMENTS: Final = Check(
    anomaly="duplicate-elements",
    meaning="a list was read with one element twice",
    violations="""
        select key, value, min(op) as read_op, count(*) as reads from (
            select e.key, e.value, e.op, e.read_sub
            from txn_elements e join (
                select c.key, c.value from txn_shown_elements c
                    left join txn_ambiguous a on c.key = a.key and c.value = a.value
                where a.key is null group by c.key, c.value having count(*) > 1) c
                on e.key = c.key and e.value = c.value
            group by e.key, e.value, e.op, e.read_sub having count(*) > 1) as doubled
        group by key, value
        """,
    evidence=select_first("found_duplicate_elements", "key, value"),
    examined="select count(*) as examined from txn_shown_elements",
    claim="Transaction {read_op:number} of {read_op} read {key} with {value} in it more than once, which no one "
    "appended twice.",
    more="{reads-1}",  # how many operations are not listed
)


INCOMPATIBLE_ORDER: Final = Check(
    anomaly="incompatible-order",
    meaning="a list was read in two orders that contradict each other",
    violations="""
        select c.key, c.position, min(c.value) as low, max(c.value) as high, count(*) as rivals
        from txn_ordered_elements c join (
                select key, min(position) as position from (
                    select key, position from txn_ordered_elements
                    group by key, position having count(*) > 1) as clashes
                group by key) f
            on c.key = f.key and c.position = f.position
        group by c.key, c.position
        """,
    evidence=f"""
        select f.key, f.position, f.low, f.high, f.rivals, min(a.op) as low_op, min(b.op) as high_op
        from {first_rows_subquery("found_incompatible_order", "key")} f
            join txn_ordered_elements a on f.key = a.key and f.position = a.position and f.low = a.value
            join txn_ordered_elements b on f.key = b.key and f.position = b.position and f.high = b.value
        group by f.key, f.position, f.low, f.high, f.rivals {order_by("f.key")}
        """,
    examined="select count(*) as examined from txn_shown_elements",
    claim="{key} was read as two lists, and neither is a prefix of the other: element {position} is {low} to "
    "transaction {low_op:number} of {low_op}, and {high} to transaction {high_op:number} of {high_op}.",
    more="{rivals-2}",  # how many operations are not listed
)
"""Reports only one instance per key: the first position at which its reads differ."""
