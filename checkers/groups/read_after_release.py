"""A member returns no records of a partition beyond the position at which its hold ended.

A workload records ``release`` and ``lost`` in ``effects`` with the ``position`` at which the hold ended: all records
below it had been returned to the application. Reads under the hold's ``assignment`` are recorded as usual
(``log.family``).

The position is final. The next owner begins at the committed offset, which is at most this position. So further records
that the former owner returns are read twice, although no member died. A read that was called before the operation that
reports the end is not judged, because the reader may have sought a lower offset in between.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.sql_idioms import select_first

# `p` is a row of `hold_ends`. `r` is the end of a poll (kind `observe-end`): its position is the next offset to read.
_SAME_HOLD: Final = "p.key = r.key and p.process = r.process and p.assignment = r.assignment"

READ_AFTER_RELEASE: Final = Check(
    anomaly="read-after-release",
    meaning="a member returned records of a partition that it had released",
    views=parse_views("""
        -- Where, and by which operation, the end of each hold was reported.
        create table hold_ends as
        select key, process, assignment, max(position) as position, min(call) as call, min(op) as op from effects
        where kind in ('release', 'lost') and outcome = 'ok' and position is not null and assignment is not null
        group by key, process, assignment
        """),
    violations=f"""
        select p.key, p.op as end_op, p.position, r.op as read_op, r.position as reached
        from hold_ends p join (
            select op, key, process, assignment, call, position from effects
            where kind = 'observe-end' and outcome = 'ok' and assignment is not null) r on {_SAME_HOLD}
        where r.call >= p.call and r.position > p.position
        """,
    evidence=select_first("found_read_after_release", "key, end_op, read_op, reached"),
    examined="select count(*) as examined from hold_ends",
    claim="{read_op} was shown {key} up to offset {reached}, by {read_op:returned}, under a hold that had ended at "
    "offset {position} ({end_op}, called at {end_op:called}).",
)

READS_AFTER_RELEASE: Final = family_of(
    READ_AFTER_RELEASE,
    applies="effects where kind in ('release', 'lost') and position is not null",
    kinds=("release", "lost"),
)
