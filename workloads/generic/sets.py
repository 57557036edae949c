"""Set workload: acknowledged elements must be in the set in the end; for any system that stores values.

A client inherits from :class:`SetClient` and executes two operations on the set ``operation.key``. ``add`` stores its
argument, a unique number; ``read`` returns all elements. Its contract is ``forbid(*SET_ANOMALIES)``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from assay import Completed, Context, Effect, Generator, Operation, Phase, sequence, unfold, until_ok

KEY: Final = "elements"
ADD, READ = "add", "read"


def step(number: int, context: Context, keys: Sequence[str] = (KEY,)) -> tuple[Operation, int]:
    return Operation(ADD, keys[number % len(keys)], number), number + 1


def traffic(keys: Sequence[str] = (KEY,)) -> Generator:
    """Yields adds of unique elements to the sets in turn, and reads of the sets after the last heal."""
    return unfold(partial(step, keys=keys), 0) | final_reads(keys)


def final_reads(keys: Sequence[str] = (KEY,)) -> Generator:
    """Yields reads of each set until a read is answered, and then four reads more."""
    reads = [Operation(READ, key, phase=Phase.DRAIN) for key in keys]
    return sequence(*map(until_ok, reads), reads * 4)


def effects(completed: Completed) -> Sequence[Effect]:
    key = str(completed.operation.key)
    if completed.operation.f == ADD:
        return [Effect("set-add", key, value=completed.operation.argument)]
    return [Effect("set-read", key, value=value) for value in completed.completion.result or [None]]


class SetClient:
    """Base class of the clients of this workload."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return effects(completed)
