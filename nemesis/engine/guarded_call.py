"""Turns every error of a fault into a message.

A fault acts on machines that are broken on purpose, and calls a user's system, which may have bugs. Their errors must
not end the run. The error is reported, with its traceback if it was not expected.
"""

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from assay.cluster.node import NodeError
from assay.cluster.system import DeploymentError
from assay.nemesis.schedule.target import TargetError

ACTION_SECONDS = 30.0
"""An injection or a heal that takes longer has failed. A start over SSH takes less than one second."""
KNOWN_ERRORS = (NodeError, DeploymentError, TargetError)
"""Errors whose message is sufficient. For other errors the traceback is kept."""


async def run_guarded(seconds: float | None, action: Coroutine[Any, Any, None]) -> str | None:
    """Runs an action to its end, or to the deadline if there is one. Returns the error, or None.

    Only cancellation is raised.
    """
    try:
        async with asyncio.timeout(seconds) as deadline:
            await action
    except KNOWN_ERRORS as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a user's system, fault or node may raise anything: it is reported whole
        if isinstance(error, TimeoutError) and deadline.expired():
            return f"it did not end within {seconds:g} s"
        return "".join(traceback.format_exception(error)).strip()
    return None
