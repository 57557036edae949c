"""A broker's metadata agrees with the partition's state in ZooKeeper by the contract's obedience deadline.

The check compares leader, replicas and in-sync set, as each answering broker reports them and as ZooKeeper has them. An
unknown partition counts against a broker that has a replica of it, if the broker knows any other. Histories from before
this was recorded have no such rows.
"""

from typing import Final

from assay.checkers.check import Evidence, Explanation, View
from assay.checkers.engine import Row
from assay.checkers.liveness.snapshots import (
    at_rest_check,
    explain_at_rest,
    lasting_states,
    list_contains,
    node_subject,
)
from assay.checkers.sql_idioms import first_rows_subquery, order_by
from assay.checkers.times import seconds


def _describe_leader(value: int | None) -> str:
    return "no leader" if value is None or value < 0 else f"leader {value}"


def _explain_stale_metadata(row: Row, _: Evidence) -> Explanation:
    said = "no such partition"
    if row["said_replicas"] is not None:
        said = f"{_describe_leader(row['said'])}, replicas {row['said_replicas']}, in sync {row['said_members']}"
    claim = (
        f"{row['node']} answered {said} for {row['key']}, when ZooKeeper had {_describe_leader(row['leader'])}, "
        "replicas "
        f"{row['replicas']}, in sync {row['members']} from {seconds(row['since'])} to {seconds(row['until'])}, and no "
        f"fault was in force; the contract's deadline is {seconds(row['deadline'])}."
    )
    return explain_at_rest(claim, row, node_subject(row["key"], row["node"]))


STALE_METADATA: Final = at_rest_check(
    anomaly="stale-metadata",
    meaning="a broker's metadata was not what ZooKeeper had by the deadline",
    views=(
        View(
            "routing_lacking",
            f"""
            select p.look, p.key, a.node, p.leader, p.replicas, p.members
            from rest_led p
                join looks a on a.look = p.look and a.what = 'answer'
                join rest_brokers b on b.look = p.look and b.node = a.node
                left join (select look, node from looks where what = 'routed' group by look, node) w
                    on w.look = p.look and w.node = a.node
                left join looks r on r.look = p.look and r.what = 'routed' and r.key = p.key and r.node = a.node
                left join rest_busy m on m.look = p.look and m.key = p.key
            where m.key is null and (r.leader <> p.leader or r.replicas <> p.replicas or r.members <> p.members
                or (r.key is null and w.node is not null and {list_contains("p.replicas", "b.broker")}))
            """,
        ),
        lasting_states(
            "found_stale_metadata", "routing_lacking", "key, node, leader, replicas, members", "obedience_deadline"
        ),
    ),
    evidence=f"""
        select f.key, f.node, f.leader, f.replicas, f.members, r.leader as said, r.replicas as said_replicas,
            r.members as said_members, f.since, f.until, f.deadline
        from {first_rows_subquery("found_stale_metadata", "key, node")} f
            left join looks r on r.look = f.last_look and r.what = 'routed' and r.key = f.key and r.node = f.node
        {order_by("f.key, f.node")}
        """,
    explain=_explain_stale_metadata,
    explained_by=("disobeyed-state", "unfinished-move"),
)
