"""Log ends that clients were given: ends that go back, and ends below what was already there.

Only ends under a known leader epoch count, against what was known, under the same or a lower one, by a call that had
returned before. Where the contract declares ends to be linearizable, rule U (``order``) has them in any epoch.
"""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, View, capital
from assay.checkers.engine import Row
from assay.checkers.sql import first_rows, order_by

ENDS: Final = View(
    "log_ends",
    """
    select op, sub, process, key, position, epoch, call, ret from log_effects
    where kind = 'end' and outcome = 'ok' and position is not null and ret is not null
    """,
)

_KNOWN: Final = "rows between unbounded preceding and 1 preceding"


def _below(name: str, moments: str) -> tuple[View, View]:
    """The ends below what ``moments`` (``is_return`` 1: known from then on; 0: an end was asked for) had, as
    ``found_<name>``.

    Few keys have such an end when epochs are left out; only those are judged epoch by epoch.
    """
    return (
        View(
            f"log_suspects_{name}",
            f"""
            select key, epoch from (
                select key, is_return, epoch, position,
                    max(case when is_return = 1 and epoch is not null then position end) over (partition by key
                        {order_by("moment, is_return, op, sub")} {_KNOWN}) as former
                from {moments}) as moments
            where is_return = 0 and epoch is not null and former > position group by key, epoch
            """,
            keep=True,
        ),
        View(
            f"found_{name}",
            f"""
            select key, level as epoch, op, sub, position, former from (
                select key, level, op, sub, is_return, position,
                    max(case when is_return = 1 then position end) over (partition by key, level
                        {order_by("moment, is_return, op, sub")} {_KNOWN}) as former
                from (
                    select m.key as key, s.epoch as level, m.moment as moment, m.is_return as is_return, m.op as op,
                        m.sub as sub, m.position as position
                    from {moments} m join log_suspects_{name} s on m.key = s.key
                    where (m.is_return = 1 and m.epoch <= s.epoch) or (m.is_return = 0 and m.epoch = s.epoch)
                    ) as levels) as moments
            where is_return = 0 and former > position
            """,
            keep=True,
        ),
    )


def _end_went_back(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"the log end offset of {row['key']} was {row['former']} (epoch {row['former_epoch']}) for "
        f"{evidence.who(row['former_op'])} by {evidence.returned(row['former_op'])}, and then {row['position']} "
        f"(epoch {row['epoch']}) for {evidence.who(row['end_op'])}, who asked at {evidence.called(row['end_op'])}."
    )
    return Explanation(capital(claim), (row["former_op"], row["end_op"]))


HIGH_WATERMARK_REGRESSION: Final = Check(
    anomaly="high-watermark-regression",
    meaning="the reported end of a log went back",
    views=(
        View(
            "log_end_moments",
            """
            select key, ret as moment, 1 as is_return, epoch, op, sub, position from log_ends
            union all
            select key, call, 0, epoch, op, sub, position from log_ends
            """,
        ),
        *_below("high_watermark_regression", "log_end_moments"),
    ),
    evidence=f"""
        select f.key as key, f.epoch as epoch, f.op as end_op, f.position as position, f.former as former,
            min(e.op) as former_op, min(e.epoch) as former_epoch
        from {first_rows("found_high_watermark_regression", "key, op, sub")} f
            join log_ends w on f.op = w.op and f.sub = w.sub
            join log_ends e on f.key = e.key and f.former = e.position
        where e.epoch <= f.epoch and e.ret < w.call
        group by f.key, f.epoch, f.op, f.sub, f.position, f.former
        {order_by("f.key, f.op, f.sub")}
        """,
    examined="select count(*) as examined from log_ends where epoch is not null",
    explain=_end_went_back,
)


def _too_low(row: Row, evidence: Evidence) -> Explanation:
    how = "acknowledged to" if row["kind"] == "append" else "read by"
    claim = (
        f"{evidence.who(row['end_op'])} asked for the log end of {row['key']} at {evidence.called(row['end_op'])} and "
        f"got {row['position']} (epoch {row['epoch']}), though offset {row['former'] - 1} had been {how} "
        f"{evidence.who(row['known_op'])} by {evidence.returned(row['known_op'])} (epoch {row['known_epoch']})."
    )
    return Explanation(capital(claim), (row["end_op"], row["known_op"]))


END_TOO_LOW: Final = Check(
    anomaly="end-too-low",
    meaning="the reported end of a log lies below a record that was already there",
    views=(
        View(
            "log_known_moments",
            """
            select e.key as key, e.ret as moment, 1 as is_return, e.epoch as epoch, e.op as op, e.sub as sub,
                e.position + 1 as position
            from log_effects e join (select key from log_ends where epoch is not null group by key) k on e.key = k.key
                cross join log_declared d
            where d.linearizable_ends = 0 and e.kind in ('append', 'observe') and e.outcome = 'ok'
                and e.epoch is not null and e.position is not null and e.ret is not null
                and e.position < 9223372036854775807
            union all
            select e.key, e.call, 0, e.epoch, e.op, e.sub, e.position
            from log_ends e cross join log_declared d where d.linearizable_ends = 0
            """,
        ),
        *_below("end_too_low", "log_known_moments"),
    ),
    evidence=f"""
        select f.key as key, f.epoch as epoch, f.op as end_op, f.position as position, f.former as former,
            min(e.op) as known_op, min(e.epoch) as known_epoch, min(e.kind) as kind
        from {first_rows("found_end_too_low", "key, op, sub")} f
            join log_ends w on f.op = w.op and f.sub = w.sub
            join log_effects e on f.key = e.key and f.former = e.position + 1
        where e.kind in ('append', 'observe') and e.outcome = 'ok' and e.epoch <= f.epoch and e.ret < w.call
        group by f.key, f.epoch, f.op, f.sub, f.position, f.former
        {order_by("f.key, f.op, f.sub")}
        """,
    examined="select count(*) as examined from log_known_moments where is_return = 1",
    explain=_too_low,
    optional=True,
)
"""Acknowledgements with acks=1 say nothing of the end: the contract of such sends does not forbid it."""
