"""Nodes are called the same in containers and in the simulation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.naming import plan_nodes
from assay.cluster.system import ZOOKEEPER_ROLE, zookeeper_servers


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        (("zookeeper", "broker", "client"), ["zk1", "n1", "n2", "client1"]),
        (("server",), ["n1", "n2"]),
        (("registry", "store"), ["n1", "store1", "store2"]),
    ],
)
def test_the_main_role_is_n_and_others_have_their_own_names(roles: tuple[str, ...], names: list[str]) -> None:
    counts = {role: 2 if role in ("broker", "server", "store") else 1 for role in roles}
    assert [item.name for item in plan_nodes(roles, counts)] == names


@pytest.mark.parametrize(
    ("roles", "spares"), [(("zookeeper", "broker", "client"), ["n3", "n4"]), (("zookeeper",), [])], ids=str
)
def test_spares_go_on_counting_in_the_main_role_and_come_last(roles: tuple[str, ...], spares: list[str]) -> None:
    counts = dict.fromkeys(roles, 2)
    without, made = plan_nodes(roles, counts), plan_nodes(roles, counts, 2)
    assert made[: len(without)] == without, "all others are called and addressed as before"
    assert [item.name for item in made[len(without) :]] == spares


@pytest.mark.parametrize(
    ("addresses", "servers"),
    [
        (("198.18.0.3", "198.18.0.4"), "198.18.0.3:2181,198.18.0.4:2181"),
        (("fd00::3", "198.18.0.4"), "[fd00::3]:2181,198.18.0.4:2181"),
    ],
)
def test_zookeeper_is_reached_at_ipv6_addresses_as_well(addresses: tuple[str, ...], servers: str) -> None:
    cluster: Any = SimpleNamespace(nodes=[SimpleNamespace(role=ZOOKEEPER_ROLE, address=one) for one in addresses])
    assert zookeeper_servers(cluster) == servers
