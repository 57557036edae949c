"""Retention: which records deletion may remove, and log starts that go back.

1. A topic's limits are ``retention.ms`` and ``retention.bytes``. Effects of kind ``setting`` give them; before the
   first setting, the contract gives them. With an unknown limit, any record may have been deleted.
2. A limit holds from its setting's call until every server must obey a later acknowledged setting. Servers must obey
   once a period without faults has lasted for the contract's ``obedience_deadline``. A setting of unknown outcome may
   hold for ever.
3. Any limit that may have held between a record's creation and the report of the start may have caused the deletion, so
   the tightest limit counts.
4. By time: a record's age follows from its create time, by the senders' wall clock. That clock may be ahead of the
   harness's clock. The greatest lead of any create time is subtracted, so that no record seems younger than it is. The
   clocks of servers may differ from that clock by the contract's ``clock_difference``. If a fault set servers' clocks
   wrong, or tried to, servers may delete any record that has a time limit.
5. By size: the size of the log from the reported start on is estimated by an upper bound. It counts each send that did
   not fail.

A start goes back only if one incarnation of one node reports it in one leader epoch. Replicas delete on their own, so a
new leader's start may rightly be lower.

``stuck`` creates ``log_disturbances``, the intervals in which faults may have been active. ``views`` explains the other
tables of the log that this module reads but does not create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.sql_idioms import (
    HAS_BEGUN,
    ROWS_SO_FAR,
    extract_topic,
    first_rows_subquery,
    greatest_before,
    nanoseconds,
    order_by,
    row_number,
)

WRONG_CLOCKS: Final = f"""
    select count(*) as wrong from faults where {HAS_BEGUN} and coalesce(wrong_clock, true)
    """
"""SQL: the number of faults of clocks. If there are any, servers may delete records that are too young."""
CLOCK_LEAD: Final = f"""
    select max({nanoseconds("timestamp")} - call) as lead from log_effects
    where kind = 'append' and timestamp is not null
    """
"""SQL: the greatest lead of create times over the history's time. Null if no send has a create time."""

RETENTION_TABLES: Final = parse_views(f"""
    create table log_start_reports as
    select op, sub, process, key, position, leader_epoch as epoch, node, incarnation, call, ret
    from log_effects
    where kind = 'start' and outcome = 'ok' and position is not null and ret is not null

    -- The time from which every server must obey an acknowledged setting. Rows `c` are intervals without a fault.
    create table log_settings_obeyed as
    select t.topic, t.name, t.since, min(greatest(t.settled, c.since) + d.obedience_deadline) as obeyed
    from (
        select key as topic, name, call as since, ret as settled from effects
        where kind = 'setting' and outcome = 'ok' and ret is not null) t
        cross join (
            select since, coalesce(following, {INFINITY}) as until from (
                select max(until) over ({order_by("since, until")} {ROWS_SO_FAR}) as since,
                    lead(since) over ({order_by("since, until")}) as following
                from log_disturbances where since is not null) as faults
            union all
            select -1, coalesce(min(since), {INFINITY}) from log_disturbances) c
        cross join deadlines_declared d
    where c.since < {INFINITY} and greatest(t.settled, c.since) + d.obedience_deadline <= c.until
    group by t.topic, t.name, t.since

    -- Each limit that a topic had, and its latest possible interval. The value 0 is an unknown limit: it may take
    -- anything.
    create table log_limits (reads_other_keys) as
    select s.topic, s.name, s.since, min(case when t.since > s.settled then t.obeyed else {INFINITY} end) as until,
        case when s.value < 0 then {INFINITY} else s.value end as value
    from (
        select key as topic, name, call as since, op,
            case when outcome = 'ok' then coalesce(ret, {INFINITY}) else {INFINITY} end as settled,
            coalesce(value, case when name = 'retention.ms' then d.retention_ms else d.retention_bytes end, 0) as value
        from effects cross join log_declared d
        where kind = 'setting' and outcome <> 'fail' and name in ('retention.ms', 'retention.bytes')
        union all
        select k.topic, n.name, -1, -1, -1,
            coalesce(case when n.name = 'retention.ms' then d.retention_ms else d.retention_bytes end, 0)
        from (select {extract_topic("key")} as topic from (select key from log_values group by key) as keys
            group by {extract_topic("key")}) k
            cross join (select 'retention.ms' as name union all select 'retention.bytes') n cross join log_declared d) s
        left join log_settings_obeyed t on s.topic = t.topic and s.name = t.name
    group by s.topic, s.name, s.since, s.settled, s.value
    """)


_REPORTED: Final = "case when is_return = 1 then position end"
"""SQL: a reported start; null for the call of a request."""
_LEADERSHIP: Final = "key, node, incarnation, epoch"
"""The columns that identify an incarnation of a node as the leader in one epoch."""

LOG_START_REGRESSION: Final = Check(
    anomaly="log-start-regression",
    meaning="the start of a log went back on one node in one leader epoch",
    views=parse_views("""
        create view log_start_moments as
        select key, node, incarnation, epoch, ret as moment, 1 as is_return, op, sub, position
        from log_start_reports where node is not null and incarnation is not null and epoch is not null
        union all
        select key, node, incarnation, epoch, call, 0, op, sub, position
        from log_start_reports where node is not null and incarnation is not null and epoch is not null
        """),
    violations=f"""
        select key, node, incarnation, epoch, op, sub, position, former from (
            select key, node, incarnation, epoch, op, sub, is_return, position,
                {greatest_before(_REPORTED, by=_LEADERSHIP, order="moment, is_return, op, sub")} as former
            from log_start_moments) as moments
        where is_return = 0 and former > position
        """,
    evidence=f"""
        select key, node, epoch, start_op, position, former, former_op from (
            select f.key, f.node, f.epoch, f.op as start_op, f.sub, f.position, e.position as former, e.op as former_op,
                {row_number(by="f.op, f.sub", order="e.back, e.op, e.sub")} as rank
            from {first_rows_subquery("found_log_start_regression", "key, op, sub")} f
                join log_start_reports w on f.op = w.op and f.sub = w.sub
                join (select *, 0 - ret as back from log_start_reports) e
                    on f.key = e.key and f.node = e.node and f.incarnation = e.incarnation
                    and f.epoch = e.epoch and e.position > f.position
            where e.ret < w.call) as stated
        where rank = 1 {order_by("key, start_op, sub")}
        """,
    examined="""
        select count(*) as examined from log_start_reports
        where node is not null and incarnation is not null and epoch is not null
        """,
    kinds=("start",),
    claim="node {node} reported offset {former} as the start of {key} to {former_op} by {former_op:returned}, and "
    "then {position} to {start_op}, who asked at {start_op:called}, in the same leader epoch ({epoch}).",
    optional=True,  # a run without data for it may pass
)


def keep_undeletable(rows: str) -> str:
    """Returns SQL joins and a condition that keep only ``rows`` whose record no limit may delete during the run.

    ``rows`` has the columns ``key`` and ``timestamp`` of the record. The record was created at this time or later.
    """
    return f"""
        join (select topic, min(case when name = 'retention.ms' then value end) as ms,
                min(case when name = 'retention.bytes' then value end) as bytes
            from log_limits group by topic) l on {extract_topic(f"{rows}.key")} = l.topic
        cross join ({CLOCK_LEAD}) w cross join ({WRONG_CLOCKS}) c
        cross join (select max(coalesce(ret, call)) as ended from log_effects) n
        cross join (select clock_difference from log_declared) v
    where l.bytes = {INFINITY} and (l.ms = {INFINITY} or (c.wrong = 0
        and n.ended - ({nanoseconds(f"{rows}.timestamp")} - w.lead) + v.clock_difference < {nanoseconds("l.ms")}))
    """


# SQL: the tightest limit of the setting with this name.
_LEAST_OF: Final = "min(case when l.name = '{}' then l.value end)"


FORBIDDEN_DELETION: Final = Check(
    anomaly="forbidden-deletion",
    meaning="a log's start moved beyond a record that no limit allowed to delete",
    views=parse_views(f"""
        -- Starts above 0, each with its first report. The earlier the report, the younger were the deleted records.
        create table log_advanced_starts as
        select r.key, r.position, min(r.ret) as reported, min(r.op) as op
        from log_start_reports r left join log_compacted c on r.key = c.key
        where r.position > 0 and c.key is null group by r.key, r.position

        -- Earliest creation of each record, in the history's time, for keys with deletions.
        create view log_creation_times (reads_other_keys) as
        select p.key, p.value, p.position, min(b.created) - max(w.lead) as created
        from log_value_offsets p join (select key from log_advanced_starts group by key) a on p.key = a.key
            join (
                select key, value, {nanoseconds("min(timestamp)")} as created from log_effects
                where kind in ('append', 'observe') and value is not null and outcome <> 'fail'
                group by key, value having count(*) = count(timestamp)) b on p.key = b.key and p.value = b.value
            cross join ({CLOCK_LEAD}) w
        where p.position is not null group by p.key, p.value, p.position

        -- Creation of the youngest record below each of these starts.
        create view log_youngest_below as
        select key, position, reported, op, created from (
            select key, position, is_record, reported, op,
                {greatest_before("case when is_record = 1 then created end", by="key", order="position, is_record")}
                    as created
            from (
                select key, position, 0 as is_record, reported, op, cast(null as bigint) as created
                from log_advanced_starts
                union all
                select key, position, 1, null, null, max(created) from log_creation_times
                group by key, position) as points) as ordered
        where is_record = 0 and created is not null

        -- Starts above a record that was too young for every time limit. `ms`, `bytes`: the tightest limits that may
        -- have held.
        create table log_suspect_starts as
        select key, position, reported, op, created, ms, bytes from (
            select y.key, y.position, y.reported, y.op, y.created,
                {_LEAST_OF.format("retention.ms")} as ms, {_LEAST_OF.format("retention.bytes")} as bytes
            from log_youngest_below y join log_limits l on {extract_topic("y.key")} = l.topic
            where l.since <= y.reported and l.until >= y.created
            group by y.key, y.position, y.reported, y.op, y.created) as limited
            cross join ({WRONG_CLOCKS}) c cross join log_declared d
        where ms = {INFINITY} or (c.wrong = 0 and reported - created + d.clock_difference < {nanoseconds("ms")})

        -- The maximum number of bytes in the log from a start on. No row if a size is unknown.
        create view log_greatest_sizes as
        select t.key, t.position, cast(coalesce(sum(s.size), 0) as bigint) as max_bytes
        from log_suspect_starts t left join log_effects s on t.key = s.key and s.kind = 'append' and s.outcome <> 'fail'
            and s.call < t.reported and coalesce(s.position, {INFINITY}) >= t.position
        where t.bytes < {INFINITY}
        group by t.key, t.position having count(s.op) = count(s.size)
        """),
    violations=f"""
        select t.key, t.position as start, t.reported, t.op, t.created, t.ms, t.bytes, r.max_bytes
        from log_suspect_starts t left join log_greatest_sizes r on t.key = r.key and t.position = r.position
        where t.bytes = {INFINITY} or r.max_bytes < t.bytes
        """,
    evidence=f"""
        select f.key, f.start, f.reported, f.op as start_op, f.ms, f.bytes,
            f.max_bytes, b.position, min(b.value) as value, min(s.op) as send_op
        from {first_rows_subquery("found_forbidden_deletion", "key, start")} f
            join log_creation_times b on f.key = b.key and f.created = b.created and b.position < f.start
            join log_sends s on b.key = s.key and b.value = s.value and s.outcome <> 'fail'
        group by f.key, f.start, f.reported, f.op, f.ms, f.bytes, f.max_bytes, b.position
        {order_by("f.key, f.start, b.position")} limit {MOST_FINDINGS}
        """,
    examined="select count(*) as examined from log_start_reports",
    kinds=("start",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="value {value} at offset {position} of {key}, sent by {send_op} at {send_op:called}, lies below the start "
    f"{{start}} that {{start_op}} got at {{reported:time}}, though records are kept for [ms<{INFINITY}?{{ms}} "
    "ms|ever][max_bytes?, and of the {bytes} bytes that the log may hold at most {max_bytes} were there].",
    needs_close=True,  # proves nothing about a run that was cut short
    optional=True,  # a run without data for it may pass
)
