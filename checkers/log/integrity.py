"""What a log may hold: one value per offset, one offset per value, and no value that was not sent, or whose send
failed."""

from typing import Final

from assay.checkers.check import MOST_FINDINGS, Check, Evidence, Explanation, View, capital
from assay.checkers.engine import Row
from assay.checkers.log.strays import STRAYS, sent_to
from assay.checkers.sql import first_rows, order_by

_OBSERVED: Final = "select count(*) as examined from log_placed where observed > 0"


def _held(value: int | None) -> str:
    return "a record that cannot be decoded" if value is None else f"value {value}"


def _source(row: Row, side: str, evidence: Evidence) -> tuple[str, int | None]:
    """Who says that the value is there, acknowledgement first."""
    if row[f"{side}_ack_op"] is not None:
        op = row[f"{side}_ack_op"]
        return f"acknowledged to {evidence.who(op)} at {evidence.returned(op)}", op
    op = row[f"{side}_seen_op"]
    return f"read by {evidence.who(op)} at {evidence.called(op)}", op


def _inconsistent(row: Row, evidence: Evidence) -> Explanation:
    first, first_op = _source(row, "low", evidence)
    second, second_op = _source(row, "high", evidence)
    claim = (
        f"offset {row['position']} of {row['key']} holds {_held(row['low'])} ({first}) "
        f"and {_held(row['high'])} ({second})"
    )
    if row["held"] > 2:
        claim += f", {row['held']} different values in all"
    return Explanation(f"{claim}.", (first_op, second_op), row["held"] - 2)


INCONSISTENT_OFFSET: Final = Check(
    anomaly="inconsistent-offset",
    meaning="one offset of a partition was seen with two different values",
    views=(
        View(
            "found_inconsistent_offset",
            """
            select p.key as key, p.position as position, min(p.value) as low,
                case when count(*) > count(p.value) then null else max(p.value) end as high, count(*) as held
            from log_placed p join log_offsets o on p.key = o.key and p.position = o.position
            where o.held > 1 and p.acks + p.observed > 0
            group by p.key, p.position
            """,
            keep=True,
        ),
    ),
    evidence=f"""
        select f.key as key, f.position as position, f.low as low, f.high as high, f.held as held,
            min(a.ack_op) as low_ack_op, min(a.seen_op) as low_seen_op,
            min(b.ack_op) as high_ack_op, min(b.seen_op) as high_seen_op
        from {first_rows("found_inconsistent_offset", "key, position")} f
            join log_placed a on f.key = a.key and f.position = a.position and f.low = a.value
            join log_placed b on f.key = b.key and f.position = b.position
                and (f.high = b.value or (f.high is null and b.value is null))
        group by f.key, f.position, f.low, f.high, f.held {order_by("f.key, f.position")}
        """,
    examined="select count(*) as examined from log_offsets",
    explain=_inconsistent,
)


def _duplicate(row: Row, evidence: Evidence) -> Explanation:
    first, first_op = _source(row, "low", evidence)
    second, second_op = _source(row, "high", evidence)
    claim = (
        f"value {row['value']} of {row['key']} is at offset {row['low']} ({first}) "
        f"and at offset {row['high']} ({second})"
    )
    if row["offsets"] > 2:
        claim += f", at {row['offsets']} offsets in all"
    if row["live"] > 1:
        claim += f", though it was sent only {row['live']} times"
    named = (row["send_op"], first_op, second_op)
    return Explanation(f"{claim}.", named, row["offsets"] - 2, moments=evidence.span(second_op))


DUPLICATE: Final = Check(
    anomaly="duplicate",
    meaning="one value sits at two or more offsets",
    views=(
        View(
            "found_duplicate",
            """
            select key, value, low, high, offsets, live, send_op
            from log_values where value is not null and offsets > 1 and offsets > live
            """,
            keep=True,
        ),
    ),
    evidence=f"""
        select f.key as key, f.value as value, f.low as low, f.high as high, f.offsets as offsets, f.live as live,
            f.send_op as send_op, a.ack_op as low_ack_op, a.seen_op as low_seen_op,
            b.ack_op as high_ack_op, b.seen_op as high_seen_op
        from {first_rows("found_duplicate", "key, low, value")} f
            join log_placed a on f.key = a.key and f.value = a.value and f.low = a.position
            join log_placed b on f.key = b.key and f.value = b.value and f.high = b.position
        {order_by("f.key, f.low, f.value")}
        """,
    examined="select count(*) as examined from log_values where offsets > 0",
    explain=_duplicate,
)


def _aborted(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} was read at offset {row['low']} of {row['key']} by {evidence.who(row['seen_op'])} "
        f"at {evidence.called(row['seen_op'])}, but its send by {evidence.who(row['send_op'])} "
        f"at {evidence.called(row['send_op'])} had definitely failed."
    )
    return Explanation(claim, (row["send_op"], row["seen_op"]), row["observed"] - 1)


ABORTED_READ: Final = Check(
    anomaly="aborted-read",
    meaning="a value was read although its write had certainly failed",
    views=(
        View(
            "found_aborted_read",
            """
            select key, value, low, observed, send_op, seen_op
            from log_values where observed > 0 and live = 0 and failed > 0
            """,
            keep=True,
        ),
    ),
    evidence=f"""
        select key, value, low, observed, send_op, seen_op from found_aborted_read
        {order_by("key, low, value")} limit {MOST_FINDINGS}
        """,
    examined=_OBSERVED,
    explain=_aborted,
)


def _phantom(row: Row, evidence: Evidence) -> Explanation:
    sender = "nobody sent it" if row["other_op"] is None else f"no one sent it there: {sent_to(row, evidence)}"
    claim = (
        f"{_held(row['value'])} was read at offset {row['low']} of {row['key']} by {evidence.who(row['seen_op'])} "
        f"at {evidence.called(row['seen_op'])}, but {sender}."
    )
    return Explanation(capital(claim), (row["seen_op"], row["other_op"]), row["observed"] - 1)


PHANTOM: Final = Check(
    anomaly="phantom",
    meaning="a value was read that no one wrote",
    views=(
        View(
            "found_phantom",
            """
            select key, value, low, observed, seen_op from log_values where observed > 0 and live = 0 and failed = 0
            """,
            keep=True,
        ),
    ),
    evidence=f"""
        select f.key as key, f.value as value, f.low as low, f.observed as observed, f.seen_op as seen_op,
            t.other_key as other_key, t.send_op as other_op, t.again as again
        from {first_rows("found_phantom", "key, low, value")} f
            left join log_strays t on f.key = t.key and f.value = t.value and t.source = 1
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined=_OBSERVED,
    explain=_phantom,
    needs_close=True,
)
