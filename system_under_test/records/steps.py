"""Work on compressed sets in steps, so that no producer or consumer holds up the others.

A small compressed set may hold many megabytes. A generator does such work and yields where other tasks may run:

1. It yields first before it decompresses or compresses anything. A set of ordinary size without compressed entries is
   checked without a yield.
2. It yields again after each step. A step takes some tens of milliseconds at most.

Work on large sets is done for one request at a time, in *turns*. A turn takes many steps. Work on a small set is done
in a single step, so it needs no turn, and does not wait for the turns of others. A set is small if it has at most
``SMALL_BYTES`` as sent, as many decompressed, and at most ``SMALL_MESSAGES`` messages. So the decompressed bytes of one
large set and one small set at most are in memory.

The points at which a generator yields depend on its data only, never on a clock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
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

SMALL_BYTES: Final = 64 * 1024
"""Maximum bytes of a small set as it was sent, and of the decompressed content of its compressed entries."""
SMALL_MESSAGES: Final = 1024
"""Maximum messages of a small set, so also its maximum number of compressed entries."""


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


async def run_at_once(work: Callable[[], T]) -> T:
    """Does the work of a small set in a single step, after other tasks have run."""
    await asyncio.sleep(0)  # many requests may each have such a step
    return work()


class Turns:
    """Runs the work of many requests in steps. Only one of them is in work at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[T], attempt: Callable[[], T | None] | None = None) -> T:
        """Returns the result of the work. Other tasks run meanwhile, unless the work is short.

        ``attempt`` does the whole work in a single step if the set is small, else returns None.
        """
        try:
            next(steps)
            if attempt is not None and (done := await run_at_once(attempt)) is not None:
                return done
            async with self._lock:
                while True:
                    await asyncio.sleep(0)  # before the step: many requests may each have a single one
                    next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Waits for a turn, and holds it during the block.

        A caller that also needs a lock must take the turn first. Otherwise those who only need the lock would wait for
        the turns of others.
        """
        async with self._lock:
            yield
