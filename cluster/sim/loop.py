"""A deterministic asyncio event loop: virtual time, in-memory network, processes that can be killed and stopped.

Time begins at 0 and only advances when nothing is ready: it jumps to the exact time of the next timer. Timers due at
the same time run in creation order. A step takes no time. But :data:`STEPS_PER_MILLISECOND` steps without a wait of a
millisecond advance the time by one. So a loop of ``sleep(0)``, or of ``sleep(1e-9)``, ends at its deadline, as on a
real machine. A step that never ends is noticed by ``assay.harness.run.loop_watchdog``.

Everything that asyncio leaves to chance has an order here. Tasks and futures hash in creation order
(:class:`SimFuture`). There are no threads and no executor. The network draws its latencies from the loop's seed.

The loop is a ``BaseEventLoop`` whose ``_run_once`` runs until the loop is stopped.
``asyncio.Runner(loop_factory=...)``, ``asyncio.start_server`` and ``asyncio.open_connection`` work on it unmodified.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import math
import socket
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextvars import Context, copy_context
from typing import Any, NamedTuple, TypeVar

from assay.cluster.rng import RandomSources
from assay.cluster.sim.network import Network
from assay.cluster.sim.process import PROCESS, Process, Runnable, close_coroutine
from assay.cluster.sim.server import SimServer


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    """Future with a deterministic hash: each future or task gets the next number when it is first hashed.

    ``asyncio.wait``, ``TaskGroup`` and ``asyncio.all_tasks`` keep futures in sets and iterate over the sets. The
    default hash is an address, which differs between two runs of one program. A task is hashed when it is created
    (:meth:`SimLoop.create_task`), a future when it first goes into a set.
    """

    __slots__ = ("_order",)
    _order: int

    def __hash__(self) -> int:
        try:
            return self._order
        except AttributeError:
            order: int = self.get_loop().next_order()  # type: ignore[attr-defined]
            self._order = order
            return order


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task of the simulation loop, with its process."""

    __slots__ = ("_order", "process")

    _order: int
    process: Process | None
    __hash__ = SimFuture.__hash__


T = TypeVar("T")

STEPS_PER_MILLISECOND = 10_000
GC_THRESHOLDS = (200_000, 3, 2)
"""Garbage collector thresholds of the generations in a process that simulates.

The first one is high, because most objects are freed without the collector. The others make a run of hours collect
what survived the first generation. A run of minutes ends before that.
"""
COMPACTION_MINIMUM = 1000
"""Cancelled timers are removed if there are more than this many, and they are more than half of all timers."""


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the main future is not done. So the run cannot continue."""


class UncaughtError(NamedTuple):
    """An error that the code of a simulated process did not handle. ``time``: seconds of the loop."""

    time: float
    process: str
    error: BaseException


def _find_process(context: Mapping[str, Any]) -> Process | None:
    """Returns the process of an error that is handed to the loop's exception handler."""
    task = context.get("task") or context.get("future")
    if isinstance(task, SimTask):
        return task.process
    inside = getattr(context.get("handle") or context.get("transport"), "_context", None)
    return PROCESS.get() if inside is None else inside.get(PROCESS)


class SimHandle(asyncio.Handle):
    """A ready callback. It runs in its context, once the context's process is running."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}{' cancelled' if self._cancelled else ''}>"

    def cancel(self) -> None:
        self._cancelled = True

    def _fire(self) -> None:
        if self._cancelled:
            return
        context = self._context
        process = context.get(PROCESS)
        if process is None or process.running:
            try:
                context.run(self._callback, *self._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - handed to the loop's exception handler, as asyncio does
                self._loop.call_exception_handler(
                    {"message": f"Exception in callback {self._callback!r}", "exception": error, "handle": self}
                )
        else:
            process.hold_back(self)


class SimTimer(asyncio.TimerHandle):
    """A callback with a time."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop: SimLoop = loop
        self._context = context
        self._cancelled = False

    __repr__ = SimHandle.__repr__
    _fire = SimHandle._fire

    def __hash__(self) -> int:
        return hash(self._when)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = _do_nothing  # its references may be large, and the timer far away
            self._args = ()
            self._loop.count_cancelled_timer()


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one simulation. ``seed`` decides the network's latencies."""

    simulated = True
    """Tells the harness to use no threads, and thus no blocking clients."""
    _stopping: bool
    _closed: bool

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        # Stays set after the loop is closed. Most objects of a run are freed without the collector soon after its end.
        gc.set_threshold(*GC_THRESHOLDS)
        self._now = 0.0
        self._sequence = 0
        self._orders = 0
        self._task_count = 0
        self.uncaught: list[UncaughtError] = []
        """Errors that the code of simulated processes did not handle, in order."""
        self._ready: deque[Runnable] = deque()
        self._timers: list[tuple[float, int, Runnable]] = []
        self._cancelled_timers = 0
        self._generators: dict[int, tuple[weakref.ref[AsyncGenerator[Any, Any]], Process | None]] = {}
        self._calls_between_events: list[tuple[float, int, Callable[[], object]]] = []
        self._count_between_events = 0
        self.random_sources = RandomSources()
        self.network = Network(self, self.random_sources.source(f"network {seed}"))

    # Time and callbacks

    def time(self) -> float:
        """Returns the seconds since the simulation began."""
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = SimHandle(callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # there are no threads; asyncio.Runner calls it

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = SimTimer(when, callback, args, self, copy_context() if context is None else context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, timer))
        return timer

    def schedule(self, when: float, runnable: Runnable) -> None:
        """Schedules an event of the kernel (packet, retransmission). It has no context and cannot be cancelled."""
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, runnable))

    def call_between_events(self, when: float, call: Callable[[], object]) -> None:
        """Calls ``call`` between two steps: when nothing is ready and the next timer is later than ``when``.

        It is not a timer, so it does not change the order of the timers.
        """
        self._count_between_events += 1
        heapq.heappush(self._calls_between_events, (when, self._count_between_events, call))

    def next_timer_time(self) -> float:
        """Returns the time of the next timer; infinite if there is none."""
        return self._timers[0][0] if self._timers else math.inf

    @property
    def scheduled(self) -> int:
        """Number of timers set and packets sent since the start: a measure of the simulated work."""
        return self._sequence

    def run_soon(self, runnable: Runnable) -> None:
        """Schedules an event of the kernel for now."""
        self._ready.append(runnable)

    def run_before_ready(self, runnables: Iterable[Runnable]) -> None:
        """Puts these, in their order, before all callbacks that are ready now."""
        self._ready.extendleft(reversed(list(runnables)))

    def count_cancelled_timer(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > COMPACTION_MINIMUM and self._cancelled_timers * 2 > len(self._timers):
            self._timers[:] = [
                entry for entry in self._timers if not (isinstance(entry[2], SimTimer) and entry[2].cancelled())
            ]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Runs until ``stop``; asyncio's ``run_forever`` calls it once."""
        ready = self._ready
        timers = self._timers
        calls = self._calls_between_events
        steps, counted_since = 0, self._now
        while not self._stopping:
            if ready:
                steps += 1
                if steps == STEPS_PER_MILLISECOND:
                    self._now += 0.001
                    steps, counted_since = 0, self._now
                    while timers and timers[0][0] <= self._now:
                        ready.append(heapq.heappop(timers)[2])
                ready.popleft()._fire()
            elif calls and (not timers or timers[0][0] > calls[0][0]):
                heapq.heappop(calls)[2]()
            elif timers:
                when, _, runnable = heapq.heappop(timers)
                if when > self._now:
                    self._now = when
                    if when - counted_since >= 0.001:
                        steps, counted_since = 0, when
                runnable._fire()
            else:
                raise DeadlockError(self._describe_deadlock())

    def _describe_deadlock(self) -> str:
        lines = [f"deadlock at {self._now:.6f} s of virtual time: nothing is ready, no timer is set; pending tasks:"]
        for task in sorted(asyncio.all_tasks(self), key=hash):
            process = getattr(task, "process", None)
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "not started"
            lines.append(f"  {task.get_name()} of {process or 'the harness'}: {task.get_coro()!r} at {where}")
        return "\n".join(lines)

    def close(self) -> None:
        super().close()
        self._timers.clear()
        self._generators.clear()

    # Futures and tasks

    def next_order(self) -> int:
        """Returns the next hash of a task or future."""
        self._orders += 1
        return self._orders

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None, **_options: Any
    ) -> asyncio.Task[Any]:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        self._task_count += 1
        process = PROCESS.get() if context is None else context.get(PROCESS)
        task = SimTask(coro, loop=self, name=str(name or f"Task-{self._task_count}"), context=context)
        hash(task)  # fixes its order: from Python 3.14 on asyncio itself no longer hashes a new task
        task.process = process
        if process is not None and process.dead:
            close_coroutine(coro)
            asyncio.Future.cancel(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Reports an error that no code handles, in the context of its process, so that the process's log shows it.

        An error of a dead process is dropped: after a kill, the code runs only to unwind its frames.
        """
        process = _find_process(context)
        if process is None:
            super().call_exception_handler(context)
        elif not process.dead:
            error = context.get("exception")
            if error is not None:
                self.uncaught.append(UncaughtError(self.time(), process.name, error))
            process.context.copy().run(super().call_exception_handler, context)

    def tasks_of(self, process: Process | None) -> list[asyncio.Task[Any]]:
        """Returns the unfinished tasks of a process, or of the harness, in creation order."""
        tasks = [task for task in asyncio.all_tasks(self) if getattr(task, "process", None) is process]
        return sorted(tasks, key=hash)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        raise RuntimeError(
            f"run_in_executor({func!r}) in the simulation: it has no threads. Code that runs here does its blocking "
            "work through the runtime's interfaces (storage, zookeeper)."
        )

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(agen)] = (weakref.ref(agen), PROCESS.get())

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        _, process = self._generators.pop(id(agen), (None, None))
        if self._closed or (process is not None and process.dead):
            return
        context = copy_context() if process is None else process.context.copy()
        closing: Coroutine[Any, Any, None] = _close_generator(agen)
        self.create_task(closing, context=context)

    async def shutdown_asyncgens(self) -> None:
        generators, self._generators = self._generators, {}
        for reference, process in generators.values():
            agen = reference()
            if agen is not None and (process is None or process.running):
                await agen.aclose()

    # Network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        address = self.network.resolve(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[asyncio.Transport, Any]:
        _reject_options(options, "ssl", "sock")
        if host is None or port is None:
            raise ValueError("host and port are needed")
        return await self.network.connect(protocol_factory, host, int(port))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], Any],
        host: str | list[str] | None = None,
        port: int | None = None,
        **options: Any,
    ) -> SimServer:
        _reject_options(options, "ssl", "sock")
        if host is not None and not isinstance(host, str):
            host = host[0]
        return self.network.listen(protocol_factory, host, int(port or 0))


async def _close_generator(agen: AsyncGenerator[Any, Any]) -> None:
    await agen.aclose()


def _do_nothing() -> None:
    """Replaces the callback of a cancelled timer."""


def _reject_options(options: dict[str, Any], *names: str) -> None:
    for name in names:
        if options.get(name):
            raise NotImplementedError(f"{name}= is not offered by the simulated network")
