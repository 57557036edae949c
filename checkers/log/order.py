"""Order of a log: real-time order of offsets, offsets of one process's sends, and message sets that stay together.

Rule U (``docs/reference/anomalies.md``): each operation has a place in the object's order. No operation may have a
lower place than an operation that had returned before its call. The history is linearizable iff, for each operation x,
no operation at a strictly lower place was called after x's return.

- There is one row per (value, offset). The value is at the offset as soon as its send was acknowledged with this
  offset, or the first poll that showed it there returned.
- An acknowledgement without an offset counts for the lowest offset at which its value was observed, if the value was
  sent once. If it was sent again, the other send may have put it there.
- The place of a record is 2 * offset. If the contract declares reads of the log end linearizable, their place is
  between two records: 2 * end - 1.
- Offsets whose absolute value is 2^61 or more have no place. Only damaged data has such offsets, and other checks
  report it.

``ends`` creates ``log_ends``, the reported log ends. ``views`` creates the other tables that these checks read, and
explains their columns.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, VALUE, Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.log.views import LOCATIONS
from assay.checkers.sql_idioms import (
    first_rows_subquery,
    greatest_before,
    is_not_next,
    order_by,
    previous,
    row_number,
    select_first,
    select_nearest_pairs,
    total_of,
)

PLACEABLE: Final = 2**61
"""Offsets whose absolute value is below this have a place that fits into 64 bits."""


def _is_placeable(position: str) -> str:
    return f"{position} < {PLACEABLE} and {position} > -{PLACEABLE}"


def _decode_place(place: str, name: str) -> str:
    """Returns SQL columns for a place: ``<name>_offset`` for a record, and ``<name>_end`` for a log end."""
    return (
        f"case when {place} % 2 = 0 then {place} >> 1 end as {name}_offset, "
        f"case when {place} % 2 <> 0 then ({place} + 1) >> 1 end as {name}_end"
    )


def _describe_filling(position: str, op: str) -> str:
    """Returns a subject: an offset and the operation that filled it later than higher offsets."""
    return f"offset {{{position}}} of {{key}} by operation {{{op}:number}}"


# Parts of the claim. `[condition?text|other text]` is a choice (`checkers.claims`); without a condition, its first text
# is used if none of the text's columns is null.
_LATE_END: Final = (
    "The end of {key} was reported as {late_end} ({later_op}, which asked at {later_op:called}), although "
    "[known_offset?offset {known_offset} had been [known_acked=1?acknowledged|read]|{known_end} had been reported] "
    "{gap:time} earlier ({known_op}, by {known_op:returned})"
)
_LATE_RECORD: Final = (
    "[Offset {known_offset} of {key} was there|The log of {key} ended at {known_end}] by {known_op:returned} "
    "({known_op}), but the lower offset {late_offset} of {key} was filled by an operation of {later_op} that began "
    "only at {later_op:called}"
)
_READ_BEFORE_SEND: Final = (
    "Offset {known_offset} of {key} was read by {future_op} by {future_ret:time}, before {future_send_op} began to "
    "send it at {future_call:time}"
)

_FIRST: Final = first_rows_subquery("found_real_time_order", "key, place")

REAL_TIME_ORDER: Final = Check(
    anomaly="real-time-order",
    meaning="an operation took effect before one that had returned before its call",
    views=parse_views(f"""
        -- The few values that were observed at an offset that no send reported.
        create table log_unacknowledged as
        select key, value, position, seen from log_value_offsets
        where acks = 0 and position is not null and value is not null

        -- Places with the call and the return of the operations there. `seen`: return of the first poll that showed the
        -- record. The second part has records whose send did not report the offset. The send's acknowledgement counts
        -- only if the value was sent once (`live`), this is its lowest offset (`low`), and no record may be lost
        -- (`unflushed` 0). `unplaced` is the return of the acknowledgement.
        create view log_timeline as
        select key, 2 * position as place, acked_call as call,
            least(coalesce(acked, {INFINITY}), coalesce(seen, {INFINITY})) as ret, coalesce(seen, {INFINITY}) as seen
        from log_value_offsets where {_is_placeable("position")} and value is not null and acks > 0
        union all
        select p.key, 2 * p.position, v.call,
            least(coalesce(p.seen, {INFINITY}),
                case when v.live = 1 and v.low = p.position and d.unflushed = 0 then coalesce(v.unplaced, {INFINITY})
                    else {INFINITY} end),
            coalesce(p.seen, {INFINITY})
        from log_unacknowledged p join log_values v on p.key = v.key and p.value = v.value
            cross join log_declared d
        where {_is_placeable("p.position")}
        union all
        select e.key, 2 * e.position - 1, e.call, e.ret, {INFINITY}
        from log_ends e cross join log_declared d where d.linearizable_ends = 1 and {_is_placeable("e.position")}

        -- `overtaken` 1: an operation at a lower place was called after a return at this place. Its call is
        -- `latest_call_below`: below by place, although it is later in time.
        -- `future_ret`: the return of a poll that showed the record before its send was called (`future_call`).
        create table found_real_time_order (high_cardinality) as
        select key, place, called, returned, latest_call_below, future_ret, future_call,
            case when latest_call_below > returned then 1 else 0 end as overtaken
        from (
            select key, place, called, returned, future_ret, future_call,
                {greatest_before("called", by="key", order="place")} as latest_call_below
            from (
                select key, place, max(call) as called, min(ret) as returned,
                    min(case when seen < call then seen end) as future_ret,
                    max(case when seen < call then call end) as future_call
                from log_timeline group by key, place) as folded) as ordered
        where latest_call_below > returned or future_ret is not null
        """),
    # `spot`: the place of each of the two nearest moments. `select_nearest_pairs` requires a column `op`, which repeats
    # the place here. The operations of the moments are looked up in `log_moments` afterwards.
    evidence=f"""
        select f.key, f.overtaken, f.future_ret, f.future_call, k.op as known_op, l.op as later_op,
            r.op as future_op, c.op as future_send_op, n.contradicted_at, n.earliest, e.op as earliest_op,
            case when s.op is null then 0 else 1 end as known_acked, n.moment - n.former_moment as gap,
            {_decode_place("f.place", "known")}, {_decode_place("n.spot", "late")},
            y.seen_op as later_seen_op, x.seen_op as known_seen_op
        from {_FIRST} f left join ({
        select_nearest_pairs(
            f'''
            select t.key, f.place, 0 as side, t.ret as moment, t.place as spot, t.place as op
            from {_FIRST} f join log_timeline t on f.key = t.key and f.place = t.place
            where f.overtaken = 1 and t.ret < {INFINITY}
            union all
            select s.key, f.place, 0, s.ret, f.place, f.place
            from {_FIRST} f join log_locations s on f.key = s.key and f.place = 2 * s.position
            where f.overtaken = 1 and s.acked = 0 and s.value is not null and s.ret is not null
                and {_is_placeable('s.position')}
            union all
            select t.key, f.place, 1, t.call, t.place, t.place
            from {_FIRST} f join log_timeline t on f.key = t.key and t.place < f.place
            where f.overtaken = 1 and t.call > f.returned
            ''',
            "key, place",
            carry="spot",
            known_first=True,
        )
    }) n on f.key = n.key and f.place = n.place
            left join log_moments k on f.key = k.key and n.former_moment = k.moment and k.is_return = 1
            left join log_moments l on f.key = l.key and n.moment = l.moment and l.is_return = 0
            left join (select key, op from log_sends group by key, op) s on f.key = s.key and k.op = s.op
            left join log_moments e on f.key = e.key and n.earliest = e.moment and e.is_return = 0
            left join log_unreported_offsets x on f.key = x.key and k.op = x.op and f.place = 2 * x.position
            left join log_unreported_offsets y on f.key = y.key and l.op = y.op and n.spot = 2 * y.position
            left join log_moments r on f.overtaken = 0 and f.key = r.key and f.future_ret = r.moment and r.is_return = 1
            left join log_moments c on f.overtaken = 0 and f.key = c.key and f.future_call = c.moment
                and c.is_return = 0
        {order_by("f.key, f.place")}
        """,
    examined=f"""
        select count(*) as examined from log_value_offsets where {_is_placeable("position")} and value is not null
        """,
    kinds=("append", "observe", "end"),
    claim=f"[overtaken=1?[late_end?{_LATE_END}|{_LATE_RECORD}]|{_READ_BEFORE_SEND}].",
    operations=("known_op", "later_op", "later_seen_op", "known_seen_op", "future_op", "future_send_op"),
    moments=("contradicted_at",),  # further times of cause and effect
    about=(
        _describe_filling("late_offset", "later_op"),
        "[late_end?end of {key} in operation {later_op:number}]",
        "offset {known_offset} of {key}",
        "offset {late_offset} of {key}",
    ),
    explained_by=("high-watermark-regression", "inconsistent-offset", "misplaced-ack"),
    seen_again=True,  # a late record contradicts every record above it
    evidence_views=(
        LOCATIONS,
        *parse_views(f"""
        create table log_operation_times as
        select op, key, min(call) as call, min(ret) as ret from effects
        where kind in ('append', 'observe', 'end') group by op, key

        -- The operation of each call and return, which is unique because times increase. Only evidence reads this view.
        create view log_moments as
        select key, call as moment, 0 as is_return, min(op) as op from log_operation_times group by key, call
        union all
        select key, ret as moment, 1 as is_return, min(op) as op from log_operation_times
        where ret is not null group by key, ret

        -- Records whose send did not report the offset: the send `op`, and the operation that showed the offset.
        create view log_unreported_offsets as
        select s.op, p.key, p.position, min(p.seen_op) as seen_op
        from log_value_offsets p join log_sends s on p.key = s.key and p.value = s.value
        where p.acks = 0 and p.observed > 0 and {_is_placeable("p.position")}
        group by s.op, p.key, p.position
        """),
    ),
)


_SUBJECTS: Final = (
    "values {former_value} and {value} of {key}",
    OFFSET,
    "offset {former} of {key}",
    VALUE,
    "value {former_value} of {key}",
)
"""The subjects of a finding about two consecutive values of one process."""


NONMONOTONIC_SEND: Final = Check(
    anomaly="nonmonotonic-send",
    meaning="the offsets of one process's sends fall",
    views=parse_views(f"""
        -- Acknowledged sends, each with the previous one of the same process.
        create view log_send_pairs as
        select op as op, sub, process, key, position, value,
            {previous("position", by="process, key", order="call, op, sub")} as former,
            {previous("value", by="process, key", order="call, op, sub")} as former_value,
            {previous("op", by="process, key", order="call, op, sub")} as former_op
        from log_sends where outcome = 'ok' and position is not null
        """),
    violations="select * from log_send_pairs where position < former",
    evidence=select_first("found_nonmonotonic_send", "key, op, sub", also="op as own_op"),
    examined=f"""
        select {total_of("sends - 1")} as examined from (
            select count(*) as sends from log_sends where outcome = 'ok' and position is not null
            group by process, key) as senders
        """,
    kinds=("append",),
    claim="{own_op:capital} sent value {value} to {key} at {own_op:called} and got offset {position}, below offset "
    "{former} of the value {former_value} that it had sent before it ({former_op:called}).",
    about=(_describe_filling("position", "own_op"), *_SUBJECTS),  # subjects of a finding
    explained_by=("inconsistent-offset", "misplaced-ack", "real-time-order", "send-skip"),
)


SEND_SKIP: Final = Check(
    anomaly="send-skip",
    meaning="the values of one message set are not consecutive",
    views=parse_views(f"""
        -- Values of message sets, each with the previous value of its set.
        create view log_set_pairs as
        select op, sub, key, request, position, value, outcome,
            {previous("position", by="key, request", order="op, sub")} as former,
            {previous("value", by="key, request", order="op, sub")} as former_value,
            {previous("outcome", by="key, request", order="op, sub")} as former_outcome
        from log_sends where request is not null

        -- The few pairs that may contradict the order of a set: their offsets are not neighbours, or not both known.
        create table log_odd_set_pairs as
        select op, sub, key, request, position, value, outcome, former, former_value, former_outcome
        from log_set_pairs
        where (outcome = 'ok' and former_outcome = 'ok' and {is_not_next("position", "former")})
            or ((outcome = 'info' or (outcome = 'ok' and position is null)) and former_value is not null)

        -- Neighbours of a set that are not at neighbouring offsets.
        create table log_split as
        select op, sub, key, request, position, value, former, former_value from log_odd_set_pairs
        where outcome = 'ok' and former_outcome = 'ok' and {is_not_next("position", "former")}

        -- Known offsets, numbered without gaps.
        create view log_known_ranks as
        select key, position, cast({row_number(by="key", order="position")} as bigint)
            as known_rank
        from log_offsets

        -- Values of sets without known offsets, at the offsets where they were read.
        create table log_set_parts as
        select s.op, s.sub, s.key, s.request, p.position, s.value, s.former_value, p.seen_op
        from log_odd_set_pairs s join log_value_offsets p on s.key = p.key and s.value = p.value
            left join log_compacted c on s.key = c.key
            left join log_starts t on s.key = t.key
        where (s.outcome = 'info' or (s.outcome = 'ok' and s.position is null)) and s.former_value is not null
            and p.observed > 0 and c.key is null and p.position >= coalesce(t.log_start, 0)

        -- Values that were read at an offset that does not follow the previous value of their set.
        create view log_torn as
        select s.op, s.sub, s.key, s.request, s.position, s.value, s.former_value, min(s.seen_op) as seen_op,
            min(o.value) as other, min(o.op) as other_op
        from log_set_parts s
            left join (
                select key, position, value, coalesce(min(ack_op), min(seen_op)) as op from log_value_offsets
                where acks > 0 or observed > 0 group by key, position, value) o
                on s.key = o.key and o.position = greatest(s.position, 0) - 1
        group by s.op, s.sub, s.key, s.request, s.position, s.value, s.former_value
        having (count(o.value) > 0 or s.position = 0)
            and count(case when o.value = s.former_value then 1 end) = 0
        """),
    violations="""
        select s.op, s.sub, s.key, s.request, s.position, s.value, s.former, s.former_value,
            b.known_rank - a.known_rank - 1 as apart, cast(null as bigint) as seen_op,
            cast(null as bigint) as other, cast(null as bigint) as other_op
        from log_split s
            join log_known_ranks a on s.key = a.key and s.former = a.position
            join log_known_ranks b on s.key = b.key and s.position = b.position
        where b.known_rank - a.known_rank <> 1
        union all
        select op, sub, key, request, position, value, null, former_value, null, seen_op, other, other_op
        from log_torn
        """,
    evidence=select_first("found_send_skip", "key, op, sub", also="op as own_op"),
    examined=f"""
        select {total_of("sends - 1")} as examined from (
            select count(*) as sends from log_sends
            where outcome = 'ok' and position is not null and request is not null group by key, request) as sets
        """,
    kinds=("append",),
    lacks="no send of several values in one message set was acknowledged with their offsets",
    claim="One message set of {own_op}, sent to {key} at {own_op:called}, was [former?split: value {former_value} is "
    "at offset {former}, the next one, {value}, at offset {position}[apart>0?, with {apart} other known "
    "record[apart>1?s] between them]|torn: value {value} is at offset {position}, but not after value {former_value}, "
    "which the set has before it: [the offset before it holds value {other}|nothing is before it]].",
    operations=("own_op", "seen_op", "other_op"),
    about=(*_SUBJECTS,),  # subjects of a finding
    explained_by=("inconsistent-offset", "misplaced-ack"),
)
