"""Liveness of readers: a reader that polls without disturbance reaches every acknowledged record.

A reader (process, key, assignment) stays at a position while its polls end ok where they began. A poll counts only if
its operation returned no record of any partition, because records of other partitions may use up the size limit of the
response. Time counts from the latest of the record's acknowledgement, the end of the last fault, and the reader's
assignment. The reader is stuck if a poll was called after the contract's ``reading_deadline``, and at least
``MIN_POLLS`` such polls were called in the last half of this time.

``log.positions`` creates ``log_positions``. ``log.views`` creates ``log_reads``, ``log_judged`` and
``log_value_offsets``.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import VALUE, Check, View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.sql_idioms import EARLIEST_BEGIN, MAY_HAVE_BEGUN, ROWS_BEFORE, first_rows_subquery, order_by

MIN_POLLS: Final = 3
"""Minimum number of empty polls of a stuck reader."""

_READER_AT: Final = "p.process, p.key, p.assignment, p.position"
"""The columns that identify a reader at one position."""

DISTURBANCES: Final = View(
    "log_disturbances",
    f"""
    select {EARLIEST_BEGIN} as since,
        coalesce(max(case when phase = 'recovered' then time end), {INFINITY}) as until
    from faults group by id having {MAY_HAVE_BEGUN}
    """,
)
"""The interval in which each fault may have been active.

Several checks read this view, so it belongs to the family. A judgement of an interrupted run skips some checks, and
their own views with them.
"""


STUCK_READER: Final = Check(
    anomaly="stuck-reader",
    meaning="a reader did not reach an acknowledged record within the deadline",
    views=parse_views(f"""
        -- Polls that found nothing of a key, by reader and position.
        create view log_key_empty_polls as
        select p.process, p.key, p.assignment, p.position, p.op, p.call from log_positions p
        where p.kind = 'observe-end' and p.outcome = 'ok' and p.former_kind = 'observe-begin' and p.former_op = p.op
            and p.former = p.position and p.former_outcome = 'ok'

        -- The few readers that may have stayed in place for long; only their polls are examined.
        create table log_idle_readers as
        select p.process, p.key, p.assignment, p.position from log_key_empty_polls p cross join log_declared d
        group by {_READER_AT} having count(*) >= {MIN_POLLS}
            and max(p.call) - min(p.call) >= (max(d.reading_deadline) >> 1)

        -- Polls of such readers that found nothing of any key (`reads_other_keys`: a row depends on other keys, too).
        create view log_all_empty_polls (reads_other_keys) as
        select p.process, p.key, p.assignment, p.position, p.op, p.call
        from log_key_empty_polls p
            join log_idle_readers l on p.process = l.process and p.key = l.key and p.assignment = l.assignment
                and p.position = l.position
            join (select op from log_reads group by op having max(records) = 0) e on p.op = e.op

        -- Readers that found nothing at one position for long, mostly at the end of their log. `begun`: the return of
        -- the reader's first poll, seek or reset.
        create table log_stays as
        select s.process, s.key, s.assignment, s.position, s.last_call, c.begun
        from (
            select p.process, p.key, p.assignment, p.position,
                min(p.call) as first_call, max(p.call) as last_call, count(*) as polls
            from log_all_empty_polls p group by {_READER_AT}) s
            join (select process, key, assignment, min(ret) as begun from log_positions
                group by process, key, assignment) c
                on s.process = c.process and s.key = c.key and s.assignment = c.assignment
            cross join log_declared d
        where s.polls >= {MIN_POLLS} and s.last_call - s.first_call >= (d.reading_deadline >> 1) and c.begun is not null

        -- Readers below an acknowledged record; `acked`: when the first such record was acknowledged. `back` sorts the
        -- positions from the end of the log to its begin.
        create view log_waiting_readers as
        select process, key, assignment, position, last_call, begun, acked from (
            select process, key, assignment, position, is_stay, last_call, begun,
                min(case when is_stay = 0 then acked end) over (partition by key {order_by("back, is_stay")}
                    {ROWS_BEFORE}) as acked
            from (
                select key, position, -1 - position as back, 1 as is_stay, process, assignment, last_call, begun,
                    cast(null as bigint) as acked
                from log_stays
                union all
                select j.key, j.position, -1 - j.position, 0, null, null, null, null, j.acked
                from log_judged j join (select key from log_stays group by key) s on j.key = s.key
                where j.acks > 0 and j.judged = 1 and j.position is not null) as points) as ordered
        where is_stay = 1 and acked < last_call

        -- `since`: the latest of the record's acknowledgement, the reader's assignment and the end of the last fault.
        create table log_waits as
        select a.process, a.key, a.assignment, a.position, a.last_call, a.acked,
            greatest(a.acked, a.begun, coalesce(max(f.until), 0)) as since
        from log_waiting_readers a left join log_disturbances f on f.since < a.last_call
        group by a.process, a.key, a.assignment, a.position, a.last_call, a.acked, a.begun
        """),
    violations=f"""
        select w.process, w.key, w.assignment, w.position,
            w.last_call, w.acked, w.since, count(*) as polls, max(p.op) as op
        from log_waits w cross join log_declared d
            join log_all_empty_polls p on w.process = p.process and w.key = p.key and w.assignment = p.assignment
                and w.position = p.position
        where w.since < w.last_call and w.last_call - w.since >= d.reading_deadline
            and p.call >= w.since and p.call - w.since >= (d.reading_deadline >> 1)
        group by w.process, w.key, w.assignment, w.position, w.last_call, w.acked, w.since
        having count(*) >= {MIN_POLLS}
        """,
    evidence=f"""
        select f.key, f.position, f.last_call, f.acked, f.since,
            f.polls, f.op as poll_op, min(p.position) as there, min(p.value) as value, min(p.ack_op) as ack_op
        from {first_rows_subquery("found_stuck_reader", "key, process, assignment, position")} f
            join log_value_offsets p on f.key = p.key and f.acked = p.acked and p.position >= f.position
        group by f.key, f.process, f.assignment, f.position, f.last_call, f.acked, f.since, f.polls, f.op
        {order_by("f.key, f.process, f.assignment, f.position")} limit {MOST_FINDINGS}
        """,
    examined="select count(*) as examined from log_key_empty_polls",
    kinds=("observe-end",),
    claim="{poll_op:capital} stayed at offset {position} of {key} from {since:time} to {last_call:time}, {polls} of "
    "its polls found nothing there, though value {value} at offset {there} had been acknowledged to {ack_op} at "
    "{acked:time} and no fault was in the way.",
    more="{polls-1}",  # how many operations are not listed
    about=("offset {there} of {key}", VALUE),  # subjects of a finding
    needs_end=True,  # proves nothing about an interrupted run
    optional=True,  # a run without idle polls may pass
)
