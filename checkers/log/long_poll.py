"""Fetches that wait for new records: they are answered when there is one, or when their time is over.

``waited``: a fetch at ``position``, the end of the log, was allowed to wait ``max_wait_ms`` for a single record. It was
answered after ``waited_ms``, measured by the client's own clock, and was ``empty`` or had records.

- *Late*: the answer came more than ``SLACK_MS`` after a record at the position or above was acknowledged, and more than
  that after the fetch began.
- *Early*: the answer had no records and came before half of the time was over.

Neither is reported if a fault was in force during the operation or within ``SLACK_MS`` before it. A tester whose
process stood still also receives an answer late: in such a run neither proves anything.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.sql_idioms import first_rows_subquery, order_by

SLACK_MS: Final = 700
_SLACK: Final = SLACK_MS * 1_000_000


UNTIMELY_ANSWER: Final = Check(
    anomaly="untimely-answer",
    meaning="a fetch that may wait was answered too early with nothing, or too late with something to read",
    views=parse_views(f"""
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
    claim="{poll_op:capital} asked for offset {position} of {key}, with {max_wait_ms} ms to wait for a record, and was "
    "answered at {poll_op:returned}, after {waited_ms} ms, [available?although offset {available} had been "
    "acknowledged to {ack_op} at {ack_op:returned}: too late|with nothing: too early].",
    about=("offset {available} of {key}",),
    optional=True,
    standstill=SLACK_MS / 2000,
)
