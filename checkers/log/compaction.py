"""Compaction keeps the last value of each key on every replica in the in-sync set.

The check reads the table ``replicas`` for topics that the contract calls compacted: the records below the high
watermark of each in-sync replica. A record's key is the key with which its value was sent. Keys with any tombstone are
left out because each replica deletes tombstones at its own time. The check catches a compaction that already considers
uncommitted records: it removes a value in favour of a record that a later truncation removes.
"""

from typing import Final

from assay.checkers.check import OFFSET, Check, Table
from assay.checkers.sql_idioms import select_first

LOST_LAST_VALUE: Final = Check(
    anomaly="lost-last-value",
    meaning="a replica in the in-sync set lacks the last value of a key of a compacted topic",
    views=(
        Table(
            "compacted_sends",
            """
            select e.key, e.message_key, e.value, min(e.op) as op,
                max(case when e.tombstone then 1 else 0 end) as tombstone
            from effects e join log_compacted c on c.key = e.key
            where e.kind = 'append' and e.message_key is not null and e.value is not null
            group by e.key, e.message_key, e.value
            """,
        ),
        Table(
            "compacted_records",
            """
            select r.key, r.node, r.position, r.value, s.op, s.message_key
            from replicas r join compacted_sends s on s.key = r.key and s.value = r.value
                left join (
                    select key, message_key from compacted_sends where tombstone = 1 group by key, message_key) t
                on t.key = s.key and t.message_key = s.message_key
            where r.below_hw and r.in_isr and r.high_watermark is null and t.key is null
            """,
        ),
        Table(
            "compacted_last",
            """
            select r.key, r.message_key, r.position, min(r.node) as witness, min(r.value) as value, min(r.op) as op
            from compacted_records r join (
                select key, message_key, max(position) as position from compacted_records
                group by key, message_key) l
                on l.key = r.key and l.message_key = r.message_key and l.position = r.position
            group by r.key, r.message_key, r.position
            """,
        ),
    ),
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
    about=(OFFSET,),
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness", "replica-divergence"),
    seen_again=True,
    optional=True,  # most workloads have no compacted topic
)
