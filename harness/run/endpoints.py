"""Endpoints: the addresses at which clients find the system."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from assay.cluster.addresses import join_host_port
from assay.cluster.node import Cluster, by_role
from assay.cluster.system import ZOOKEEPER_PORT, ZOOKEEPER_ROLE, SupportsClientRoles, System
from assay.harness.core.client import Endpoint
from assay.nemesis.schedule.target import servers


def make_endpoints(
    system: System, cluster: Cluster, defect: str | None, options: Mapping[str, Any] = MappingProxyType({})
) -> list[Endpoint]:
    """Returns one endpoint per server that clients connect to, with its own address first."""
    everyone = servers(cluster, system)
    wanted = system.client_roles if isinstance(system, SupportsClientRoles) else system.roles
    nodes = [node for node in everyone if node.role in wanted]
    addresses = [join_host_port(node.address, system.port(node.role)) for node in nodes]
    roles = {
        role: tuple(join_host_port(node.address, system.port(role)) for node in everyone if node.role == role)
        for role in dict.fromkeys(node.role for node in everyone)
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
