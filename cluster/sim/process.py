"""A simulated process: what kill, stop and resume act on, and how code is attributed to it.

The context variable :data:`PROCESS` names the process of a task or a callback. Tasks and callbacks inherit it like
every context variable, so everything that a process starts belongs to it. ``None`` is the harness: clients, nemesis and
observers, which no fault touches.

The loop, the transports, the disk and the runtime together keep three rules:

- *stopped*: its callbacks are queued and run in order after the resume. Effects that the stopping step still has on the
  outside world (network, event log) are queued too. So a process that stops itself (fault ``hold``) in the middle of a
  step seems to have stopped right there. A process that waits for its disk in a system call is stopped in the same way
  until the call returns (:meth:`Process.wait`), without a signal.
- *dead*: its callbacks never run again, and anything its code does while being unwound has no effect.
- Unwinding happens at the kill, in creation order, not whenever the garbage collector finds the coroutines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)

UNWIND_LIMIT = 100
"""Attempts to close a coroutine that awaits again inside ``finally``; then it is abandoned."""


class Runnable(Protocol):
    """An entry of the queues of ``SimLoop``, for example a ``SimHandle``."""

    def _fire(self) -> None: ...


class Resource(Protocol):
    """Something that the kernel closes when its process ends: a connection, a listening socket."""

    def on_process_death(self) -> None: ...


class DeferredCall:
    """A call that happens later in its original context, whatever state the process is in."""

    __slots__ = ("_args", "_call", "_context")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call = call
        self._args = args
        self._context = copy_context()

    def _fire(self) -> None:
        self._context.run(self._call, *self._args)


class Process:
    """An incarnation of a node's main process.

    ``loop`` is the ``SimLoop``; this module cannot import its class, because the loop imports this module. ``host`` is
    only kept for others. ``running`` is false while stopped and once dead. ``suspended`` is true from SIGSTOP to
    SIGCONT.
    """

    __slots__ = (
        "_held", "_loop", "_resources", "_waits_until", "context", "dead", "host", "incarnation", "name", "running",
        "suspended",
    )  # fmt: skip

    def __init__(self, loop: Any, host: Any, name: str, incarnation: str) -> None:
        self._loop = loop
        self.host = host
        self.name = name
        self.incarnation = incarnation
        self.running = True
        self.dead = False
        self.suspended = False
        self._waits_until: float | None = None
        self._held: deque[Runnable] = deque()
        self._resources: dict[Resource, None] = {}
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.dead else "running" if self.running else "stopped"
        return f"<Process {self.name} {self.incarnation} {state}>"

    @property
    def stopped(self) -> bool:
        """Whether it is alive but blocked: suspended, or waiting in a system call."""
        return not self.running and not self.dead

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task: asyncio.Task[T] = self._loop.create_task(coroutine, name=name, context=self.context.copy())
        return task

    def add_resource(self, resource: Resource) -> None:
        self._resources[resource] = None

    def remove_resource(self, resource: Resource) -> None:
        self._resources.pop(resource, None)

    def hold_back(self, runnable: Runnable) -> None:
        """Queues something that would run now if the process were running."""
        if not self.dead:
            self._held.append(runnable)

    def call_after_resume(self, call: Callable[..., object], *args: Any) -> None:
        """Queues a call of a process that is not running. It happens after the resume if stopped, never if dead."""
        if not self.dead:
            self._held.append(DeferredCall(call, args))

    def stop(self) -> None:
        """Sends SIGSTOP. No effect if the process is suspended or dead."""
        if not self.dead:
            self.suspended = True
            self.running = False

    def resume(self) -> None:
        """Sends SIGCONT. Queued calls run in order, before anything that happens from now on."""
        if not self.dead and self.suspended:
            self.suspended = False
            self._continue()

    def wait(self, seconds: float) -> None:
        """Blocks the process in a system call of ``seconds``, after the calls that it already waits for."""
        if self.dead:
            return
        if self._waits_until is None:
            self.running = False
            self._waits_until = self._loop.time() + seconds
            self._loop.schedule(self._waits_until, DeferredCall(self._return_from_wait, ()))
        else:
            self._waits_until += seconds

    def _return_from_wait(self) -> None:
        if self._waits_until is not None and self._loop.time() < self._waits_until:
            self._loop.schedule(self._waits_until, DeferredCall(self._return_from_wait, ()))
        else:
            self._waits_until = None
            self._continue()

    def _continue(self) -> None:
        if self.dead or self.suspended or self._waits_until is not None:
            return
        self.running = True
        held, self._held = self._held, deque()
        self._loop.run_before_ready(held)

    def kill(self) -> None:
        """Sends SIGKILL. Afterwards only the process's files are left.

        If the process kills itself, its current step still runs to its next await, without effect. Its task is unwound
        after that.
        """
        if self.dead:
            return
        self.dead = True
        self.running = False
        self._held.clear()
        for resource in list(self._resources):
            resource.on_process_death()
        self._resources.clear()
        current = asyncio.current_task(self._loop)
        for task in self._loop.tasks_of(self):
            if task is current:
                self._loop.call_soon(_unwind_remainder, task, self.context, context=Context())
            else:
                unwind(task, self.context)


def _unwind_remainder(task: asyncio.Task[Any], context: Context) -> None:
    """Unwinds the task whose step ended its own process."""
    if not task.done():
        unwind(task, context)
    elif not task.cancelled():
        task.exception()  # marks the exception as retrieved


def unwind(task: asyncio.Task[Any], context: Context) -> None:
    """Ends a dead process's task. Its ``finally`` blocks run now, in its context, where they have no effect."""
    coroutine = task.get_coro()
    for _ in range(UNWIND_LIMIT):
        try:
            context.copy().run(close_coroutine, coroutine)
        except RuntimeError:  # it awaited again, or it is the running step itself
            if getattr(coroutine, "cr_running", False):
                break
            continue
        except ValueError:  # already executing: the step that asked for its own death
            break
        except BaseException:  # noqa: BLE001 - errors of a dead process are irrelevant
            continue
        break
    asyncio.Future.cancel(task)  # marks it as cancelled now; `Task.cancel` would schedule another step


def close_coroutine(coroutine: Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | None) -> None:
    if coroutine is not None:
        coroutine.close()
