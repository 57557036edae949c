"""Worker of the interpreter: a task that opens a client, invokes operations, and replaces the client when needed.

The task lives as long as the worker and receives operations through a future. This costs a fraction of a new task, or
of ``asyncio.wait_for``, per operation. The interpreter enforces time limits by cancelling the task. If the operation is
marked as expired, the task treats the cancellation as a timeout and goes on.

If the system is down, a client may fail a thousand times a second, and each failure adds a useless row to the history.
Therefore a worker backs off: after ``FREE_FAILURES`` failures in a row, none of which took longer than
``IMMEDIATE_NS``, it waits before its next operation. The delay doubles with each further failure of this kind. The
jitter comes from the worker's number, not from random numbers, so a run stays repeatable by its seed.

No one waits for the task of a client that ignores its cancellation. The end of the run reports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import msgspec

from assay.harness.core.blocking import BlockingClientError, adapt_client
from assay.harness.core.client import Client, Endpoint, find_effects, is_kept_after_info, no_effects
from assay.harness.core.interpreter_status import InterpreterStatus, describe_error
from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.timestamps import Stamps

IMMEDIATE_NS: Final = 10_000_000
"""A failure within this many nanoseconds is immediate. A server that had to wait for another one takes longer."""
FREE_FAILURES: Final = 10
"""Number of immediate failures in a row without a delay. Short series are normal, for example while a lock is held."""
FIRST_DELAY: Final = 0.002
MAX_DELAY: Final = 0.1
"""Seconds of the first and of the longest delay of a back-off."""
GOLDEN_RATIO: Final = 0.618
"""Fractional part of the golden ratio. Modulo 1 its multiples lie far apart, which spreads the jitter."""


class Backoff:
    """The back-off state of one worker."""

    __slots__ = ("_failures", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._failures = 0

    def delay_after(self, outcome: Outcome, duration: int) -> float:
        """Returns the seconds to wait after an operation with this outcome and duration (nanoseconds)."""
        if outcome is Outcome.OK or duration > IMMEDIATE_NS:
            self._failures = 0
            return 0.0
        self._failures += 1
        doublings = self._failures - FREE_FAILURES - 1
        if doublings < 0:
            return 0.0
        delay = min(FIRST_DELAY * 2.0 ** min(doublings, 10), MAX_DELAY)
        return delay * (0.5 + (GOLDEN_RATIO * (self._number + self._failures)) % 1 / 2)


FIRST_RETRY_DELAY = 0.05
MAX_RETRY_DELAY = 1.0
"""Seconds of the first and of the longest delay before another attempt to open a client."""
TIMEOUT = Completion(Outcome.INFO, error="timeout")
"""Completion of an operation that was cancelled at its time limit."""


@dataclass(frozen=True)
class WorkerEnvironment:
    """State that all workers of an interpreter share."""

    client: Callable[[], Any]
    runtime: Any
    stamps: Stamps
    status: InterpreterStatus
    time_limit: float
    """Seconds for one attempt to open or close a client."""
    on_ended: Callable[[Worker], None]
    """Called when an operation has ended; its completion and stamp are set."""
    on_opened: Callable[[Worker], None]
    """Called when a client is open and the worker is free."""
    backs_off: bool = False
    """Whether workers back off if their operations fail at once. Used if no rate limits the operations."""


class Worker:
    """A worker; see the module's docstring. Attributes that ``assign`` sets keep their values until its next call."""

    __slots__ = (
        "_backoff", "_environment", "_next", "_stride", "abandoned", "call", "client", "client_method", "completion",
        "effects", "endpoint", "expired_at", "index", "name", "number", "operation", "process", "ret", "scheduled",
        "task",
    )  # fmt: skip

    def __init__(
        self, number: int, process: int, stride: int, endpoint: Endpoint, environment: WorkerEnvironment
    ) -> None:
        """Starts the task. ``stride`` is added to the process id whenever a new process takes over."""
        self.number = number
        self.name = f"w{number}" if endpoint.home is None else f"w{number}@{endpoint.home.node}"
        self.process = process
        self.endpoint = environment.status.endpoints.setdefault(self.name, ObservedEndpoint.of_endpoint(endpoint))
        self.client: Client | None = None
        self.effects: Callable[[Completed], Sequence[Effect]] = no_effects
        self.operation = Operation("none")
        self.completion = TIMEOUT
        self.index = -1
        self.call = 0
        self.ret = 0
        self.scheduled: int | None = None
        self.expired_at: int | None = None
        self.abandoned = False
        self.client_method = "open"
        """The client's method that is being awaited, or was awaited last."""
        self._stride = stride
        self._environment = environment
        self._next: asyncio.Future[Operation] | None = None
        self._backoff = Backoff(number) if environment.backs_off else None
        self.task = asyncio.get_running_loop().create_task(self._serve(), name=self.name)

    def assign(self, operation: Operation, index: int, call: int, scheduled: int | None) -> None:
        """Hands over an operation. The worker must be free."""
        self.operation = operation
        self.index = index
        self.call = call
        self.scheduled = scheduled
        assert self._next is not None
        self._next.set_result(operation)

    def expire(self, now: int) -> None:
        """Cancels the operation because its time limit is over; it ends as ``info``."""
        self.expired_at = now
        self.task.cancel()

    async def close_client(self) -> None:
        """Closes the open client. An error is only reported, because it does not affect the history."""
        client, self.client = self.client, None
        if client is None:
            return
        self.client_method = "close"
        self._environment.status.closes += 1
        try:
            async with asyncio.timeout(self._environment.time_limit):
                await client.close()
        except Exception as error:  # noqa: BLE001 - a broken connection may fail to close in any way; it is reported
            self._environment.status.add_close_failure(self.endpoint.node, error)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stamp, on_ended = self._environment.stamps.now, self._environment.on_ended
        reused: Client | None = None
        while True:
            client = await self._open() if reused is None else reused
            self.client_method = "invoke"
            self._next = loop.create_future()
            self._environment.on_opened(self)
            while True:
                try:
                    operation = await self._next
                    completion = await client.invoke(operation)
                except asyncio.CancelledError as error:
                    completion = self._handle_cancellation(error)
                except Exception as error:  # noqa: BLE001 - reported with its traceback; the verdict is unknown
                    completion = self._report_exception(error)
                self.ret = stamp()
                if self.expired_at is not None:
                    completion = self._clear_expiry()
                elif not isinstance(completion, Completion):
                    completion = self._report_exception(TypeError(f"invoke returned {completion!r}, not a Completion"))
                elif type(completion.outcome) is not Outcome:
                    completion = self._parse_outcome(completion)
                self.completion = completion
                if self._backoff is not None:
                    delay = self._backoff.delay_after(completion.outcome, self.ret - self.call)
                    if delay:
                        await self._pause(delay)
                if completion.outcome is Outcome.INFO:
                    break
                self._next = loop.create_future()
                on_ended(self)
            on_ended(self)
            reused = client if is_kept_after_info(client) and not self.abandoned else None
            if reused is None:
                await self.close_client()
            if self.abandoned:
                return
            self.process += self._stride

    async def _open(self) -> Client:
        """Opens a new client, with retries until it succeeds."""
        wait = FIRST_RETRY_DELAY
        while True:
            self.client_method = "open"
            self.client = adapt_client(self._environment.client())
            try:
                async with asyncio.timeout(self._environment.time_limit):
                    await self.client.open(self.endpoint, self._environment.runtime)
                self.effects = find_effects(self.client)
                self._environment.status.opened.add(self.endpoint.node)
                return self.client
            except BlockingClientError:
                raise
            except Exception as error:  # noqa: BLE001 - nodes that are down fail in many ways; counted and retried
                self._environment.status.add_open_failure(self.endpoint.node, error)
            await self.close_client()
            await asyncio.sleep(wait)
            wait = min(wait * 2, MAX_RETRY_DELAY)

    async def _pause(self, seconds: float) -> None:
        """Waits after an operation that has ended. If its time limit passes during the wait, this has no effect."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if self.expired_at is None:
                raise
            self._clear_expiry()

    def _handle_cancellation(self, error: asyncio.CancelledError) -> Completion:
        """Handles a cancellation: by the time limit, by the end of the run (re-raised), or leaked by the client."""
        if self.expired_at is not None:
            return TIMEOUT
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        return self._report_exception(error)

    def _clear_expiry(self) -> Completion:
        """Undoes the cancellation of an expired operation, even if the client caught it and answered."""
        self.expired_at = None
        if self.task.uncancel():
            raise asyncio.CancelledError  # the run ends as well
        return TIMEOUT

    def _parse_outcome(self, completion: Completion) -> Completion:
        """Converts an outcome given as text, such as ``"ok"``, to an ``Outcome``, which all other code here expects."""
        try:
            return msgspec.structs.replace(completion, outcome=Outcome(completion.outcome))
        except ValueError:
            message = f"the outcome of a Completion is {completion.outcome!r}, none of {', '.join(Outcome)}"
            return self._report_exception(TypeError(message))

    def _report_exception(self, error: BaseException) -> Completion:
        if self.expired_at is not None:
            return TIMEOUT  # the client turned our own cancellation into another exception
        self._environment.status.add_exception(self.index, self.process, self.operation.f, error)
        return Completion(Outcome.INFO, error=f"exception: {describe_error(error)}")


_ABANDONED: WeakSet[asyncio.Task[Any]] = WeakSet()


def abandon_task(task: asyncio.Task[Any]) -> None:
    """Marks a task as abandoned, and prevents asyncio's warning about it when its loop is closed."""
    _ABANDONED.add(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def exclude_abandoned(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Returns the tasks that have not been abandoned."""
    return [task for task in tasks if task not in _ABANDONED]
