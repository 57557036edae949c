"""Ends phases after the last heal that would never end. These phases have no time limit of their own.

A phase is ended if

1. it waits for the clients of a node that does not serve again;
2. no operation is answered, although new processes take over and ask again;
3. it gets answers, but reads no new record for as long as the drain limit. A record that was read before, or that the
   phase has written itself, is not new. So each phase comes to an end.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from assay.checkers.judging.contract import Contract
from assay.harness.core.effect_recording import Recorder
from assay.harness.core.generator import describe_generator
from assay.harness.core.interpreter import Interpreter
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.run.settings import Settings

CHECK_INTERVAL: Final = 0.25
"""Seconds between two checks."""
ANSWER_FACTOR: Final = 3
"""A phase without an answer ends after this multiple of the time that an operation or a node's recovery may take."""
TIMEOUTS: Final = 3
"""The drain limit is the longest deadline plus this many operation timeouts."""
READ_KINDS: Final = frozenset({"observe", "monotonic-read", "queue-dequeue", "set-read", "txn-read"})
"""Kinds of effects that show a record which some operation wrote."""


def compute_drain_limit(contract: Contract, settings: Settings) -> float:
    """Returns the seconds that a phase may go on without a new record."""
    if settings.drain_limit is not None:
        return settings.drain_limit
    return contract.longest_deadline + TIMEOUTS * settings.operation_timeout


class NewRecordCounter:
    """A ``Recorder`` that passes operations on, and counts the records that are read for the first time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: set[tuple[Any, ...]] = set()
        self.enabled = False
        """Whether it counts; set after the last heal."""
        self.count = 0

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None:
        """Records an operation that has ended."""
        self._recorder.completed(completed, effects)
        for effect in effects if self.enabled else ():
            record = (effect.key, effect.position if effect.value is None else effect.value)
            if record not in self._known:
                self._known.add(record)
                self.count += effect.kind in READ_KINDS and completed.completion.outcome is Outcome.OK


async def wait_for_standstill(
    interpreter: Interpreter, patience: float, operation_timeout: float, records: NewRecordCounter, limit: float
) -> None:
    """Returns when the phase will make no more progress, and writes the reason into the status.

    ``patience``: seconds to wait for clients to be open. ``limit``: seconds without a new record.
    """
    loop, status = asyncio.get_running_loop(), interpreter.status
    answer_wait = ANSWER_FACTOR * max(patience, operation_timeout)
    opened_at = answered_at = progressed_at = checked_at = loop.time()
    answers, unknown = status.ok + status.fail, status.info
    reached = (len(interpreter.phases), records.count)
    while loop.time() < min(opened_at + patience, answered_at + answer_wait, progressed_at + limit):
        await asyncio.sleep(CHECK_INTERVAL)
        if not interpreter.unopened_nodes:
            opened_at = loop.time()
        if status.ok + status.fail > answers or status.info == unknown:  # an answer, or no operation ended without one
            answered_at, answers, unknown = loop.time(), status.ok + status.fail, status.info
        if loop.time() > answered_at + operation_timeout:
            # Time without any answer counts for the second rule, not for the third.
            progressed_at += loop.time() - checked_at
        checked_at = loop.time()
        if (now := (len(interpreter.phases), records.count)) != reached:
            progressed_at, reached = loop.time(), now
    if loop.time() >= opened_at + patience:
        status.open_wait, status.unopened_nodes = patience, interpreter.unopened_nodes
    elif loop.time() >= answered_at + answer_wait:
        status.answer_wait = answer_wait
    else:
        status.endless = limit, describe_generator(interpreter.phases[0])  # the present phase
