"""Phases after the last heal have no time limit, and are ended when they would never come to their end.

A generator may wait for the clients of a node that never serves again; or it asks again for each process that takes the
place of one whose operation was not answered, and none ever is.
"""

import asyncio
from typing import Final

from assay.harness.core.interpreter import Interpreter

LOOK_EVERY: Final = 0.25
"""Seconds."""
UNANSWERED: Final = 3
"""So many times as long as an operation, or the recovery of a node, may take: a slow system answers now and then."""


async def until_endless(interpreter: Interpreter, patience: float, operation_timeout: float) -> None:
    """Returns when there is nothing more to be expected, and notes in the report why.

    ``patience``: seconds for which it may wait for clients to be open.
    """
    loop, report = asyncio.get_running_loop(), interpreter.report
    unanswered = UNANSWERED * max(patience, operation_timeout)
    went_on = answered = loop.time()
    answers, unknown = report.ok + report.fail, report.info
    while loop.time() < min(went_on + patience, answered + unanswered):
        await asyncio.sleep(LOOK_EVERY)
        if not interpreter.waits_for:
            went_on = loop.time()
        if report.ok + report.fail > answers or report.info == unknown:  # an answer, or nothing that was asked
            answered, answers, unknown = loop.time(), report.ok + report.fail, report.info
    if loop.time() < went_on + patience:
        report.unanswered = unanswered
    else:
        report.deserted, report.deserted_by = patience, interpreter.waits_for
