"""The runtime that clients get in the real world, in the harness and in worker processes.

The simulation has its own.
"""

import importlib
import random
import socket
import time
from typing import Any


class ClientRuntime:
    """Random numbers, wall clock and host name, and a ZooKeeper client if the system provides one for clients."""

    def __init__(self, random: random.Random, zookeeper: str | None) -> None:
        """``zookeeper``: ``module:callable``, importable where this runs."""
        self.random = random
        self.host_name = socket.gethostname()
        self._zookeeper = zookeeper

    def wall_clock(self) -> float:
        """Returns the seconds since the epoch."""
        return time.time()

    def zookeeper(self, servers: str, session_timeout: float) -> Any:
        """Returns a client of ``host:port,host:port``, not yet connected; ``session_timeout`` is in seconds."""
        if self._zookeeper is None:
            raise RuntimeError("the system provides no ZooKeeper client for clients: it has no zookeeper_client")
        return import_object(self._zookeeper)(servers, session_timeout)


def import_object(name: str) -> Any:
    """Imports the object ``module:qualified.name``. Raises ``ImportError`` or ``AttributeError`` if there is none."""
    module, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module)
    for word in attribute.split("."):
        found = getattr(found, word)
    return found
