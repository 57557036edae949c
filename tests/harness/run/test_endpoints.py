"""Tests where clients find the system, as every tool reads an address with a port."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.cluster.hosts.attached import AttachedNode
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, System
from assay.harness.run.client_nodes import assign_client_nodes, make_endpoints


class Plain(System):
    name, roles = "plain", (ZOOKEEPER_ROLE, "server")

    def port(self, role: str) -> int:
        return 7000


@dataclass
class Made:
    nodes: list[Any] = field(default_factory=list)


@pytest.mark.parametrize("host", ["10.0.0.{}", "fd00::{}"])
def test_an_ipv6_address_has_brackets_before_its_port(host: str) -> None:
    roles = (ZOOKEEPER_ROLE, "server", "server", CLIENT_ROLE)
    made = [AttachedNode(f"m{number}", role, number, host.format(number)) for number, role in enumerate(roles, 1)]
    cluster: Any = Made(made)
    inside = f"[{host}]" if ":" in host else host
    zookeeper, one, other, home = (
        inside.format(number) + f":{port}" for number, port in enumerate((2181, 7000, 7000, 7070), 1)
    )
    first, second = make_endpoints(Plain(), cluster, None)
    assert (first.address, first.all, second.all) == (one, (one, other), (other, one))
    assert (first.zookeeper, first.roles) == ((zookeeper,), {"server": (one, other)})
    assert [at.home.address for at in assign_client_nodes([first], cluster) if at.home] == [home]
