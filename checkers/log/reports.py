"""Compares a producer's reports on one message with the outcome of its send.

The first ``append`` row of a value in an operation records the outcome of the message. Further rows of the value mean
that it may have been appended again. A workload also records

- ``reported``: a receiver was informed of the message's outcome. ``source`` names the receiver (a callback, an
  account); ``outcome`` and ``position`` are as reported.
- ``unreported``: a receiver got no report, although the operation ended with a result.

Each receiver must get exactly one report, which must agree with the outcome. A difference is always wrong, because the
client library reports its own knowledge both times.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import VALUE, Check, parse_views
from assay.checkers.sql_idioms import select_first

_SAME_MESSAGE: Final = "r.op = f.op and r.key = f.key and r.value = f.value"


def _describe_outcome(outcome: str, position: str) -> str:
    fate = f"[{outcome}=ok?appended|{outcome}=fail?certainly not appended|of unknown fate]"
    return f"{fate}[ at offset {{{position}}}]"


CONTRADICTED_OUTCOME: Final = Check(
    anomaly="contradicted-outcome",
    meaning="a producer reported two different outcomes of one message",
    views=parse_views("""
        -- The outcomes that each receiver was informed of, and how many times. If `reported` and `reported_max` differ,
        -- the receiver was informed of several outcomes.
        create table reports_by_receiver as
        select op, key, value, source, cast(sum(case when kind = 'reported' then 1 else 0 end) as bigint) as times,
            min(outcome) as reported, max(outcome) as reported_max, min(position) as reported_position,
            max(coalesce(position, -1)) as highest, min(coalesce(position, -1)) as lowest
        from effects where kind in ('reported', 'unreported') and value is not null and source is not null
        group by op, key, value, source

        -- The row that records a message's outcome: the first one of its value in the operation.
        create view reports_first_rows as
        select e.op, e.key, e.value, min(e.sub) as sub
        from effects e join (select op from reports_by_receiver group by op) r on e.op = r.op
        where e.kind = 'append' and e.value is not null group by e.op, e.key, e.value
        """),
    violations=f"""
        select r.op, r.key, r.value, r.source, r.times, e.outcome, e.position, r.reported, r.reported_position
        from reports_by_receiver r join reports_first_rows f on {_SAME_MESSAGE}
            join effects e on e.op = f.op and e.sub = f.sub
        where r.times <> 1 or r.reported <> e.outcome or r.reported_max <> e.outcome
            or r.lowest <> coalesce(e.position, -1) or r.highest <> coalesce(e.position, -1)
        """,
    evidence=select_first("found_contradicted_outcome", "key, op, value, source", also="op as own_op"),
    examined="select count(*) as examined from reports_by_receiver",
    kinds=("reported", "unreported"),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="Value {value} of {key}, sent by {own_op} at {own_op:called}, was "
    f"{_describe_outcome('outcome', 'position')} by its outcome, but {{source}} [times=0?was not informed of it at "
    f"all|times>1?was informed {{times}} times|said that it was {_describe_outcome('reported', 'reported_position')}].",
    about=(VALUE,),  # subjects of a finding
    optional=True,  # most producers report nothing
)
