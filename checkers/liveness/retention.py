"""Expired segments are deleted within the contract's retention deadline, counted from the broker's next check.

The check judges the oldest segment of each replica on a disk. The segment must be sealed (another segment follows it)
and be below the replica's high watermark. A damaged log has no high watermark.

- By time, a segment is due when its greatest timestamp is older than ``retention.ms`` plus the broker's check interval.
  A segment that has a message without a timestamp is not judged by time.
- By size, a segment is due when all later segments together have at least ``retention.bytes``.

Timestamps are compared with the look's time of day by the slowest clock of a node. No fault shifts a clock then.

``snapshots`` explains looks and the kinds of their rows (``what``), and creates ``rest_looks`` (the looks that count).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import parse_views
from assay.checkers.liveness.snapshots import make_snapshot_check, select_lasting
from assay.checkers.sql_idioms import extract_topic, first_rows_subquery, milliseconds, order_by

_EXPIRED: Final = f"""
    t.retention_ms >= 0 and s.timestamp >= 0 and s.timestamp
        < l.wall_ms - {milliseconds("t.retention_ms")} - {milliseconds("t.retention_check_ms")}
"""
"""SQL: the segment ``s`` is due by time. ``t``: the row of its topic. ``l``: the look, with its time of day."""


RETENTION_UNDONE: Final = make_snapshot_check(
    anomaly="retention-undone",
    meaning="an expired segment was not deleted by the deadline",
    views=parse_views(f"""
        -- Only partitions whose leader is registered at that look (`rest_led`) and that are neither moved nor deleted
        -- (`rest_busy`). `wait`: the most nanoseconds until the broker's next check. It is 0 for a segment that is due
        -- by time, because `_EXPIRED` already adds this interval to the retention.
        create view retention_due as
        select s.look, s.key, s.node, s.base_offset, t.retention_ms, t.retention_bytes,
            case when {_EXPIRED} then 0
                else {milliseconds("t.retention_check_ms")} * 1000000 end as wait
        from looks s
            join rest_looks l on l.look = s.look
            join (
                select look, node, key, min(base_offset) as oldest, max(base_offset) as active,
                    cast(sum(size) as bigint) as size
                from looks where what = 'segment' group by look, node, key) w
                on w.look = s.look and w.node = s.node and w.key = s.key and w.oldest = s.base_offset
            join rest_led p on p.look = s.look and p.key = s.key
            join looks f on f.look = s.look and f.what = 'folder' and f.key = s.key and f.node = s.node
                and f.zxid = p.zxid
            join looks t on t.look = s.look and t.what = 'topic' and t.key = {extract_topic("s.key")}
                and t.zxid = p.zxid
            join looks r on r.look = s.look and r.what = 'role' and r.key = s.key and r.node = s.node
            left join rest_busy m on m.look = s.look and m.key = s.key
        where s.what = 'segment' and w.oldest < w.active and s.end_offset <= r.high_watermark and m.key is null and (
            ({_EXPIRED})
            or (t.retention_bytes >= 0 and w.size - s.size >= t.retention_bytes))
        """),
    violations=select_lasting(
        "retention_due",
        "key, node, base_offset, retention_ms, retention_bytes, wait",
        "retention_deadline",
        duration="d.retention_deadline + g.wait",
    ),
    evidence=f"""
        select f.key, f.node, f.base_offset, s.end_offset, f.retention_ms, f.retention_bytes, f.since, f.until,
            f.deadline
        from {first_rows_subquery("found_retention_undone", "key, node")} f
            join looks s on s.look = f.last_look and s.what = 'segment' and s.key = f.key and s.node = f.node
                and s.base_offset = f.base_offset
        {order_by("f.key, f.node")}
        """,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{node} kept the segment of {key} from offset {base_offset} to {end_offset} from {since:time} to "
    "{until:time}, when it was due by a retention of [retention_ms>-1?{retention_ms} ms[retention_bytes>-1? or "
    "{retention_bytes} bytes]|{retention_bytes} bytes]; the contract's deadline is {deadline:time}.",
)
