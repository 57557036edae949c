"""Records on the replicas' disks after a run must be equal wherever they count.

The table ``replicas`` has the records of every replica's log, read after all had rejoined. ``below_hw`` marks the
records that count: for an in-sync replica, those below the leader's high watermark; for another replica, those below
the high watermark that it had noted itself. Only common offsets are compared, so logs that begin at different offsets,
and compacted logs, agree.
"""

from typing import Final

from assay.checkers.check import OFFSET, Check, Family, Table
from assay.checkers.sql_idioms import first_rows_subquery, order_by


def _describe_record(which: str) -> str:
    value = f"[value {{{which}_value}}|no value of the workload]"
    return f"{value} (crc {{{which}_crc}}[, epoch {{{which}_epoch}}]) on {{{which}_node}}"


REPLICA_DIVERGENCE: Final = Check(
    anomaly="replica-divergence",
    meaning="replicas hold different records below their high watermark",
    views=(
        Table(
            "replicas_held",
            """
            select key, position, node, value, epoch, coalesce(crc, -1) as crc, coalesce(value, -1) as compared,
                case when value is null then 1 else 0 end as unknown
            from replicas where below_hw
            """,
        ),
    ),
    violations="""
        select key, position, min(node) as node from replicas_held group by key, position
        having min(crc) <> max(crc) or min(compared) <> max(compared) or min(unknown) <> max(unknown)
        """,
    evidence=f"""
        select f.key, f.position, l.node as low_node, l.value as low_value, l.crc as low_crc, l.epoch as low_epoch,
            h.node as high_node, h.value as high_value, h.crc as high_crc, h.epoch as high_epoch
        from (
            select f.key, f.position, f.node as low, min(b.node) as high
            from {first_rows_subquery("found_replica_divergence", "key, position")} f
                join replicas_held a on f.key = a.key and f.position = a.position and f.node = a.node
                join replicas_held b on f.key = b.key and f.position = b.position
            where a.crc <> b.crc or a.compared <> b.compared or a.unknown <> b.unknown
            group by f.key, f.position, f.node) f
            join replicas_held l on f.key = l.key and f.position = l.position and f.low = l.node
            join replicas_held h on f.key = h.key and f.position = h.position and f.high = h.node
        {order_by("f.key, f.position")}
        """,
    examined="""
        select count(*) as examined from (
            select key, position from replicas_held group by key, position having count(*) > 1) as common
        """,
    claim=f"Offset {{position}} of {{key}} is {_describe_record('low')} and {_describe_record('high')}, below the "
    "high watermark of both, after all replicas had rejoined.",
    about=(OFFSET,),
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness"),
)

REPLICAS: Final = Family("replicas", checks=(REPLICA_DIVERGENCE,), applies="select count(*) as examined from replicas")
REPLICA_ANOMALIES: Final = REPLICAS.anomalies
