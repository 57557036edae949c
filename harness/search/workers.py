"""One search on every core: independent explorers in processes of their own, each with a seed of its own.

The first that fails makes its example small while the others end; what it has reached by then is kept when the search
is interrupted, or when that one breaks. The processes end with the one that started them, no matter how that ends. They
share no corpus, so that what each of them does is a function of its seed; which one comes first is not.
"""

import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from assay.harness.run.interrupt import leave_to_parent
from assay.harness.search.code_coverage.counter import Place
from assay.harness.search.example import Example
from assay.harness.search.explore import Explorer, Found, Tally
from assay.harness.search.fork_server import end_with

NOTE_EVERY: Final = 10.0
GRACE: Final = 5.0
"""Seconds for a process to end that was asked to."""


Make = Callable[[int, Callable[[str], None]], Explorer]


@dataclass(frozen=True)
class Result:
    """What a search came to, over all its workers."""

    found: Found | None
    tally: Tally
    interrupted: bool = False
    reached: Mapping[str, int] = field(default_factory=dict)
    """Every state that an example came to, with how many did; of an interrupted search as it was some seconds ago."""
    code: frozenset[Place] = frozenset()
    """Every line and branch of the system that an example came to."""
    broken: str = ""
    """How the explorer that had found it broke while it made it small."""
    endless: tuple[Example, ...] = ()
    """Those that did not come to their end."""
    died: tuple[Example, ...] = ()
    """Those of which the process that played them died."""


class WorkerError(Exception):
    """An explorer broke; the message is its traceback."""


def search(make: Make, workers: int, note: Callable[[str], None]) -> Result:
    """``make(number, note)`` gives each worker its explorer, from 0, in the worker's own process.

    Raises :class:`WorkerError` for one that breaks before anything was found. ``KeyboardInterrupt`` ends all of them;
    the result is what is known by then.
    """
    context = multiprocessing.get_context("fork")
    everyone: dict[Connection, _Worker] = {}
    parent = os.getpid()
    try:
        for number in range(workers):
            # A pipe for each: what one that is ended in the middle of a message leaves behind is no other's concern.
            ours, theirs = context.Pipe(duplex=False)
            arguments = (make, number, theirs, parent)
            process = context.Process(target=_work, args=arguments, name=f"explorer {number}", daemon=True)
            process.start()
            theirs.close()
            everyone[ours] = _Worker(number, process)
        return _follow(dict(everyone), note)
    except KeyboardInterrupt:  # before there was anything to follow
        return Result(None, Tally(), interrupted=True)
    finally:
        for worker in everyone.values():
            worker.process.terminate()
        for connection, worker in everyone.items():
            worker.process.join(GRACE)
            if worker.process.is_alive():
                worker.process.kill()
            connection.close()


@dataclass(frozen=True)
class _Worker:
    number: int
    process: BaseProcess


def _work(make: Make, number: int, parent: Connection, pid: int) -> None:
    end_with(pid)
    leave_to_parent()
    try:
        explorer = make(number, lambda line: parent.send(("note", line)))
        explorer.on_found = lambda found: parent.send(("found", found))
        explorer.on_endless = lambda example: parent.send(("endless", example))
        explorer.on_died = lambda example: parent.send(("died", example))
        explorer.on_progress = _Progress(explorer, parent)
        found = explorer.run()
        parent.send(("tally", explorer.tally))
        parent.send(("reached", (explorer.reached, explorer.code)))
        parent.send(("done", found))
    except BaseException:  # noqa: BLE001 - the parent reports it
        parent.send(("broken", traceback.format_exc()))


class _Progress:
    """Says how far an explorer is, and now and then what it has reached."""

    def __init__(self, explorer: Explorer, parent: Connection) -> None:
        self._explorer = explorer
        self._parent = parent
        self._next = time.monotonic() + NOTE_EVERY

    def __call__(self, tally: Tally) -> None:
        self._parent.send(("tally", tally))
        if time.monotonic() >= self._next:
            self._parent.send(("reached", (self._explorer.reached, self._explorer.code)))
            self._next = time.monotonic() + NOTE_EVERY


def _follow(running: dict[Connection, _Worker], note: Callable[[str], None]) -> Result:
    began = noted = time.monotonic()
    tallies: dict[int, Tally] = {}
    reached: dict[int, tuple[Counter[str], set[Place]]] = {}
    found: Found | None = None
    endless: list[Example] = []
    died: list[Example] = []
    interrupted, broken = False, ""
    try:
        while running:
            for ready in wait(list(running), NOTE_EVERY):
                if not isinstance(ready, Connection) or ready not in running:
                    continue
                worker = running[ready]
                kind, content = _received(ready, worker)
                if kind == "note":
                    note(f"explorer {worker.number}: {content}")
                elif kind == "tally":
                    tallies[worker.number] = content
                elif kind == "reached":
                    reached[worker.number] = content
                elif kind == "endless":
                    endless.append(content)
                elif kind == "died":
                    died.append(content)
                elif kind == "found":
                    found = content
                    for other in [one for one in running if one is not ready]:
                        running.pop(other).process.terminate()
                elif kind == "done":
                    del running[ready]
                    found = content or found
                elif found is None:
                    raise WorkerError(content)
                else:  # what was found was not found any less
                    del running[ready]
                    broken = content
            if time.monotonic() - noted >= NOTE_EVERY:
                noted = time.monotonic()
                note(f"explored {_together(tallies, noted - began)}")
    except KeyboardInterrupt:
        interrupted = True
    states = sum((counts for counts, _ in reached.values()), Counter())
    code = frozenset(place for _, places in reached.values() for place in places)
    tally = _together(tallies, time.monotonic() - began)
    return Result(found, tally, interrupted, states, code, broken, tuple(endless), tuple(died))


def _received(connection: Connection, worker: _Worker) -> tuple[str, Any]:
    try:
        kind, content = connection.recv()
    except (EOFError, OSError):  # the latter in the middle of a message
        worker.process.join(GRACE)
        return "broken", f"explorer {worker.number} died with exit code {worker.process.exitcode}"
    return kind, content


def _together(tallies: dict[int, Tally], seconds: float) -> Tally:
    """Sums; states, lines and branches are counted per worker, so the largest number stands for all."""
    verdicts: dict[str, int] = {}
    for tally in tallies.values():
        for verdict, count in tally.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + count
    return Tally(
        examples=sum(tally.examples for tally in tallies.values()),
        states=max((tally.states for tally in tallies.values()), default=0),
        lines=max((tally.lines for tally in tallies.values()), default=0),
        branches=max((tally.branches for tally in tallies.values()), default=0),
        corpus=sum(tally.corpus for tally in tallies.values()),
        verdicts=verdicts,
        seconds=seconds,
    )
