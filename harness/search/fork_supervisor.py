"""Supervisor that starts a new fork server when the old one had to be ended.

The judging process soon has threads, and can no longer fork safely. The supervisor is forked before that, and only
forks servers. Each server leads a process group, to which all its forks belong.
"""

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import Final, NoReturn

from assay.harness.run.interrupt import ignore_terminal_signals
from assay.harness.run.process_group import signal_group
from assay.harness.search.fork_server import ForkServer

MOST_DESCRIPTORS: Final = 2**20
"""Descriptors below this number are closed if the open ones are not listed."""


class ForkSupervisor:
    """Starts fork servers, each made by ``make`` in a process of its own. ``close`` ends the current one."""

    def __init__(self, make: Callable[[Connection], ForkServer]) -> None:
        self._make = make
        self._orders, theirs = Pipe()
        if os.fork() == 0:
            self._supervise(theirs)
        theirs.close()

    def close(self) -> None:
        """Ends the supervisor and the fork server with all its forks. Idempotent.

        The end of this process has the same effect.
        """
        self._orders.close()

    def start(self) -> Connection:
        """Kills the current fork server with all its fork points, if there is one, and starts a new one."""
        ours, theirs = Pipe()
        send_handle(self._orders, theirs.fileno(), None)
        theirs.close()
        return ours

    def _supervise(self, orders: Connection) -> NoReturn:
        """Starts a fork server for each connection that arrives. This is the whole work of the supervisor's process."""
        server: int | None = None
        try:
            os.setpgid(0, 0)  # a signal to the group of the process that judges must not keep this one from its duty
            ignore_terminal_signals()
            _close_all_but(orders.fileno())
            while True:
                connection = Connection(recv_handle(orders))
                if server is not None:
                    _end_group(server)
                server = os.fork()
                with contextlib.suppress(OSError):  # both processes do it, so that neither goes on without it
                    os.setpgid(server, 0)
                if server == 0:
                    orders.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children
                    self._make(connection).serve()
                connection.close()
        except EOFError:  # the process that judges has closed its end, or is gone
            pass
        except BaseException:  # noqa: BLE001 - this is the top of the process
            traceback.print_exc()
        finally:
            if server:
                _end_group(server)
            os._exit(0)


def _end_group(leader: int) -> None:
    signal_group(leader, signal.SIGKILL)
    os.waitpid(leader, 0)


def _close_all_but(kept: int) -> None:
    """Closes inherited pipes. While they are open here, their readers would not notice that the writer has ended."""
    os.closerange(3, kept)
    os.closerange(kept + 1, _find_descriptor_limit())


def _find_descriptor_limit() -> int:
    """Returns a number above all open descriptors. The limit of the system may be none, or too large to try all."""
    try:
        return max(map(int, os.listdir("/dev/fd"))) + 1
    except OSError:  # on Linux, /dev/fd lies in /proc
        limit = os.sysconf("SC_OPEN_MAX")
        return limit if 0 < limit < MOST_DESCRIPTORS else MOST_DESCRIPTORS
