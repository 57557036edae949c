"""Elements pass through a queue, and acknowledged ones come out of it; for any system with queues.

A client inherits from :class:`QueueClient` and executes three operations on the queue ``operation.key``:

- ``enqueue`` adds its argument, a unique number
- ``dequeue`` takes one element, if there is any
- ``drain`` takes elements until the queue is empty

Dequeue and drain return a list of the elements that they took. An interrupted one has outcome ``info`` and the list so
far: the system may have taken one more element for it, unless a dequeue already has its element. If it certainly took
none, because the system gives an element to another client until its taker confirms it, a dequeue has outcome ``fail``.
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
"""Seconds after the last heal in which a system requeues the elements that lost clients held."""


def traffic(key: str) -> Generator:
    """Enqueues and dequeues equally often. After the last heal dequeues for ``REQUEUE_SECONDS``, then drains."""

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
    if completion.result is None:  # given up by the harness: a dequeue may still take one element, a drain any number
        return [Effect("queue-drained" if f == DRAIN else "queue-dequeue", key)]
    taken = [Effect("queue-dequeue", key, value=value, outcome=Outcome.OK) for value in completion.result]
    if f == DRAIN and completion.outcome is Outcome.OK:
        return [*taken, Effect("queue-drained", key)]
    if f == DRAIN and completion.outcome is Outcome.INFO:  # an element in flight may be delivered to no client
        return [*taken, Effect("queue-dequeue", key)]
    return taken or [Effect("queue-dequeue", key)]


class QueueClient:
    """Base class of the clients of this workload."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)


def build_contract(*, may_stall: Sequence[str] = ()) -> Contract:
    """Forbids all queue anomalies but ``queue-duplicate``, which it tolerates. ``may_stall`` as in ``assay.forbid``.

    For a queue that promises to deliver each element once, use ``forbid(*QUEUE_ANOMALIES)``.
    """
    because = "an element is given out again when its first taker does not say that it has it"
    return forbid(*QUEUE_ANOMALIES, may_stall=may_stall).tolerate("queue-duplicate", because=because)
