"""Proxy in the harness for a client on a node. It has the client's interface and a connection to the worker process.

If the connection is lost after an operation was sent, the outcome is ``info``. The interpreter's worker then tries to
connect until it succeeds, and so finds a restarted process. A client with a true attribute ``survives_info`` is kept if
it returned ``info`` itself. If no answer came at all, it is given up, because its connection cannot be used any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from assay.harness.core.client import Endpoint, find_effects
from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.remote.messages import (
    ANSWERS,
    MAX_LINE,
    Invoke,
    InvokedAnswer,
    OpenedAnswer,
    OpenRequest,
    RaisedAnswer,
    encode_message,
    receive_message,
)
from assay.harness.remote.multiplexer import ByteWriter

Connect = Callable[[Endpoint], Awaitable[tuple[asyncio.StreamReader, ByteWriter]]]

WORKER_LOST = Completion(Outcome.INFO, error="worker-lost")


class RemoteError(Exception):
    """An exception of a client on a node. Its traceback there is added as a note."""


async def connect_directly(endpoint: Endpoint) -> tuple[asyncio.StreamReader, ByteWriter]:
    """Connects to the worker process of the endpoint's client node."""
    return await asyncio.open_connection(*split_home(endpoint), limit=MAX_LINE)


def split_home(endpoint: Endpoint) -> tuple[str, int]:
    """Returns address and port of the worker process of the endpoint's client node."""
    if endpoint.home is None:
        raise ValueError(f"the endpoint of {endpoint.node} names no client node")
    host, _, port = endpoint.home.address.rpartition(":")
    return host.strip("[]"), int(port)


class RemoteClient:
    """Proxy for a client of class ``kind``, whose ``effects`` it uses.

    - ``limit``: seconds for an operation
    - ``connect``: opens a connection to the worker process that the client of this endpoint lives in
    """

    def __init__(self, kind: type[Any], limit: float, connect: Connect = connect_directly) -> None:
        self.effects: Callable[[Completed], Sequence[Effect]] = find_effects(kind)
        self._limit = limit
        self._connect = connect
        self.survives_info = False
        self._endpoint: Endpoint | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: ByteWriter | None = None

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Opens the client. Raises ``OSError``, and :class:`RemoteError` for an exception of the client's ``open``."""
        self._reader, self._writer = await self._connect(endpoint)
        self._endpoint = endpoint
        # An observed endpoint records whether the client reads addresses of other nodes. The node observes its copy.
        plain = endpoint.plain if isinstance(endpoint, ObservedEndpoint) else endpoint
        answer = await self._ask(OpenRequest(replace(plain, home=None), self._limit))
        if not isinstance(answer, OpenedAnswer):
            home = "the clients' container" if endpoint.home is None else endpoint.home.node
            raise ConnectionError(f"the worker process of {home} was gone before the client was open")
        self.survives_info = answer.survives_info
        self._note_other_nodes(read=answer.read_other_nodes)

    async def invoke(self, operation: Operation) -> Completion:
        """Invokes an operation.

        Raises :class:`RemoteError` for an exception of the client, and ``TypeError`` for an argument that is no JSON
        data.
        """
        survives, self.survives_info = self.survives_info, False
        try:
            answer = await self._ask(Invoke(operation))
        except OSError:
            return WORKER_LOST
        if not isinstance(answer, InvokedAnswer):
            return WORKER_LOST
        self.survives_info = survives
        self._note_other_nodes(read=answer.read_other_nodes)
        return answer.completion

    async def close(self) -> None:
        """Closes the connection. The client on the node then lets its operation end, and closes by itself."""
        if self._writer is not None:
            self._writer.close()

    def _note_other_nodes(self, *, read: bool) -> None:
        """Records in the local endpoint whether the remote client has read addresses of other nodes."""
        if read and isinstance(self._endpoint, ObservedEndpoint):
            self._endpoint.note_read_others()

    async def _ask(self, request: OpenRequest | Invoke) -> Any:
        assert self._reader is not None, "open comes first"
        assert self._writer is not None, "open comes first"
        self._writer.write(encode_message(request))
        await self._writer.drain()
        answer = await receive_message(self._reader, ANSWERS)
        if isinstance(answer, RaisedAnswer):
            error = RemoteError(answer.error)
            error.add_note(f"on its node:\n{answer.traceback}")
            raise error
        return answer
