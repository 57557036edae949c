"""Fetches that were answered wrongly: rejected although the offset was in the log, or answered too early or too late.

``out-of-range``: the answer to a fetch at ``position`` was OFFSET_OUT_OF_RANGE. The rejected consumer must choose a new
position, so it may skip records or read records again. In these cases the answer may be right and is not judged:

- The log's start may have moved: a start above 0 was reported, nodes deleted segments of the partition, or the topic
  was deleted.
- The log's end may have moved back: a power loss may cut the log (the contract declares ``unflushed``).

The offset is certainly in the log if one of these happened before the fetch was called:

- A record at the offset, above it or directly below it was acknowledged or read.
- A log end at or above the offset was reported.

``waited``: a fetch at ``position``, the end of the log, was allowed to wait ``max_wait_ms`` for a single record. It was
answered after ``waited_ms``, measured by the client's own clock, and was ``empty`` or had records.

- *Late*: the answer came more than ``SLACK_MS`` after a record at the position or above was acknowledged, and more than
  ``SLACK_MS`` after the fetch began.
- *Early*: the answer had no records and came before half of the time was over.

Neither is reported if a fault was active during the operation or within ``SLACK_MS`` before it. If the tester itself
stood still, an answer may only seem late, so neither proves anything.

``stuck`` creates ``log_disturbances``, the intervals in which faults may have been active. ``ends`` creates
``log_ends``, the reported log ends. ``views`` explains the other tables of the log that this module reads but does not
create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import extract_topic, first_rows_subquery, order_by

# `o`: a rejected fetch. `w`: a statement that the log had reached the fetch's position before.
_WITNESS: Final = "o.key = w.key and w.moment < o.call and w.position >= o.position - w.margin"

FALSE_OUT_OF_RANGE: Final = Check(
    anomaly="false-out-of-range",
    meaning="a fetch was answered out of range, although its offset was in the log",
    views=parse_views(f"""
        -- Rejections in logs whose start and end certainly did not move.
        create table log_rejected_fetches (reads_other_keys) as
        select e.op, e.key, e.position, e.call
        from log_effects e cross join log_declared d
            left join log_starts t on e.key = t.key
            left join (select key from events where event in ('segment-deleted', 'log-start') group by key) x
                on e.key = x.key
            left join (select key from effects where kind = 'topic-delete' group by key) z
                on {extract_topic("e.key")} = z.key
        where e.kind = 'out-of-range' and e.position >= 0 and d.unflushed = 0
            and coalesce(t.log_start, 0) = 0 and x.key is null and z.key is null

        -- Statements that the log reached a position. With a `margin` of 1, a record directly below the offset is
        -- enough, because the fetch may be at the log's end. `log.views` explains the columns of `log_value_offsets`.
        create view log_witnesses as
        select p.key, p.position, least(coalesce(p.acked, {INFINITY}), coalesce(p.seen, {INFINITY})) as moment,
            coalesce(p.ack_op, p.seen_op) as op, 1 as margin, 'known' as how
        from log_value_offsets p join (select key from log_rejected_fetches group by key) k on p.key = k.key
        where p.position is not null and p.acks + p.observed > 0
        union all
        select n.key, n.position, n.ret, n.op, 0, 'reported as its end'
        from log_ends n join (select key from log_rejected_fetches group by key) k on n.key = k.key
        """),
    violations=f"""
        select o.key, o.op, o.position, min(w.position) as known
        from log_rejected_fetches o join log_witnesses w on {_WITNESS}
        group by o.key, o.op, o.position
        """,
    evidence=f"""
        select f.key, f.op as poll_op, f.position, f.known, min(w.op) as known_op, min(w.how) as how
        from {first_rows_subquery("found_false_out_of_range", "key, op, position")} f
            join log_rejected_fetches o on f.key = o.key and f.op = o.op and f.position = o.position
            join log_witnesses w on {_WITNESS} and w.position = f.known
        group by f.key, f.op, f.position, f.known
        {order_by("f.key, f.op, f.position")}
        """,
    examined="select count(*) as examined from log_rejected_fetches",
    kinds=("out-of-range",),
    claim="{poll_op:capital} was answered at {poll_op:returned} that offset {position} of {key} is not in the log, "
    "but offset {known} had been {how} before it asked ({known_op}, {known_op:called}), and nothing of it was ever "
    "deleted.",
    operations=("known_op", "poll_op"),
    about=("offset {known} of {key}",),  # subjects of a finding
    explained_by=("inconsistent-offset", "lost-write", "vanished"),
    optional=True,  # a run without data for it may pass
)


SLACK_MS: Final = 700
"""Milliseconds by which an answer may be late."""
_SLACK: Final = SLACK_MS * 1_000_000


UNTIMELY_ANSWER: Final = Check(
    anomaly="untimely-answer",
    meaning="a fetch that may wait got an empty answer too early, or its records too late",
    views=parse_views(f"""
        -- Fetches that may wait, if no fault was active (`log_disturbances`) during the operation or shortly before it.
        create table log_waited as
        select e.op, e.key, e.position, e.waited_ms, e.max_wait_ms, e.empty, e.ret
        from log_effects e left join log_disturbances f
            on f.since < e.ret and (f.until > e.call or e.call - f.until < {_SLACK})
        where e.kind = 'waited' and e.outcome = 'ok' and e.ret is not null and e.position is not null
            and f.since is null
        """),
    violations=f"""
        select w.op, w.key, w.position, w.waited_ms, w.max_wait_ms, min(p.position) as available
        from log_waited w join log_value_offsets p on w.key = p.key and p.position >= w.position
        where p.acks > 0 and w.waited_ms > {SLACK_MS} and w.ret - p.acked > {_SLACK}
        group by w.op, w.key, w.position, w.waited_ms, w.max_wait_ms
        union all
        select op, key, position, waited_ms, max_wait_ms, cast(null as bigint)
        from log_waited where empty and waited_ms + waited_ms < max_wait_ms
        """,
    evidence=f"""
        select f.key, f.op as poll_op, f.position, f.waited_ms, f.max_wait_ms, f.available, min(p.ack_op) as ack_op
        from {first_rows_subquery("found_untimely_answer", "key, op")} f
            left join log_value_offsets p on f.key = p.key and f.available = p.position and p.acks > 0
        group by f.key, f.op, f.position, f.waited_ms, f.max_wait_ms, f.available
        {order_by("f.key, f.op")}
        """,
    examined="select count(*) as examined from log_waited",
    kinds=("waited",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{poll_op:capital} asked for offset {position} of {key}, with {max_wait_ms} ms to wait for a record, and was "
    "answered at {poll_op:returned}, after {waited_ms} ms, [available?although offset {available} had been "
    "acknowledged to {ack_op} at {ack_op:returned}: too late|with nothing: too early].",
    about=("offset {available} of {key}",),  # subjects of a finding
    optional=True,  # a run without data for it may pass
    standstill=SLACK_MS / 2000,  # seconds: half of the slack
)
