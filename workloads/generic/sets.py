"""Elements are added to a set, and those that were acknowledged are in it in the end: for any system that stores.

A client answers two operations on the set that is their key: ``add`` stores its argument, a number that is used once,
and ``read`` returns all that are there. It inherits from :class:`SetClient`, and its contract is
``forbid(*SET_ANOMALIES)``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from assay import Completed, Context, Effect, Generator, Operation, Phase, as_generator, unfold

KEY: Final = "elements"
ADD, READ = "add", "read"


def step(number: int, context: Context, keys: Sequence[str] = (KEY,)) -> tuple[Operation, int]:
    return Operation(ADD, keys[number % len(keys)], number), number + 1


def traffic(keys: Sequence[str] = (KEY,)) -> Generator:
    """Adds one after the other, to each of these sets in turn, and reads when all faults are healed."""
    return unfold(partial(step, keys=keys), 0) | final_reads(keys)


def final_reads(keys: Sequence[str] = (KEY,)) -> Generator:
    """What is there in the end, asked for five times."""
    return as_generator([Operation(READ, key, phase=Phase.DRAIN) for key in keys] * 5)


def effects(completed: Completed) -> Sequence[Effect]:
    key = str(completed.operation.key)
    if completed.operation.f == ADD:
        return [Effect("set-add", key, value=completed.operation.argument)]
    return [Effect("set-read", key, value=value) for value in completed.completion.result or [None]]


class SetClient:
    """What clients of this workload inherit."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)
