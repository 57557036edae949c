"""Checks of reported log ends: an end must not go back, nor be below a record that was already there.

Only ends with a known leader epoch count. Each end is compared with positions that were known before its call, under an
equal or lower epoch. If the contract declares ends linearizable, ``order`` judges all ends, of any epoch, by rule U. By
this rule, no operation may have a lower place in the log than an operation that had returned before its call.

``views`` explains the tables of the log that this module reads but does not create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import ROWS_BEFORE, first_rows_subquery, order_by, row_number

ENDS: Final = View(
    "log_ends",
    """
    select op, sub, process, key, position, leader_epoch as epoch, call, ret from log_effects
    where kind = 'end' and outcome = 'ok' and position is not null and ret is not null
    """,
)


def _make_low_end_views(name: str, moments: str) -> tuple[View, ...]:
    """Returns two tables. ``found_<name>`` has the ends below a position that was known before.

    ``moments`` is a view with one row per event. If ``is_return`` is 1, a position is known from this moment on; if it
    is 0, an end was requested. The first table is a cheap filter that ignores epochs. Only the few keys that it finds
    are judged epoch by epoch.
    """
    return parse_views(f"""
        create table log_suspects_{name} as
        select key, epoch from (
            select key, is_return, epoch, position,
                max(case when is_return = 1 and epoch is not null then position end) over (partition by key
                    {order_by("moment, is_return, op, sub")} {ROWS_BEFORE}) as former
            from {moments}) as moments
        where is_return = 0 and epoch is not null and former > position group by key, epoch

        create table found_{name} as
        select key, level as epoch, op, sub, position, former from (
            select key, level, op, sub, is_return, position,
                max(case when is_return = 1 then position end) over (partition by key, level
                    {order_by("moment, is_return, op, sub")} {ROWS_BEFORE}) as former
            from (
                select m.key, s.epoch as level, m.moment, m.is_return, m.op, m.sub, m.position
                from {moments} m join log_suspects_{name} s on m.key = s.key
                where (m.is_return = 1 and m.epoch <= s.epoch) or (m.is_return = 0 and m.epoch = s.epoch)
                ) as levels) as moments
        where is_return = 0 and former > position
        """)


def _select_last_known(found: str, known: str) -> str:
    """Returns SQL for the evidence: for each low end, the last higher position that was known before its call."""
    return f"""
        select key, epoch, end_op, position, former, former_op, former_epoch, acked from (
            select f.key, f.epoch, f.op as end_op, f.sub, f.position,
                e.position as former, e.op as former_op, e.epoch as former_epoch, e.acked,
                {row_number(by="f.op, f.sub", order="e.back, e.op, e.position")} as rank
            from {first_rows_subquery(found, "key, op, sub")} f
                join log_ends w on f.op = w.op and f.sub = w.sub
                join (select *, 0 - ret as back from ({known}) as reported) e
                    on f.key = e.key and e.position > f.position
            where e.epoch <= f.epoch and e.ret < w.call) as stated
        where rank = 1 {order_by("key, end_op, sub")}
        """


END: Final = "end of {key} in operation {end_op:number}"
"""The subject of a finding: the end of a log that one operation got."""


HIGH_WATERMARK_REGRESSION: Final = Check(
    anomaly="high-watermark-regression",
    meaning="the reported end of a log went back",
    views=(
        *parse_views("""
        create view log_end_moments as
        select key, ret as moment, 1 as is_return, epoch, op, sub, position from log_ends
        union all
        select key, call, 0, epoch, op, sub, position from log_ends
        """),
        *_make_low_end_views("high_watermark_regression", "log_end_moments"),
    ),
    evidence=f"""
        {
        _select_last_known(
            "found_high_watermark_regression",
            "select key, op, sub, position, epoch, ret, 0 as acked from log_ends where epoch is not null",
        )
    }
        """,
    examined="select count(*) as examined from log_ends where epoch is not null",
    kinds=("end",),
    lacks="no one was given the end of a log and its leader's epoch",
    claim="The log end offset of {key} was {former} (epoch {former_epoch}) for {former_op} by {former_op:returned}, "
    "and then {position} (epoch {epoch}) for {end_op}, who asked at {end_op:called}.",
    about=(END,),  # subjects of a finding
)


END_TOO_LOW: Final = Check(
    anomaly="end-too-low",
    meaning="the reported end of a log lies below a record that was already there",
    views=(
        *parse_views("""
        create view log_known_moments as
        select e.key, e.ret as moment, 1 as is_return, e.leader_epoch as epoch, e.op, e.sub,
            e.position + 1 as position
        from log_effects e join (select key from log_ends where epoch is not null group by key) k on e.key = k.key
            cross join log_declared d
        where d.linearizable_ends = 0 and e.kind in ('append', 'observe') and e.outcome = 'ok'
            and e.leader_epoch is not null and e.position is not null and e.ret is not null
            and e.position < 9223372036854775807
        union all
        select e.key, e.call, 0, e.epoch, e.op, e.sub, e.position
        from log_ends e cross join log_declared d where d.linearizable_ends = 0
        """),
        *_make_low_end_views("end_too_low", "log_known_moments"),
    ),
    evidence=f"""
        {
        _select_last_known(
            "found_end_too_low",
            f'''
            select key, op, sub, least(position, {INFINITY - 1}) + 1 as position, leader_epoch as epoch, ret,
                case when kind = 'append' then 1 else 0 end as acked
            from log_effects where kind in ('append', 'observe') and outcome = 'ok' and leader_epoch is not null
                and position is not null and ret is not null
            ''',
        )
    }
        """,
    examined="select count(*) as examined from log_known_moments where is_return = 1",
    kinds=("end",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{end_op:capital} asked for the log end of {key} at {end_op:called} and got {position} (epoch {epoch}), "
    "though offset {former-1} had been [acked=1?acknowledged to|read by] {former_op} by {former_op:returned} (epoch "
    "{former_epoch}).",
    about=(END,),  # subjects of a finding
    explained_by=("high-watermark-regression",),
    optional=True,  # a run without data for it may pass
)
"""Contracts of sends with acks=1 do not forbid this anomaly, because their acknowledgements say nothing about the end.
"""
