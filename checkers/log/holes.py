"""An in-sync replica has every committed offset of a log that is not compacted.

The check reads the table ``replicas``. The row at the end of each replica's log has the log start and the high
watermark that its node had noted. Between the two, an in-sync replica may lack no offset that another replica has. A
replica without a log start (a compacted log) is not judged.
"""

from typing import Final

from assay.checkers.check import Check, OffsetRange, Table, View, family_of
from assay.checkers.log.compaction import LOST_LAST_VALUE
from assay.checkers.sql_idioms import first_rows_subquery, order_by

REPLICA_HOLE: Final = Check(
    anomaly="replica-hole",
    meaning="a replica in the in-sync set lacks a record below its high watermark",
    views=(
        Table(
            "hole_members",
            """
            select r.key, r.node, r.log_start, r.high_watermark
            from replicas r left join log_compacted c on r.key = c.key
            where r.in_isr and r.log_start is not null and r.high_watermark is not null and c.key is null
            """,
        ),
        View("hole_records", "select key, node, position from replicas where high_watermark is null"),
        Table(
            "hole_offsets",
            """
            select m.key, m.node, m.log_start, m.high_watermark, o.position, o.witness
            from hole_members m
                join (select key, position, min(node) as witness from hole_records group by key, position) o
                on m.key = o.key and o.position >= m.log_start and o.position < m.high_watermark
                left join hole_records h on m.key = h.key and m.node = h.node and o.position = h.position
            where h.key is null
            """,
        ),
    ),
    violations="""
        select key, node, log_start, high_watermark, count(*) as missing, min(position) as position,
            max(position) as last
        from hole_offsets group by key, node, log_start, high_watermark
        """,
    evidence=f"""
        select f.key, f.node, f.log_start, f.high_watermark, f.missing, f.position, f.last, o.witness,
            case when f.missing = f.last - f.position + 1 then f.last end as whole
        from {first_rows_subquery("found_replica_hole", "key, node")} f
            join hole_offsets o on f.key = o.key and f.node = o.node and f.position = o.position
        {order_by("f.key, f.node")}
        """,
    examined="select count(*) as examined from hole_members",
    claim="{node}, a member of the in-sync set, lacks [missing>1?{missing} offsets from {position} to {last}|offset "
    "{position}] of {key}, which {witness} has, between its log start {log_start} and its high watermark "
    "{high_watermark}.",
    about=(OffsetRange("position", "whole"),),
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness", "replica-divergence"),
    seen_again=True,
)

HOLES: Final = family_of(REPLICA_HOLE, LOST_LAST_VALUE, applies="replicas where high_watermark is not null")
