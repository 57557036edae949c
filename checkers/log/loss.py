"""Loss: acknowledged values and observed values must stay, and acknowledged values must reach the drain by its
deadline."""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, View, offset_of, value_of
from assay.checkers.engine import Row
from assay.checkers.log.views import SAID
from assay.checkers.log.wrong_partition import ELSEWHERE, STRAYS, describe_sighting
from assay.checkers.sql_idioms import first_rows_subquery, order_by, row_number, select_nearest_pairs, total_of
from assay.checkers.times import seconds


def _select_evidence(found: str, *, acked: bool) -> str:
    """Returns SQL for the evidence that a value is gone.

    It pairs the last statement of the value (its acknowledgement, or a poll that showed it) with the first later poll
    that passed the offset without it. If each such poll had been called before, it takes the two nearest.
    """
    few = first_rows_subquery(found, "key, position, value")
    return f"""
        select f.key, f.value, f.position, f.acked, f.without_it, f.settled, f.sentinel_op,
            {"coalesce(n.known_op, f.ack_op)" if acked else "f.ack_op"} as ack_op,
            {"f.seen_op" if acked else "coalesce(n.known_op, f.seen_op)"} as seen_op, n.poll_op, n.onset
        from {few} f
            left join (
                select key, value, position, case when side = 1 then former_op else op end as known_op,
                    case when side = 1 then op else former_op end as poll_op, onset
                from ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, s.position, 0 as side, s.moment, s.op
            from {few} f join log_said s on f.key = s.key and f.value = s.value and f.position = s.position
            where s.acked = {int(acked)}
            union all
            select g.key, g.value, g.position, 1, s.call, s.op
            from {few} g
                join log_passes s on g.key = s.key and s.first_offset <= g.position and s.next_offset > g.position
                left join log_shown h on h.key = g.key and h.value = g.value and h.position = g.position
                    and h.op = s.op and h.segment = s.segment
            where h.op is null
            ''',
            "key, value, position",
            rising=True,
        )
    }) as nearest) n on f.key = n.key and f.value = n.value and f.position = n.position
        {order_by("f.key, f.position, f.value")}
        """


def _list_subjects(row: Row) -> tuple[str, ...]:
    value = value_of(row["key"], row["value"])
    return (value,) if row["position"] is None else (offset_of(row["key"], row["position"]), value)


def _describe_absence(row: Row, evidence: Evidence) -> str:
    if row["position"] < 0:
        return "no log has an offset below 0"
    if row["settled"] is not None:
        return f"the log of {row['key']} settled at end offset {row['settled']}, at or below it"
    claim = (
        f"the poll by {evidence.who(row['poll_op'])} from {evidence.called(row['poll_op'])} "
        f"to {evidence.returned(row['poll_op'])} passed that offset without it"
    )
    others = row["without_it"] - 1
    return claim if others < 1 else f"{claim}, as did {others} other poll{'s' if others > 1 else ''}"


def _count_other_polls(row: Row) -> int:
    return 0 if row["settled"] is not None else max(0, int(row["without_it"]) - 1)


def _explain_lost_write(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} at offset {row['position']} of {row['key']} was acknowledged to "
        f"{evidence.who(row['ack_op'])} at {evidence.returned(row['ack_op'])}, but "
        f"{_describe_absence(row, evidence)}, and "
    )
    claim += "no one ever saw it." if row["other_op"] is None else f"{describe_sighting(row, evidence)}."
    return Explanation(
        claim,
        (row["ack_op"], row["poll_op"], row["sentinel_op"], row["other_op"]),
        _count_other_polls(row),
        moments=(row["onset"],),
        about=_list_subjects(row),
    )


_GONE_COLUMNS: Final = (
    "g.key, g.value, g.position, g.acked, g.seen, g.ack_op, g.seen_op, g.without_it, g.settled, g.sentinel_op"
)

LOST_WRITE: Final = Check(
    anomaly="lost-write",
    meaning="an acknowledged value is gone, and no one ever read it",
    views=(
        Table(
            "found_lost_write",
            f"""
            select {_GONE_COLUMNS}
            from log_gone g join log_values v on g.key = v.key and g.value = v.value
            where g.acks > 0 and v.observed = 0
            """,
        ),
    ),
    evidence=f"""
        select m.key, m.value, m.position, m.acked, m.ack_op, m.without_it, m.settled, m.sentinel_op, m.poll_op,
            m.onset, {ELSEWHERE}
        from ({_select_evidence("found_lost_write", acked=True)}) m
            left join log_strays t on m.key = t.other_key and m.value = t.value and t.sight = 1
        {order_by("m.key, m.position, m.value")}
        """,
    evidence_views=(SAID, STRAYS),
    examined=f"select {total_of('acked_values')} as examined from log_cover where passes > 0",
    explain=_explain_lost_write,
    explained_by=("altered-record", "resurrected", "inconsistent-offset"),
)


def _explain_vanished(row: Row, evidence: Evidence) -> Explanation:
    acknowledged = "" if row["acked"] is None else f", acknowledged at {seconds(row['acked'])},"
    claim = (
        f"value {row['value']}{acknowledged} was read at offset {row['position']} of {row['key']} by "
        f"{evidence.who(row['seen_op'])} at {evidence.called(row['seen_op'])}, but {_describe_absence(row, evidence)}."
    )
    return Explanation(
        claim,
        (row["seen_op"], row["poll_op"], row["sentinel_op"], row["ack_op"]),
        _count_other_polls(row),
        moments=(row["onset"],),
        about=_list_subjects(row)[::-1],
    )


VANISHED: Final = Check(
    anomaly="vanished",
    meaning="a value was read once, and is gone",
    views=(Table("found_vanished", f"select {_GONE_COLUMNS} from log_gone g where g.observed > 0"),),
    evidence=_select_evidence("found_vanished", acked=False),
    evidence_views=(SAID,),
    examined=f"select {total_of('observed_values')} as examined from log_cover where passes > 0",
    explain=_explain_vanished,
    explained_by=("inconsistent-offset",),
    seen_again=True,  # a value that moves is gone from either offset for some reader
)


def _explain_misplaced_ack(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} was acknowledged to {evidence.who(row['ack_op'])} at "
        f"{evidence.returned(row['ack_op'])} with offset {row['position']} of {row['key']}, but "
        f"{_describe_absence(row, evidence)}; it was read at offset {row['elsewhere']} "
        f"({evidence.who(row['shown_op'])} at "
        f"{evidence.called(row['shown_op'])})."
    )
    return Explanation(
        claim,
        (row["ack_op"], row["poll_op"], row["sentinel_op"], row["shown_op"]),
        _count_other_polls(row),
        moments=(row["onset"],),
        about=_list_subjects(row),
    )


MISPLACED_ACK: Final = Check(
    anomaly="misplaced-ack",
    meaning="a value is not at the offset with which it was acknowledged, but elsewhere",
    views=(
        Table(
            "found_misplaced_ack",
            f"""
            select {_GONE_COLUMNS}
            from log_gone g join log_values v on g.key = v.key and g.value = v.value
            where g.acks > 0 and g.observed = 0 and v.observed > 0
            """,
        ),
    ),
    evidence=f"""
        select m.key, m.value, m.position, m.acked, m.ack_op, m.without_it, m.settled, m.sentinel_op, m.poll_op,
            m.onset, p.position as elsewhere, p.op as shown_op
        from ({_select_evidence("found_misplaced_ack", acked=True)}) m
            join (
                select f.key, f.value, s.position, s.op,
                    {row_number(by="f.key, f.value", order="s.moment, s.op, s.position")} as turn
                from {first_rows_subquery("found_misplaced_ack", "key, position, value")} f
                    join log_said s on f.key = s.key and f.value = s.value and s.acked = 0) p
            on m.key = p.key and m.value = p.value and p.turn = 1
        {order_by("m.key, m.position, m.value")}
        """,
    evidence_views=(SAID,),
    examined=f"select {total_of('acked_values')} as examined from log_cover where passes > 0",
    explain=_explain_misplaced_ack,
    explained_by=("inconsistent-offset",),
)


def _explain_unseen(row: Row, evidence: Evidence) -> Explanation:
    where = "an unknown offset" if row["position"] is None else f"offset {row['position']}"
    reached = (
        "which never reached the sentinel" if row["settled"] is None else f"which settled at offset {row['settled']}"
    )
    claim = (
        f"value {row['value']} at {where} of {row['key']} was acknowledged to {evidence.who(row['okay_op'])} "
        f"at {evidence.returned(row['okay_op'])}, but the drain, {reached}, had not delivered it by its deadline"
    )
    claim += "." if row["other_op"] is None else f"; {describe_sighting(row, evidence)}."
    return Explanation(claim, (row["okay_op"], row["other_op"]), moments=(row["last"],), about=_list_subjects(row))


UNSEEN: Final = Check(
    anomaly="unseen",
    meaning="an acknowledged value was not delivered by the deadline",
    views=(
        Table(
            "log_final",
            """
            select key, min(call) as final_call, max(coalesce(ret, call)) as last from log_effects
            where phase in ('sentinel', 'drain') and key is not null group by key
            """,
        ),
        View(
            "log_due",
            """
            select p.key, p.value, p.position, p.okay_op
            from log_judged p join log_final f on p.key = f.key
            where p.okays > 0 and (p.okayed < f.final_call or p.sentinel = 1) and p.judged = 1
                and (p.position is not null or (p.compacted is null and p.log_start <= 0))
            """,
        ),
        Table(
            "found_unseen",
            """
            select d.key, d.value, d.position, d.okay_op
            from log_due d join log_values v on d.key = v.key and d.value = v.value
                left join log_gone g on d.key = g.key and d.value = g.value and d.position = g.position
            where v.drained = 0 and g.key is null
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.value, f.position, f.okay_op, s.settled, e.last, {ELSEWHERE}
        from {first_rows_subquery("found_unseen", "key, position, value")} f join log_final e on f.key = e.key
            left join log_settled s on f.key = s.key
            left join log_strays t on f.key = t.other_key and f.value = t.value and t.sight = 1
        {order_by("f.key, f.position, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined="select count(*) as examined from log_due",
    explain=_explain_unseen,
    explained_by=("altered-record", "resurrected", "stuck-reader", "unsettled-group", "inconsistent-offset"),
    needs_end=True,
)
"""Due are values acknowledged before the sentinel was called, and the sentinel itself."""
