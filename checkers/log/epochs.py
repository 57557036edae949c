"""Leader epochs: each begins with all records committed before it, and at the same offset on every replica.

The checks need no clocks. They read the nodes' events, effects of clients, and the disks after the run:

- ``became-leader`` (``key``, ``epoch``): ``position`` is the log end at which the epoch begins. ``high_watermark`` is
  the end of the records that the new leader knew to be committed.
- ``high-watermark`` (without a position): the end of the records that a leader or a follower knew to be committed in
  this epoch.
- ``isr-change``: the leader of this ``epoch`` proposed a joining replica. ``position`` is the replica's log end, and
  ``high_watermark`` that of the leader at this moment.
- an ``end`` or an acknowledged ``append`` with its epoch: committed in this epoch. An append without an epoch gets the
  last epoch in which its ``node`` led from that offset or below.
- a polled record: committed in the last epoch in which the answering ``node`` led, or earlier.
- ``replicas``: ``epoch`` and ``epoch_start`` of committed records (``below_hw``). A log that begins above offset 0 has
  moved the start of its first epoch there. So only starts above the first offsets of both replicas are compared, or all
  starts if both logs begin at 0.

Appends without an epoch and polls do not count if lines of the node's event log are missing. Topics of one name are
numbered (``orders-0``, and ``orders#2-0`` after ``orders`` was created again). Nodes and clients may have numbered them
differently, so effects of clients on such topics do not count.

``leader-completeness`` allows for these cases:

- A topic that a client tried to delete is not judged, because a replica may lead for a while after it deleted its log.
- The contract may allow the loss of unflushed records. Then each power loss may have taken ``Contract.unflushed`` of
  them.
- If one in-sync replica is enough (``min_insync``) and the set had shrunk to one, a power loss may have taken records
  that only this replica had. Such a partition is not judged.
- A partition loses nothing if each of its in-sync sets had a member that kept power and data in the whole run
  (``epoch_kept``), because this member had all committed records.

``member-completeness``: a replica that joins the in-sync set must have all committed records, because it may be the
next leader (KAFKA-7128). So its log must reach the leader's high watermark. The log must also reach the end of all
records that are known to be committed in earlier epochs, which a leader may not yet know. The exceptions above apply to
earlier epochs only.

``damaged-log``: a kill changes no file, and a power loss removes nothing that was fsynced. So a log never lacks records
that its node has recorded as durable, and all checksums are right. If a node finds damage, at a start or at a read, it
writes the event ``log-damaged`` (``key``; ``position``: where the undamaged part ends). Runs in which a fault changed
files, or may have changed files, are not judged.

``partition_state`` explains the broker numbers in ``isr`` and ``min_insync``. ``log_declared`` holds values of the
contract.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import EPOCH, Check, OffsetRange, family_of, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.log.partition_state import BROKERS, COMPLETE_EVENT_LOGS, STATES
from assay.checkers.log.replicas import MISSING_RECORDS
from assay.checkers.log.transitions import TRANSITIONS
from assay.checkers.sql_idioms import (
    HAS_BEGUN,
    count_in_list,
    first_rows_subquery,
    greatest_before,
    order_by,
    select_first,
    strip_end,
    strip_incarnation,
    strip_topic_incarnation,
)

DAMAGED_LOG: Final = Check(
    anomaly="damaged-log",
    meaning="a node found its log damaged, although no fault had touched a file",
    violations=f"""
        select e.key, e.node, min(e.position) as position, min(e.time) as moment
        from events e cross join (
            select count(*) as many from faults where coalesce(damages_files, true) and {HAS_BEGUN}) f
        where e.event = 'log-damaged' and e.key is not null and f.many = 0
        group by e.key, e.node
        """,
    evidence=select_first("found_damaged_log", "key, node"),
    examined="select count(*) as examined from events where event = 'recovered'",
    claim="{node} found its log of {key} damaged from offset {position} on, although no fault had touched a file of "
    "it.",
    time="moment",
)

DAMAGE: Final = family_of(DAMAGED_LOG, applies="events where event = 'recovered'")

_COMMITTED_BEFORE: Final = f"""
            left join epoch_kept k on k.key = l.key cross join log_declared d cross join (
                select count(*) as losses from (select id from faults where loses_unsynced and {HAS_BEGUN} group by id)
                    as power_losses) p
        where l.before - case when k.key is null then d.unflushed * p.losses else 0 end"""
"""SQL: joins, and the left side of a comparison.

The left side is the end of all records committed before an epoch (a row ``l`` of ``epoch_levels``), minus the number of
records that power losses may have taken.
"""


def _select_evidence(found: str, event: str) -> str:
    """Returns SQL: each violation, with the last earlier epoch (``former``) in which the records below ``before`` were
    known to be committed.

    ``announcer`` and ``end_op`` are the node and the operation that knew of it; ``node`` is that of the ``event``.
    """
    return f"""
        select f.key, f.epoch, f.position, f.before, f.before - 1 as last, f.former,
            min(m.node) as announcer, min(m.op) as end_op, min(e.node) as node, min(e.time) as moment
        from (
            select f.key, f.epoch, f.position, f.before, max(m.epoch) as former
            from {first_rows_subquery(found, "key, epoch, position")} f
                left join epoch_marks m on f.key = m.key and f.before = m.mark and m.epoch < f.epoch
            group by f.key, f.epoch, f.position, f.before) f
            left join epoch_marks m on f.key = m.key and f.before = m.mark and f.former = m.epoch
            join events e on e.event = '{event}' and e.key = f.key and e.epoch = f.epoch and e.position = f.position
        group by f.key, f.epoch, f.position, f.before, f.former
        {order_by("f.key, f.epoch, f.position")}
        """


LEADER_COMPLETENESS: Final = Check(
    anomaly="leader-completeness",
    meaning="a leader began without records that had been committed in an earlier epoch",
    views=parse_views(f"""
        create view epoch_deleted as
        select {strip_topic_incarnation("key")} as topic from effects
        where kind = 'topic-delete' and outcome <> 'fail' group by {strip_topic_incarnation("key")}

        -- brokers that kept power and data in the whole run
        create view epoch_keepers as
        select n.broker from ({BROKERS}) n
            left join (select targets from faults where (loses_unsynced or damages_files) and {HAS_BEGUN}) f
                on instr(f.targets, concat('"', n.node, '"')) > 0 or f.targets not like '%"%'
        where f.targets is null

        -- Partitions whose in-sync sets each had a member that kept power and data.
        create view epoch_kept as
        select key from (
            select e.key, e.isr, max(case when k.broker is null then 0 else 1 end) as kept
            from (select key, isr from events where key is not null and isr <> '' group by key, isr) e
                left join epoch_keepers k
                    on concat(',', e.isr, ',') like concat('%,', cast(k.broker as string), ',%')
            group by e.key, e.isr) as sets
        group by key having min(kept) = 1

        -- partitions in which a power loss may have taken records that only one replica had
        create view epoch_single_replicas as
        select e.key from events e left join epoch_kept k on k.key = e.key cross join (
            select count(*) as losses from faults where loses_unsynced and {HAS_BEGUN}) p
        where p.losses > 0 and e.key is not null and k.key is null
        group by e.key having min(e.min_insync) = 1 and min({count_in_list("e.isr")}) <= 1

        -- Where each epoch begins, for partitions that are judged.
        create table epoch_begins as
        select e.key, e.epoch, min(e.position) as position
        from events e left join epoch_deleted d on {strip_end("e.key", "(#[0-9]+)?-[0-9]+")} = d.topic
            left join epoch_single_replicas a on a.key = e.key
        where e.event = 'became-leader' and e.key is not null and e.epoch is not null and e.position is not null
            and d.topic is null and a.key is null
        group by e.key, e.epoch

        -- partitions whose name only one topic had
        create view epoch_topics as
        select min(key) as key from epoch_begins group by {strip_incarnation("key")}
        having min(key) = max(key)

        -- Nodes whose event logs lack no line.
        create view epoch_nodes as
        {COMPLETE_EVENT_LOGS}

        -- acknowledged appends without an epoch, with the epoch in which their node led
        create table epoch_acks as
        select key, node, epoch, max(position) as position from (
            select key, node, position, is_ack,
                {greatest_before("epoch", by="key, node", order="position, is_ack")} as epoch
            from (
                select e.key, e.node, e.position, 1 as is_ack, cast(null as bigint) as epoch
                from effects e join epoch_topics t on e.key = t.key join epoch_nodes n on e.node = n.node
                where e.kind = 'append' and e.outcome = 'ok' and e.leader_epoch is null
                    and e.position is not null
                group by e.key, e.node, e.position
                union all
                select key, node, position, 0, max(epoch) from events
                where event = 'became-leader' and position is not null group by key, node, position) as steps
            ) as placed
        where is_ack = 1 and epoch is not null group by key, node, epoch

        -- the last record polled from each node, with the last epoch in which the node led
        create view epoch_shown as
        select s.key, s.node, s.position, max(b.epoch) as epoch
        from (
            select e.key, e.node, max(e.position) as position
            from effects e join epoch_topics t on e.key = t.key join epoch_nodes n on e.node = n.node
            where e.kind = 'observe' and e.outcome = 'ok' and e.position is not null group by e.key, e.node) s
            join events b on b.event = 'became-leader' and b.key = s.key and b.node = s.node
        where b.epoch is not null group by s.key, s.node, s.position

        -- each offset below which all records were known to be committed in an epoch (`mark`), and by whom
        create table epoch_marks as
        select key, epoch, high_watermark as mark, node, cast(null as bigint) as op
        from events
        where event in ('became-leader', 'high-watermark') and key is not null and epoch is not null
            and high_watermark is not null
        union all
        select e.key, e.leader_epoch,
            case when e.kind = 'append' then least(e.position, {INFINITY - 1}) + 1 else e.position end,
            cast(null as string), e.op
        from effects e join epoch_topics t on e.key = t.key
        where e.kind in ('end', 'append') and e.outcome = 'ok' and e.leader_epoch is not null
            and e.position is not null
        union all
        select a.key, a.epoch, least(a.position, {INFINITY - 1}) + 1, cast(null as string), min(e.op)
        from epoch_acks a join effects e on e.key = a.key and e.node = a.node and e.position = a.position
        where e.kind = 'append' and e.outcome = 'ok' and e.leader_epoch is null
        group by a.key, a.epoch, a.position
        union all
        select a.key, a.epoch, least(a.position, {INFINITY - 1}) + 1, cast(null as string), min(e.op)
        from epoch_shown a join effects e on e.key = a.key and e.node = a.node and e.position = a.position
        where e.kind = 'observe' and e.outcome = 'ok'
        group by a.key, a.epoch, a.position

        -- each epoch with its begin, and the end of all records committed in earlier epochs (`before`)
        create table epoch_levels as
        select key, epoch, position, {greatest_before("mark", by="key", order="epoch")} as before
        from (
            select key, epoch, min(position) as position, max(mark) as mark from (
                select key, epoch, position, cast(null as bigint) as mark from epoch_begins
                union all select key, epoch, null, mark from epoch_marks) as known
            group by key, epoch) as folded
        """),
    violations=f"""
        select l.key, l.epoch, l.position, l.before
        from epoch_levels l {_COMMITTED_BEFORE} > l.position
        """,
    evidence=_select_evidence("found_leader_completeness", "became-leader"),
    examined="select count(*) as examined from epoch_levels where position is not null",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{node} began to lead {key} in epoch {epoch} with a log that ends at offset {position}, although [{end_op}, "
    "called at {end_op:called}, had been answered that it goes to {before}|{announcer} had announced the high "
    "watermark {before}] in epoch {former}.",
    time="moment",
    about=("high watermark {before} of {key} in epoch {former}", OffsetRange("position", "last"), EPOCH),
    explained_by=("inconsistent-offset", "lost-write", "vanished"),
    seen_again=True,  # one cause may be reported several times
)


MEMBER_COMPLETENESS: Final = Check(
    anomaly="member-completeness",
    meaning="a replica joined the in-sync set without records that were committed",
    views=parse_views("""
        create view member_joins as
        select key, epoch, position, max(high_watermark) as mark from events
        where event = 'isr-change' and position is not null and epoch is not null group by key, epoch, position
        """),
    violations=f"""
        select key, epoch, position, max(before) as before from (
            select key, epoch, position, mark as before from member_joins
            union all
            select j.key, j.epoch, j.position, l.before from member_joins j
                join epoch_levels l on l.key = j.key and l.epoch = j.epoch and l.position is not null
                {_COMMITTED_BEFORE} > j.position) as known
        where before > position group by key, epoch, position
        """,
    evidence=_select_evidence("found_member_completeness", "isr-change"),
    examined="select count(*) as examined from member_joins",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{node:capital}, the leader of {key} in epoch {epoch}, let a replica into the in-sync set that had come to "
    "offset {position}, although [former?[{end_op} had been answered that the log goes to {before}|{announcer} had "
    "announced the high watermark {before}] in epoch {former}|its own high watermark was {before}].",
    time="moment",
    about=(OffsetRange("position", "last"),),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness"),
    optional=True,  # in some runs no replica leaves the in-sync set
)


EPOCH_HISTORY_DIVERGENCE: Final = Check(
    anomaly="epoch-history-divergence",
    meaning="replicas recorded different start offsets for one leader epoch",
    views=parse_views("""
        -- The first offset of each replica's log.
        create table epoch_firsts as
        select key, node, min(position) as first from replicas group by key, node

        -- The start of each epoch in each replica's log. `first`: the first offset of this log.
        create table epoch_starts as
        select r.key, r.epoch, r.node, r.epoch_start as start, min(f.first) as first
        from replicas r join epoch_firsts f on r.key = f.key and r.node = f.node
        where r.below_hw and r.epoch is not null and r.epoch_start is not null
        group by r.key, r.epoch, r.node, r.epoch_start

        -- The starts of one epoch in the logs of two replicas, if they can be compared.
        create view epoch_pairs as
        select a.key, a.epoch, a.node as one_node, a.start as one_start, b.node as other_node, b.start as other_start
        from epoch_starts a join epoch_starts b on a.key = b.key and a.epoch = b.epoch
        where a.node < b.node and ((a.first = 0 and b.first = 0)
            or (least(a.start, b.start) > greatest(a.first, b.first)))
        """),
    violations="""
        select key, epoch, min(one_node) as one_node from epoch_pairs where one_start <> other_start
        group by key, epoch
        """,
    evidence=f"""
        select f.key, f.epoch, f.one_node, p.other_node, min(p.one_start) as one_start,
            min(p.other_start) as other_start, least(min(p.one_start), min(p.other_start)) as first
        from (
            select f.key, f.epoch, f.one_node, min(p.other_node) as other_node
            from {first_rows_subquery("found_epoch_history_divergence", "key, epoch")} f
                join epoch_pairs p on f.key = p.key and f.epoch = p.epoch and f.one_node = p.one_node
            where p.one_start <> p.other_start group by f.key, f.epoch, f.one_node) f
            join epoch_pairs p on f.key = p.key and f.epoch = p.epoch and f.one_node = p.one_node
                and f.other_node = p.other_node
        where p.one_start <> p.other_start
        group by f.key, f.epoch, f.one_node, p.other_node {order_by("f.key, f.epoch")}
        """,
    optional=True,  # retention may have removed the beginning of a log, so no epoch start may be left
    examined="select count(*) as examined from epoch_pairs",
    claim="Epoch {epoch} of {key} begins at offset {one_start} by the history of {one_node} and at offset "
    "{other_start} by that of {other_node}, after all replicas had rejoined.",
    about=("offset {first} of {key}",),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness", "replica-divergence"),
)

COMPLETENESS: Final = family_of(
    LEADER_COMPLETENESS,
    MEMBER_COMPLETENESS,
    applies="events where event = 'became-leader' and high_watermark is not null",
)
EPOCH_HISTORIES: Final = family_of(EPOCH_HISTORY_DIVERGENCE, applies="replicas where epoch_start is not null")

REPLICATION: Final = (COMPLETENESS, EPOCH_HISTORIES, MISSING_RECORDS, DAMAGE, STATES, TRANSITIONS)
"""Separate families, so that a history without the input of one family is not reported as lacking data."""

REPLICATION_ANOMALIES: Final = tuple(name for family in REPLICATION for name in family.anomalies)
"""All anomalies of a log's replicas, found in their nodes' events and disks."""
