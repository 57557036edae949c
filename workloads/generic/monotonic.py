"""Monotonic workload (as in Jepsen): counters that only grow and are read together, for any system with increments.

A client executes two operations, and uses this module's ``effects``:

- ``add`` increments the counter ``operation.key`` and returns its new value
- ``read`` returns a mapping of the counters named in its argument, without missing ones
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from assay import (
    MONOTONIC_ANOMALIES,
    Completed,
    Context,
    Contract,
    Effect,
    Generator,
    Operation,
    Outcome,
    Phase,
    forbid,
    sequence,
    unfold,
    until_ok,
)  # fmt: skip

KEYS: Final = tuple(f"counter-{number}" for number in range(4))
ADD, READ = "add", "read"


def step(number: int, context: Context) -> tuple[Operation, int]:
    """Returns the next operation: an add, or a read of one counter or of all of them."""
    if context.random_below(2, salt=1):
        return Operation(ADD, context.choose(KEYS, salt=2)), number + 1
    wanted = KEYS if context.random_below(2, salt=3) else (context.choose(KEYS, salt=2),)
    return Operation(READ, argument=list(wanted)), number + 1


def traffic() -> Generator:
    """Yields adds and reads, and after the last heal reads of all counters."""
    read = Operation(READ, argument=list(KEYS), phase=Phase.DRAIN)
    return unfold(step, 0) | sequence(until_ok(read), [read] * 4)


def effects(completed: Completed) -> Sequence[Effect]:
    operation, result = completed.operation, completed.completion.result
    ok = completed.completion.outcome is Outcome.OK
    if operation.f == ADD:
        return [Effect("monotonic-add", str(operation.key), value=result if ok else None)]
    shown = result if ok else {}
    return [Effect("monotonic-read", key, value=shown.get(key)) for key in operation.argument]


def build_contract(*, real_time: bool = False, may_stall: Sequence[str] = ()) -> Contract:
    """Returns a contract: no process sees a counter fall, and no two reads contradict each other.

    - ``real_time``: also, no process sees a smaller value than another process has seen before
    - ``may_stall``: faults under which no request is served
    """
    if not real_time:
        return forbid(*MONOTONIC_ANOMALIES, may_stall=may_stall)
    contract = forbid(*MONOTONIC_ANOMALIES, "monotonic-cycle-real-time", may_stall=may_stall)
    return msgspec.structs.replace(contract, transaction_order="real-time")
