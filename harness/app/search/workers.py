"""One search on every core: independent explorers in processes of their own, each with a seed of its own.

The first that fails makes its example small while the others end. They share no corpus, so that what each of them does
is a function of its seed; which one comes first is not.
"""

from __future__ import annotations

import multiprocessing
import queue
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from harness.app.search.explore import Explorer, Found, Tally

POLL: Final = 0.2
GRACE: Final = 5.0
"""Seconds for a process to end that was told to."""


@dataclass(frozen=True)
class Result:
    """What a search came to, over all its workers."""

    found: Found | None
    tally: Tally


class WorkerError(Exception):
    """An explorer broke; the message is its traceback."""


def search(make: Callable[[int, Callable[[str], None]], Explorer], workers: int, note: Callable[[str], None]) -> Result:
    """``make(number, note)`` gives each worker its explorer, from 0, in the worker's own process.

    Raises :class:`WorkerError`; ``KeyboardInterrupt`` ends all of them.
    """
    context = multiprocessing.get_context("fork")
    messages: Any = context.Queue()
    processes = [
        context.Process(target=_work, args=(make, number, messages), name=f"explorer {number}", daemon=True)
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        return _follow(processes, messages, note)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(GRACE)
            if process.is_alive():
                process.kill()


def _work(make: Callable[[int, Callable[[str], None]], Explorer], number: int, messages: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        explorer = make(number, lambda line: messages.put((number, "note", line)))
        explorer.on_failure = lambda: messages.put((number, "failed", None))
        explorer.on_progress = lambda tally: messages.put((number, "tally", tally))
        found = explorer.run()
        messages.put((number, "tally", explorer.tally))
        messages.put((number, "done", found))
    except BaseException:  # noqa: BLE001 - whatever it was, the parent tells it
        messages.put((number, "broken", traceback.format_exc()))


def _follow(processes: list[Any], messages: Any, note: Callable[[str], None]) -> Result:
    began = told = time.monotonic()
    tallies: dict[int, Tally] = {}
    running = set(range(len(processes)))
    found: Found | None = None
    while running:
        try:
            number, kind, content = messages.get(timeout=POLL)
        except queue.Empty:
            for number in [number for number in running if not processes[number].is_alive()]:
                if messages.empty():
                    raise WorkerError(f"explorer {number} died with exit code {processes[number].exitcode}") from None
            continue
        if number not in running:
            continue
        if kind == "note":
            note(content if len(processes) == 1 else f"explorer {number}: {content}")
        elif kind == "tally":
            tallies[number] = content
        elif kind == "failed":
            for other in running - {number}:
                processes[other].terminate()
            running = {number}
        elif kind == "done":
            running.discard(number)
            found = found or content
        else:
            raise WorkerError(content)
        if time.monotonic() - told >= 10.0:
            told = time.monotonic()
            note(f"explored {_together(tallies, told - began)}")
    return Result(found, _together(tallies, time.monotonic() - began))


def _together(tallies: dict[int, Tally], seconds: float) -> Tally:
    """Sums; states are counted per worker, so the largest number stands for all."""
    verdicts: dict[str, int] = {}
    for tally in tallies.values():
        for verdict, count in tally.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + count
    return Tally(
        examples=sum(tally.examples for tally in tallies.values()),
        states=max((tally.states for tally in tallies.values()), default=0),
        corpus=sum(tally.corpus for tally in tallies.values()),
        verdicts=verdicts,
        seconds=seconds,
    )
