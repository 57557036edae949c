"""Integrity of a log: one value per offset, one offset per value, and only values whose send did not fail."""

from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Table, capitalize_first, offset_of, value_of
from assay.checkers.engine import INFINITY, Row
from assay.checkers.log.views import SAID
from assay.checkers.log.wrong_partition import STRAYS, describe_destination
from assay.checkers.sql_idioms import first_rows_subquery, order_by, select_nearest_pairs

_OBSERVED: Final = "select count(*) as examined from log_placed where observed > 0"


def _describe_value(value: int | None) -> str:
    return "a record that cannot be decoded" if value is None else f"value {value}"


def _describe_source(row: Row, which: str, evidence: Evidence) -> str:
    """Returns who says that the value is there."""
    op = row[f"{which}_op"]
    if row[f"{which}_acked"]:
        return f"acknowledged to {evidence.who(op)} at {evidence.returned(op)}"
    return f"read by {evidence.who(op)} at {evidence.called(op)}"


def _explain_inconsistent_offset(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"offset {row['position']} of {row['key']} holds {_describe_value(row['first_value'])} "
        f"({_describe_source(row, 'first', evidence)}) and {_describe_value(row['second_value'])} "
        f"({_describe_source(row, 'second', evidence)})"
    )
    if row["held"] > 2:
        claim += f", {row['held']} different values in all"
    return Explanation(
        f"{claim}.",
        (row["first_op"], row["second_op"]),
        row["held"] - 2,
        moments=(row["onset"],),
        about=(offset_of(row["key"], row["position"]),),
    )


_INCONSISTENT: Final = first_rows_subquery("found_inconsistent_offset", "key, position")

INCONSISTENT_OFFSET: Final = Check(
    anomaly="inconsistent-offset",
    meaning="one offset of a partition was seen with two different values",
    views=(
        Table(
            "found_inconsistent_offset",
            """
            select p.key, p.position, count(*) as held
            from log_placed p join log_offsets o on p.key = o.key and p.position = o.position
            where o.held > 1 and p.acks + p.observed > 0
            group by p.key, p.position
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.position, f.held, n.former_value as first_value, n.former_op as first_op,
            n.former_acked as first_acked, n.value as second_value, n.op as second_op, n.acked as second_acked, n.onset
        from {_INCONSISTENT} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.position, coalesce(s.value, {-INFINITY}) as side, s.moment, s.op, s.value, s.acked
            from {_INCONSISTENT} f join log_said s on f.key = s.key and f.position = s.position
            ''',
            "key, position",
            carry="value, acked",
        )
    }) n on f.key = n.key and f.position = n.position
        {order_by("f.key, f.position")}
        """,
    evidence_views=(SAID,),
    examined="select count(*) as examined from log_offsets",
    explain=_explain_inconsistent_offset,
    explained_by=("resurrected",),
)


def _explain_duplicate(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} of {row['key']} is at offset {row['first']} "
        f"({_describe_source(row, 'first', evidence)}) "
        f"and at offset {row['second']} ({_describe_source(row, 'second', evidence)})"
    )
    if row["offsets"] > 2:
        claim += f", at {row['offsets']} offsets in all"
    if row["live"] > 1:
        claim += f", though it was sent only {row['live']} times"
    named = (row["send_op"], row["first_op"], row["second_op"])
    about: tuple[str, ...] = ()
    if row["offsets"] == 2 and row["live"] == 1:  # one offset too many: another one has a cause of its own
        places = (offset_of(row["key"], row[which]) for which in ("first", "second"))
        about = (value_of(row["key"], row["value"]), *places)
    return Explanation(f"{claim}.", named, row["offsets"] - 2, moments=evidence.span(row["second_op"]), about=about)


_DUPLICATE: Final = first_rows_subquery("found_duplicate", "key, low, value")

DUPLICATE: Final = Check(
    anomaly="duplicate",
    meaning="one value sits at two or more offsets",
    views=(
        Table(
            "found_duplicate",
            """
            select key, value, low, high, offsets, live, send_op
            from log_values where value is not null and offsets > 1 and offsets > live
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.value, f.offsets, f.live, f.send_op, n.former_side as first, n.former_op as first_op,
            n.former_acked as first_acked, n.side as second, n.op as second_op, n.acked as second_acked
        from {_DUPLICATE} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, s.position as side, s.moment, s.op, s.acked
            from {_DUPLICATE} f join log_said s on f.key = s.key and f.value = s.value
            ''',
            "key, value",
            carry="acked",
        )
    }) n on f.key = n.key and f.value = n.value
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(SAID,),
    examined="select count(*) as examined from log_values where offsets > 0",
    explain=_explain_duplicate,
    explained_by=("inconsistent-offset", "misplaced-ack", "vanished"),
)


def _explain_aborted_read(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} was read at offset {row['position']} of {row['key']} by "
        f"{evidence.who(row['seen_op'])} at {evidence.called(row['seen_op'])}, but its send by "
        f"{evidence.who(row['send_op'])} at {evidence.called(row['send_op'])} had definitely failed."
    )
    about = (offset_of(row["key"], row["position"]), value_of(row["key"], row["value"]))
    return Explanation(claim, (row["send_op"], row["seen_op"]), row["observed"] - 1, about=about)


_ABORTED: Final = first_rows_subquery("found_aborted_read", "key, low, value")

ABORTED_READ: Final = Check(
    anomaly="aborted-read",
    meaning="a value was read although its write had certainly failed",
    views=(
        Table(
            "found_aborted_read",
            """
            select key, value, low, observed, send_op, seen_op
            from log_values where observed > 0 and live = 0 and failed > 0
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.value, f.observed, case when n.side = 1 then n.former_op else n.op end as send_op,
            case when n.side = 1 then n.op else n.former_op end as seen_op,
            coalesce(n.position, n.former_position) as position
        from {_ABORTED} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, 1 as side, s.moment, s.op, s.position
            from {_ABORTED} f join log_said s on f.key = s.key and f.value = s.value
            union all
            select s.key, s.value, 0, coalesce(s.ret, s.call), s.op, cast(null as bigint)
            from {_ABORTED} f join log_sends s on f.key = s.key and f.value = s.value
            ''',
            "key, value",
            carry="position",
        )
    }) n on f.key = n.key and f.value = n.value
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(SAID,),
    examined=_OBSERVED,
    explain=_explain_aborted_read,
    explained_by=("inconsistent-offset",),
)


def _explain_phantom(row: Row, evidence: Evidence) -> Explanation:
    sender = (
        "no one sent it" if row["other_op"] is None else f"no one sent it there: {describe_destination(row, evidence)}"
    )
    claim = (
        f"{_describe_value(row['value'])} was read at offset {row['low']} of {row['key']} by "
        f"{evidence.who(row['seen_op'])} "
        f"at {evidence.called(row['seen_op'])}, but {sender}."
    )
    place = offset_of(row["key"], row["low"])
    about = (place,) if row["value"] is None else (place, value_of(row["key"], row["value"]))
    return Explanation(capitalize_first(claim), (row["seen_op"], row["other_op"]), row["observed"] - 1, about=about)


PHANTOM: Final = Check(
    anomaly="phantom",
    meaning="a value was read that no one wrote",
    views=(
        Table(
            "found_phantom",
            """
            select key, value, low, observed, seen_op from log_values where observed > 0 and live = 0 and failed = 0
            """,
        ),
    ),
    evidence=f"""
        select f.key, f.value, f.low, f.observed, f.seen_op, t.other_key, t.send_op as other_op, t.again
        from {first_rows_subquery("found_phantom", "key, low, value")} f
            left join log_strays t on f.key = t.key and f.value = t.value and t.source = 1
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined=_OBSERVED,
    explain=_explain_phantom,
    explained_by=("altered-record", "resurrected", "inconsistent-offset"),
    needs_close=True,
)
