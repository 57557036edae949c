"""Records are on their replica's disk by the contract's obedience deadline after ``flush.ms``.

There are two sources. The replica reports the offset below which everything is on the disk. A node that can (the
simulation's can) also reports how many bytes a power loss could take. The latter shows records that a broker counts as
flushed too early. While the log grows nothing is due, because new records still have time.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import at_rest_check, explain_at_rest, lasting_states
from assay.checkers.sql_idioms import first_rows_subquery, milliseconds, order_by
from assay.checkers.times import seconds


def _explain_late_flush(row: Row, _: Evidence) -> Explanation:
    short = f"said that it is on its disk up to offset {row['flushed']} only"
    if row["flushed"] >= row["log_end"]:
        short = f"said that all of it is on its disk, where a loss of power could have taken {row['unsynced']} bytes"
    claim = (
        f"{row['node']} had a log of {row['key']} that ends at offset {row['log_end']} and {short}, from "
        f"{seconds(row['since'])} to {seconds(row['until'])}, with flush.ms={row['flush_ms']} and no fault in force; "
        f"the contract's deadline is {seconds(row['deadline'])}."
    )
    return explain_at_rest(claim, row)


LATE_FLUSH: Final = at_rest_check(
    anomaly="late-flush",
    meaning="a replica's log was not on its disk long after its time to be flushed",
    views=(
        View(
            "flush_lacking",
            """
            select f.look, f.key, f.node, f.log_end, f.flush_ms
            from looks f left join rest_busy m on m.look = f.look and m.key = f.key
            where f.what = 'flushed' and m.key is null and (f.flushed < f.log_end or coalesce(f.unsynced, 0) > 0)
            """,
        ),
        lasting_states(
            "found_late_flush",
            "flush_lacking",
            "key, node, log_end, flush_ms",
            "obedience_deadline",
            over=f"d.obedience_deadline + {milliseconds('g.flush_ms')} * 1000000",
        ),
    ),
    evidence=f"""
        select f.key, f.node, f.log_end, f.flush_ms, f.since, f.until, f.deadline, s.flushed, s.unsynced
        from {first_rows_subquery("found_late_flush", "key, node")} f
            join looks s on s.look = f.last_look and s.what = 'flushed' and s.key = f.key and s.node = f.node
        {order_by("f.key, f.node")}
        """,
    explain=_explain_late_flush,
)
