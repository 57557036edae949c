"""Progress lines for steps that take seconds if an engine or a host is far away, and an instant if it is near.

With an engine that is reached by SSH, each command logs in again and takes a second or more. So the start and the
removal of a cluster would be silent for half a minute. A step that ends soon needs no line: its line is shown only if
the step is still running after ``SLOW_SECONDS``.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

SLOW_SECONDS = 2.0
"""Seconds after which a step gets a line."""


AGAIN_SECONDS = 15.0
"""Seconds after which a step that still runs gets another line."""


@contextmanager
def note_if_slow(progress: Callable[[str], None], step: str, *, is_slow: bool = False) -> Iterator[None]:
    """Shows the step as progress if the block takes longer than ``SLOW_SECONDS``, and its duration from time to time.

    ``is_slow``: the step is known to be slow, so it is shown at once. For coroutines on a real loop.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    timer: asyncio.TimerHandle

    def show(text: str) -> None:
        nonlocal timer
        progress(text)
        timer = loop.call_later(AGAIN_SECONDS, show_duration)

    def show_duration() -> None:
        show(f"{step}: {loop.time() - begun:.0f} s so far")

    if is_slow:
        show(f"{step} ...")
    else:
        timer = loop.call_later(SLOW_SECONDS, show, f"{step} ...")
    try:
        yield
    finally:
        timer.cancel()


def iterate_noting(
    progress: Callable[[str], None],
    items: Iterable[T],
    describe: Callable[[T], str],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yields the items. Shows each as progress before it is yielded, once ``SLOW_SECONDS`` have passed.

    For work in a thread, one item after the other.
    """
    begun = clock()
    for item in items:
        if clock() - begun >= SLOW_SECONDS:
            progress(f"{describe(item)} ...")
        yield item
