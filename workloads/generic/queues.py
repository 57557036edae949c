"""Elements go through a queue, and those that were acknowledged come out of it: for any system with queues.

A client answers three operations on the queue ``operation.key``: ``enqueue`` adds its argument, a number that is used
once; ``dequeue`` takes one element, if there is any; ``drain`` takes all until it finds the end of the queue. Both
return a list of what they took, also one that was broken off. It inherits from :class:`QueueClient`.
"""

from collections.abc import Sequence
from typing import Final

from assay import (
    QUEUE_ANOMALIES,
    Completed,
    Context,
    Contract,
    Effect,
    Generator,
    Operation,
    Outcome,
    Phase,
    forbid,
    phases,
    repeat,
    stagger,
    time_limit,
    unfold,
)  # fmt: skip

ENQUEUE, DEQUEUE, DRAIN = "enqueue", "dequeue", "drain"
SETTLED: Final = 10.0
"""Seconds after the last heal, in which a system takes back what clients held that are gone."""


def traffic(key: str) -> Generator:
    """Puts in as much as it takes out; when all faults are healed, takes for ``SETTLED`` seconds, and then the rest."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f = context.choose((ENQUEUE, DEQUEUE), salt=1)
        return Operation(f, key, number if f == ENQUEUE else None), number + 1

    slowly = time_limit(SETTLED, stagger(0.1, repeat(Operation(DEQUEUE, key, phase=Phase.DRAIN))))
    return unfold(step, 0) | phases(slowly, [Operation(DRAIN, key, phase=Phase.DRAIN)] * 5)


def effects(completed: Completed) -> Sequence[Effect]:
    f, key, completion = completed.operation.f, str(completed.operation.key), completed.completion
    if f == ENQUEUE:
        return [Effect("queue-enqueue", key, value=completed.operation.argument)]
    if completion.result is None:  # given up by the harness: one may be taken yet, and by a drain any number
        return [Effect("queue-drained" if f == DRAIN else "queue-dequeue", key)]
    taken = [Effect("queue-dequeue", key, value=value, outcome=Outcome.OK) for value in completion.result]
    if f == DRAIN and completion.outcome is Outcome.OK:
        return [*taken, Effect("queue-drained", key)]
    if f == DRAIN and completion.outcome is Outcome.INFO:  # what was on its way may be given out again to no one
        return [*taken, Effect("queue-dequeue", key)]
    nothing = Outcome.OK if completion.outcome is Outcome.OK else Outcome.FAIL
    return taken or [Effect("queue-dequeue", key, outcome=nothing)]


class QueueClient:
    """What clients of this workload inherit."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)


def at_least_once(*, may_stall: Sequence[str] = ()) -> Contract:
    """``may_stall``: the faults under which no one is served."""
    because = "an element is given out again when its first taker does not say that it has it"
    return forbid(*QUEUE_ANOMALIES, may_stall=may_stall).tolerate("queue-duplicate", because=because)
