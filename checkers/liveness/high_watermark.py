"""A leader's high watermark reaches the log end by the contract's obedience deadline if all replicas are in sync and no
client writes. Records between the two are neither acknowledged nor read until another record is written.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View, epoch_of
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import at_rest_check, count_in_list, explain_at_rest, lasting_states
from assay.checkers.sql_idioms import select_first
from assay.checkers.times import seconds


def _explain_late_high_watermark(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']}, the leader of {row['key']} in epoch {row['epoch']}, had the high watermark "
        f"{row['high_watermark']} and the log end {row['log_end']} from {seconds(row['since'])} to "
        f"{seconds(row['until'])}, with all replicas in sync and no fault in force; the contract's deadline is "
        f"{seconds(row['deadline'])}."
    )
    return explain_at_rest(claim, row, epoch_of(row["key"], row["epoch"]))


LATE_HIGH_WATERMARK: Final = at_rest_check(
    anomaly="late-high-watermark",
    meaning="a leader's high watermark did not come to its log's end by the deadline, with all replicas in sync",
    views=(
        View(
            "mark_lacking",
            f"""
            select p.look, p.key, p.leader_node as node, p.epoch, r.high_watermark, r.log_end
            from rest_led p
                join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = p.leader_node
                left join rest_busy m on m.look = p.look and m.key = p.key
            where m.key is null and r.epoch = p.epoch and r.high_watermark >= 0 and r.log_end > r.high_watermark
                and {count_in_list("p.members")} = {count_in_list("p.replicas")}
            """,
        ),
        lasting_states(
            "found_late_high_watermark",
            "mark_lacking",
            "key, node, epoch, high_watermark, log_end",
            "obedience_deadline",
        ),
    ),
    evidence=select_first("found_late_high_watermark", "key, node"),
    explain=_explain_late_high_watermark,
    explained_by=("disobeyed-state",),  # a member that does not follow in this epoch holds the high watermark back
)
