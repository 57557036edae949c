"""Values that only grow: no process sees a value and then a smaller one (Jepsen's monotonic).

A workload records itself in ``effects`` as follows (``key`` is a value's name; nothing else may change the value):

- ``monotonic-add``: ``value`` is the value after the operation, null if unknown.
- ``monotonic-read``: one row with ``value`` for each value that a read shows. Null: nothing was there.

Both say that an operation *saw* a value, and only ok ones do. The definition is that of Elle's ``monotonic-key-graph``
with the order of processes. An operation comes before another

- if it saw a smaller number of some value, or
- if one process performed both and it was the earlier one, or
- if the contract says so (``transaction_order="real-time"``) and it had returned before the other was called.

Operations that come before each other in a cycle contradict each other:

- ``nonmonotonic-read``: the smallest cycle, two operations of one process that saw one value fall. After a fall the
  process counts as another one, so that the fall is not found twice.
- ``monotonic-cycle``: all other cycles. The smallest is two reads of two values, each of which saw more of one and less
  of the other.
- ``monotonic-cycle-real-time``: a cycle that needs real time.

There is no cycle iff some order of the operations, which keeps the order of each process (and real time), has no value
fall. Whether a value was ever made what a read shows is not checked, because an add of unknown outcome does not say
what it made. If each add adds one and real time is promised, ``counters`` checks more; ``max_registers`` does so for a
value that is written.
"""

from typing import Final

from assay.checkers.check import MOST_FINDINGS, Check, EachOperation, Family, Table
from assay.checkers.objects.kinds import family
from assay.checkers.objects.monotonic_cycles import FALLS, NOTHING, SEEN, find_cycles
from assay.checkers.sql_idioms import order_by, select_first

NONMONOTONIC_READ: Final = Check(
    anomaly="nonmonotonic-read",
    meaning="one process saw a value that only grows, and then less of it",
    views=(Table("found_nonmonotonic_read", f"select * from {FALLS.name}"),),
    evidence=select_first("found_nonmonotonic_read", "key, process, op", also="op as less_op"),
    examined=f"select count(*) as examined from {SEEN.name} where former is not null",
    claim="{key}: {less_op} saw {former} at {former_op:returned}, and only "
    f"[value={NOTHING}?nothing|{{value}}] in an operation that it called at {{less_op:called}}.",
    about=("what operation {less_op:number} saw",),
)


def _declare_cycle_check(anomaly: str, meaning: str, explained_by: tuple[str, ...]) -> Check:
    table = f"found_{anomaly.replace('-', '_')}"
    return Check(
        anomaly=anomaly,
        meaning=meaning,
        views=(Table(table, f"select * from monotonic_found where anomaly = '{anomaly}'"),),
        evidence=f"""
            select key, claim, ops, more, first_op, second_op from {table}
            {order_by("number")} limit {MOST_FINDINGS}
            """,
        examined=f"select count(*) as examined from {SEEN.name}",
        claim="{claim}",
        operations=("ops",),
        more="{more}",
        about=(EachOperation("ops", "what operation {} saw"),),
        explained_by=explained_by,
    )


MONOTONIC_CYCLE: Final = _declare_cycle_check(
    "monotonic-cycle", "operations saw values that only grow in orders that contradict each other", ()
)
MONOTONIC_CYCLE_REAL_TIME: Final = _declare_cycle_check(
    "monotonic-cycle-real-time",
    "operations saw values that only grow in orders that contradict each other, or the times of operations",
    ("nonmonotonic-read", "monotonic-cycle"),
)

MONOTONIC: Final = family("monotonic", (NONMONOTONIC_READ, MONOTONIC_CYCLE), (SEEN, FALLS), find_cycles)


MONOTONIC_REAL_TIME: Final = Family(
    name="monotonic-real-time",
    checks=(MONOTONIC_CYCLE_REAL_TIME,),
    applies="""
        select coalesce(sum(e.many), 0) as examined from effect_kinds e cross join txn_declared d
        where e.kind in ('monotonic-add', 'monotonic-read') and d.transaction_order = 'real-time'
        """,
)
"""Must come after ``MONOTONIC``, which makes its tables."""

MONOTONIC_ANOMALIES: Final = MONOTONIC.anomalies
"""All anomalies that are reported if the contract declares no order of real time."""
