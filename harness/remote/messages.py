"""The protocol between harness and worker process: one JSON object per line. Each request gets one answer.

================  =========================================================================================
``open``          makes a client and opens it at this endpoint -> ``opened``, or ``raised``
``invoke``        invokes one operation -> ``answered``, or ``raised`` with an exception of the client
``greet``         checks that the process answers -> ``opened``
``call``          calls a method of the system -> ``called``, ``call-failed``, or ``raised``; before it answers, the
                  worker may ask for methods of nodes: ``node-call``, each answered by a ``node-result``
``carry``         connects to this Unix socket, which carries further connections as standard input and output do ->
                  ``opened``, or ``call-failed``
``relay``         connects to this address -> ``opened``, or ``call-failed``; all further bytes are relayed
end of stream     the harness waits no longer: the running operation may end, then the client is closed
================  =========================================================================================

Operations and results must be plain data (``assay.harness.core.plain_data``): a tuple or a set arrives as a list.
"""

import asyncio
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import structs

from assay.harness.core.client import Endpoint
from assay.harness.core.interpreter_status import describe_error
from assay.harness.core.operation import Completion, Operation
from assay.harness.core.plain_data import to_plain_data
from assay.harness.core.printable import to_encodable

PORT = 7070
MOST_TRACE: Final = 100_000
"""Characters of a traceback that are reported."""
MAX_LINE = 64 << 20
"""Maximum length of a line in bytes."""
MAX_RELAYED = 1 << 16
"""Maximum bytes that a relay reads at a time."""


class OpenRequest(msgspec.Struct, frozen=True, tag="open"):
    """``limit``: maximum seconds to open, to close, and to end an operation after the harness has given up waiting."""

    endpoint: Endpoint
    limit: float


class Invoke(msgspec.Struct, frozen=True, tag="invoke"):
    operation: Operation


class GreetRequest(msgspec.Struct, frozen=True, tag="greet"):
    """Only checks that the process answers."""


class CallRequest(msgspec.Struct, frozen=True, tag="call"):
    """``call``: a pickled ``SystemCall`` (``assay.harness.remote.system_calls``)."""

    call: bytes


class NodeResult(msgspec.Struct, frozen=True, tag="node-result"):
    """``result``: what the node's method returned or, if ``raised``, the exception; pickled."""

    number: int
    result: bytes
    raised: bool = False


class CarryRequest(msgspec.Struct, frozen=True, tag="carry"):
    """``path``: of a Unix socket of the harness, as the worker process finds it."""

    path: str


class RelayRequest(msgspec.Struct, frozen=True, tag="relay"):
    """``timeout``: maximum seconds to connect."""

    host: str
    port: int
    timeout: float


class OpenedAnswer(msgspec.Struct, frozen=True, tag="opened"):
    """Ready for the next request.

    ``survives_info``: see ``assay.harness.core.client``. ``read_other_nodes``: whether the client has read
    addresses of other nodes (``assay.harness.core.observed_node``).
    """

    survives_info: bool = False
    read_other_nodes: bool = False


class InvokedAnswer(msgspec.Struct, frozen=True, tag="answered"):
    """The result of an operation. ``read_other_nodes``: see :class:`OpenedAnswer`."""

    completion: Completion
    read_other_nodes: bool = False


class RaisedAnswer(msgspec.Struct, frozen=True, tag="raised"):
    """An exception that escaped from the client: ``error`` on one line, and the full ``traceback``."""

    error: str
    traceback: str


def make_raised_answer(error: BaseException) -> RaisedAnswer:
    """Returns the answer for an exception. Its text may be huge, or hold bytes that are no UTF-8 (lone surrogates)."""
    return RaisedAnswer(describe_error(error), to_encodable("".join(traceback.format_exception(error))[:MOST_TRACE]))


class CalledAnswer(msgspec.Struct, frozen=True, tag="called"):
    """``result``: what the system's method returned, as MessagePack."""

    result: bytes


class FailedCallAnswer(msgspec.Struct, frozen=True, tag="call-failed"):
    """An error that the harness knows by the name of its class, with the ``text`` of its message."""

    kind: str
    text: str
    errno: int | None = None


class NodeCallAnswer(msgspec.Struct, frozen=True, tag="node-call"):
    """Asks for a method of a node. ``arguments``: positional and named arguments, as MessagePack."""

    number: int
    node: str
    method: str
    arguments: bytes


Request = OpenRequest | Invoke | GreetRequest | CallRequest | NodeResult | CarryRequest | RelayRequest
Answer = OpenedAnswer | InvokedAnswer | RaisedAnswer | CalledAnswer | FailedCallAnswer | NodeCallAnswer

# ``msgspec.json.decode`` examines a union at each call, which takes ten times as long as the decoding itself.
REQUESTS: "Final[msgspec.json.Decoder[Request]]" = msgspec.json.Decoder(Request)
"""Decodes what the harness sends."""
ANSWERS: "Final[msgspec.json.Decoder[Answer]]" = msgspec.json.Decoder(Answer)
"""Decodes what a worker process sends."""

M = TypeVar("M")


class ObservedReader(asyncio.StreamReader):
    """Stream reader that reports the end of its stream at once, even while no one reads."""

    def __init__(self) -> None:
        super().__init__(limit=MAX_LINE)
        self.has_ended = False
        """Whether the other side sends no more. Bytes that arrived before may still be unread."""
        self.on_end: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        super().feed_eof()
        self._report_end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._report_end()

    def _report_end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            if self.on_end is not None:
                self.on_end()


def encode_message(message: Request | Answer) -> bytes:
    """Encodes a message. Raises ``TypeError`` for an argument or a result that is no plain data.

    An argument is only examined, so that the client gets the zero ``-0.0`` as it is.
    """
    if isinstance(message, InvokedAnswer):
        result = to_plain_data(message.completion.result)
        message = structs.replace(message, completion=structs.replace(message.completion, result=result))
    elif isinstance(message, Invoke):
        to_plain_data(message.operation.argument)
    return msgspec.json.encode(message) + b"\n"


async def receive_message(reader: asyncio.StreamReader, decoder: "msgspec.json.Decoder[M]") -> M | None:
    """Returns the next message for this decoder (``REQUESTS``, ``ANSWERS``), or None at the end of the stream.

    Raises ``OSError``, also for an invalid line.
    """
    try:
        line = await reader.readline()
    except ValueError as error:
        raise ConnectionError(f"a message of more than {MAX_LINE} bytes") from error
    if not line.endswith(b"\n"):
        return None
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConnectionError(f"not a message: {line[:80]!r}: {error}") from error
