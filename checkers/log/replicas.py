"""Records on the replicas' disks after a run: equal on all replicas, without holes, with the last value of each key.

The table ``replicas`` has the records of every replica's log, read after all replicas had rejoined. ``below_hw`` marks
the committed records. For an in-sync replica, these are the records below the leader's high watermark. For another
replica, they are the records below its own stored high watermark. The last row of each replica's log has the log start
and the high watermark that its node had stored.

- ``replica-divergence``: committed records at one offset must be equal. Only offsets that both replicas have are
  compared, so logs that begin at different offsets, and compacted logs, do not differ.
- ``replica-hole``: between log start and high watermark, an in-sync replica must have every offset that another replica
  has. A replica without a log start (a compacted log) is not judged.
- ``lost-last-value``: an in-sync replica of a compacted topic (``Contract.compacted``) must have the last value of each
  key. A record's key is the key with which its value was sent. Keys with a tombstone are not judged, because each
  replica deletes tombstones at its own time. The check detects a compaction that considers uncommitted records: it
  removes a value because of a later record, which a truncation then removes.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, Check, Family, OffsetRange, family_of, parse_views
from assay.checkers.sql_idioms import first_rows_subquery, order_by, select_first


def _describe_record(which: str) -> str:
    value = f"[value {{{which}_value}}|no value of the workload]"
    return f"{value} (crc {{{which}_crc}}[, epoch {{{which}_epoch}}]) on {{{which}_node}}"


REPLICA_DIVERGENCE: Final = Check(
    anomaly="replica-divergence",
    meaning="replicas hold different records below their high watermark",
    views=parse_views("""
        -- Committed records. `compared`, `unknown`: the value without null, so that two rows can be compared.
        create table replica_records as
        select key, position, node, value, epoch, coalesce(crc, -1) as crc, coalesce(value, -1) as compared,
            case when value is null then 1 else 0 end as unknown
        from replicas where below_hw
        """),
    violations="""
        select key, position, min(node) as node from replica_records group by key, position
        having min(crc) <> max(crc) or min(compared) <> max(compared) or min(unknown) <> max(unknown)
        """,
    evidence=f"""
        select f.key, f.position, l.node as one_node, l.value as one_value, l.crc as one_crc, l.epoch as one_epoch,
            h.node as other_node, h.value as other_value, h.crc as other_crc, h.epoch as other_epoch
        from (
            select f.key, f.position, f.node as one, min(b.node) as other
            from {first_rows_subquery("found_replica_divergence", "key, position")} f
                join replica_records a on f.key = a.key and f.position = a.position and f.node = a.node
                join replica_records b on f.key = b.key and f.position = b.position
            where a.crc <> b.crc or a.compared <> b.compared or a.unknown <> b.unknown
            group by f.key, f.position, f.node) f
            join replica_records l on f.key = l.key and f.position = l.position and f.one = l.node
            join replica_records h on f.key = h.key and f.position = h.position and f.other = h.node
        {order_by("f.key, f.position")}
        """,
    examined="""
        select count(*) as examined from (
            select key, position from replica_records group by key, position having count(*) > 1) as common
        """,
    claim=f"Offset {{position}} of {{key}} is {_describe_record('one')} and {_describe_record('other')}, below the "
    "high watermark of both, after all replicas had rejoined.",
    about=(OFFSET,),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness"),
)


REPLICA_HOLE: Final = Check(
    anomaly="replica-hole",
    meaning="a replica in the in-sync set lacks a record below its high watermark",
    views=parse_views("""
        -- The last row of each in-sync replica that is judged: log start and high watermark.
        create table hole_members as
        select r.key, r.node, r.log_start, r.high_watermark
        from replicas r left join log_compacted c on r.key = c.key
        where r.in_isr and r.log_start is not null and r.high_watermark is not null and c.key is null

        -- The records of all replicas.
        create view hole_records as
        select key, node, position from replicas where high_watermark is null

        -- Offsets that an in-sync replica lacks, and another replica that has them.
        create table hole_offsets as
        select m.key, m.node, m.log_start, m.high_watermark, o.position, o.witness
        from hole_members m
            join (select key, position, min(node) as witness from hole_records group by key, position) o
            on m.key = o.key and o.position >= m.log_start and o.position < m.high_watermark
            left join hole_records h on m.key = h.key and m.node = h.node and o.position = h.position
        where h.key is null
        """),
    violations="""
        select key, node, log_start, high_watermark, count(*) as missing, min(position) as position,
            max(position) as last
        from hole_offsets group by key, node, log_start, high_watermark
        """,
    evidence=f"""
        select f.key, f.node, f.log_start, f.high_watermark, f.missing, f.position, f.last, o.witness,
            case when f.missing = f.last - f.position + 1 then f.last end as last_of_block
        from {first_rows_subquery("found_replica_hole", "key, node")} f
            join hole_offsets o on f.key = o.key and f.node = o.node and f.position = o.position
        {order_by("f.key, f.node")}
        """,
    examined="select count(*) as examined from hole_members",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{node}, a member of the in-sync set, lacks [missing>1?{missing} offsets from {position} to {last}|offset "
    "{position}] of {key}, which {witness} has, between its log start {log_start} and its high watermark "
    "{high_watermark}.",
    about=(OffsetRange("position", "last_of_block"),),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness", "replica-divergence"),
    seen_again=True,  # one cause may be reported several times
)


LOST_LAST_VALUE: Final = Check(
    anomaly="lost-last-value",
    meaning="a replica in the in-sync set lacks the last value of a key of a compacted topic",
    views=parse_views("""
        -- The sends to compacted topics, with the key of each value.
        create table compacted_sends as
        select e.key, e.message_key, e.value, min(e.op) as op,
            max(case when e.tombstone then 1 else 0 end) as tombstone
        from effects e join log_compacted c on c.key = e.key
        where e.kind = 'append' and e.message_key is not null and e.value is not null
        group by e.key, e.message_key, e.value

        -- Records of in-sync replicas whose key has no tombstone.
        create table compacted_records as
        select r.key, r.node, r.position, r.value, s.op, s.message_key
        from replicas r join compacted_sends s on s.key = r.key and s.value = r.value
            left join (
                select key, message_key from compacted_sends where tombstone = 1 group by key, message_key) t
            on t.key = s.key and t.message_key = s.message_key
        where r.below_hw and r.in_isr and r.high_watermark is null and t.key is null

        -- The last record of each key on any in-sync replica.
        create table compacted_last as
        select r.key, r.message_key, r.position, min(r.node) as witness, min(r.value) as value, min(r.op) as op
        from compacted_records r join (
            select key, message_key, max(position) as position from compacted_records
            group by key, message_key) l
            on l.key = r.key and l.message_key = r.message_key and l.position = r.position
        group by r.key, r.message_key, r.position
        """),
    violations="""
        select l.key, m.node, l.message_key, l.position, l.value, l.witness, l.op as send_op
        from compacted_last l
            join (
                select key, node from replicas where in_isr and high_watermark is not null group by key, node) m
            on m.key = l.key
            left join compacted_records r on r.key = l.key and r.node = m.node and r.position = l.position
        where r.key is null
        """,
    evidence=select_first("found_lost_last_value", "key, position, node"),
    examined="select count(*) as examined from compacted_last",
    claim="{node:capital}, a member of the in-sync set, lacks value {value} at offset {position} of {key}, the last "
    "one of the message key {message_key}, which {witness} has; it was sent by {send_op}.",
    about=(OFFSET,),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness", "replica-divergence"),
    seen_again=True,  # one cause may be reported several times
    optional=True,  # most workloads have no compacted topic
)

REPLICAS: Final = Family("replicas", checks=(REPLICA_DIVERGENCE,), applies="select count(*) as examined from replicas")
REPLICA_ANOMALIES: Final = REPLICAS.anomalies
MISSING_RECORDS: Final = family_of(REPLICA_HOLE, LOST_LAST_VALUE, applies="replicas where high_watermark is not null")
