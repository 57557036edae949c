"""Clients whose methods block: they say ``blocking = True`` and are run in a thread of their own.

One thread per client, and not a shared pool: a call that outlives its time limit cannot be cancelled, only left
behind, and must not take a thread that another client needs. Such a client should have socket timeouts of its own, for
a thread that never returns keeps the interpreter from exiting. There are no threads in the simulation.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from assay.harness.core.client import Client, Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation

T = TypeVar("T")


class BlockingClientError(Exception):
    """A blocking client was asked to run where there are no threads."""


class BlockingClient(Protocol):
    """As :class:`~assay.harness.core.client.Client`, with plain methods."""

    blocking: bool

    def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    def invoke(self, operation: Operation) -> Completion: ...

    def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]: ...


class Threaded:
    """A blocking client as a client of coroutines."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="client")
        self.effects: Callable[[Completed], Sequence[Effect]] = client.effects

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await self._in_thread(lambda: self._client.open(endpoint, runtime))

    async def invoke(self, operation: Operation) -> Completion:
        return await self._in_thread(lambda: self._client.invoke(operation))

    async def close(self) -> None:
        try:
            await self._in_thread(self._client.close)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def adapt(client: Any) -> Client:
    """``client`` itself, or in a thread if it says that it blocks. Raises ``BlockingClientError`` in the simulation."""
    if not getattr(client, "blocking", False):
        adapted: Client = client
        return adapted
    if getattr(asyncio.get_running_loop(), "simulated", False):
        raise BlockingClientError(
            f"{type(client).__name__} blocks (blocking = True) and the simulation has no threads: "
            "write it with coroutines, or run it against real nodes"
        )
    threaded: Any = Threaded(client)
    return threaded  # type: ignore[no-any-return]
