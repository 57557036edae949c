"""Clients with blocking methods (``blocking = True``), each run in a thread of its own.

The threads are not pooled. A call past its time limit can only be abandoned, not cancelled, and an abandoned call must
not hold a thread that another client needs. It must not keep the process from ending either, and Python's own pools do
not promise that. The simulation has no threads.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from assay.harness.core.client import Client, Endpoint, find_effects, is_kept_after_info
from assay.harness.core.operation import Completed, Completion, Effect, Operation

T = TypeVar("T")


class BlockingClientError(Exception):
    """A blocking client was used in the simulation, which has no threads."""


class BlockingClient(Protocol):
    """Counterpart of :class:`~assay.harness.core.client.Client` with plain methods."""

    blocking: bool

    def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    def invoke(self, operation: Operation) -> Completion: ...

    def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


class ThreadedClient:
    """Adapter that gives a blocking client the interface of an asynchronous one."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.effects: Callable[[Completed], Sequence[Effect]] = find_effects(client)
        threading.Thread(target=self._execute_calls, name="client", daemon=True).start()

    @property
    def survives_info(self) -> bool:
        """Whether the client stays in use after an operation of unknown outcome."""
        return is_kept_after_info(self._client)

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await self._run_in_thread(lambda: self._client.open(endpoint, runtime))

    async def invoke(self, operation: Operation) -> Completion:
        return await self._run_in_thread(lambda: self._client.invoke(operation))

    async def close(self) -> None:
        try:
            await self._run_in_thread(self._client.close)
        finally:
            self._calls.put(None)

    async def _run_in_thread(self, function: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(function, result))
        return await result

    def _execute_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            if not call.result.cancelled():
                call.execute()


@dataclass(frozen=True)
class _Call:
    """A call for the thread, and the future on the event loop that receives its result."""

    function: Callable[[], Any]
    result: asyncio.Future[Any]

    def execute(self) -> None:
        try:
            value = self.function()
        except StopIteration as error:  # a future does not accept it, because it would silently end a coroutine
            self._complete(self.result.set_exception, RuntimeError(f"{type(error).__name__}: {error}"))
        except BaseException as error:  # noqa: BLE001 - raised at the await of the call
            self._complete(self.result.set_exception, error)
        else:
            self._complete(self.result.set_result, value)

    def _complete(self, set_outcome: Callable[[Any], None], outcome: Any) -> None:
        def set_unless_cancelled() -> None:
            if not self.result.done():
                set_outcome(outcome)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over, and no one waits
            self.result.get_loop().call_soon_threadsafe(set_unless_cancelled)


def adapt_client(client: Any) -> Client:
    """Returns ``client`` itself, or its :class:`ThreadedClient` adapter if it blocks.

    Raises ``BlockingClientError`` for a blocking client in the simulation.
    """
    if not getattr(client, "blocking", False):
        return cast("Client", client)
    if getattr(asyncio.get_running_loop(), "simulated", False):
        raise BlockingClientError(
            f"{type(client).__name__} blocks (blocking = True) and the simulation has no threads: "
            "write it with coroutines, or run it against real nodes"
        )
    return cast("Client", ThreadedClient(client))
