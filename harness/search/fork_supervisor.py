"""The processes that play, one after the other: a new one takes the place of one that has to be ended.

The process that judges has threads by then, so it can't fork one that plays. A process that was forked before and does
nothing else forks them.
"""

import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import NoReturn

from assay.harness.run.interrupt import leave_to_parent
from assay.harness.search.fork_server import Stage, end_with


class Stages:
    """``make`` gives a stage its end of a connection, in a process of its own. All end when this is closed."""

    def __init__(self, make: Callable[[Connection], Stage]) -> None:
        self._make = make
        self._orders, theirs = Pipe()
        parent = os.getpid()
        if os.fork() == 0:
            self._keep(parent, theirs)
        theirs.close()

    def close(self) -> None:
        """Idempotent."""
        self._orders.close()

    def start(self) -> Connection:
        """A process that plays; the one before is killed, if it is there, with all that have left from it."""
        ours, theirs = Pipe()
        send_handle(self._orders, theirs.fileno(), None)
        theirs.close()
        return ours

    def _keep(self, parent: int, orders: Connection) -> NoReturn:
        playing: int | None = None
        try:
            end_with(parent)
            leave_to_parent()
            _close_all_but(orders.fileno())
            while True:
                connection = Connection(recv_handle(orders))
                if playing is not None:
                    os.kill(playing, signal.SIGKILL)
                    os.waitpid(playing, 0)
                keeper = os.getpid()
                playing = os.fork()
                if playing == 0:
                    end_with(keeper)
                    orders.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for one by one
                    self._make(connection).serve()
                connection.close()
        except EOFError:
            pass
        except BaseException:  # noqa: BLE001 - there is no one above to handle it
            traceback.print_exc()
        finally:
            os._exit(0)


def _close_all_but(kept: int) -> None:
    """The pipes of others: one that is open here would not end for them."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
