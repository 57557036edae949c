"""A search on every core: independent explorers in processes of their own, each with its own seed.

The first explorer that finds a failure shrinks it, and the other explorers are ended. If the shrinking crashes or is
interrupted, the smallest example reported so far is the result. The processes end with their parent, even if that is
killed. They share no corpus, so each explorer is a function of its seed; only their order varies.
"""

import fcntl
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from assay.harness.run.interrupt import ignore_terminal_signals
from assay.harness.search.code_coverage.counter import CodePlace
from assay.harness.search.example import Example
from assay.harness.search.explore import Explorer, FoundFailure, Tally

REPORT_INTERVAL: Final = 10.0
"""Seconds between two reports of progress."""
GRACE: Final = 5.0
"""Seconds for a terminated process to end."""


_EXIT: Final = os._exit
"""The function itself, because a simulated run replaces ``os._exit``."""

MakeExplorer = Callable[[int, Callable[[str], None]], Explorer]


@dataclass(frozen=True)
class ExplorationResult:
    """Result of a search over all its workers."""

    found: FoundFailure | None
    tally: Tally
    interrupted: bool = False
    reached: Mapping[str, int] = field(default_factory=dict)
    """Each feature (``Tally.states`` counts them), with the number of examples that reached it. The numbers are seconds
    old if the search was interrupted."""
    code: frozenset[CodePlace] = frozenset()
    """Each line and branch of the system that an example reached."""
    broken: str = ""
    """The traceback of the explorer, if it raised an exception while it shrank its failure."""
    endless: tuple[Example, ...] = ()
    """Examples that did not end."""
    died: tuple[Example, ...] = ()
    """Examples whose playing process died."""


class WorkerError(Exception):
    """An explorer raised an exception; the message is its traceback."""


def run_search(make: MakeExplorer, workers: int, note: Callable[[str], None]) -> ExplorationResult:
    """Runs the workers. ``make(number, note)`` creates the explorer of a worker, from 0, in the worker's own process.

    Raises :class:`WorkerError` if an explorer raises an exception before a failure was found. ``KeyboardInterrupt``
    ends all workers; the result is what they have reported so far.
    """
    context = multiprocessing.get_context("fork")
    processes: dict[Connection, BaseProcess] = {}
    try:
        for number in range(workers):
            # Each worker has its own pipe, because a worker killed in the middle of a message leaves a corrupt pipe.
            ours, theirs = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(
                target=_run_worker, args=(make, number, theirs), name=f"explorer {number}", daemon=True
            )
            process.start()
            theirs.close()
            processes[ours] = process
        return _collect_results(dict(processes), note)
    except KeyboardInterrupt:  # no worker has reported yet
        return ExplorationResult(None, Tally(), interrupted=True)
    finally:
        for process in processes.values():
            process.terminate()
        for connection, process in processes.items():
            process.join(GRACE)
            if process.is_alive():
                process.kill()
            connection.close()


def _end_with_parent() -> None:
    """Ends this process as soon as its parent has ended, even if that is killed.

    The parent holds one end of a pipe, whose other end is the sentinel. The kernel signals the end of the file, so no
    thread has to wait for it: a process with two threads cannot fork safely.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGIO, lambda *_: _EXIT(1))
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([parent.sentinel], 0):  # it had ended before
        _EXIT(1)


def _run_worker(make: MakeExplorer, number: int, parent: Connection) -> None:
    _end_with_parent()
    ignore_terminal_signals()
    try:
        explorer = make(number, lambda line: parent.send(("note", line)))
        explorer.on_found = lambda found: parent.send(("found", found))
        explorer.on_endless = lambda example: parent.send(("endless", example))
        explorer.on_died = lambda example: parent.send(("died", example))
        explorer.on_progress = _ProgressReporter(explorer, parent)
        found = explorer.run()
        parent.send(("tally", explorer.tally))
        parent.send(("reached", (explorer.reached, explorer.code)))
        parent.send(("done", found))
    except BaseException:  # noqa: BLE001 - the parent reports it
        parent.send(("broken", traceback.format_exc()))


class _ProgressReporter:
    """Reports the tally of an explorer, and every few seconds what it has reached."""

    def __init__(self, explorer: Explorer, parent: Connection) -> None:
        self._explorer = explorer
        self._parent = parent
        self._next = time.monotonic() + REPORT_INTERVAL

    def __call__(self, tally: Tally) -> None:
        self._parent.send(("tally", tally))
        if time.monotonic() >= self._next:
            self._parent.send(("reached", (self._explorer.reached, self._explorer.code)))
            self._next = time.monotonic() + REPORT_INTERVAL


def _collect_results(running: dict[Connection, BaseProcess], note: Callable[[str], None]) -> ExplorationResult:
    began = reported = time.monotonic()
    tallies: dict[str, Tally] = {}
    reached: dict[str, tuple[Counter[str], set[CodePlace]]] = {}
    found: FoundFailure | None = None
    endless: list[Example] = []
    died: list[Example] = []
    interrupted, broken = False, ""
    try:
        while running:
            for ready in wait(list(running), REPORT_INTERVAL):
                if not isinstance(ready, Connection) or ready not in running:
                    continue
                name = running[ready].name
                kind, content = _receive(ready, running[ready])
                if kind == "note":
                    note(f"{name}: {content}")
                elif kind == "tally":
                    tallies[name] = content
                elif kind == "reached":
                    reached[name] = content
                elif kind == "endless":
                    endless.append(content)
                elif kind == "died":
                    died.append(content)
                elif kind == "found":
                    found = content
                    for other in [one for one in running if one is not ready]:
                        running.pop(other).terminate()
                elif kind == "done":
                    del running[ready]
                    found = content or found
                elif found is None:
                    raise WorkerError(content)
                else:  # the failure found before is still valid
                    del running[ready]
                    broken = content
            if time.monotonic() - reported >= REPORT_INTERVAL:
                reported = time.monotonic()
                note(f"explored {_merge_tallies(tallies.values(), reported - began)}")
    except KeyboardInterrupt:
        interrupted = True
    states = sum((counts for counts, _ in reached.values()), Counter())
    code = frozenset(place for _, places in reached.values() for place in places)
    tally = _merge_tallies(tallies.values(), time.monotonic() - began)
    return ExplorationResult(found, tally, interrupted, states, code, broken, tuple(endless), tuple(died))


def _receive(connection: Connection, process: BaseProcess) -> tuple[str, Any]:
    try:
        kind, content = connection.recv()
    except (EOFError, OSError):  # OSError: in the middle of a message
        process.join(GRACE)
        return "broken", f"{process.name} died with exit code {process.exitcode}"
    return kind, content


def _merge_tallies(tallies: Collection[Tally], seconds: float) -> Tally:
    """Sums up tallies. Workers reach overlapping states, lines and branches, so their maximum stands for the sum."""
    return Tally(
        examples=sum(tally.examples for tally in tallies),
        states=max((tally.states for tally in tallies), default=0),
        lines=max((tally.lines for tally in tallies), default=0),
        branches=max((tally.branches for tally in tallies), default=0),
        corpus=sum(tally.corpus for tally in tallies),
        verdicts=dict(sum((Counter(tally.verdicts) for tally in tallies), Counter())),
        seconds=seconds,
    )
