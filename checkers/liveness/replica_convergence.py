"""A live replica obeys its partition's written state by the contract's obedience deadline.

The check compares leader epochs: that of the state in ZooKeeper, and the highest that the replica reports. Versions of
the znode prove nothing, because a leader changes the in-sync set without informing its followers.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View, epoch_of
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import at_rest_check, lasting_states, list_contains, node_subject
from assay.checkers.sql_idioms import first_rows_subquery, order_by
from assay.checkers.times import seconds


def _explain_disobeyed_state(row: Row, _: Evidence) -> Explanation:
    obeyed = "has no replica of it" if row["obeyed"] is None else f"is still in epoch {row['obeyed']}"
    claim = (
        f"the state of {row['key']} with leader epoch {row['epoch']} was there from {seconds(row['since'])} to "
        f"{seconds(row['until'])}, no fault was in force, and {row['node']}, which it is about, {obeyed}; the "
        f"contract's deadline is {seconds(row['deadline'])}."
    )
    about = (node_subject(row["key"], row["node"]), epoch_of(row["key"], row["epoch"]))
    return Explanation(claim, (), 0, row["until"], about=about)


DISOBEYED_STATE: Final = at_rest_check(
    anomaly="disobeyed-state",
    meaning="a replica did not obey its partition's state by the deadline",
    views=(
        View(
            "obedience_lacking",
            f"""
            select p.look, p.key, p.epoch, b.node
            from looks p
                join rest_brokers b on b.look = p.look
                join looks a on a.look = p.look and a.what = 'answer' and a.node = b.node
                left join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = b.node
                left join rest_busy m on m.look = p.look and m.key = p.key
            where p.what = 'partition' and p.epoch >= 0 and {list_contains("p.replicas", "b.broker")}
                and coalesce(r.epoch, -1) < p.epoch and m.key is null
            """,
        ),
        lasting_states("found_disobeyed_state", "obedience_lacking", "key, node, epoch", "obedience_deadline"),
    ),
    evidence=f"""
        select f.key, f.node, f.epoch, f.since, f.until, r.epoch as obeyed, f.deadline
        from {first_rows_subquery("found_disobeyed_state", "key, node")} f
            left join looks r on r.look = f.last_look and r.what = 'role' and r.key = f.key and r.node = f.node
        {order_by("f.key, f.node")}
        """,
    explain=_explain_disobeyed_state,
)
