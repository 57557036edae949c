"""Clients whose methods block: they say ``blocking = True`` and are run in a thread of their own.

One thread per client, and not a shared pool: a call that outlives its time limit cannot be cancelled, only left
behind, and must not take a thread that another client needs; nor does it keep the process from ending, which no pool of
Python's own promises. There are no threads in the simulation.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from assay.harness.core.client import Client, Endpoint, effects_of
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
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


class Threaded:
    """A blocking client as a client of coroutines."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.effects: Callable[[Completed], Sequence[Effect]] = effects_of(client)
        threading.Thread(target=self._work, name="client", daemon=True).start()

    @property
    def keeps(self) -> bool:
        return bool(getattr(self._client, "keeps", False))

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await self._in_thread(lambda: self._client.open(endpoint, runtime))

    async def invoke(self, operation: Operation) -> Completion:
        return await self._in_thread(lambda: self._client.invoke(operation))

    async def close(self) -> None:
        try:
            await self._in_thread(self._client.close)
        finally:
            self._calls.put(None)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(call, answer))
        return await answer

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            if not asked.answer.cancelled():
                asked.make()


@dataclass(frozen=True)
class _Call:
    """One call for the thread, and where its end goes, on the loop's own thread."""

    call: Callable[[], Any]
    answer: asyncio.Future[Any]

    def make(self) -> None:
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is waited for
            self._hand_over(self.answer.set_exception, _plain(error))
        else:
            self._hand_over(self.answer.set_result, result)

    def _hand_over(self, give: Callable[[Any], None], what: Any) -> None:
        def unless_given_up() -> None:
            if not self.answer.done():
                give(what)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over, and no one waits
            self.answer.get_loop().call_soon_threadsafe(unless_given_up)


def _plain(error: BaseException) -> BaseException:
    """A future does not take ``StopIteration``, which would end a coroutine in silence."""
    return RuntimeError(f"{type(error).__name__}: {error}") if isinstance(error, StopIteration) else error


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
