"""Partition states in ZooKeeper: all nodes agree on each version, and replicas lead or are removed as the state allows.

These checks read statements about the state in the nodes' event logs. The znode's version orders the statements, so no
clocks are needed. Lists of broker numbers look like ``1,2,3``. The checks read:

- ``became-leader``, ``isr-change``, ``partition-state-read``, ``partition-state-written``, ``assignment-written`` and
  ``reassignment-ended``: ``isr`` and ``elr`` of the state's ``version``.
- ``assignment-written``: ``replicas``, and the removed replicas (``gone``). ``reassignment-ended``: ``replicas``.
- ``partition-state-written``: ``epoch``, the leader as ``value`` (-1: none), ``min_insync`` (the least number of
  in-sync replicas that a write needs), ``unclean`` (whether a replica without all records may lead).
- ``log-end-answered``: a replica's answer to the controller of ``controller_epoch`` in leader epoch ``epoch``.
  ``value`` is the last epoch of its log, ``position`` the log end.
- ``registered``: ``value`` is the node's number.

``overlooked-log`` judges elections that the controller decided by the length of the logs. The states before and after
show such an election. Before it there was no leader, and there were several members: replicas in the in-sync set
(``isr``) or eligible ones (``elr``). Afterwards the leader is alone in the in-sync set, without eligible replicas. The
check skips topics for which one in-sync replica is enough, or which allow unclean elections. There the same states may
have another reason.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import EPOCH, Check, family_of, parse_views
from assay.checkers.sql_idioms import count_in_list, list_contains, list_covers, select_first

BROKERS: Final = """
    select node, min(value) as broker from events where event = 'registered' and value is not null
    group by node having min(value) = max(value)
    """
"""SQL: nodes that had one broker number in the whole run."""

COMPLETE_EVENT_LOGS: Final = """
    select node from (
        select node, incarnation, case when min(seq) = 1 and max(seq) = count(*) then 1 else 0 end as complete
        from events group by node, incarnation) as logs
    group by node having min(complete) = 1
    """
"""SQL: nodes whose event logs lack no line."""


TWO_IN_SYNC_SETS: Final = Check(
    anomaly="two-in-sync-sets",
    meaning="two nodes had different in-sync sets for one version of a partition's state",
    views=parse_views("""
        -- A key such as `orders#0-0` belongs to an unknown incarnation of the topic, and is left out.
        create table state_versions as
        select key, version, members, isr, elr, min(node) as node, min(time) as time from (
            select key, node, time, version, isr, elr, concat(isr, ';', elr) as members from events
            where key is not null and key not like '%#0-%' and version is not null and isr is not null
                and elr is not null) as said
        group by key, version, members, isr, elr
        """),
    violations="""
        select l.key, l.version, l.isr as one_isr, l.elr as one_elr, l.node as one_node, h.isr as other_isr,
            h.elr as other_elr, h.node as other_node, greatest(l.time, h.time) as moment
        from (
            select key, version, min(members) as low, max(members) as high from state_versions
            group by key, version having min(members) <> max(members)) d
            join state_versions l on l.key = d.key and l.version = d.version and l.members = d.low
            join state_versions h on h.key = d.key and h.version = d.version and h.members = d.high
        """,
    evidence=select_first("found_two_in_sync_sets", "key, version"),
    examined="select count(*) as examined from state_versions",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="Of version {version} of the state of {key}, {one_node} had [one_isr=?no one|{one_isr}] in sync[one_elr=?| "
    "and {one_elr} eligible], and {other_node} had [other_isr=?no one|{other_isr}] in sync[other_elr=?| and "
    "{other_elr} eligible].",
    time="moment",
)


EARLY_MOVE: Final = Check(
    anomaly="early-move",
    meaning="a move of replicas ended, or old replicas were removed, before all remaining replicas were in sync",
    views=parse_views("""
        create view move_steps as
        select key, node, time, epoch, replicas, isr, coalesce(gone, '') as gone from events
        where key is not null and isr is not null and replicas is not null
            and (event = 'reassignment-ended' or (event = 'assignment-written' and gone <> ''))
        """),
    violations=f"""
        select key, replicas, gone, isr, min(node) as node, min(time) as moment from move_steps
        where not {list_covers("isr", "replicas")} group by key, replicas, gone, isr
        """,
    evidence=select_first("found_early_move", "key, moment, replicas, gone, isr"),
    examined="select count(*) as examined from move_steps",
    claim="{node:capital} [gone=?ended the move of|took the replicas {gone} away from] {key} to {replicas}, when only "
    "[isr=?no one|{isr}] was in sync.",
    time="moment",
    about=("move of {key} to {replicas}",),  # subjects of a finding
    seen_again=True,  # one cause may have two findings: as the old replicas are taken away, and as the move ends
    optional=True,  # a run without a reassignment can pass
)


OVERLOOKED_LOG: Final = Check(
    anomaly="overlooked-log",
    meaning="a leader was elected by log length, although another replica had a longer log or was not asked",
    views=parse_views(f"""
        -- Nodes whose event logs lack no line, with their broker numbers.
        create view election_nodes as
        select b.node, b.broker from ({BROKERS}) b join ({COMPLETE_EVENT_LOGS}) c on c.node = b.node

        -- States of partitions that forbid unclean elections, one row per version that a controller wrote.
        create view election_states as
        select key, epoch, controller_epoch, value as leader, isr, elr, min_insync, time from events
        where event = 'partition-state-written' and key not like '%#0-%' and epoch is not null
            and isr is not null and elr is not null and min_insync is not null and not coalesce(unclean, false)

        -- Elections by the length of the logs, with the members of the state before.
        create table election_by_length as
        select e.key, e.epoch, e.controller_epoch, e.leader, e.time,
            concat(b.isr, case when b.isr <> '' and b.elr <> '' then ',' else '' end, b.elr) as members
        from election_states e join election_states b on b.key = e.key and b.epoch = greatest(e.epoch, 0) - 1
        where b.leader < 0 and e.leader >= 0 and {count_in_list("e.isr")} = 1 and e.min_insync > 1
            and {count_in_list("b.isr")} + {count_in_list("b.elr")}
                > {count_in_list("e.isr")} + {count_in_list("e.elr")}

        -- Each node's answers to the controller about its log before the election.
        create table election_answers as
        select e.key, e.epoch, n.node, n.broker, count(t.seq) as times, min(t.value) as last_epoch,
            max(t.value) as other_epoch, min(t.position) as log_end, max(t.position) as other_end
        from election_by_length e cross join election_nodes n
            left join events t on t.event = 'log-end-answered' and t.key = e.key and t.node = n.node
                and t.controller_epoch = e.controller_epoch and t.epoch < e.epoch
        group by e.key, e.epoch, n.node, n.broker
        """),
    violations=f"""
        select e.key, e.epoch, e.leader, e.members, t.node, cast(null as bigint) as own_end,
            cast(null as bigint) as own_epoch, cast(null as bigint) as leaders_end,
            cast(null as bigint) as leaders_epoch, e.time as moment
        from election_by_length e join election_answers t on t.key = e.key and t.epoch = e.epoch
        where {list_contains("e.members", "t.broker")} and t.times = 0
        union all
        select e.key, e.epoch, e.leader, e.members, t.node, t.log_end, t.last_epoch, l.log_end, l.last_epoch, e.time
        from election_by_length e join election_answers t on t.key = e.key and t.epoch = e.epoch
            join election_answers l on l.key = e.key and l.epoch = e.epoch and l.broker = e.leader
        where {list_contains("e.members", "t.broker")} and t.times > 0 and l.times > 0
            and t.last_epoch = t.other_epoch and t.log_end = t.other_end
            and l.last_epoch = l.other_epoch and l.log_end = l.other_end
            and (t.last_epoch > l.last_epoch or (t.last_epoch = l.last_epoch and t.log_end > l.log_end))
        """,
    evidence=select_first("found_overlooked_log", "key, epoch, node"),
    examined="select count(*) as examined from election_by_length",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="Broker {leader} was elected leader of {key} for epoch {epoch} by the length of the logs, and {node}, one "
    "of the members {members} that had all failed, [own_end?had a log to offset {own_end} in epoch {own_epoch}, and "
    "the leader's went to {leaders_end} in epoch {leaders_epoch}|was not asked].",
    time="moment",
    about=(EPOCH,),  # subjects of a finding
    explained_by=("leader-completeness",),
    seen_again=True,  # once for each member that was left out
    optional=True,  # only if all members of a partition have failed
)

STATES: Final = family_of(
    TWO_IN_SYNC_SETS, EARLY_MOVE, OVERLOOKED_LOG, applies="events where version is not null and isr is not null"
)
