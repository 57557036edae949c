"""A broker's metadata agrees with the partition's state in ZooKeeper by the contract's obedience deadline.

The check compares leader, replicas and in-sync set, as each answering broker reports them and as ZooKeeper has them. An
unknown partition counts against a broker that has a replica of it, if the broker knows any other. Histories from before
this was recorded have no such rows.
"""

from typing import Final

from assay.checkers.check import View
from assay.checkers.liveness.snapshots import ON_NODE, at_rest_check, list_contains, select_lasting
from assay.checkers.sql_idioms import first_rows_subquery, order_by

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
    ),
    violations=select_lasting("routing_lacking", "key, node, leader, replicas, members", "obedience_deadline"),
    evidence=f"""
        select f.key, f.node, f.leader, f.replicas, f.members, r.leader as said, r.replicas as said_replicas,
            r.members as said_members, f.since, f.until, f.deadline
        from {first_rows_subquery("found_stale_metadata", "key, node")} f
            left join looks r on r.look = f.last_look and r.what = 'routed' and r.key = f.key and r.node = f.node
        {order_by("f.key, f.node")}
        """,
    claim="{node:capital} answered [said_replicas?[said>-1?leader {said}|no leader], replicas {said_replicas}, in "
    "sync {said_members}|no such partition] for {key}, when ZooKeeper had [leader>-1?leader {leader}|no leader], "
    "replicas {replicas}, in sync {members} from {since:time} to {until:time}, and no fault was in force; the "
    "contract's deadline is {deadline:time}.",
    about=(ON_NODE,),
    explained_by=("disobeyed-state", "unfinished-move"),
)
