"""The run's own network: an isolated bridge on a subnet that no other network uses.

Subnets come from 198.18.0.0/15, the range for tests of network devices (RFC 2544, RFC 6890), so they overlap with no
LAN. Concurrent sessions of a user choose under one file lock, and ask the engine for used subnets. Sessions of other
users have another lock. If two users choose the same subnet, the engine rejects the second one. Two engines on one
machine do not know of each other's networks, so a subnet to which this machine has a route counts as used, too.
Otherwise the clients of one run could write into the cluster of another run.
"""

import contextlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool

from assay.cluster.docker.engine import DockerEngineError
from assay.cluster.file_lock import LockHeldError, hold_lock
from assay.cluster.operating_system import list_local_networks

RANGE = ipaddress.IPv4Network("198.18.0.0/15")
PREFIX = 24
FIRST_HOST = 11
"""Last octet of the first node's address. The addresses below are this machine's own (.1) and some unused ones."""


@dataclass(frozen=True)
class RunNetwork:
    """A network in the engine, with its name and subnet."""

    name: str
    subnet: ipaddress.IPv4Network

    def address(self, number: int) -> str:
        """Returns the address of the cluster's node ``number``, from 0.

        Raises ``ValueError`` if the subnet has no such address.
        """
        if not 0 <= number < self.subnet.num_addresses - FIRST_HOST - 1:
            raise ValueError(f"{self.subnet} has no address for node number {number}; use fewer nodes")
        return str(self.subnet[FIRST_HOST + number])


def create_network(client: docker.DockerClient, name: str, labels: Mapping[str, str], state: Path) -> RunNetwork:
    """Creates the network.

    Raises :class:`DockerEngineError` if the whole range is in use, or another session holds the lock for too long.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(state / "subnets.lock"))
        except LockHeldError as error:
            raise DockerEngineError(str(error)) from error
        rejected: set[ipaddress.IPv4Network] = set()
        local = list_local_networks()
        while (subnet := choose_subnet(list_used_subnets(client) | rejected, local)) is not None:
            try:
                client.networks.create(
                    name,
                    driver="bridge",
                    internal=True,
                    labels=dict(labels),
                    ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))]),
                )
            except APIError as error:
                if "overlaps" not in str(error):
                    raise
                rejected.add(subnet)
            else:
                return RunNetwork(name, subnet)
    raise DockerEngineError(f"every subnet of {RANGE} is in use; `assay heal` removes what dead runs have left")


def list_used_subnets(client: docker.DockerClient) -> set[ipaddress.IPv4Network]:
    """Returns the subnets of all the engine's networks, of any creator."""
    used = set()
    for network in client.networks.list():
        for pool in (network.attrs.get("IPAM") or {}).get("Config") or []:
            subnet = ipaddress.ip_network(pool["Subnet"])
            if isinstance(subnet, ipaddress.IPv4Network):
                used.add(subnet)
    return used


def choose_subnet(taken: set[ipaddress.IPv4Network], local: set[ipaddress.IPv4Network]) -> ipaddress.IPv4Network | None:
    """Returns a subnet that overlaps neither with ``taken`` nor with the networks of this machine.

    If there is none, a network of this machine that is larger than a subnet may overlap, such as a VPN's whole range:
    packets take the narrower route.
    """
    narrow = {network for network in local if network.prefixlen >= PREFIX}
    return find_free_subnet(taken | local) or find_free_subnet(taken | narrow)


def find_free_subnet(taken: set[ipaddress.IPv4Network]) -> ipaddress.IPv4Network | None:
    """Returns the lowest subnet that overlaps with none of ``taken``."""
    for subnet in RANGE.subnets(new_prefix=PREFIX):
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    return None
