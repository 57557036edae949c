"""Lost records: acknowledged and observed values must stay in the log, and the drain must deliver acknowledged values
by its deadline.

``views`` creates the tables that these checks read, and explains their columns, except for ``log_strays``: records that
were read in another partition than they were sent to (``wrong_partition``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, VALUE, Check, parse_views
from assay.checkers.exposure import Exposure
from assay.checkers.log.views import LOCATIONS
from assay.checkers.log.wrong_partition import ELSEWHERE, SIGHTING, STRAYS
from assay.checkers.sql_idioms import (
    EARLIEST,
    extract_topic,
    first_rows_subquery,
    order_by,
    row_number,
    select_nearest_pairs,
    strip_incarnation,
    total_of,
)


def _select_evidence(found: str, *, acked: bool) -> str:
    """Returns SQL for the evidence that a value is gone.

    Each row pairs two operations. The first states that the value is there: its acknowledgement, or a poll that showed
    it. The second is a poll that passed the offset without the value. The pair nearest in time is taken, if possible
    one in which the poll is later.
    """
    first_rows = first_rows_subquery(found, "key, position, value")
    return f"""
        select f.key, f.value, f.position, f.acked, f.passes_without, f.settled, f.sentinel_op,
            {"coalesce(n.known_op, f.ack_op)" if acked else "f.ack_op"} as ack_op,
            {"f.seen_op" if acked else "coalesce(n.known_op, f.seen_op)"} as seen_op, n.poll_op, n.contradicted_at,
            {EARLIEST}
        from {first_rows} f
            left join (
                select key, value, position, case when side = 1 then former_op else op end as known_op,
                    case when side = 1 then op else former_op end as poll_op, contradicted_at, {EARLIEST}
                from ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, s.position, 0 as side, s.moment, s.op
            from {first_rows} f join log_locations s on f.key = s.key and f.value = s.value and f.position = s.position
            where s.acked = {int(acked)}
            union all
            select g.key, g.value, g.position, 1, s.call, s.op
            from {first_rows} g
                join log_passes s on g.key = s.key and s.first_offset <= g.position and s.next_offset > g.position
                left join log_shown_records h on h.key = g.key and h.value = g.value and h.position = g.position
                    and h.op = s.op and h.segment = s.segment
            where h.op is null
            ''',
            "key, value, position",
            known_first=True,
        )
    }) as nearest) n on f.key = n.key and f.value = n.value and f.position = n.position
        {order_by("f.key, f.position, f.value")}
        """


# `[condition?text|other text]` is a choice (`checkers.claims`). A text with a null column is left out: if `settled` is
# null, the text after the next `|` is used.
_ABSENCE: Final = (
    "[position<0?no log has an offset below 0|the log of {key} settled at end offset {settled}, at or below it|the "
    "poll by {poll_op} from {poll_op:called} to {poll_op:returned} passed that offset without it[passes_without>1?, as "
    "did {passes_without-1} other poll[passes_without>2?s]]]"
)
"""Template of a clause that says why the value is known to be gone."""

_GONE_COLUMNS: Final = (
    "g.key, g.value, g.position, g.acked, g.seen, g.ack_op, g.seen_op, g.passes_without, g.settled, g.sentinel_op"
)


def _declare_exposure(values: str, asserted: str, remedy: str = "") -> Exposure:
    """Declares the exposure of values at their offsets. ``values``: a column of ``log_pass_counts``.

    A value is exposed if a poll that was called after the last fault passed its offset. A topic that the run created
    may be deleted before the end, so its values are claims only if such a poll passed them. ``remedy``: advice that
    exposes values. If it is given, each key with values needs such a poll, else the run does not pass.
    """
    return Exposure(
        rows=f"""
            select c.key, {total_of(f"c.{values}")} as claims,
                {total_of(f"case when c.late_passes > 0 then c.{values} else 0 end")} as exposed
            from log_pass_counts c
                left join (select {strip_incarnation("key")} as name from effect_kinds where kind = 'topic-create'
                    group by {strip_incarnation("key")}) t on {extract_topic(strip_incarnation("c.key"))} = t.name
            where c.judged = 1 and c.position >= 0 and (t.name is null or c.late_passes > 0)
            group by c.key having {total_of(f"c.{values}")} > 0
            """,
        nouns="values",
        asserted=asserted,
        observed="in the range of a complete poll that was called",
        no_claims=f"no values were {asserted} at a known offset that must still be there",
        remedy=remedy,
        each_key=bool(remedy),
    )


LOST_WRITE: Final = Check(
    anomaly="lost-write",
    meaning="an acknowledged value is gone, and no one ever read it",
    violations=f"""
        select {_GONE_COLUMNS}
        from log_gone_values g join log_values v on g.key = v.key and g.value = v.value
        where g.acks > 0 and v.observed = 0
        """,
    evidence=f"""
        select m.key, m.value, m.position, m.acked, m.ack_op, m.passes_without, m.settled, m.sentinel_op, m.poll_op,
            m.contradicted_at, {EARLIEST}, {ELSEWHERE}
        from ({_select_evidence("found_lost_write", acked=True)}) m
            left join log_strays t on m.key = t.other_key and m.value = t.value and t.sight = 1
        {order_by("m.key, m.position, m.value")}
        """,
    evidence_views=(LOCATIONS, STRAYS),
    examined=f"select {total_of('acked_values')} as examined from log_pass_counts where passes > 0",
    exposure=_declare_exposure(
        "acked_values", "acknowledged", "read each log from its begin to its end in the final phase"
    ),
    claim="value {value} at offset {position} of {key} was acknowledged to {ack_op} at {ack_op:returned}, but "
    f"{_ABSENCE}, and [other_op?{SIGHTING}|no one ever saw it].",
    operations=("ack_op", "poll_op", "sentinel_op", "other_op"),
    more="[settled?|passes_without>1?{passes_without-1}]",  # how many operations are not listed
    moments=("contradicted_at",),  # further times of cause and effect
    about=(OFFSET, VALUE),  # subjects of a finding
    explained_by=("altered-record", "resurrected", "inconsistent-offset"),
)


VANISHED: Final = Check(
    anomaly="vanished",
    meaning="a value was read once, and is gone",
    violations=f"select {_GONE_COLUMNS} from log_gone_values g where g.observed > 0",
    evidence=_select_evidence("found_vanished", acked=False),
    evidence_views=(LOCATIONS,),
    examined=f"select {total_of('observed_values')} as examined from log_pass_counts where passes > 0",
    exposure=_declare_exposure("observed_values", "read"),
    claim="value {value}[, acknowledged at {acked:time},] was read at offset {position} of {key} by {seen_op} at "
    f"{{seen_op:called}}, but {_ABSENCE}.",
    operations=("seen_op", "poll_op", "sentinel_op", "ack_op"),
    more="[settled?|passes_without>1?{passes_without-1}]",  # how many operations are not listed
    moments=("contradicted_at",),  # further times of cause and effect
    about=(VALUE, OFFSET),  # subjects of a finding
    explained_by=("inconsistent-offset",),
    seen_again=True,  # a value that moved is missing at its old offset for one reader, and at its new one for another
)


MISPLACED_ACK: Final = Check(
    anomaly="misplaced-ack",
    meaning="a value is not at the offset with which it was acknowledged, but elsewhere",
    violations=f"""
        select {_GONE_COLUMNS}
        from log_gone_values g join log_values v on g.key = v.key and g.value = v.value
        where g.acks > 0 and g.observed = 0 and v.observed > 0
        """,
    evidence=f"""
        select m.key, m.value, m.position, m.acked, m.ack_op, m.passes_without, m.settled, m.sentinel_op, m.poll_op,
            m.contradicted_at, {EARLIEST}, p.position as elsewhere, p.op as shown_op
        from ({_select_evidence("found_misplaced_ack", acked=True)}) m
            join (
                select f.key, f.value, s.position, s.op,
                    {row_number(by="f.key, f.value", order="s.moment, s.op, s.position")} as rank
                from {first_rows_subquery("found_misplaced_ack", "key, position, value")} f
                    join log_locations s on f.key = s.key and f.value = s.value and s.acked = 0) p
            on m.key = p.key and m.value = p.value and p.rank = 1
        {order_by("m.key, m.position, m.value")}
        """,
    evidence_views=(LOCATIONS,),
    examined=f"select {total_of('acked_values')} as examined from log_pass_counts where passes > 0",
    exposure=_declare_exposure("acked_values", "acknowledged"),
    claim="value {value} was acknowledged to {ack_op} at {ack_op:returned} with offset {position} of {key}, but "
    f"{_ABSENCE}; it was read at offset {{elsewhere}} ({{shown_op}} at {{shown_op:called}}).",
    operations=("ack_op", "poll_op", "sentinel_op", "shown_op"),
    more="[settled?|passes_without>1?{passes_without-1}]",  # how many operations are not listed
    moments=("contradicted_at",),  # further times of cause and effect
    about=(OFFSET, VALUE),  # subjects of a finding
    explained_by=("inconsistent-offset",),
)


UNSEEN: Final = Check(
    anomaly="unseen",
    meaning="an acknowledged value was not delivered by the deadline",
    views=parse_views("""
        -- Begin and end of the final phase of each log, and the lowest offset that the drain requested.
        create table log_drains as
        select key, min(call) as final_call, max(coalesce(ret, call)) as last,
            coalesce(min(case when kind = 'observe-begin' and phase = 'drain' then position end), 0) as lowest
        from log_effects where phase in ('sentinel', 'drain') and key is not null group by key

        -- Acknowledged values that the drain must deliver. It need not deliver values below the offset where it began.
        -- `any_...`: also by acknowledgements without an offset.
        create view log_due as
        select p.key, p.value, p.position, p.any_ack_op
        from log_judged p join log_drains f on p.key = f.key
        where p.any_acks > 0 and (p.any_acked < f.final_call or p.sentinel = 1) and p.judged = 1
            and (p.position is not null or (p.compacted is null and p.log_start <= 0))
            and coalesce(p.position, p.log_start) >= f.lowest
        """),
    violations="""
        select d.key, d.value, d.position, d.any_ack_op
        from log_due d join log_values v on d.key = v.key and d.value = v.value
            left join log_gone_values g on d.key = g.key and d.value = g.value and d.position = g.position
        where v.drained = 0 and g.key is null
        """,
    evidence=f"""
        select f.key, f.value, f.position, f.any_ack_op, s.settled, e.last, {ELSEWHERE}
        from {first_rows_subquery("found_unseen", "key, position, value")} f join log_drains e on f.key = e.key
            left join log_settled s on f.key = s.key
            left join log_strays t on f.key = t.other_key and f.value = t.value and t.sight = 1
        {order_by("f.key, f.position, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined="select count(*) as examined from log_due",
    claim="value {value} at [offset {position}|an unknown offset] of {key} was acknowledged to {any_ack_op} at "
    "{any_ack_op:returned}, but the drain, which [settled at offset {settled}|never reached the sentinel], had not "
    f"delivered it by its deadline[other_op?; {SIGHTING}].",
    moments=("last",),  # further times of cause and effect
    about=(OFFSET, VALUE),  # subjects of a finding
    explained_by=("altered-record", "resurrected", "stuck-reader", "unsettled-group", "inconsistent-offset"),
    needs_end=True,  # proves nothing about an interrupted run
)
"""The drain must deliver the values that were acknowledged before the sentinel was called, and the sentinel itself."""
