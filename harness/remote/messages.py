"""What harness and worker process say to each other: one JSON object per line, a request and its answer in turns.

================  =====================================================================================
``open``          make a client and open it at this endpoint -> ``opened``, or ``raised``
``invoke``        one operation -> ``answered``, or ``raised`` with what escaped from the client
``greet``         are you there? -> ``opened``
end of the line   no one waits any more: the operation under way may end, then the client is closed
================  =====================================================================================

Operations and results are what JSON can say: a tuple arrives as a list, and the keys of a mapping as text.
"""

import asyncio
from typing import Any, TypeVar

import msgspec

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation

PORT = 7070
LONGEST = 64 << 20
"""Bytes of one line."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """``limit``: seconds for opening, for closing, and for an operation whose outcome no one waits for any more."""

    endpoint: Endpoint
    limit: float


class Invoke(msgspec.Struct, frozen=True, tag="invoke"):
    operation: Operation


class Greet(msgspec.Struct, frozen=True, tag="greet"):
    """Only to see whether the process answers."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """Ready for the next request. ``keeps``: the client's own, where it has it (``assay.harness.core.client``).

    ``others``: it has asked for other addresses than its endpoint's own (``assay.harness.core.observed_node``).
    """

    keeps: bool = False
    others: bool = False


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """``others``: as of :class:`Opened`."""

    completion: Completion
    others: bool = False


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """``error`` in one line, and the whole ``traceback``, of an exception that escaped from the client."""

    error: str
    traceback: str


Request = Open | Invoke | Greet
Answer = Opened | Answered | Raised

M = TypeVar("M")


def encode(message: Request | Answer) -> bytes:
    """Raises ``TypeError`` for an argument or a result that JSON cannot say."""
    return msgspec.json.encode(message) + b"\n"


async def receive(reader: asyncio.StreamReader, kind: Any) -> Any:
    """The next message of this kind (``Request``, ``Answer``); None at the end of the line.

    Raises ``OSError``, also for a line that makes no sense.
    """
    try:
        line = await reader.readline()
    except ValueError as error:
        raise ConnectionError(f"a message of more than {LONGEST} bytes") from error
    if not line.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise ConnectionError(f"not a message: {line[:80]!r}: {error}") from error
