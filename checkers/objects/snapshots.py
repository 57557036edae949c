"""Reads of a set that disagree on the order of its elements.

This applies only if the contract declares sets linearizable (``linearizable_sets``); other reads may be torn. Rows are
those of ``objects.sets``. Elements that may have been removed are left out. The others only come, one after the other.
So among two reads one shows all the elements that the other shows. Reads are sorted by their number of elements, and
each must contain the one before; then all do.
"""

from typing import Final

from assay.checkers.check import Check, Table, View, family_of
from assay.checkers.sql_idioms import first_rows_subquery, order_by, row_number

SET_FORK: Final = Check(
    anomaly="set-fork",
    meaning="of two reads of a set, each shows an element that the other lacks",
    views=(
        Table(
            "set_lasting",
            """
            select w.key, w.op, w.value from set_shown w left join set_elements e on w.key = e.key and w.value = e.value
            where coalesce(e.removed, 0) = 0
            """,
        ),
        Table(
            "set_snapshots",
            f"""
            select key, op, size, {row_number(by="key", order="size, op")} as turn
            from (select key, op, count(*) as size from set_lasting group by key, op) as sizes
            """,
        ),
        View(
            "set_common",
            """
            select a.key, a.turn, count(*) as common
            from set_snapshots a
                join set_lasting x on a.key = x.key and a.op = x.op
                join set_snapshots b on a.key = b.key and b.turn = a.turn + 1
                join set_lasting y on b.key = y.key and b.op = y.op and x.value = y.value
            group by a.key, a.turn
            """,
        ),
        Table(
            "found_set_fork",
            """
            select a.key, a.turn, a.op as small_op, b.op as large_op
            from set_snapshots a join set_snapshots b on a.key = b.key and b.turn = a.turn + 1
                left join set_common c on a.key = c.key and a.turn = c.turn
            where coalesce(c.common, 0) < a.size
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.turn, f.small_op, f.large_op, min(l.value) as lacked, min(o.value) as other
        from {first_rows_subquery("found_set_fork", "key, turn")} f
            join (
                select f.key, f.turn, x.value
                from {first_rows_subquery("found_set_fork", "key, turn")} f
                    join set_lasting x on f.key = x.key and f.small_op = x.op
                    left join set_lasting y on f.key = y.key and f.large_op = y.op and x.value = y.value
                where y.op is null) l on f.key = l.key and f.turn = l.turn
            join (
                select f.key, f.turn, y.value
                from {first_rows_subquery("found_set_fork", "key, turn")} f
                    join set_lasting y on f.key = y.key and f.large_op = y.op
                    left join set_lasting x on f.key = x.key and f.small_op = x.op and x.value = y.value
                where x.op is null) o on f.key = o.key and f.turn = o.turn
        group by f.key, f.turn, f.small_op, f.large_op {order_by("f.key, f.turn")}
        """,
    examined="select count(*) as examined from set_snapshots",
    claim="{key}: the read by {small_op}, called at {small_op:called}, shows {lacked} and not {other}; that by "
    "{large_op}, called at {large_op:called}, shows {other} and not {lacked}, and neither was removed.",
    explained_by=("set-lost", "set-stale", "set-vanished"),
    needs_close=True,
)
"""A read may lack rows if the history was not closed."""

SNAPSHOTS: Final = family_of(
    SET_FORK,
    applies="""
        effects e cross join set_declared d
        where d.linearizable_sets = 1 and e.kind = 'set-read' and e.outcome = 'ok'
        """,
    kinds=("set-read",),
)
"""Must come after the sets' own family, whose tables it reads."""
