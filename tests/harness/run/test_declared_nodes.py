"""The number of nodes of each role, where a system or an experiment declares which numbers there can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.node import Cluster, Node
from assay.cluster.system import System
from assay.harness.core.generator import Generator
from assay.harness.run.command_line import DEFAULT_NODES, make_repeat_command
from assay.harness.run.declared_nodes import check_node_counts, read_declarations, with_counts
from assay.harness.run.experiment import IncompleteError, experiment, find_experiment
from assay.harness.run.faults import count_nodes
from assay.harness.run.settings import Settings, parse_nodes
from assay.harness.search.exploration import make_search_space
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.workloads.systems.galera import Galera
from assay.workloads.systems.mariadb import MariaDB
from assay.workloads.systems.postgresql import PostgreSQL
from assay.workloads.test_kafka import Tansu


class Served(System):
    """Servers, sentinels and a proxy. ``node_counts`` is given to each test's own."""

    name, roles = "served", ("zookeeper", "server", "sentinel", "proxy")

    def __init__(self, node_counts: Any = None) -> None:
        if node_counts is not None:
            self.node_counts = node_counts

    def port(self, role: str) -> int:
        return 1

    def argv(self, node: Node) -> Sequence[str]:
        return [node.role]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    async def ready(self, node: Node) -> bool:
        return True


class Client:
    async def open(self, endpoint: Any, runtime: Any) -> None: ...
    async def invoke(self, operation: Any) -> Any: ...
    async def close(self) -> None: ...
    @staticmethod
    def effects(completed: Any) -> list[Any]:
        return []


def sized(system: System, asked: str | None, more: Any = None) -> tuple[dict[str, int], str | None, Settings]:
    """The nodes of each role, why they are refused, and the settings."""
    nodes, role_nodes = parse_nodes(asked or DEFAULT_NODES)
    counts = read_declarations(system, more)
    settings = with_counts(Settings(1, nodes=nodes, role_nodes=role_nodes), asked, system, counts)
    own = {role: number for role, number in count_nodes(system, settings).items() if role != "zookeeper"}
    return own, check_node_counts(settings, asked, system, counts) if counts else None, settings


COUNTS = {"server": (5, 3), "proxy": 1}


@pytest.mark.parametrize(
    ("counts", "asked", "more", "numbers"),
    [
        (None, None, None, (3, 3, 3)),
        (None, "5", None, (5, 5, 5)),
        (COUNTS, None, None, (5, 3, 1)),
        (COUNTS, "server=3", None, (3, 3, 1)),
        (COUNTS, "sentinel=2", None, (5, 2, 1)),
        (COUNTS, "3,proxy=1", None, (3, 3, 1)),
        (COUNTS, None, {"server": 7}, (7, 3, 1)),
        (None, None, {"sentinel": range(2, 9)}, (3, 2, 3)),
    ],
)
def test_a_role_has_what_is_asked_for_or_else_the_first_number_that_is_declared(
    counts: Any, asked: str | None, more: Any, numbers: tuple[int, ...]
) -> None:
    found, reason, settings = sized(Served(counts), asked, more)
    assert tuple(found.values()) == numbers
    assert reason is None
    assert settings.nodes == numbers[0]


@pytest.mark.parametrize(
    ("counts", "asked", "said"),
    [
        (
            COUNTS,
            "4",
            "--nodes=4: served can have 5 or 3 nodes of the role server; say --nodes=server=5,sentinel=4,pro",
        ),
        (COUNTS, "3", "--nodes=3: served can have 1 node of the role proxy; say --nodes=server=3,sentinel=3,proxy=1"),
        (COUNTS, "proxy=2", "can have 1 node of the role proxy; say --nodes=server=5,sentinel=2,proxy=1"),
        ({"server": (1, 3, 5)}, "server=2", "can have 1, 3 or 5 nodes of the role server"),
    ],
)
def test_a_number_that_is_not_declared_is_refused_with_those_that_are(counts: Any, asked: str, said: str) -> None:
    _, reason, _ = sized(Served(counts), asked)
    assert reason is not None
    assert said in reason


def test_a_system_of_one_node_needs_no_option() -> None:
    for system in (PostgreSQL(), MariaDB(), Tansu()):
        assert sized(system, None)[0] == {"server": 1}
        assert sized(system, "1")[1] is None
        assert sized(system, "3")[1] == (
            f"--nodes=3: {system.name} can have 1 node of the role server; leave --nodes out"
        )
    assert sized(Galera(), None)[0] == {"server": 3}
    assert sized(Galera(), "5")[1] is None


@pytest.mark.parametrize("asked", [None, "3,proxy=1", "server=3"])
def test_the_command_that_repeats_a_run_gives_each_role_its_number(asked: str | None) -> None:
    found, _, settings = sized(Served({"server": (3, 5), "proxy": 1}), asked)
    (typed,) = (word for word in make_repeat_command("t.py", settings).split() if word.startswith("--nodes="))
    assert typed == "--nodes=server=3,sentinel=3,proxy=1"
    assert sized(Served({"server": (5, 3), "proxy": 1}), typed.removeprefix("--nodes="))[0] == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"servers": 1}, "node_counts has 'servers'; its roles are server, sentinel, proxy"),
        ({"zookeeper": 1}, "node_counts has 'zookeeper'"),
        ({"server": 0}, "node_counts has 0 for server: it takes a number for each role"),
        ({"server": ()}, r"node_counts has \(\) for server"),
        ({"server": "3"}, "node_counts has '3' for server"),
        ({"server": True}, "node_counts has True for server"),
        (3, "node_counts is 3: it takes a number for each role"),
    ],
)
def test_what_is_no_declaration_is_refused_where_it_is_written(given: Any, said: str) -> None:
    for system, more in ((Served(given), None), (Served(), given)):
        with pytest.raises(IncompleteError, match=said.replace("node_counts", "node_counts( of the experiment)?")):
            experiment(system=system, client=Client, contract=Contract(), node_counts=more)(body)


def body(settings: Settings) -> Generator:
    raise NotImplementedError


def test_an_experiment_declares_for_itself_and_keeps_what_else_its_system_declares() -> None:
    test = experiment(system=Served(COUNTS), client=Client, contract=Contract(), node_counts={"server": 2})(body)
    found = find_experiment(test)
    assert found is not None
    assert found.node_counts == {"server": (2,), "proxy": (1,)}


def test_a_search_draws_no_number_that_is_not_declared() -> None:
    for counts, resizable in ((None, True), ({"server": (3, 4)}, False)):
        system = Served(counts)
        assert make_search_space(system, sized(system, None)[2], FaultCatalogue.standard()).resizable is resizable
