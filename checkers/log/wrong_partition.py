"""Records in another partition than they were sent to, for findings about each of the two partitions.

A value is astray if it was read from a key to which no client sent it, and was sent to another key with any outcome but
fail. Values are unique only per key, so sends of one number to two partitions prove nothing.

``views`` explains the tables of the log that this module reads but does not create.
"""

from typing import Final

from assay.checkers.check import Table
from assay.checkers.sql_idioms import row_number, strip_partition_incarnation

UNSENT_VALUES: Final = Table(
    "log_unsent",
    """
    select key, value, low as position, seen_op from log_values
    where observed > 0 and live = 0 and failed = 0 and value is not null
    """,
)
"""Values that were read under a key but never sent to it. Nearly always there are none."""

STRAYS: Final = Table(
    "log_strays",
    f"""
    select key, value, position, seen_op, other_key, send_op, again,
        {row_number(by="key, value", order="again, send_op, other_key")} as source,
        {row_number(by="other_key, value", order="again, seen_op, key")} as sight
    from (
        select v.key, v.value, v.position, v.seen_op, s.key as other_key,
            min(s.op) as send_op,
                case when {strip_partition_incarnation("s.key")} = {strip_partition_incarnation("v.key")}
                    then 1 else 0 end as again
        from log_unsent v join log_sends s on v.value = s.value and v.key <> s.key
        where s.outcome <> 'fail'
        group by v.key, v.value, v.position, v.seen_op, s.key) as astray
    """,
    reads_other_keys=True,
)
"""Rows with ``source`` 1 name a key to which the value was sent. Rows with ``sight`` 1 name a key from which it was
read instead. ``again``: both keys are one partition of a topic that was deleted and created again.
"""

ELSEWHERE: Final = "t.key as other_key, t.position as other_position, t.seen_op as other_op, t.again"
"""Columns that ``SIGHTING`` needs, from a row ``t`` of ``log_strays``."""

# `[condition?text|other text]` is a choice: see `checkers.claims`.
DESTINATION: Final = (
    "{other_op} had sent it to [again=1?{other_key}, an earlier topic's|another partition, {other_key}], at "
    "{other_op:called}"
)
"""Template: where a value was sent instead."""

SIGHTING: Final = (
    "it was read in [again=1?{other_key}, a later topic's|another partition, {other_key}], at offset {other_position} "
    "({other_op} at {other_op:called})"
)
"""Template: where a value was read instead."""
