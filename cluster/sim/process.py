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

All simulated processes share the tester's operating system process. :class:`ExitCalls` makes calls such as
``os._exit`` end the simulated process instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, Protocol, TypeVar

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
        "_held", "_loop", "_resources", "_waits_until", "context", "dead", "host", "incarnation", "name", "on_exit",
        "running", "suspended",
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
        self.on_exit: Callable[[int], None] = lambda code: None
        """Called with the exit code if the process ends itself by :meth:`exit`."""
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

    def exit(self, code: int) -> None:
        """Ends the process at its own request; if it has stopped itself in this step, after the resume."""
        if self.stopped:
            self.call_after_resume(self.exit, code)
        elif not self.dead:
            self.on_exit(code)
            self.kill()


class ProcessExit(BaseException):
    """Unwinds the step in which a simulated process has ended itself."""


class ExitCalls:
    """Replaces ``os._exit``, ``os.abort``, and ``os.kill`` with SIGKILL of the own process, from begin to end.

    Servers call them after fatal errors. Called by a simulated process, they end only that process, with the exit code
    of a real one. Called by other code during a run, ``os._exit(0)`` would end the session as if all tests had passed.
    The tester then ends with 1 and says so.
    """

    def __init__(self) -> None:
        self._exit, self._abort, self._kill = os._exit, os.abort, os.kill
        self._pid = os.getpid()
        self._note: Callable[[str], None] = print

    def begin(self, note: Callable[[str], None]) -> None:
        """Replaces the functions. ``note`` shows a line to the user."""
        self._note = note
        os._exit, os.abort, os.kill = self._replace_exit, self._replace_abort, self._replace_kill

    def end(self) -> None:
        """Restores the functions. Idempotent."""
        if os._exit == self._replace_exit:
            os._exit, os.abort, os.kill = self._exit, self._abort, self._kill

    def _replace_exit(self, status: int) -> NoReturn:
        _exit_simulated(status & 0xFF)
        if status == 0 and os.getpid() == self._pid:  # a forked child may end as it likes
            self._note("the test's code called os._exit(0) during a run: the session ends with exit code 1")
            status = 1
        self._exit(status)

    def _replace_abort(self) -> NoReturn:
        _exit_simulated(128 + signal.SIGABRT)
        self._abort()

    def _replace_kill(self, pid: int, number: int, /) -> None:
        if pid == os.getpid() and number == signal.SIGKILL:
            _exit_simulated(128 + signal.SIGKILL)
        self._kill(pid, number)


def _exit_simulated(code: int) -> None:
    """Ends the simulated process that runs, and does not return then."""
    process = PROCESS.get()
    if process is not None:
        process.exit(code)
        raise ProcessExit(code)


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
