"""Supervisor that starts a new fork server when the old one had to be ended.

The judging process soon has threads, and can no longer fork safely. The supervisor is forked before that, and only
forks servers.
"""

import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import NoReturn

from assay.harness.run.interrupt import ignore_terminal_signals
from assay.harness.search.fork_server import ForkServer, die_with_parent


class ForkSupervisor:
    """Starts fork servers, each made by ``make`` in a process of its own. ``close`` ends the current one."""

    def __init__(self, make: Callable[[Connection], ForkServer]) -> None:
        self._make = make
        self._orders, theirs = Pipe()
        parent = os.getpid()
        if os.fork() == 0:
            self._supervise(parent, theirs)
        theirs.close()

    def close(self) -> None:
        """Ends the supervisor and the fork server. Idempotent."""
        self._orders.close()

    def start(self) -> Connection:
        """Kills the current fork server with all its fork points, if there is one, and starts a new one."""
        ours, theirs = Pipe()
        send_handle(self._orders, theirs.fileno(), None)
        theirs.close()
        return ours

    def _supervise(self, parent: int, orders: Connection) -> NoReturn:
        """Starts a fork server for each connection that arrives. This is the whole work of the supervisor's process."""
        server: int | None = None
        try:
            die_with_parent(parent)
            ignore_terminal_signals()
            _close_all_but(orders.fileno())
            while True:
                connection = Connection(recv_handle(orders))
                if server is not None:
                    os.kill(server, signal.SIGKILL)
                    os.waitpid(server, 0)
                supervisor = os.getpid()
                server = os.fork()
                if server == 0:
                    die_with_parent(supervisor)
                    orders.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children
                    self._make(connection).serve()
                connection.close()
        except EOFError:
            pass
        except BaseException:  # noqa: BLE001 - this is the top of the process
            traceback.print_exc()
        finally:
            os._exit(0)


def _close_all_but(kept: int) -> None:
    """Closes inherited pipes. While they are open here, their readers would not notice that the writer has ended."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
