"""What clients get from the real world, in the harness and in worker processes; the simulation has its own."""

import importlib
import random
import socket
import time
from typing import Any


class ClientRuntime:
    """Randomness, the time of day, the host's name, and a client of ZooKeeper if the system brings one for clients."""

    def __init__(self, random: random.Random, zookeeper: str | None) -> None:
        """``zookeeper``: ``module:callable``, importable where this runs."""
        self.random = random
        self.host_name = socket.gethostname()
        self._zookeeper = zookeeper

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def zookeeper(self, servers: str, session_timeout: float) -> Any:
        """A client of ``host:port,host:port``, not yet connected; ``session_timeout`` in seconds."""
        if self._zookeeper is None:
            raise RuntimeError("the system brings no ZooKeeper client for its own clients: it has no zookeeper_client")
        return loaded(self._zookeeper)(servers, session_timeout)


def loaded(name: str) -> Any:
    """The object ``module:qualified.name``. Raises ``ImportError`` or ``AttributeError`` when there is none."""
    module, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module)
    for word in attribute.split("."):
        found = getattr(found, word)
    return found
