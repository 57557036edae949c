"""Reassignment: an accepted move of replicas ends by the contract's move deadline.

The check finds three violations:

1. The request is still in ZooKeeper, although the partition has a leader and every broker concerned is registered.
2. A client's request was acknowledged and is the last one, but the replicas are on other brokers and no move is under
   way. This violation needs no deadline, but two looks, because a move may end during a look.
3. The move is over, and files of a removed replica are still on its disk.

No client writes while looks are taken, so the new replicas can catch up. A move may wait for one broker alone. If that
broker also fails to get in sync in other partitions of the same leader (``no-rejoin``), the findings have one cause.

``snapshots`` explains looks and the kinds of their rows (``what``). It also creates these tables: ``rest_brokers`` (the
registered brokers in each look), ``rest_led`` (partitions with a registered leader) and ``rest_busy`` (partitions that
are moved or deleted).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.liveness.snapshots import make_snapshot_check, select_lasting
from assay.checkers.sql_idioms import (
    HAS_BEGUN,
    count_in_list,
    extract_topic,
    first_rows_subquery,
    list_contains,
    order_by,
    previous,
    strip_incarnation,
)

_ALL_REGISTERED: Final = " and ".join(
    f"count(case when {list_contains(column, 'b.broker')} then 1 end) = {count_in_list(column)}"
    for column in ("m.replicas", "m.removing", "p.replicas")
)
"""SQL: all brokers of each of these lists are registered."""


UNFINISHED_MOVE: Final = make_snapshot_check(
    anomaly="unfinished-move",
    meaning="an accepted move of replicas did not end by the deadline",
    views=parse_views(f"""
        -- Moves under way that have no reason to wait. `target`: the brokers after the move; `going`: those that it
        -- removes.
        create view move_pending as
        select m.look, m.key, m.replicas as target, m.removing as going, p.epoch
        from (
            select look, key, replicas, coalesce(removing, '') as removing from looks where what = 'move'
            group by look, key, replicas, coalesce(removing, '')) m
            join rest_led p on p.look = m.look and p.key = m.key
            join rest_brokers b on b.look = m.look
            left join looks d on d.look = m.look and d.what = 'deletion' and d.key = {extract_topic("m.key")}
        where d.key is null
        group by m.look, m.key, m.replicas, m.removing, p.epoch, p.replicas having {_ALL_REGISTERED}

        -- The last request for each partition. It is dropped if another request may have come after it, a fault may
        -- have moved replicas, or the topic may have been created or deleted in the run.
        create table move_accepted as
        select a.key, a.op, a.target from (
            select key, op, call, replicas as target, ended,
                {previous("ended", by="key", order="ended, op")} as former,
                lead(op) over (partition by key {order_by("ended, op")}) as later
            from (
                select key, op, call, replicas,
                    case when outcome = 'ok' then coalesce(ret, {INFINITY}) else {INFINITY} end as ended
                from effects where kind = 'move' and outcome <> 'fail') as asked) a
            left join (
                select {strip_incarnation("key")} as topic from effects
                where kind in ('topic-create', 'topic-delete') and outcome <> 'fail'
                group by {strip_incarnation("key")}) t
                on t.topic = {extract_topic("a.key")}
            cross join (select count(*) as times from faults where moves_replicas and {HAS_BEGUN}) n
        where a.later is null and a.ended < {INFINITY} and coalesce(a.former, 0) < a.call and t.topic is null
            and n.times = 0 and a.target is not null

        -- States of violation 2: no move is under way, and the replicas are not where the last accepted move puts them.
        create view move_forgotten as
        select p.look, a.key, a.op, a.target, p.replicas as present
        from move_accepted a join looks p on p.key = a.key and p.what = 'partition'
            left join looks m on m.look = p.look and m.what = 'move' and m.key = p.key
        where p.replicas <> a.target and m.key is null

        -- States of violation 3: files of a replica on a broker to which the partition is not assigned.
        create view move_left_behind as
        select f.look, f.key, f.node, p.replicas as present
        from looks f
            join rest_brokers b on b.look = f.look and b.node = f.node
            join looks p on p.look = f.look and p.what = 'partition' and p.key = f.key and p.zxid = f.zxid
            left join rest_busy m on m.look = f.look and m.key = f.key
        where f.what = 'folder' and not {list_contains("p.replicas", "b.broker")} and m.key is null

        -- Violation 1. `select_lasting` selects the states that all looks up to the last one show for longer than the
        -- deadline.
        create table move_unended as
        {select_lasting("move_pending", "key, target, going, epoch", "move_deadline")}

        -- Violation 2.
        create table move_undone as
        {select_lasting("move_forgotten", "key, op, target, present", "move_deadline", duration="0")}

        -- Violation 3.
        create table move_uncleaned as
        {select_lasting("move_left_behind", "key, node, present", "move_deadline")}
        """),
    violations="""
        select key, 1 as violation, target, going, cast(null as string) as present, cast(null as string) as node,
            cast(null as bigint) as move_op, last_look, since, until, deadline from move_unended
        union all
        select key, 2, target, cast(null as string), present, cast(null as string), op, last_look, since, until,
            deadline
        from move_undone
        union all
        select key, 3, cast(null as string), cast(null as string), present, node, cast(null as bigint), last_look,
            since, until, deadline
        from move_uncleaned
        """,
    # `awaited`, `last_awaited`: the first and the last of the target brokers that are not in sync; often they are one.
    evidence=f"""
        select f.*, w.awaited, w.last_awaited, w.leader_node
        from {first_rows_subquery("found_unfinished_move", "key, violation, node")} f
            left join (
                select m.look, m.key, min(b.node) as awaited, max(b.node) as last_awaited,
                    min(p.leader_node) as leader_node
                from move_pending m join rest_led p on p.look = m.look and p.key = m.key
                    join rest_brokers b on b.look = m.look
                where {list_contains("m.target", "b.broker")} and not {list_contains("p.members", "b.broker")}
                group by m.look, m.key) w on f.violation = 1 and w.look = f.last_look and w.key = f.key
        {order_by("f.key, f.violation, f.node")}
        """,
    # A template with a sentence per violation: [violation=1?...|violation=2?...|...] (`claims`).
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="[violation=1?The move of {key} to {target} was under way from {since:time} to {until:time}[going=?|, with "
    "{going} to be removed|], although it has a leader and all of these brokers were there; the contract's deadline "
    "is {deadline:time}.|violation=2?{move_op:capital} was promised at {move_op:returned} that {key} moves to "
    "{target}; from {since:time} to {until:time} it was on {present}, and no move was under way.|{node:capital} had "
    "files of {key} from {since:time} to {until:time}, although that was on {present} and no move was under way; the "
    "contract's deadline is {deadline:time}.]",
    operations=("move_op",),
    about=("[violation=1?[awaited={last_awaited}?{awaited} following {leader_node}]|violation=2?|{key} on {node}]",),
    explained_by=("no-rejoin",),
)
