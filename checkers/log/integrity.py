"""Integrity of a log: one value per offset, one offset per value, and only values whose send did not fail.

``views`` creates the tables that these checks read, and explains their columns, except for ``log_strays``: records that
were read in another partition than they were sent to (``wrong_partition``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, VALUE, Check
from assay.checkers.engine import INFINITY
from assay.checkers.log.views import LOCATIONS
from assay.checkers.log.wrong_partition import DESTINATION, STRAYS
from assay.checkers.sql_idioms import EARLIEST, first_rows_subquery, order_by, select_nearest_pairs

_EXAMINED: Final = "select count(*) as examined from log_value_offsets where observed > 0"
"""SQL: the number of values that were read at an offset."""


def _describe_source(which: str) -> str:
    """Returns a template of the operation that states that the value is there."""
    op = f"{which}_op"
    return f"[{which}_acked=1?acknowledged to {{{op}}} at {{{op}:returned}}|read by {{{op}}} at {{{op}:called}}]"


_FIRST_INCONSISTENT: Final = first_rows_subquery("found_inconsistent_offset", "key, position")

INCONSISTENT_OFFSET: Final = Check(
    anomaly="inconsistent-offset",
    meaning="one offset of a partition was seen with two different values",
    violations="""
        select p.key, p.position, count(*) as held
        from log_value_offsets p join log_offsets o on p.key = o.key and p.position = o.position
        where o.held > 1 and p.acks + p.observed > 0
        group by p.key, p.position
        """,
    evidence=f"""
        select f.key, f.position, f.held, n.former_value as first_value, n.former_op as first_op,
            n.former_acked as first_acked, n.value as second_value, n.op as second_op, n.acked as second_acked,
            n.contradicted_at, {EARLIEST}
        from {_FIRST_INCONSISTENT} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.position, coalesce(s.value, {-INFINITY}) as side, s.moment, s.op, s.value, s.acked
            from {_FIRST_INCONSISTENT} f join log_locations s on f.key = s.key and f.position = s.position
            ''',
            "key, position",
            carry="value, acked",
        )
    }) n on f.key = n.key and f.position = n.position
        {order_by("f.key, f.position")}
        """,
    evidence_views=(LOCATIONS,),
    examined="select count(*) as examined from log_offsets",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="offset {position} of {key} holds [value {first_value}|a record that cannot be decoded] "
    f"({_describe_source('first')}) and [value {{second_value}}|a record that cannot be decoded] "
    f"({_describe_source('second')})[held>2?, {{held}} different values in all].",
    operations=("first_op", "second_op"),
    more="{held-2}",  # how many operations are not listed
    moments=("contradicted_at",),  # further times of cause and effect
    about=(OFFSET,),  # subjects of a finding
    explained_by=("resurrected",),
)


_FIRST_DUPLICATES: Final = first_rows_subquery("found_duplicate", "key, low, value")

DUPLICATE: Final = Check(
    anomaly="duplicate",
    meaning="one value is at two or more offsets",
    violations="""
        select key, value, low, high, offsets, live, send_op
        from log_values where value is not null and offsets > 1 and offsets > live
        """,
    evidence=f"""
        select f.key, f.value, f.offsets, f.live, f.send_op, n.former_side as first, n.former_op as first_op,
            n.former_acked as first_acked, n.side as second, n.op as second_op, n.acked as second_acked,
            {EARLIEST}
        from {_FIRST_DUPLICATES} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, s.position as side, s.moment, s.op, s.acked
            from {_FIRST_DUPLICATES} f join log_locations s on f.key = s.key and f.value = s.value
            ''',
            "key, value",
            carry="acked",
        )
    }) n on f.key = n.key and f.value = n.value
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(LOCATIONS,),
    examined="select count(*) as examined from log_values where offsets > 0",
    claim=f"value {{value}} of {{key}} is at offset {{first}} ({_describe_source('first')}) and at offset {{second}} "
    f"({_describe_source('second')})[offsets>2?, at {{offsets}} offsets in all][live>1?, though it was sent only "
    "{live} times].",
    operations=("send_op", "first_op", "second_op"),
    more="{offsets-2}",  # how many operations are not listed
    moments=("second_op",),  # further times of cause and effect
    about=(
        *(
            f"[offsets=2?[live=1?{subject}]]"
            for subject in (VALUE, "offset {first} of {key}", "offset {second} of {key}")
        ),
    ),
    explained_by=("inconsistent-offset", "misplaced-ack", "vanished"),
)


_FIRST_ABORTED: Final = first_rows_subquery("found_aborted_read", "key, low, value")

ABORTED_READ: Final = Check(
    anomaly="aborted-read",
    meaning="a value was read although its write had certainly failed",
    violations="""
        select key, value, low, observed, send_op, seen_op
        from log_values where observed > 0 and live = 0 and failed > 0
        """,
    evidence=f"""
        select f.key, f.value, f.observed, case when n.side = 1 then n.former_op else n.op end as send_op,
            case when n.side = 1 then n.op else n.former_op end as seen_op,
            coalesce(n.position, n.former_position) as position, {EARLIEST}
        from {_FIRST_ABORTED} f join ({
        select_nearest_pairs(
            f'''
            select s.key, s.value, 1 as side, s.moment, s.op, s.position
            from {_FIRST_ABORTED} f join log_locations s on f.key = s.key and f.value = s.value
            union all
            select s.key, s.value, 0, coalesce(s.ret, s.call), s.op, cast(null as bigint)
            from {_FIRST_ABORTED} f join log_sends s on f.key = s.key and f.value = s.value
            ''',
            "key, value",
            carry="position",
        )
    }) n on f.key = n.key and f.value = n.value
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(LOCATIONS,),
    examined=_EXAMINED,
    claim="value {value} was read at offset {position} of {key} by {seen_op} at {seen_op:called}, but its send by "
    "{send_op} at {send_op:called} had definitely failed.",
    operations=("send_op", "seen_op"),
    more="{observed-1}",  # how many operations are not listed
    about=(OFFSET, VALUE),  # subjects of a finding
    explained_by=("inconsistent-offset",),
)


PHANTOM: Final = Check(
    anomaly="phantom",
    meaning="a value was read that no one wrote",
    violations="""
        select key, value, low, observed, seen_op from log_values where observed > 0 and live = 0 and failed = 0
        """,
    evidence=f"""
        select f.key, f.value, f.low, f.observed, f.seen_op, t.other_key, t.send_op as other_op, t.again
        from {first_rows_subquery("found_phantom", "key, low, value")} f
            left join log_strays t on f.key = t.key and f.value = t.value and t.source = 1
        {order_by("f.key, f.low, f.value")}
        """,
    evidence_views=(STRAYS,),
    examined=_EXAMINED,
    claim="[Value {value}|A record that cannot be decoded] was read at offset {low} of {key} by {seen_op} at "
    f"{{seen_op:called}}, but no one sent it[other_op? there: {DESTINATION}].",
    more="{observed-1}",  # how many operations are not listed
    about=("offset {low} of {key}", VALUE),  # subjects of a finding
    explained_by=("altered-record", "resurrected", "inconsistent-offset"),
    needs_close=True,  # proves nothing about a run that was cut short
)
