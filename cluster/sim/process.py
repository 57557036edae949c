"""A simulated process, which can be killed, stopped and resumed, and the context variable that names it.

The context variable :data:`PROCESS` holds the process of a task or a callback. Tasks and callbacks inherit it like any
context variable, so everything that a process starts belongs to that process. ``None`` means the harness: clients,
nemesis and observers, which no fault touches.

The loop, the transports, the disk and the runtime together keep three rules:

- While a process is *stopped*, its callbacks are queued. They run in order after the resume. If a step stops its own
  process (fault ``hold``), its further effects on the outside world (network, event log) are queued too. So the process
  seems to have stopped in the middle of the step. While a process waits for its disk in a system call
  (:meth:`Process.wait`), it is stopped in the same way, without a signal.
- Once a process is *dead*, its callbacks never run again. Its code is unwound, which has no effect on other code.
- Unwinding happens at the kill, in creation order, not at the time when the garbage collector finds the coroutines.

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
"""Maximum number of attempts to close a coroutine that awaits again inside ``finally``. Afterwards it is abandoned."""


class Runnable(Protocol):
    """An entry of the queues of ``SimLoop``, for example a ``SimHandle``."""

    def _fire(self) -> None: ...


class Resource(Protocol):
    """A connection or a listening socket. The kernel closes it when its process ends."""

    def on_process_death(self) -> None: ...


class DeferredCall:
    """A call that happens later in its original context, in any state of the process."""

    __slots__ = ("_args", "_call", "_context")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call = call
        self._args = args
        self._context = copy_context()

    def _fire(self) -> None:
        self._context.run(self._call, *self._args)


class Process:
    """A process from its start to its end: an incarnation of a node's main process, or a second copy of it.

    - ``loop``: the ``SimLoop``; this module cannot import its class, because the loop imports this module
    - ``host``: the process's host, for the network
    - ``running``: False while the process is stopped, and once it is dead
    - ``suspended``: True from SIGSTOP to SIGCONT
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
        """Loop time at which the current system call returns; None outside of a system call."""
        self._held: deque[Runnable] = deque()
        """Callbacks that are queued while the process is not running."""
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
        """Whether the process is alive but blocked: suspended, or waiting in a system call."""
        return not self.running and not self.dead

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task: asyncio.Task[T] = self._loop.create_task(coroutine, name=name, context=self.context.copy())
        return task

    def add_resource(self, resource: Resource) -> None:
        self._resources[resource] = None

    def remove_resource(self, resource: Resource) -> None:
        self._resources.pop(resource, None)

    def hold_back(self, runnable: Runnable) -> None:
        """Queues a callback that would run now if the process were running."""
        if not self.dead:
            self._held.append(runnable)

    def call_after_resume(self, call: Callable[..., object], *args: Any) -> None:
        """Queues a call of a process that is not running. A stopped process makes it after the resume."""
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
        """Blocks the process in a system call for ``seconds``. The times of several system calls add up."""
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

        If the process kills itself, its current step still runs to its next ``await``, without effect. After that the
        task is unwound.
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
        """Ends the process at its own request. If it has stopped itself in this step, it ends after the resume."""
        if self.stopped:
            self.call_after_resume(self.exit, code)
        elif not self.dead:
            self.on_exit(code)
            self.kill()


class ProcessExit(BaseException):
    """Unwinds the step in which a simulated process has ended itself."""


class ExitCalls:
    """Replaces ``os._exit``, ``os.abort``, and ``os.kill`` (if it sends SIGKILL to this process) during a run.

    Servers call them after fatal errors. If a simulated process calls them, only that process ends, with the exit code
    of a real process. If other code calls ``os._exit(0)`` during a run, the session ends with exit code 1 and a
    message. With exit code 0 it would look as if all tests had passed.
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
    """Ends the simulated process that calls, and raises :class:`ProcessExit`. Returns if the harness calls."""
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
    """Ends a dead process's task. Its ``finally`` blocks run now, in the dead process's context, without effect."""
    coroutine = task.get_coro()
    for _ in range(UNWIND_LIMIT):
        try:
            context.copy().run(close_coroutine, coroutine)
        except RuntimeError:  # it awaited again, or it is the running step itself
            if getattr(coroutine, "cr_running", False):
                break
            continue
        except ValueError:  # it is executing, because its own step has killed the process
            break
        except BaseException:  # noqa: BLE001 - errors of a dead process are irrelevant
            continue
        break
    asyncio.Future.cancel(task)  # marks it as cancelled now; `Task.cancel` would schedule another step


def close_coroutine(coroutine: Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | None) -> None:
    if coroutine is not None:
        coroutine.close()
