"""Through which node a client reaches the system is known exactly where it asked for one address alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.harness.core.client import ClientHome, Endpoint
from assay.harness.core.generator import each_process, limit, repeat
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.history.data_sets import WORKER_NODES
from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Completion, Operation, Outcome

from helpers.interpret import interpret

ONE = Endpoint("n1", "10.0.0.1:9092", ("10.0.0.1:9092", "10.0.0.2:9092"), roles={"server": ("10.0.0.1:9092",)})
TWO = Endpoint("n2", "10.0.0.2:9092", ONE.all, home=ClientHome("client1", "10.0.0.9:7070"))


class Single:
    """Takes the address that it belongs to."""

    async def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.endpoint, self.address = endpoint, endpoint.address

    async def invoke(self, operation: Operation) -> Completion:
        return Completion(Outcome.OK)

    async def close(self) -> None:
        """Nothing to close."""


class Roaming(Single):
    """Looks for another server when it is asked for something."""

    async def invoke(self, operation: Operation) -> Completion:
        return Completion(Outcome.OK, result=self.endpoint.all[0])


class Nothing:
    """Records nothing."""

    def completed(self, completed: object, effects: object) -> None:
        """Nothing to keep."""


@pytest.mark.parametrize(("client", "known"), [(Single, {"w0": "n1", "w1@client1": "n2"}), (Roaming, {})])
def test_workers_have_the_node_of_their_endpoint_unless_a_client_asked_for_others(
    client: type[Single], known: dict[str, str]
) -> None:
    work = each_process(limit(2, repeat(Operation("x"))))
    given: dict[str, Any] = {"endpoints": (ONE, TWO), "client": client, "recorder": Nothing(), "concurrency": 2}
    assert asyncio.run(interpret(work, **given)).worker_nodes == known


@pytest.mark.parametrize("name", ["all", "zookeeper", "roles"])
def test_each_place_that_has_other_addresses_counts(name: str) -> None:
    given = ObservedEndpoint.of_endpoint(ONE)
    assert (given.node, given.address, given.home, given.options) == ("n1", "10.0.0.1:9092", None, {})
    assert not given.has_read_others
    assert getattr(given, name) == getattr(ONE, name)
    assert given.has_read_others


def test_it_is_its_endpoint_in_all_else() -> None:
    given = ObservedEndpoint.of_endpoint(TWO)
    assert isinstance(given, Endpoint)
    assert given == TWO
    assert given == ObservedEndpoint.of_endpoint(TWO)
    assert given != ONE
    assert type(given.plain) is Endpoint
    assert not given.has_read_others, "to compare is not to ask"


def test_what_is_written_is_read_and_what_is_damaged_is_nothing(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path):
        pass
    reader = HistoryReader(tmp_path)
    assert reader.worker_nodes == {}
    (tmp_path / WORKER_NODES).write_text('{"w0": "n1", "w1": "n2"}')
    assert reader.worker_nodes == {"w0": "n1", "w1": "n2"}
    (tmp_path / WORKER_NODES).write_text('{"w0": 3}')
    assert reader.worker_nodes == {}
