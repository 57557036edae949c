"""Order of a log: rule U over the offsets, the offsets of one process's sends, and message sets that stay together.

Rule U (``docs/reference/anomalies.md``): give each operation its place in the object's order. No operation may have a
lower place than an x that had returned before its call. The history is linearizable iff this holds, so iff the greatest
call over all strictly smaller places never exceeds x.ret.

- There is one row per (value, offset). The value is there at the latest when its send was acknowledged with this
  offset, or when the first poll that showed it returned.
- An acknowledgement without an offset counts for the lowest offset at which its value was observed, if it was sent
  once. A value that was sent again may be there because of the other send.
- Records are placed at 2 * offset. Log end reads, if the contract declares them linearizable, are placed between them
  at 2 * end - 1.
- Offsets of 2^61 or more, or as far below 0, have no place here. No log has them; only damaged data claims them, and
  other checks report it.
"""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, View, capitalize_first, offset_of, value_of
from assay.checkers.engine import INFINITY, Row
from assay.checkers.log.ends import end_subject
from assay.checkers.log.views import SAID
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
from assay.checkers.times import seconds

PLACEABLE: Final = 2**61
"""Offsets whose absolute value is below this have a place that fits into 64 bits."""


def _is_placeable(position: str) -> str:
    return f"{position} < {PLACEABLE} and {position} > -{PLACEABLE}"


UNACKNOWLEDGED: Final = Table(
    "log_unacknowledged",
    "select key, value, position, seen from log_placed where acks = 0 and position is not null and value is not null",
)
"""The few values that were observed at an offset that no send reported."""

TIMELINE: Final = View(
    "log_timeline",
    f"""
    select key, 2 * position as place, acked_call as call,
        least(coalesce(acked, {INFINITY}), coalesce(seen, {INFINITY})) as ret, coalesce(seen, {INFINITY}) as seen
    from log_placed where {_is_placeable("position")} and value is not null and acks > 0
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
    """,
)

ACTED: Final = Table(
    "log_acted",
    """
    select op, key, min(call) as call, min(ret) as ret from effects
    where kind in ('append', 'observe', 'end') group by op, key
    """,
)

MOMENTS: Final = View(
    "log_moments",
    """
    select key, call as moment, 0 as is_return, min(op) as op from log_acted group by key, call
    union all
    select key, ret as moment, 1 as is_return, min(op) as op from log_acted where ret is not null group by key, ret
    """,
)
"""The operation of each call and return. Stamps strictly increase, so it is unique. Used for evidence alone."""

FOUND_AT: Final = View(
    "log_found_at",
    f"""
    select s.op, p.key, p.position, min(p.seen_op) as seen_op
    from log_placed p join log_sends s on p.key = s.key and p.value = s.value
    where p.acks = 0 and p.observed > 0 and {_is_placeable("p.position")}
    group by s.op, p.key, p.position
    """,
)
"""The operations that were shown the offset of a record whose own send did not report it."""


def _describe_known(place: int, key: str, when: str) -> str:
    """Says which record was in the log, or where the log ended, by a time."""
    if place % 2 == 0:
        return f"offset {place // 2} of {key} was there by {when}"
    return f"the log of {key} ended at {(place + 1) // 2} by {when}"


def _describe_late(place: int, key: str, who: str, when: str, *, hides_record: bool) -> str:
    """Says which lower record, or log end, an operation got that began later."""
    if place % 2 == 0:
        return f"the lower offset {place // 2} of {key} was filled by an operation of {who} that began only at {when}"
    without = ", which excludes this record" if hides_record else ""
    return f"{who}, which asked only at {when}, was answered that the log ends at {(place + 1) // 2}{without}"


def _filling_subject(position: int, key: str, op: int | None) -> str:
    """Returns the subject of a finding: this operation filled an offset after others had filled higher ones."""
    return f"offset {position} of {key} by operation {op}"


def _explain_real_time_order(row: Row, evidence: Evidence) -> Explanation:
    if row["overtaken"] == 1:
        low, late, known = row["earlier_place"], row["later_op"], row["known_op"]
        by = f"{evidence.returned(known)} ({evidence.who(known)})"
        hides_record = row["place"] % 2 == 0
        claim = (
            f"{_describe_known(row['place'], row['key'], by)}, but "
            f"{_describe_late(low, row['key'], evidence.who(late), evidence.called(late), hides_record=hides_record)}."
        )
        cause = end_subject(row["key"], late) if low % 2 else _filling_subject(low // 2, row["key"], late)
        offsets = (offset_of(row["key"], place // 2) for place in (row["place"], low) if place % 2 == 0)
        about = (cause, *offsets)
        operations = (row["known_op"], row["later_op"], row["later_seen_op"], row["known_seen_op"])
        return Explanation(capitalize_first(claim), operations, moments=(row["onset"],), about=about)
    claim = (
        f"offset {row['place'] // 2} of {row['key']} was read by {evidence.who(row['future_op'])} by "
        f"{seconds(row['future_ret'])}, before {evidence.who(row['future_send_op'])} began to send it at "
        f"{seconds(row['future_call'])}."
    )
    about = (offset_of(row["key"], row["place"] // 2),)
    return Explanation(capitalize_first(claim), (row["future_op"], row["future_send_op"]), about=about)


_FEW: Final = first_rows_subquery("found_real_time_order", "key, place")

REAL_TIME_ORDER: Final = Check(
    anomaly="real-time-order",
    meaning="an operation took effect before another that had already ended when it began",
    views=(
        UNACKNOWLEDGED,
        TIMELINE,
        Table(
            "found_real_time_order",
            f"""
            select key, place, called, returned, before, future_ret, future_call,
                case when before > returned then 1 else 0 end as overtaken
            from (
                select key, place, called, returned, future_ret, future_call,
                    {greatest_before("called", by="key", order="place")} as before
                from (
                    select key, place, max(call) as called, min(ret) as returned,
                        min(case when seen < call then seen end) as future_ret,
                        max(case when seen < call then call end) as future_call
                    from log_timeline group by key, place) as folded) as ordered
            where before > returned or future_ret is not null
            """,
            fine=True,
        ),
    ),
    evidence=f"""
        select f.key, f.place, f.overtaken, f.future_ret, f.future_call, k.op as known_op, l.op as later_op,
            r.op as future_op, c.op as future_send_op, n.spot as earlier_place, n.onset,
            y.seen_op as later_seen_op, x.seen_op as known_seen_op
        from {_FEW} f left join ({
        select_nearest_pairs(
            f'''
            select t.key, f.place, 0 as side, t.ret as moment, t.place as spot, t.place as op
            from {_FEW} f join log_timeline t on f.key = t.key and f.place = t.place
            where f.overtaken = 1 and t.ret < {INFINITY}
            union all
            select s.key, f.place, 0, s.ret, f.place, f.place
            from {_FEW} f join log_said s on f.key = s.key and f.place = 2 * s.position
            where f.overtaken = 1 and s.acked = 0 and s.value is not null and s.ret is not null
                and {_is_placeable('s.position')}
            union all
            select t.key, f.place, 1, t.call, t.place, t.place
            from {_FEW} f join log_timeline t on f.key = t.key and t.place < f.place
            where f.overtaken = 1 and t.call > f.returned
            ''',
            "key, place",
            carry="spot",
            rising=True,
        )
    }) n on f.key = n.key and f.place = n.place
            left join log_moments k on f.key = k.key and n.former_moment = k.moment and k.is_return = 1
            left join log_moments l on f.key = l.key and n.moment = l.moment and l.is_return = 0
            left join log_found_at x on f.key = x.key and k.op = x.op and f.place = 2 * x.position
            left join log_found_at y on f.key = y.key and l.op = y.op and n.spot = 2 * y.position
            left join log_moments r on f.key = r.key and f.future_ret = r.moment and r.is_return = 1
            left join log_moments c on f.key = c.key and f.future_call = c.moment and c.is_return = 0
        {order_by("f.key, f.place")}
        """,
    examined=f"select count(*) as examined from log_placed where {_is_placeable('position')} and value is not null",
    kinds=("append", "observe", "end"),
    explain=_explain_real_time_order,
    explained_by=("high-watermark-regression", "inconsistent-offset", "misplaced-ack"),
    seen_again=True,  # a late record comes after all records above it
    evidence_views=(SAID, ACTED, MOMENTS, FOUND_AT),
)


def _pair_subject(row: Row) -> str:
    """Returns the subject of a finding: two values that one process sent, one after the other."""
    return f"values {row['former_value']} and {row['value']} of {row['key']}"


def _list_records(row: Row) -> tuple[str, ...]:
    """Returns the known offsets of both values, and the values."""
    known = [offset_of(row["key"], row[name]) for name in ("position", "former") if row[name] is not None]
    return (*known, value_of(row["key"], row["value"]), value_of(row["key"], row["former_value"]))


def _explain_nonmonotonic_send(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"{evidence.who(row['op'])} sent value {row['value']} to {row['key']} at {evidence.called(row['op'])} and got "
        f"offset {row['position']}, below offset {row['former']} of the value {row['former_value']} that it had sent "
        f"before it ({evidence.called(row['former_op'])})."
    )
    about = (_filling_subject(row["position"], row["key"], row["op"]), _pair_subject(row), *_list_records(row))
    return Explanation(capitalize_first(claim), (row["op"], row["former_op"]), about=about)


NONMONOTONIC_SEND: Final = Check(
    anomaly="nonmonotonic-send",
    meaning="the offsets of one process's sends fall",
    views=(
        View(
            "log_send_pairs",
            f"""
            select op as op, sub, process, key, position, value,
                {previous("position", by="process, key", order="call, op, sub")} as former,
                {previous("value", by="process, key", order="call, op, sub")} as former_value,
                {previous("op", by="process, key", order="call, op, sub")} as former_op
            from log_sends where outcome = 'ok' and position is not null
            """,
        ),
        Table("found_nonmonotonic_send", "select * from log_send_pairs where position < former"),
    ),
    evidence=select_first("found_nonmonotonic_send", "key, op, sub", also="op as own_op"),
    examined=f"""
        select {total_of("sends - 1")} as examined from (
            select count(*) as sends from log_sends where outcome = 'ok' and position is not null
            group by process, key) as senders
        """,
    kinds=("append",),
    explain=_explain_nonmonotonic_send,
    explained_by=("inconsistent-offset", "misplaced-ack", "real-time-order", "send-skip"),
)


def _explain_send_skip(row: Row, evidence: Evidence) -> Explanation:
    about = (_pair_subject(row), *_list_records(row))
    if row["former"] is None:
        before = "nothing is before it" if row["other"] is None else f"the offset before it holds value {row['other']}"
        claim = (
            f"one message set of {evidence.who(row['op'])}, sent to {row['key']} at {evidence.called(row['op'])}, "
            f"was torn: value {row['value']} is at offset {row['position']}, but not after value "
            f"{row['former_value']}, which the set has before it: {before}."
        )
        return Explanation(capitalize_first(claim), (row["op"], row["seen_op"], row["other_op"]), about=about)
    claim = (
        f"one message set of {evidence.who(row['op'])}, sent to {row['key']} at {evidence.called(row['op'])}, "
        f"was split: value {row['former_value']} is at offset {row['former']}, the next one, {row['value']}, "
        f"at offset {row['position']}"
    )
    if row["apart"] > 0:
        claim += f", with {row['apart']} other known record{'s' if row['apart'] > 1 else ''} between them"
    return Explanation(capitalize_first(claim) + ".", (row["op"],), about=about)


SEND_SKIP: Final = Check(
    anomaly="send-skip",
    meaning="the values of one message set are not consecutive",
    views=(
        View(
            "log_set_pairs",
            f"""
            select op, sub, key, request, position, value, outcome,
                {previous("position", by="key, request", order="op, sub")} as former,
                {previous("value", by="key, request", order="op, sub")} as former_value,
                {previous("outcome", by="key, request", order="op, sub")} as former_outcome
            from log_sends where request is not null
            """,
        ),
        Table(
            "log_split",
            f"""
            select op, sub, key, request, position, value, former, former_value from log_set_pairs
            where outcome = 'ok' and former_outcome = 'ok' and {is_not_next("position", "former")}
            """,
        ),
        View(
            "log_known_ranks",
            f"""
            select key, position, cast({row_number(by="key", order="position")} as bigint)
                as known_rank
            from log_offsets
            """,
        ),
        Table(
            "log_set_parts",
            """
            select s.op, s.sub, s.key, s.request, p.position, s.value, s.former_value, p.seen_op
            from log_set_pairs s join log_placed p on s.key = p.key and s.value = p.value
                left join log_compacted c on s.key = c.key
                left join log_starts t on s.key = t.key
            where (s.outcome = 'info' or (s.outcome = 'ok' and s.position is null)) and s.former_value is not null
                and p.observed > 0 and c.key is null and p.position >= coalesce(t.log_start, 0)
            """,
        ),
        View(
            "log_torn",
            """
            select s.op, s.sub, s.key, s.request, s.position, s.value, s.former_value, min(s.seen_op) as seen_op,
                min(o.value) as other, min(o.op) as other_op
            from log_set_parts s
                left join (
                    select key, position, value, coalesce(min(ack_op), min(seen_op)) as op from log_placed
                    where acks > 0 or observed > 0 group by key, position, value) o
                    on s.key = o.key and o.position = greatest(s.position, 0) - 1
            group by s.op, s.sub, s.key, s.request, s.position, s.value, s.former_value
            having (count(o.value) > 0 or s.position = 0)
                and count(case when o.value = s.former_value then 1 end) = 0
            """,
        ),
        Table(
            "found_send_skip",
            """
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
        ),
    ),
    evidence=select_first("found_send_skip", "key, op, sub", also="op as own_op"),
    examined=f"""
        select {total_of("sends - 1")} as examined from (
            select count(*) as sends from log_sends
            where outcome = 'ok' and position is not null and request is not null group by key, request) as sets
        """,
    kinds=("append",),
    lacks="no send of several values in one message set was acknowledged with their offsets",
    explain=_explain_send_skip,
    explained_by=("inconsistent-offset", "misplaced-ack"),
)
