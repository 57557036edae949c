"""Tables that the log checks share: sends, polls and their ranges, one row per known (value, offset), and lost values.

A poll *passes* offset o if begin <= o < end. Only a poll that ended ok, with a begin and an end, passes an offset; a
failed poll may have lost records on the way. A running sum over the bounds of the polls' ranges (+1 at begin, -1 at
end) counts the polls that passed an offset. It needs no range join. A value is gone from an offset if more polls passed
the offset than showed the value there, or if the drain settled at or below the offset.

The time of a poll does not matter: consumers read up to the high watermark, so the record at an offset is final once a
consumer is past it. The settled end is different, because sends that race with the sentinel may rightly get a higher
offset. So it counts only against records that were there before the sentinel was called.
"""

from typing import Final

from assay.checkers.check import Table, View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import sum_so_far

SENDS: Final = Table(
    "log_sends",
    """
    select op, sub, request, process, key, position, value, message_key, tombstone, call, ret, outcome, phase
    from log_effects where kind = 'append'
    """,
)

_RANGE_AGGREGATES: Final = """
        min(call) as call,
        max(case when kind = 'observe-begin' then position end) as first_offset,
        min(case when kind = 'observe-end' then position end) as next_offset,
        min(case when kind = 'observe' then greatest(position, 0) - sub end) as low,
        max(case when kind = 'observe' then greatest(position, 0) - sub end) as high,
        min(case when kind = 'observe' then position end) as least,
        max(case when kind = 'observe' then position end) as greatest_one,
        count(case when kind = 'observe' then 1 end) as records,
        count(case when kind = 'observe' and position is not null then value end) as valued,
        max(case when outcome = 'ok' then 0 else 1 end) as doubtful
"""
"""Aggregates over the rows of a poll. ``low``, ``high``: the least and the greatest difference of a record's offset and
its ``sub``; if they are equal, the offsets rise by one. ``least``, ``greatest_one``: the least and the greatest offset.
``valued``: the number of records with an offset and a value. ``doubtful``: 1 if a row did not end ok.
"""

_POLL_COLUMNS: Final = "e.op, e.sub, e.process, e.key, e.kind, e.position, e.value, e.call, e.ret, e.outcome, e.phase"

_RANGE_COLUMNS: Final = "first_offset, next_offset, call, low, high, least, greatest_one, records, valued, doubtful"

SETTLED: Final = Table(
    "log_settled",
    """
    select d.key, d.settled, min(s.call) as sentinel_call, min(s.op) as sentinel_op
    from (select key, max(position) as settled from log_effects
          where kind = 'drained' and outcome = 'ok' and position is not null group by key) d
        left join log_sends s on d.key = s.key and s.phase = 'sentinel' and s.outcome = 'ok'
            and s.position = greatest(d.settled, 0) - 1
    group by d.key, d.settled
    """,
)
"""By key, the end at which the drain settled, and the call of the sentinel below this end.

If the sentinel is unknown, the call is null, and the end proves nothing.
"""

LOCATIONS: Final = View(
    "log_locations",
    """
    select key, value, position, op, ret, coalesce(ret, call) as moment, 1 as acked from log_sends
    where outcome = 'ok' and position is not null and value is not null
    union all
    select key, value, position, op, ret, coalesce(ret, call), 0 from log_poll_rows
    where kind = 'observe' and position is not null
    """,
)
"""Each statement that a value is at an offset. Only evidence reads this view."""

LOG_VIEWS: Final = (
    SENDS,
    *parse_views(f"""
    -- Aggregates over all rows that an operation read of a key. Nearly always the rows belong to one poll.
    create table log_reads as
    select op, key, min(sub) as first_row, min(case when kind = 'observe-begin' then sub end) as first_begin,
        cast(sum(case when kind = 'observe-begin' then 1 else 0 end) as bigint) as polls, {_RANGE_AGGREGATES}
    from log_effects where kind in ('observe-begin', 'observe', 'observe-end') and key is not null group by op, key

    -- Operations whose rows of a key are several polls, or begin before the first poll. Nearly always there are none.
    create table log_multi_polls as
    select op, key from log_reads where polls <> 1 or first_begin > first_row

    -- Rows of such operations.
    create view log_multi_poll_rows as
    select {_POLL_COLUMNS},
        {sum_so_far("case when e.kind = 'observe-begin' then 1 else 0 end", by="e.op, e.key", order="e.op, e.sub")}
        as segment
    from log_effects e join log_multi_polls u on e.op = u.op and e.key = u.key
    where e.kind in ('observe-begin', 'observe', 'observe-end')

    -- `segment` numbers the polls of one key inside one operation from 1. Rows before the first poll have 0. Nearly
    -- always there is one poll, so no rows need sorting.
    create view log_poll_rows as
    select {_POLL_COLUMNS}, cast(case when e.key is null then 0 else 1 end as bigint) as segment
    from log_effects e left join log_multi_polls u on e.op = u.op and e.key = u.key
    where e.kind in ('observe-begin', 'observe', 'observe-end') and u.op is null
    union all
    select * from log_multi_poll_rows

    -- Aggregates over each poll of such operations.
    create table log_multi_poll_ranges as
    select op, key, segment, {_RANGE_AGGREGATES} from log_multi_poll_rows where segment > 0 group by op, key, segment

    -- `passing`: the poll passes the offsets of its range. `plain`: each record has a value and an offset in the
    -- range, and the offsets rise by one from row to row, so no record was shown twice.
    create view log_polls as
    select op, key, segment, first_offset, next_offset, call, records,
        case when doubtful = 0 and first_offset >= 0 and first_offset < next_offset then 1 else 0 end as passing,
        case when low = high and least >= first_offset and greatest_one < next_offset and valued = records
            then 1 else 0 end as plain
    from (
        select op, key, cast(1 as bigint) as segment, {_RANGE_COLUMNS} from log_reads
        where polls = 1 and first_begin = first_row
        union all
        select op, key, segment, {_RANGE_COLUMNS} from log_multi_poll_ranges) as ranges

    -- Polls that pass the offsets of their range.
    create view log_passes as
    select op, key, segment, first_offset, next_offset, call from log_polls where passing = 1

    -- The few polls that do not show every record exactly once; the others need no join with their records.
    create table log_inexact_polls as
    select op, key, segment, passing, first_offset, next_offset from log_polls
    where records > 0 and (passing = 0 or plain = 0)

    -- The records that such polls showed in their range, each once.
    create view log_inexact_records as
    select p.key, p.value, p.position, p.op, p.segment
    from log_poll_rows p join log_inexact_polls s on p.op = s.op and p.key = s.key and p.segment = s.segment
    where s.passing = 1 and p.kind = 'observe' and p.value is not null
        and p.position >= s.first_offset and p.position < s.next_offset
    group by p.key, p.value, p.position, p.op, p.segment

    -- The (value, offset) pairs that each poll showed in its range, one row per pair. Only evidence reads this view.
    create view log_shown_records as
    select p.key, p.value, p.position, p.op, p.segment
    from log_poll_rows p left join log_inexact_polls s on p.op = s.op and p.key = s.key and p.segment = s.segment
    where p.kind = 'observe' and p.segment > 0 and s.op is null
    union all
    select key, value, position, op, segment from log_inexact_records

    -- One row for each (key, value, position). The position is null for sends without an acknowledged offset, and the
    -- value is null for undecodable records.
    -- - `any_acks`, `any_acked`, `any_ack_op`: number of acknowledgements, return and operation of the first one.
    -- `acks`, `acked`, `ack_op` count only acknowledgements with an offset.
    -- - `live`, `failed`: number of sends that may have happened, and of failed sends. `sentinel`: 1 for a sentinel.
    -- - `observed`, `drained`: number of records read, and of those read by the drain. `seen`, `seen_op`: return and
    -- operation of the first poll that read it. `shown`: number of polls that read it inside their range.
    -- Sends and records are grouped separately, because each has half of the aggregates, and most values have one row.
    create table log_value_offsets (high_cardinality) as
    with sent as (
        select key, value, position, count(any_acked) as any_acks, min(any_acked) as any_acked,
            min(any_ack_op) as any_ack_op, max(sentinel) as sentinel, count(live_call) as live,
            min(live_call) as live_call, count(*) - count(live_call) as failed, min(call) as any_call,
            min(op) as send_op
        from (
            select key, value, op, call, case when outcome = 'ok' then position end as position,
                case when outcome = 'ok' then coalesce(ret, {INFINITY}) end as any_acked,
                case when outcome = 'ok' then op end as any_ack_op,
                case when outcome = 'ok' and phase = 'sentinel' then 1 else 0 end as sentinel,
                case when outcome <> 'fail' then call end as live_call
            from log_sends where value is not null) as sends
        group by key, value, position),
    read as (
        select key, value, position, count(seen) as observed, cast(sum(drained) as bigint) as drained,
            min(seen) as seen, min(op) as seen_op, cast(sum(shown) as bigint) as shown
        from (
            select p.key, p.value, p.position, coalesce(p.ret, {INFINITY}) as seen, p.op,
                case when p.phase = 'drain' then 1 else 0 end as drained,
                case when p.segment > 0 and s.op is null then 1 else 0 end as shown
            from log_poll_rows p
                left join log_inexact_polls s on p.op = s.op and p.key = s.key and p.segment = s.segment
            where p.kind = 'observe'
            union all
            select key, value, position, null, null, 0, 1 from log_inexact_records) as records
        group by key, value, position)
    select s.key, s.value, s.position, s.any_acks, s.any_acked, s.any_ack_op,
        case when s.position is null then 0 else s.any_acks end as acks,
        case when s.position is null then null else s.any_acked end as acked,
        case when s.position is null then null else s.live_call end as acked_call,
        case when s.position is null then null else s.any_ack_op end as ack_op,
        s.sentinel, s.live, s.live_call, s.failed, s.any_call, s.send_op, coalesce(r.observed, 0) as observed,
        coalesce(r.drained, 0) as drained, r.seen, r.seen_op, coalesce(r.shown, 0) as shown
    from sent s left join read r
        on s.key = r.key and s.value = r.value and s.position is not distinct from r.position
    union all
    select r.key, r.value, r.position, 0, null, null, 0, null, null, null, null, 0, null, 0, null, null,
        r.observed, r.drained, r.seen, r.seen_op, r.shown
    from read r left join sent s
        on s.key = r.key and s.value = r.value and s.position is not distinct from r.position
    where s.key is null

    -- Sums over the offsets of each (key, value). `offsets`: number of offsets at which the value was acknowledged or
    -- read; `low`, `high`: the least and the greatest of them. `unplaced`: return of its first acknowledgement without
    -- an offset.
    create table log_values (high_cardinality) as
    select key, value,
        cast(sum(live) as bigint) as live, cast(sum(failed) as bigint) as failed, cast(sum(acks) as bigint) as acks,
        cast(sum(observed) as bigint) as observed, cast(sum(drained) as bigint) as drained,
        count(position) as offsets, min(position) as low, max(position) as high,
        min(case when position is null then any_acked end) as unplaced,
        coalesce(min(live_call), min(any_call)) as call, min(send_op) as send_op, min(seen_op) as seen_op
    from log_value_offsets group by key, value

    -- The highest log start that was reported of each key.
    create table log_starts as
    select key, max(position) as log_start from log_effects where kind = 'start' and position is not null group by key

    -- The offset of each message key's last value in compacted topics. `doubtful`: a later value is possible, because a
    -- value was sent more often than it is known at offsets.
    create view log_last_of_key as
    select s.key, s.message_key, max(p.position) as last_offset,
        max(case when v.live > v.offsets then 1 else 0 end) as doubtful
    from log_sends s join log_compacted c on s.key = c.key
        join log_values v on s.key = v.key and s.value = v.value
        left join log_value_offsets p on s.key = p.key and s.value = p.value
    where s.message_key is not null and s.outcome <> 'fail'
    group by s.key, s.message_key

    -- The offsets of last values, including those of tombstones if the contract keeps tombstones.
    create table log_last_values as
    select p.key, p.position
    from log_value_offsets p join log_compacted c on p.key = c.key
        join log_sends s on p.key = s.key and p.value = s.value
        join log_last_of_key l on s.key = l.key and s.message_key = l.message_key
        cross join log_declared d
    where l.doubtful = 0 and p.position = l.last_offset
        and (not coalesce(s.tombstone, false) or d.lasting_tombstones = 1)
    group by p.key, p.position

    -- The rows of `log_value_offsets`; `judged` is 0 if retention or compaction may have taken the offset.
    create view log_judged as
    select p.key, p.value, p.position, p.acks, p.acked, p.ack_op, p.any_acks, p.any_acked, p.any_ack_op, p.sentinel,
        p.observed, p.seen, p.seen_op, p.shown, c.key as compacted, coalesce(t.log_start, 0) as log_start,
        case when p.position < coalesce(t.log_start, 0) then 0
            when c.key is not null and k.key is null then 0 else 1 end as judged
    from log_value_offsets p
        left join log_starts t on p.key = t.key
        left join log_compacted c on p.key = c.key
        left join log_last_values k on p.key = k.key and p.position = k.position

    -- Every offset that a send or a poll ever reported, and the number of different values there (`held`).
    -- `least_shown`: the least number of polls that showed one of these values.
    create table log_offsets (high_cardinality) as
    select key, position, max(case when observed > 0 then 1 else 0 end) as observed, min(judged) as judged,
        cast(sum(case when acks + observed > 0 then 1 else 0 end) as bigint) as held,
        cast(sum(case when acks > 0 then 1 else 0 end) as bigint) as acked_values,
        cast(sum(case when observed > 0 then 1 else 0 end) as bigint) as observed_values,
        min(case when value is not null then shown end) as least_shown
    from log_judged where position is not null group by key, position

    -- How many polls passed each offset, how many of them after the last fault (`late_passes`), and how many values
    -- were acknowledged and observed there.
    create table log_pass_counts as
    select key, position, judged, acked_values, observed_values, least_shown, passes, late_passes from (
        select key, position, is_offset, judged, acked_values, observed_values, least_shown,
            {sum_so_far("delta", by="key", order="position, is_offset")} as passes,
            {sum_so_far("late", by="key", order="position, is_offset")} as late_passes
        from (
            select key, first_offset as position, 0 as is_offset, 1 as delta,
                case when call > since then 1 else 0 end as late, 0 as judged, 0 as acked_values, 0 as observed_values,
                cast(null as bigint) as least_shown from log_passes cross join exposure_bound
            union all
            select key, next_offset, 0, -1, case when call > since then -1 else 0 end, 0, 0, 0, null
            from log_passes cross join exposure_bound
            union all
            select key, position, 1, 0, 0, judged, acked_values, observed_values, least_shown from log_offsets
            ) as ends) as summed
    where is_offset = 1
    """),
    SETTLED,
    *parse_views(f"""
    -- The few offsets that may have lost a value. The others need no further query.
    create table log_suspect_offsets as
    select c.key, c.position, c.passes
    from log_pass_counts c left join log_settled t on c.key = t.key
    where c.passes > c.least_shown or c.position >= t.settled or c.position < 0

    -- Each (value, offset) that is gone: `passes_without` polls passed the offset and did not show the value, or the
    -- offset is at or above the settled end, or it is negative.
    create table log_gone_values as
    select p.key, p.value, p.position, p.acks, p.acked, p.ack_op, p.observed, p.seen, p.seen_op,
        c.passes - p.shown as passes_without,
        case when c.passes > p.shown or p.position < 0 then null else t.settled end as settled,
        case when c.passes > p.shown or p.position < 0 then null else t.sentinel_op end as sentinel_op
    from log_judged p
        join log_suspect_offsets c on p.key = c.key and p.position = c.position
        left join log_settled t on p.key = t.key
    where p.value is not null and ((p.position < 0 and p.acks > 0)
        or (p.judged = 1 and (c.passes > p.shown or (p.position >= t.settled
            and least(coalesce(p.acked, {INFINITY}), coalesce(p.seen, {INFINITY})) < t.sentinel_call))))
    """),
)
"""The views in order of dependency. They also read ``log_compacted`` and ``log_declared``, which hold values of the
contract, and ``log_effects``: the effects without the records that the contract allows a log to lose (``unflushed``).
"""
