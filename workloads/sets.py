"""Elements are added to one set, and those that were acknowledged are in it in the end: for any system that stores.

A client answers two operations: ``add`` stores its argument, a number that is used once, and ``read`` returns all that
are there. It inherits from :class:`SetClient`, and its contract is ``forbid(*SET_ANOMALIES)``.
"""

from collections.abc import Sequence
from typing import Final

from assay import Completed, Context, Effect, Generator, Operation, Phase, as_generator, unfold

KEY: Final = "elements"
ADD, READ = "add", "read"


def step(number: int, context: Context) -> tuple[Operation, int]:
    return Operation(ADD, KEY, number), number + 1


def traffic() -> Generator:
    """Adds one after the other, and reads when all faults are healed."""
    return unfold(step, 0) | final_reads()


def final_reads() -> Generator:
    """What is there in the end, asked for five times."""
    return as_generator([Operation(READ, KEY, phase=Phase.DRAIN)] * 5)


def effects(completed: Completed) -> Sequence[Effect]:
    if completed.operation.f == ADD:
        return [Effect("set-add", KEY, value=completed.operation.argument)]
    return [Effect("set-read", KEY, value=value) for value in completed.completion.result or [None]]


class SetClient:
    """What clients of this workload inherit."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)
