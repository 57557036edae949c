"""The client protocol, which users implement to drive their system: one client per process of the history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.harness.core.operation import Completed, Completion, Effect, Operation


@dataclass(frozen=True)
class ClientHome:
    """The node that a client lives on, and the address ``host:port`` of its worker process."""

    node: str
    address: str


@dataclass(frozen=True)
class Endpoint:
    """The addresses of the system: first the client's own node, then all others.

    Each address is ``host:port``, with an IPv6 host in brackets. ``home`` is the client node that the client lives on;
    None means that it lives in the harness.
    """

    node: str
    address: str
    all: tuple[str, ...]
    home: ClientHome | None = None
    zookeeper: tuple[str, ...] = ()
    """Every ZooKeeper server; empty if the cluster has none of its own."""
    defects: tuple[str, ...] = ()
    """The defects that ``--defect`` switched on. A workload's client passes them to its client library."""
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The servers by role, each ``host:port``: ``roles["sentinel"]``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Client options that a workload mix has chosen: plain data under names that the mix and the client agree on."""


class Client(Protocol):
    """The connection of one logical process. After an ``info`` outcome it is opened again under a new process id.

    ``invoke`` returns the outcome, and must not raise exceptions for failures of the system. An exception that escapes
    is recorded as ``info``, and makes the run's verdict unknown.

    A client with a true attribute ``survives_info`` is not opened again after an ``info`` outcome. The next process id
    goes on using it, with its connections and its state. A client on a client node is opened again nevertheless if it
    did not return ``info`` itself, because its operation timed out or its worker process died.
    """

    async def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    async def invoke(self, operation: Operation) -> Completion: ...

    async def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        """Returns the ``effects`` rows of one completed operation, in their order inside it. Must be pure.

        A client whose operations only a model judges (``linearizable``) may omit this method.
        """
        return ()


def find_effects(client: Any) -> Callable[[Completed], Sequence[Effect]]:
    """Returns the ``effects`` function of a client or a client class, or :func:`no_effects` if it has none."""
    own: Callable[[Completed], Sequence[Effect]] | None = getattr(client, "effects", None)
    return no_effects if own is None else own


def no_effects(completed: Completed) -> Sequence[Effect]:
    """Returns no effects: the default for clients without ``effects``, and for clients that are not open yet."""
    return ()


def is_kept_after_info(client: object) -> bool:
    """Returns whether a client stays in use after an ``info`` outcome: its ``survives_info``, formerly ``keeps``."""
    return bool(getattr(client, "survives_info", getattr(client, "keeps", False)))
