"""A replica that can be in the in-sync set again joins it by the contract's rejoin deadline.

It can join if it is assigned, and its broker and the leader are registered and obey the present leader epoch. At rest
no client writes, so the replica catches up in any case.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import (
    at_rest_check,
    explain_at_rest,
    lasting_states,
    list_contains,
    replication_subject,
)
from assay.checkers.sql_idioms import select_first
from assay.checkers.times import seconds


def _explain_no_rejoin(row: Row, _: Evidence) -> Explanation:
    claim = (
        f"{row['node']} did not get back into the in-sync set of {row['key']} from {seconds(row['since'])} to "
        f"{seconds(row['until'])}, although no fault was in force and it followed {row['leader_node']} in leader epoch "
        f"{row['epoch']}; the contract's deadline is {seconds(row['deadline'])}."
    )
    return explain_at_rest(claim, row, replication_subject(row["node"], row["leader_node"]))


NO_REJOIN: Final = at_rest_check(
    anomaly="no-rejoin",
    meaning="a replica that could have been in sync again was not by the deadline",
    views=(
        View(
            "rejoin_missing",
            f"""
            select p.look, p.key, p.epoch, p.leader_node, b.node
            from rest_led p
                join rest_brokers b on b.look = p.look
                join looks f on f.look = p.look and f.what = 'role' and f.key = p.key and f.node = b.node
                join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = p.leader_node
                left join rest_busy m on m.look = p.look and m.key = p.key
            where {list_contains("p.replicas", "b.broker")} and not {list_contains("p.members", "b.broker")}
                and f.epoch >= p.epoch and r.epoch >= p.epoch and m.key is null
            """,
        ),
        lasting_states("found_no_rejoin", "rejoin_missing", "key, node, leader_node, epoch", "rejoin_deadline"),
    ),
    evidence=select_first("found_no_rejoin", "key, node"),
    explain=_explain_no_rejoin,
    seen_again=True,
)
