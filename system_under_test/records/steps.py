"""Work on compressed sets in steps, so that no producer or consumer holds up the others.

A small compressed set may hold many megabytes. A generator does such work and yields where other tasks may run:

1. It yields first before it decompresses or compresses anything. A set of ordinary size without compressed entries is
   checked without a yield.
2. It yields again after each step. A step takes some tens of milliseconds at most.

Work that decompresses is done for one request at a time. So the decompressed bytes of one set at most are in memory.
The points at which a generator yields depend on its data only, never on a clock.
"""

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]

STEP_BYTES: Final = 1024 * 1024
"""Decompressed bytes that a step processes, about. The smallest message has 26 bytes."""
ENTRY_COST: Final = 1024
"""Each compressed entry counts as at least so many bytes."""

PLAIN_COST: Final = 32
"""Each uncompressed message counts as so many bytes, unless it is of the common kind, which is checked faster."""
REWRITE_STEP: Final = 16 * 1024
"""Messages that a step rewrites or decodes."""


def run(steps: Steps[T]) -> T:
    """Runs the work to its end at once, and returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_beside(steps: Steps[T]) -> T:
    """Runs the work, and lets other tasks run after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


class Turns:
    """Runs the work of many requests in steps. Only one of them decompresses at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """Returns the result of the work. Other tasks run meanwhile, unless the work is short."""
        try:
            next(steps)
            async with self._lock:
                while True:
                    await asyncio.sleep(0)  # before the step: many requests may each have a single one
                    next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
