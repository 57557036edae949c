"""Client nodes: nodes on which a workload's clients run, as one more role of the system under test."""

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from types import MappingProxyType
from typing import Any, Final

from assay.cluster.node import Cluster, Node, by_role, get_dial, join_host_port
from assay.cluster.system import (
    CLIENT_ROLE,
    ZOOKEEPER_PORT,
    ZOOKEEPER_ROLE,
    Software,
    SupportsClientRoles,
    SupportsZooKeeperClient,
    System,
)
from assay.harness.core.client import ClientHome, Endpoint
from assay.harness.remote import PORT, server
from assay.harness.run.import_by_name import find_packages
from assay.nemesis.schedule.target import servers

WORKER_CODE: Final = ("assay/cluster", "assay/harness/core", "assay/harness/remote")
"""The code that a worker process imports in addition to the system's source and the client's own package."""
OWN_PACKAGE: Final = "assay"
"""This package is not copied to nodes as a whole, but only its part with the client."""


class SystemWithClientNodes:
    """A system plus worker processes that run clients of class ``client`` on nodes of role ``client``.

    Satisfies :class:`System`, and every optional protocol that the system satisfies.
    """

    name: str
    defects: Sequence[str]
    set_up: Callable[[Cluster], Coroutine[Any, Any, None]]
    find: Callable[..., Coroutine[Any, Any, Node | None]]
    keys: Callable[[], Sequence[str]]

    def __init__(self, system: System, client: type[Any]) -> None:
        """Raises ``ValueError`` if a node could not import the client, or if the system already has this role."""
        if CLIENT_ROLE in system.roles:
            raise ValueError(
                f"{system.name} already has a role {CLIENT_ROLE!r}: leave out client_nodes, or rename the role"
            )
        self._system = system
        self._client = require_importable(client)
        self._argv = server.make_worker_command(
            self._client, system.zookeeper_client if isinstance(system, SupportsZooKeeperClient) else None
        )
        # Attributes are copied, not found by __getattr__, because checks of protocols need real attributes.
        for name in dir(system):
            if not name.startswith("_") and name not in vars(SystemWithClientNodes):
                vars(self)[name] = getattr(system, name)
        self.code_packages = find_packages(system)
        if getattr(client, "holds_sessions", False):  # sessions of ZooKeeper, which faults can expire
            self.client_sessions = True
        self.client_software = Software(python=pin_packages(client))

    def __repr__(self) -> str:
        return f"{self._system!r} with clients {self._client} on nodes of their own"

    @property
    def roles(self) -> Sequence[str]:
        return (*self._system.roles, CLIENT_ROLE)

    @property
    def source(self) -> Sequence[str]:
        words = self._client.partition(":")[0].split(".")
        package = "/".join(words[:2] if words[0] == OWN_PACKAGE else words[:1])
        return tuple(dict.fromkeys([*self._system.source, *WORKER_CODE, package]))

    def port(self, role: str) -> int:
        return PORT if role == CLIENT_ROLE else self._system.port(role)

    def argv(self, node: Node) -> Sequence[str]:
        return self._argv if node.role == CLIENT_ROLE else self._system.argv(node)

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {} if node.role == CLIENT_ROLE else self._system.files(node, cluster)

    def event_log(self, node: Node) -> str | None:
        return None if node.role == CLIENT_ROLE else self._system.event_log(node)

    def logs(self, node: Node) -> Sequence[str]:
        return () if node.role == CLIENT_ROLE else self._system.logs(node)

    def ready(self, node: Node) -> Coroutine[Any, Any, bool]:
        if node.role == CLIENT_ROLE:
            return server.is_ready(node.address, dial=get_dial(node))
        return self._system.ready(node)

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        if list(argv) == self._argv:
            return await server.run_worker(runtime, self._argv[3:])  # without ``python3 -m MODULE``
        return await self._system.entry(runtime, argv)


def require_importable(client: type[Any]) -> str:
    """Returns ``module:Class``. Raises ``ValueError`` for a class that cannot be imported by this name."""
    name = f"{client.__module__}:{client.__qualname__}"
    if "<" in name or client.__module__ == "__main__":
        raise ValueError(
            f"{name} cannot run on a node: define the class at the top of a module, so that the node can import it"
        )
    return name


def pin_packages(client: type[Any]) -> Sequence[str]:
    """Returns the Python packages that the class requires (``python = ("nats-py",)``), pinned to the versions installed
    here.

    The harness and the nodes must run the same versions.
    """
    packages: Sequence[str] = getattr(client, "python", ())
    return packages if isinstance(packages, str) else tuple(map(_pin_package, packages))  # text is rejected elsewhere


def _pin_package(name: str) -> str:
    if "==" in name:
        return name
    try:
        return f"{name}=={metadata.version(name.partition('[')[0])}"
    except metadata.PackageNotFoundError:
        return name


def assign_client_nodes(endpoints: Sequence[Endpoint], cluster: Cluster) -> list[Endpoint]:
    """Returns the endpoints with client nodes assigned in turn, so that every node gets its share of clients."""
    homes = [ClientHome(node.name, join_host_port(node.address, PORT)) for node in by_role(cluster, CLIENT_ROLE)]
    pairs = range(math.lcm(len(endpoints), len(homes)))
    return [replace(endpoints[i % len(endpoints)], home=homes[i % len(homes)]) for i in pairs]


def make_endpoints(
    system: System, cluster: Cluster, defect: str | None, options: Mapping[str, Any] = MappingProxyType({})
) -> list[Endpoint]:
    """Returns one endpoint per server that clients connect to. Each has the addresses of all servers, its own first."""
    all_servers = servers(cluster, system)
    client_roles = system.client_roles if isinstance(system, SupportsClientRoles) else system.roles
    nodes = [node for node in all_servers if node.role in client_roles]
    addresses = [join_host_port(node.address, system.port(node.role)) for node in nodes]
    roles = {
        role: tuple(join_host_port(node.address, system.port(role)) for node in all_servers if node.role == role)
        for role in dict.fromkeys(node.role for node in all_servers)
    }
    zookeeper = tuple(join_host_port(node.address, ZOOKEEPER_PORT) for node in by_role(cluster, ZOOKEEPER_ROLE))
    defects = () if defect is None else (defect,)
    return [
        Endpoint(
            node.name,
            address,
            (address, *(other for other in addresses if other != address)),
            zookeeper=zookeeper,
            defects=defects,
            roles=roles,
            options=dict(options),
        )
        for node, address in zip(nodes, addresses, strict=True)
    ]
