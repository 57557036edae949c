"""The harness's side of a client that lives on a node: looks like the client itself, and holds a connection to it.

Only what the client says is known. A connection that is lost once an operation was sent leaves it ``info``; the worker
that has it then opens another, as often as it takes, and so finds a process that was started again. A client that keeps
is kept after an unknown outcome that it has said itself; without an answer, nothing more can be asked of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from assay.harness.core.client import Endpoint, effects_of
from assay.harness.core.observed_node import Observed
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.remote.messages import LONGEST, Answer, Answered, Invoke, Open, Opened, Raised, encode, receive

LOST = Completion(Outcome.INFO, error="worker-lost")


class RemoteError(Exception):
    """What a client on a node raised; its traceback there is a note of it."""


class RemoteClient:
    """Of the class ``kind``, whose ``effects`` it has. ``limit``: seconds for an operation."""

    def __init__(self, kind: type[Any], limit: float) -> None:
        self.effects: Callable[[Completed], Sequence[Effect]] = effects_of(kind)
        self._limit = limit
        self.keeps = False
        self._endpoint: Endpoint | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Raises ``OSError``, and :class:`RemoteError` for what the client's own ``open`` raised."""
        if endpoint.home is None:
            raise ValueError(f"no node is named for a client of {endpoint.node} to live on")
        host, _, port = endpoint.home.address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=LONGEST)
        self._endpoint = endpoint
        sent = endpoint.plain if isinstance(endpoint, Observed) else endpoint
        answer = await self._ask(Open(replace(sent, home=None), self._limit))
        if not isinstance(answer, Opened):
            raise ConnectionError(f"the worker process of {endpoint.home.node} was gone before the client was open")
        self.keeps = answer.keeps
        self._learn(others=answer.others)

    async def invoke(self, operation: Operation) -> Completion:
        """Raises :class:`RemoteError` for what escaped from the client, and ``TypeError`` for what JSON cannot say."""
        keeps, self.keeps = self.keeps, False
        try:
            answer = await self._ask(Invoke(operation))
        except OSError:
            return LOST
        if not isinstance(answer, Answered):
            return LOST
        self.keeps = keeps
        self._learn(others=answer.others)
        return answer.completion

    async def close(self) -> None:
        """The client there lets its operation end, and closes by itself."""
        if self._writer is not None:
            self._writer.close()

    def _learn(self, *, others: bool) -> None:
        """What the client there has asked for is known of its endpoint here, too."""
        if others and isinstance(self._endpoint, Observed):
            self._endpoint.ask_for_others()

    async def _ask(self, request: Open | Invoke) -> Any:
        assert self._reader is not None, "open comes first"
        assert self._writer is not None, "open comes first"
        self._writer.write(encode(request))
        await self._writer.drain()
        answer = await receive(self._reader, Answer)
        if isinstance(answer, Raised):
            error = RemoteError(answer.error)
            error.add_note(f"on its node:\n{answer.traceback}")
            raise error
        return answer
