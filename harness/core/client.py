"""What a user writes to drive their system: one client per process of the history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.harness.core.operation import Completed, Completion, Effect, Operation


@dataclass(frozen=True)
class Home:
    """A node that clients live on, and where its worker process listens: ``host:port``."""

    node: str
    address: str


@dataclass(frozen=True)
class Endpoint:
    """Where a client finds the system: the node it belongs to first, then all others; ``host:port`` each, an IPv6
    address in brackets.

    ``home``: where the client lives, if on a node of its own; None: in the harness.
    """

    node: str
    address: str
    all: tuple[str, ...]
    home: Home | None = None
    zookeeper: tuple[str, ...] = ()
    """Every ZooKeeper server; none where the cluster has none of its own."""
    defects: tuple[str, ...] = ()
    """What ``--defect`` switched on. Some defects are a client library's: a workload's client hands these names to the
    library's constructors, and the library knows its own."""
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The servers by role: ``roles["sentinel"]``, each ``host:port``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Habits of clients that a mix has chosen, by names that mix and client agree on: plain data."""


class Client(Protocol):
    """One logical process's connection. Opened again, under a new process id, after an operation that ended ``info``.

    ``invoke`` never raises for what the system does: it returns the outcome. An exception that escapes is recorded as
    ``info`` and makes the run's verdict unknown, with its traceback.

    A client that has an attribute ``keeps``, and it is true, is not opened again: with its connections and all that it
    knows it is the next process, too. (Where clients live on nodes of their own, only if it was the client that said
    that the outcome is unknown.)
    """

    async def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    async def invoke(self, operation: Operation) -> Completion: ...

    async def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        """Pure: the ``effects`` rows of one completed operation, in their order inside it.

        A client whose operations a model alone judges (``linearizable``) need not have it.
        """
        return ()


def effects_of(client: Any) -> Callable[[Completed], Sequence[Effect]]:
    """The ``effects`` of a client, or of a class of clients; none where it says nothing of them."""
    own: Callable[[Completed], Sequence[Effect]] | None = getattr(client, "effects", None)
    return no_effects if own is None else own


def no_effects(completed: Completed) -> Sequence[Effect]:
    """Of a client that is not open yet, and of one that says nothing of them."""
    return ()
