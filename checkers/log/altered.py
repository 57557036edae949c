"""Records that differ from what was sent: another create time, key or partition, or a topic that no longer exists.

- Create times are compared if every send of the value that may have happened has one. A missing message key differs
  from any key if the client recorded the create time, because such a client also records keys.
- A value at one offset is one record. So two polls must show equal records, even if nothing is known of the send.
- Another partition: the value was never sent to the partition where it was read, but was sent to another partition.
- ``resurrected``: the new topic's creation was acknowledged before the poll was called, and the value was sent to the
  same partition of the topic's earlier incarnation. The poll may name either incarnation.

``wrong_partition`` creates ``log_unsent`` and ``log_strays``, and ``views`` the other tables of the log that this
module reads but does not create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, VALUE, Check, parse_views
from assay.checkers.log.wrong_partition import DESTINATION, STRAYS
from assay.checkers.sql_idioms import (
    extract_incarnation,
    extract_topic,
    first_rows_subquery,
    order_by,
    select_first,
    strip_partition_incarnation,
    strip_topic_incarnation,
)

# SQL: whether a row is a send that may have happened; whether a row belongs to a value of `log_metadata_conflicts`; the
# columns that identify a record.
_MAY_BE_SENT: Final = "kind = 'append' and outcome <> 'fail'"

_SAME_VALUE: Final = "d.key = e.key and d.value = e.value"
_RECORD: Final = "s.key, s.value, s.position"


def _strip_prefix(message_key: str) -> str:
    """Returns SQL: a key of ``log_metadata`` without its prefix, null for no key."""
    return f"case when {message_key} <> '' then substring({message_key}, 2) end"


def _describe_record(side: str) -> str:
    return f"[create time {{{side}_time}} ms|no create time] and [key {{{side}_key:quoted}}|no key]"


ALTERED_RECORD: Final = Check(
    anomaly="altered-record",
    meaning="a record was read with another key, create time or partition than it was sent with",
    views=parse_views(f"""
        -- `message_key` has the prefix `=`, so that a missing key differs from an empty key. `silent`: neither a key
        -- nor a create time was recorded.
        create view log_metadata as
        select e.op, e.key, e.kind, e.position, e.value, e.outcome,
            e.timestamp, coalesce('=' || e.message_key, '') as message_key,
            case when e.timestamp is null and e.message_key is null then 1 else 0 end as silent
        from log_effects e join (
            select key from log_effects
            where kind = 'observe' and (timestamp is not null or message_key is not null) group by key) k
            on e.key = k.key
        where e.value is not null and e.kind in ('append', 'observe')

        -- The few values whose rows differ. `sends`: number of sends that may have happened. `untimed`: those without a
        -- create time. `silent`: those without create time and key. The other columns are the least and the greatest
        -- time and key that were sent and seen.
        create table log_metadata_conflicts (high_cardinality) as
        select key, value, sends, untimed, silent from (
            select key, value,
                cast(sum(case when {_MAY_BE_SENT} then 1 else 0 end) as bigint) as sends,
                cast(sum(case when {_MAY_BE_SENT} and timestamp is null then 1 else 0 end) as bigint) as untimed,
                cast(sum(case when {_MAY_BE_SENT} then silent else 0 end) as bigint) as silent,
                min(case when {_MAY_BE_SENT} then timestamp end) as sent_low,
                max(case when {_MAY_BE_SENT} then timestamp end) as sent_high,
                min(case when kind = 'observe' then timestamp end) as seen_low,
                max(case when kind = 'observe' then timestamp end) as seen_high,
                min(case when {_MAY_BE_SENT} and silent = 0 then message_key end) as sent_least,
                max(case when {_MAY_BE_SENT} and silent = 0 then message_key end) as sent_most,
                min(case when kind = 'observe' and silent = 0 then message_key end) as seen_least,
                max(case when kind = 'observe' and silent = 0 then message_key end) as seen_most
            from log_metadata group by key, value) as described
        where seen_least is not null and (seen_low <> seen_high or seen_low <> sent_low or seen_low <> sent_high
            or seen_least <> seen_most or seen_least <> sent_least or seen_least <> sent_most)

        -- The times and message keys that polls showed, for values with a row in `log_metadata_conflicts`.
        create table log_metadata_seen as
        select e.key, e.value, e.position, e.timestamp, e.message_key, min(e.op) as op
        from log_metadata e join log_metadata_conflicts d on {_SAME_VALUE}
        where e.kind = 'observe' and e.silent = 0 and e.position is not null
        group by e.key, e.value, e.position, e.timestamp, e.message_key

        -- The times and message keys with which these values were sent.
        create table log_metadata_sent as
        select e.key, e.value, e.timestamp, e.message_key, min(e.op) as op
        from log_metadata e join log_metadata_conflicts d on {_SAME_VALUE}
        where e.kind = 'append' and e.outcome <> 'fail' and e.silent = 0
        group by e.key, e.value, e.timestamp, e.message_key

        -- `what` says what differs from all sends: the time, the key or the partition. Or two polls differ (`twice`).
        create view log_alterations (reads_other_keys) as
        select {_RECORD}, 'time' as what, min(s.op) as op
        from log_metadata_seen s join log_metadata_conflicts d on s.key = d.key and s.value = d.value
            left join log_metadata_sent t on s.key = t.key and s.value = t.value and s.timestamp = t.timestamp
        where s.timestamp is not null and d.sends > 0 and d.untimed = 0 and t.key is null
        group by s.key, s.value, s.position
        union all
        select {_RECORD}, 'key', min(s.op)
        from log_metadata_seen s join log_metadata_conflicts d on s.key = d.key and s.value = d.value
            left join log_metadata_sent t on s.key = t.key and s.value = t.value and s.message_key = t.message_key
        where d.sends > 0 and d.silent = 0 and t.key is null
        group by s.key, s.value, s.position
        union all
        select {_RECORD}, 'twice', max(s.op)
        from log_metadata_seen s group by s.key, s.value, s.position
        having min(s.timestamp) <> max(s.timestamp) or min(s.message_key) <> max(s.message_key)
        union all
        select v.key, v.value, v.position, 'partition', v.seen_op
        from log_unsent v join log_sends s on v.value = s.value
        where s.outcome <> 'fail' and {strip_partition_incarnation("s.key")} <> {strip_partition_incarnation("v.key")}
        group by v.key, v.value, v.position, v.seen_op
        """),
    violations="""
        select key, value, position, min(what) as what, min(op) as op from (
            select key, value, position, what, op from log_alterations where what <> 'twice'
            union all
            select t.key, t.value, t.position, t.what, t.op
            from log_alterations t left join (
                select key, value, position from log_alterations where what <> 'twice'
                group by key, value, position) o
                on t.key = o.key and t.value = o.value and t.position = o.position
            where t.what = 'twice' and o.key is null) as found
        group by key, value, position
        """,
    evidence=f"""
        select f.key, f.value, f.position, f.what, f.op as seen_op,
            max(s.timestamp) as seen_time, {_strip_prefix("max(s.message_key)")} as seen_key,
            min(t.op) as send_op, min(t.timestamp) as sent_time, {_strip_prefix("min(t.message_key)")} as sent_key,
            min(a.op) as first_op, min(a.timestamp) as first_time, {_strip_prefix("min(a.message_key)")} as first_key,
            min(o.other_key) as other_key, min(o.send_op) as other_op, min(o.again) as again,
            coalesce(min(o.send_op), min(t.op), min(a.op)) as second_op
        from {first_rows_subquery("found_altered_record", "key, position, value")} f
            left join log_metadata_seen s
                on f.key = s.key and f.value = s.value and f.position = s.position and f.op = s.op
            left join log_metadata_seen a
                on f.key = a.key and f.value = a.value and f.position = a.position and f.op <> a.op
            left join log_metadata_sent t on f.key = t.key and f.value = t.value
            left join log_strays o on f.what = 'partition' and f.key = o.key and f.value = o.value and o.source = 1
        group by f.key, f.value, f.position, f.what, f.op {order_by("f.key, f.position, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined="select count(*) as examined from log_metadata where kind = 'observe'",
    kinds=("observe",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="value {value} was read at offset {position} of {key} by {seen_op} at {seen_op:called}[what=partition?, but "
    f"{DESTINATION}|what=twice? with {_describe_record('seen')}, and by {{first_op}} at {{first_op:called}} with "
    f"{_describe_record('first')}| with {_describe_record('seen')}, but {{send_op}} had sent it with "
    f"{_describe_record('sent')}].",
    operations=("seen_op", "second_op"),
    about=(VALUE, OFFSET, "[what=partition?value {value} of {other_key}]"),  # subjects of a finding
    needs_close=True,  # proves nothing about a run that was cut short
    optional=True,  # a run without data for it may pass
)


RESURRECTED: Final = Check(
    anomaly="resurrected",
    meaning="a record of a deleted topic was read after a new topic of that name was created",
    views=parse_views(f"""
        create table log_created_topics as
        select {strip_topic_incarnation("key")} as name, {extract_incarnation("key")} as incarnation, key as topic,
            min(ret) as since, min(op) as op
        from effects where kind = 'topic-create' and outcome = 'ok' and ret is not null
            and {extract_incarnation("key")} > 1
        group by key

        -- Each partition with its topic's name and incarnation. `partition_key`: the key without the incarnation.
        create view log_incarnations as
        select key, {strip_partition_incarnation("key")} as partition_key,
            {strip_topic_incarnation(extract_topic("key"))} as name,
            {extract_incarnation(extract_topic("key"))} as incarnation
        from log_values group by key

        -- `log.views` explains the counts of `log_values`: `live`, `failed` and `observed`.
        create table log_resurrected (reads_other_keys) as
        select w.key, w.value, w.key as former, c.topic, c.since, c.op as create_op, w.send_op
        from log_created_topics c join log_incarnations l on c.name = l.name join log_values w on l.key = w.key
        where c.incarnation > l.incarnation and w.live > 0 and w.observed > 0
        union all
        select v.key, v.value, f.key, c.topic, c.since, c.op, w.send_op
        from log_created_topics c join log_incarnations l on c.name = l.name and c.incarnation = l.incarnation
            join log_incarnations f on l.partition_key = f.partition_key join log_values v on l.key = v.key
            join log_values w on f.key = w.key and v.value = w.value
        where f.incarnation < l.incarnation and v.live = 0 and v.failed = 0 and v.observed > 0 and w.live > 0
        """),
    violations="""
        select r.key, r.value, r.former, min(r.topic) as topic, min(p.op) as op, min(p.position) as position,
            min(r.create_op) as create_op, min(r.send_op) as send_op
        from log_resurrected r join log_poll_rows p on r.key = p.key and r.value = p.value
        where p.kind = 'observe' and p.call > r.since
        group by r.key, r.value, r.former
        """,
    evidence=select_first("found_resurrected", "key, value, former", also="op as poll_op"),
    examined="select count(*) as examined from log_created_topics",
    kinds=("topic-create",),
    claim="value {value}, sent to {former}, was read from {key} by {poll_op} at {poll_op:called}, after {topic} had "
    "been created in its place (acknowledged to {create_op} at {create_op:returned}).",
    operations=("poll_op", "create_op", "send_op"),
    about=(VALUE, "[former={key}?|value {value} of {former}]", OFFSET),  # subjects of a finding
    needs_close=True,  # proves nothing about a run that was cut short
    optional=True,  # a run without data for it may pass
)
