"""Queue workload: acknowledged elements must come out of a queue; for any system with queues.

A client inherits from :class:`QueueClient` and executes three operations on the queue ``operation.key``:

- ``enqueue`` adds its argument, a unique number
- ``dequeue`` takes one element, if there is any
- ``drain`` takes elements until the queue is empty

Dequeue and drain return a list of the elements that they took. If such an operation is interrupted, its outcome is
``info``, and its result is the list so far. The system may have taken one more element for the operation, except for a
dequeue whose list has an element. A dequeue that certainly took no element has the outcome ``fail``. An interrupted
dequeue is certain of this in systems that deliver an element again until a client confirms it.
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
    until_ok,
)  # fmt: skip

ENQUEUE, DEQUEUE, DRAIN = "enqueue", "dequeue", "drain"
REQUEUE_SECONDS: Final = 10.0
"""Seconds after the last heal in which a system must deliver elements of lost clients again."""


def traffic(key: str) -> Generator:
    """Yields enqueues and dequeues; after the last heal dequeues for ``REQUEUE_SECONDS``, and then drains."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        f = context.choose((ENQUEUE, DEQUEUE), salt=1)
        return Operation(f, key, number if f == ENQUEUE else None), number + 1

    slowly = time_limit(REQUEUE_SECONDS, stagger(0.1, repeat(Operation(DEQUEUE, key, phase=Phase.DRAIN))))
    drain = Operation(DRAIN, key, phase=Phase.DRAIN)
    return unfold(step, 0) | phases(slowly, until_ok(drain), [drain] * 4)


def effects(completed: Completed) -> Sequence[Effect]:
    f, key, completion = completed.operation.f, str(completed.operation.key), completed.completion
    if f == ENQUEUE:
        return [Effect("queue-enqueue", key, value=completed.operation.argument)]
    if completion.result is None:  # timed out: a dequeue may still take one element, a drain any number
        return [Effect("queue-drained" if f == DRAIN else "queue-dequeue", key)]
    taken = [Effect("queue-dequeue", key, value=value, outcome=Outcome.OK) for value in completion.result]
    if f == DRAIN and completion.outcome is Outcome.OK:
        return [*taken, Effect("queue-drained", key)]
    if f == DRAIN and completion.outcome is Outcome.INFO:  # it may have taken one more element
        return [*taken, Effect("queue-dequeue", key)]
    return taken or [Effect("queue-dequeue", key)]


class QueueClient:
    """Base class of the clients of this workload."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)


def build_contract(*, may_stall: Sequence[str] = ()) -> Contract:
    """Returns a contract that tolerates ``queue-duplicate`` and forbids all other queue anomalies.

    For a queue that promises to deliver each element once, use ``forbid(*QUEUE_ANOMALIES)``. ``may_stall``: as in
    ``assay.forbid``.
    """
    because = "an element is given out again when its first taker does not say that it has it"
    return forbid(*QUEUE_ANOMALIES, may_stall=may_stall).tolerate("queue-duplicate", because=because)
