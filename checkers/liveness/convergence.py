"""Convergence: without faults and load, brokers and replicas reach each of these states by a deadline of the contract.

- ``unregistered``: a broker that runs and answers is registered by the rejoin deadline. Other checks do not judge an
  unregistered broker, because it cannot lead and its replicas cannot be in sync.
- ``disobeyed-settings``: a live replica applies a topic's changed settings by the obedience deadline. The check
  compares two fingerprints: one of the settings in ZooKeeper merged over the cluster's defaults, and one of the
  settings that the replica reports. So a replica fails this check if it overlooks one of two quick changes.
- ``no-rejoin``: a replica that can be in sync joins the in-sync set by the rejoin deadline. It can be in sync if it is
  assigned, and its broker and the leader are registered and obey the present leader epoch. No client writes at this
  time, so the replica catches up in any case.
- ``disobeyed-state``: a live replica obeys the stored state of its partition by the obedience deadline. The check
  compares the leader epoch in ZooKeeper with the highest epoch that the replica reports. Versions of the znode prove
  nothing, because a leader changes the in-sync set without informing its followers.
- ``late-high-watermark``: if all replicas are in sync, the high watermark reaches the log end by the obedience
  deadline. A lower high watermark would keep the last records unread and unacknowledged until another record is
  written.
- ``late-flush``: records are on their replica's disk by the obedience deadline after ``flush.ms``. The replica reports
  the offset below which all records are on the disk. The simulation also reports the number of bytes that a power loss
  could take, which reveals records that a broker counts as flushed too early. A log that grows is not judged, because
  new records still have time.
- ``stale-metadata``: a broker's metadata agrees with the partition's state in ZooKeeper by the obedience deadline. The
  check compares leader, replicas and in-sync set in each broker's answer with those in ZooKeeper. If a broker reports
  some partitions but not this one, and has a replica of it, its metadata are stale, too.

``snapshots`` explains looks and the kinds of their rows (``what``). It also creates these tables: ``rest_brokers`` (the
registered brokers in each look), ``rest_led`` (partitions with a registered leader) and ``rest_busy`` (partitions that
are moved or deleted).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import EPOCH, parse_views
from assay.checkers.liveness.snapshots import (
    BROKER,
    FOLLOWING,
    ON_NODE,
    TOPIC_ON_NODE,
    make_snapshot_check,
    select_lasting,
)
from assay.checkers.sql_idioms import (
    count_in_list,
    extract_topic,
    first_rows_subquery,
    list_contains,
    milliseconds,
    order_by,
    select_first,
)

UNREGISTERED: Final = make_snapshot_check(
    anomaly="unregistered",
    meaning="a server that answers was not registered by the deadline",
    views=parse_views("""
        -- Brokers that answer and are not registered.
        create view registration_missing as
        select a.look, a.node as key, a.node
        from looks a left join rest_brokers b on b.look = a.look and b.node = a.node
        where a.what = 'answer' and b.node is null
        """),
    violations=select_lasting("registration_missing", "key, node", "rejoin_deadline"),
    evidence=select_first("found_unregistered", "key"),
    claim="{node:capital} answered and was not registered from {since:time} to {until:time}, although no fault was in "
    "force; the contract's deadline is {deadline:time}.",
    about=(BROKER,),  # subjects of a finding
)


DISOBEYED_SETTINGS: Final = make_snapshot_check(
    anomaly="disobeyed-settings",
    meaning="a replica did not have its topic's settings by the deadline",
    views=parse_views(f"""
        -- Replicas that apply other settings than ZooKeeper has.
        create view settings_lacking as
        select r.look, r.key, r.node, t.key as topic, t.settings
        from looks r
            join looks t on t.look = r.look and t.what = 'topic' and t.key = {extract_topic("r.key")}
            left join rest_busy m on m.look = r.look and m.key = r.key
        where r.what = 'role' and r.settings <> t.settings and m.key is null
        """),
    violations=select_lasting("settings_lacking", "key, node, topic, settings", "obedience_deadline"),
    evidence=select_first("found_disobeyed_settings", "key, node"),
    claim="{node:capital} did not go by the settings that {topic} has in ZooKeeper, with its replica of {key}, from "
    "{since:time} to {until:time}, and no fault was in force; the contract's deadline is {deadline:time}.",
    about=(TOPIC_ON_NODE, BROKER),  # subjects of a finding
    explained_by=("unregistered",),
    seen_again=True,  # one cause may be reported several times
)


NO_REJOIN: Final = make_snapshot_check(
    anomaly="no-rejoin",
    meaning="a replica did not rejoin the in-sync set by the deadline, although it could",
    views=parse_views(f"""
        -- Replicas that follow in the present epoch and are not in sync. `f`: the replica, `r`: its leader,
        -- `p.members`: the in-sync set.
        create view rejoin_missing as
        select p.look, p.key, p.epoch, p.leader_node, b.node
        from rest_led p
            join rest_brokers b on b.look = p.look
            join looks f on f.look = p.look and f.what = 'role' and f.key = p.key and f.node = b.node
            join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = p.leader_node
            left join rest_busy m on m.look = p.look and m.key = p.key
        where {list_contains("p.replicas", "b.broker")} and not {list_contains("p.members", "b.broker")}
            and f.epoch >= p.epoch and r.epoch >= p.epoch and m.key is null
        """),
    violations=select_lasting("rejoin_missing", "key, node, leader_node, epoch", "rejoin_deadline"),
    evidence=select_first("found_no_rejoin", "key, node"),
    claim="{node:capital} did not get back into the in-sync set of {key} from {since:time} to {until:time}, although "
    "no fault was in force and it followed {leader_node} in leader epoch {epoch}; the contract's deadline is "
    "{deadline:time}.",
    about=(FOLLOWING,),  # subjects of a finding: texts with columns
    seen_again=True,  # one cause may be reported several times
)


DISOBEYED_STATE: Final = make_snapshot_check(
    anomaly="disobeyed-state",
    meaning="a replica did not take the role in its partition's stored state by the deadline",
    views=parse_views(f"""
        -- Replicas in an older epoch than the written state.
        create view obedience_lacking as
        select p.look, p.key, p.epoch, b.node
        from looks p
            join rest_brokers b on b.look = p.look
            join looks a on a.look = p.look and a.what = 'answer' and a.node = b.node
            left join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = b.node
            left join rest_busy m on m.look = p.look and m.key = p.key
        where p.what = 'partition' and p.epoch >= 0 and {list_contains("p.replicas", "b.broker")}
            and coalesce(r.epoch, -1) < p.epoch and m.key is null
        """),
    violations=select_lasting("obedience_lacking", "key, node, epoch", "obedience_deadline"),
    evidence=f"""
        select f.key, f.node, f.epoch, f.since, f.until, r.epoch as obeyed, f.deadline
        from {first_rows_subquery("found_disobeyed_state", "key, node")} f
            left join looks r on r.look = f.last_look and r.what = 'role' and r.key = f.key and r.node = f.node
        {order_by("f.key, f.node")}
        """,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="the state of {key} with leader epoch {epoch} assigns a replica to {node}. The state was there from "
    "{since:time} to {until:time} and no fault was in force, but {node} [is still in epoch {obeyed}|has no replica of "
    "{key}]; the contract's deadline is {deadline:time}.",
    about=(ON_NODE, EPOCH),  # subjects of a finding
)


LATE_HIGH_WATERMARK: Final = make_snapshot_check(
    anomaly="late-high-watermark",
    meaning="a leader's high watermark did not reach its log's end by the deadline, although all replicas are in sync",
    views=parse_views(f"""
        -- Leaders with all replicas in sync and a high watermark below the log end.
        create view mark_lacking as
        select p.look, p.key, p.leader_node as node, p.epoch, r.high_watermark, r.log_end
        from rest_led p
            join looks r on r.look = p.look and r.what = 'role' and r.key = p.key and r.node = p.leader_node
            left join rest_busy m on m.look = p.look and m.key = p.key
        where m.key is null and r.epoch = p.epoch and r.high_watermark >= 0 and r.log_end > r.high_watermark
            and {count_in_list("p.members")} = {count_in_list("p.replicas")}
        """),
    violations=select_lasting("mark_lacking", "key, node, epoch, high_watermark, log_end", "obedience_deadline"),
    evidence=select_first("found_late_high_watermark", "key, node"),
    claim="{node:capital}, the leader of {key} in epoch {epoch}, had the high watermark {high_watermark} and the log "
    "end {log_end} from {since:time} to {until:time}, with all replicas in sync and no fault in force; the contract's "
    "deadline is {deadline:time}.",
    about=(EPOCH,),  # subjects of a finding
    explained_by=("disobeyed-state",),  # a replica that does not follow in this epoch delays the high watermark
)


LATE_FLUSH: Final = make_snapshot_check(
    anomaly="late-flush",
    meaning="a replica's log was not on its disk long after it had to be flushed",
    views=parse_views("""
        -- Replicas with records that are not on the disk.
        create view flush_lacking as
        select f.look, f.key, f.node, f.log_end, f.flush_ms
        from looks f left join rest_busy m on m.look = f.look and m.key = f.key
        where f.what = 'flushed' and m.key is null and (f.flushed < f.log_end or coalesce(f.unsynced, 0) > 0)
        """),
    violations=select_lasting(
        "flush_lacking",
        "key, node, log_end, flush_ms",
        "obedience_deadline",
        # `g`: the columns above, `d`: the contract's deadlines
        duration=f"d.obedience_deadline + {milliseconds('g.flush_ms')} * 1000000",
    ),
    evidence=f"""
        select f.key, f.node, f.log_end, f.flush_ms, f.since, f.until, f.deadline, s.flushed, s.unsynced
        from {first_rows_subquery("found_late_flush", "key, node")} f
            join looks s on s.look = f.last_look and s.what = 'flushed' and s.key = f.key and s.node = f.node
        {order_by("f.key, f.node")}
        """,
    claim="{node:capital} had a log of {key} that ends at offset {log_end} and said that [flushed<{log_end}?it is on "
    "its disk up to offset {flushed} only|all of it is on its disk, where a loss of power could have taken {unsynced} "
    "bytes], from {since:time} to {until:time}, with flush.ms={flush_ms} and no fault in force; the contract's "
    "deadline is {deadline:time}.",
)


STALE_METADATA: Final = make_snapshot_check(
    anomaly="stale-metadata",
    meaning="a broker's metadata still differed from ZooKeeper at the deadline",
    views=parse_views(f"""
        -- Brokers whose metadata differ from ZooKeeper.
        create view routing_lacking as
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
        """),
    violations=select_lasting("routing_lacking", "key, node, leader, replicas, members", "obedience_deadline"),
    evidence=f"""
        select f.key, f.node, f.leader, f.replicas, f.members, r.leader as said, r.replicas as said_replicas,
            r.members as said_members, f.since, f.until, f.deadline
        from {first_rows_subquery("found_stale_metadata", "key, node")} f
            left join looks r on r.look = f.last_look and r.what = 'routed' and r.key = f.key and r.node = f.node
        {order_by("f.key, f.node")}
        """,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{node:capital} answered [said_replicas?[said>-1?leader {said}|no leader], replicas {said_replicas}, in "
    "sync {said_members}|no such partition] for {key}, when ZooKeeper had [leader>-1?leader {leader}|no leader], "
    "replicas {replicas}, in sync {members} from {since:time} to {until:time}, and no fault was in force; the "
    "contract's deadline is {deadline:time}.",
    about=(ON_NODE,),  # subjects of a finding
    explained_by=("disobeyed-state", "unfinished-move"),
)
