"""A system with nodes for its clients is the system, with one role more."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.docker import built_images, code_archive, image, layer, software
from assay.cluster.docker.image import REQUIREMENTS
from assay.cluster.doctor import docker_available
from assay.cluster.system import (
    DeploymentError,
    SupportsClientSessions,
    SupportsDataFiles,
    SupportsDataFolder,
    SupportsGroups,
    SupportsHold,
    SupportsReplicas,
    SupportsSettings,
    SupportsZooKeeperClient,
    System,
)
from assay.harness.core.client import Endpoint
from assay.harness.remote import PORT
from assay.harness.run.client_nodes import SystemWithClientNodes, assign_client_nodes
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.faults import count_nodes
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.offsets_client import OffsetsClient

from helpers.nightly import a_share_by_day

WORKLOADS = Path(__file__).parents[3] / "workloads"
CAPABILITIES = (SupportsSettings, SupportsDataFiles, SupportsDataFolder, SupportsGroups, SupportsHold, SupportsReplicas)


@dataclass
class FakeNode:
    name: str
    role: str
    index: int
    address: str


@dataclass
class FakeCluster:
    nodes: list[Any]


class Least(System):
    name, roles = "least", ("server",)


class PythonClient(OffsetsClient):
    python = ("msgspec", "Not_Installed-Here[extra]", "tabulate==0.1")


class SessionClient(OffsetsClient):
    holds_sessions = True


def test_what_the_system_can_do_it_can_still_do_and_what_it_cannot_it_cannot() -> None:
    both = SystemWithClientNodes(Broker(groups=("members",)), OffsetsClient)
    assert all(isinstance(both, capability) for capability in CAPABILITIES)
    assert not isinstance(both, SupportsClientSessions)
    assert isinstance(SystemWithClientNodes(Broker(), SessionClient), SupportsClientSessions)
    assert (both.name, list(both.keys()), both.groups) == ("broker", list(Broker().keys()), ("members",))  # type: ignore[attr-defined]
    assert set(both.defects) == set(Broker().defects)
    least = SystemWithClientNodes(Least(), OffsetsClient)
    assert not any(isinstance(least, capability) for capability in CAPABILITIES)


def test_a_client_node_runs_the_workloads_client_and_the_others_what_they_did() -> None:
    system = SystemWithClientNodes(Broker(), OffsetsClient)
    client, broker = FakeNode("client1", "client", 1, "10.0.0.9"), FakeNode("n1", "broker", 1, "10.0.0.1")
    cluster = FakeCluster([broker, client])
    assert list(system.roles) == ["zookeeper", "broker", "client"]
    assert system.argv(client)[1:] == [
        "-m",
        "assay.harness.remote",
        "--client",
        "assay.workloads.broker.offsets_client:OffsetsClient",
        "--zookeeper",
        Broker.zookeeper_client,
    ]  # type: ignore[arg-type]
    assert system.argv(broker) == Broker().argv(broker)  # type: ignore[arg-type]
    assert system.files(client, cluster) == {}  # type: ignore[arg-type]
    assert system.files(broker, cluster) == Broker().files(broker, cluster)  # type: ignore[arg-type]
    assert (system.event_log(client), system.port("client")) == (None, PORT)  # type: ignore[arg-type]
    assert (system.event_log(broker), system.port("broker")) == (Broker().event_log(broker), Broker().port("broker"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("nodes", "asked", "count"), [(1, None, 1), (3, None, 3), (5, None, 3), (3, 1, 1), (2, 7, 7)])
def test_there_are_as_many_as_servers_and_at_most_three_unless_asked_for(
    nodes: int, asked: int | None, count: int
) -> None:
    counts = count_nodes(SystemWithClientNodes(Broker(), OffsetsClient), Settings(1, nodes=nodes, client_nodes=asked))
    assert counts == {"zookeeper": 1, "broker": nodes, "client": count}
    assert "client" not in count_nodes(Broker(), Settings(1, client_nodes=2))


@pytest.mark.parametrize(("servers", "homes"), [(3, 3), (3, 2), (2, 3), (5, 3), (1, 1)])
def test_clients_are_spread_evenly_over_servers_and_nodes(servers: int, homes: int) -> None:
    endpoints = [Endpoint(f"n{i}", f"10.0.0.{i}:9092", ()) for i in range(servers)]
    cluster = FakeCluster([FakeNode(f"client{i}", "client", i, f"10.0.1.{i}") for i in range(homes)])
    found = assign_client_nodes(endpoints, cluster)  # type: ignore[arg-type]
    assert len({(one.node, one.home) for one in found}) == len(found)
    for names in ([one.node for one in found], [one.home for one in found]):
        assert len({names.count(name) for name in names}) == 1
    assert [one.node for one in found[:servers]] == [one.node for one in endpoints]


def test_a_client_that_no_other_process_could_import_is_refused_where_it_is_written() -> None:
    class Local(OffsetsClient):
        pass

    with pytest.raises(ValueError, match="define the class at the top of a module"):
        SystemWithClientNodes(Broker(), Local)

    class Crowded(Least):
        roles = ("server", "client")  # type: ignore[assignment]

    with pytest.raises(ValueError, match="already has a role 'client'"):
        SystemWithClientNodes(Crowded(), OffsetsClient)


BLOCKED = """
import importlib, sys

class OnlyWhatANodeHas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, *sys.argv[2].split(",")}:
            raise ImportError(f"{name} is not installed on a node")

sys.meta_path.insert(0, OnlyWhatANodeHas())
sys.path[:] = [sys.argv[1], *(entry for entry in sys.path if entry.endswith("-packages") or "lib/python" in entry)]
import assay.harness.remote.__main__
from assay.harness.remote.runtime import import_object
for name in sys.argv[3:]:
    assert callable(import_object(name))
assert assay.harness.remote.__main__.__file__.startswith(sys.argv[1]), assay.harness.remote.__main__.__file__
print("imported")
"""


def shipped() -> dict[str, Experiment]:
    """Returns the workloads whose clients live on nodes."""
    modules = [import_module(f"assay.workloads.{path.stem}") for path in sorted(WORKLOADS.glob("test_*.py"))]
    found = {name: find_experiment(value) for module in modules for name, value in vars(module).items()}
    return {name: one for name, one in found.items() if one is not None and one.client_nodes}


def test_workloads_with_client_nodes_are_found() -> None:
    assert {"test_offsets", "test_lock"} <= shipped().keys()


@pytest.mark.parametrize("name", a_share_by_day(2, shipped()))
def test_a_node_needs_nothing_but_what_is_copied_and_what_its_image_has(tmp_path: Path, name: str) -> None:
    """Neither Arrow nor DuckDB, pytest or Hypothesis: the code as a container is given it, and the image's packages."""
    experiment = shipped()[name]
    system = experiment.deployed_system()
    with tarfile.open(fileobj=io.BytesIO(code_archive.archive_code(list(system.source)))) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                target = tmp_path / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())
    copied = tmp_path / code_archive.ROOT
    assert not (copied / "assay" / "harness" / "run").exists()
    allowed = ",".join([*REQUIREMENTS, "assay"])
    client = f"{experiment.client.__module__}:{experiment.client.__qualname__}"
    session = [system.zookeeper_client] if isinstance(system, SupportsZooKeeperClient) else []
    command = [sys.executable, "-c", BLOCKED, str(copied), allowed, client, *session]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.stdout == "imported\n", done.stderr


def test_a_module_of_one_file_is_copied_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely_client.py").write_text("class Client: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(code_archive.archive_code(["lonely_client", "assay/harness/core"]))) as tar:
        names = tar.getnames()
    assert f"{code_archive.ROOT}/lonely_client.py" in names
    assert f"{code_archive.ROOT}/assay/harness/core/client.py" in names


def test_what_a_client_needs_of_python_is_on_its_nodes_alone_in_the_versions_that_are_here() -> None:
    system = SystemWithClientNodes(Least(), PythonClient)
    found = software.require_software(system, "client").python
    assert found == (f"msgspec=={metadata.version('msgspec')}", "Not_Installed-Here[extra]", "tabulate==0.1")
    assert software.require_software(system, "server") == software.require_software(
        SystemWithClientNodes(Least(), OffsetsClient), "client"
    )


def test_python_of_a_client_that_is_no_list_is_refused_with_what_it_takes() -> None:
    class Slip(OffsetsClient):
        python = "msgspec"

    Slip.__qualname__ = "Slip"
    with pytest.raises(DeploymentError, match=r"role client: python takes names, such as .* not 'msgspec'"):
        software.require_software(SystemWithClientNodes(Least(), Slip), "client")


@pytest.mark.docker
@pytest.mark.long
def test_wheels_of_a_client_are_in_the_image_of_its_nodes() -> None:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")

    class Tabulating(OffsetsClient):
        python = ("tabulate==0.9.0",)

    Tabulating.__qualname__ = "Tabulating"
    before = {one.name for one in built_images.list_images()}
    try:
        made = software.ensure_images(
            SystemWithClientNodes(Least(), Tabulating), ["server", "client"], lambda line: None
        )
        code = "import msgspec, tabulate; print(tabulate.__version__)"
        argv = ["docker", "run", "--rm", "--network=none", "--entrypoint=python3", made["client"].id, "-c", code]
        assert layer.run_command(argv).stdout == "0.9.0\n"
        assert made["server"].id == image.ensure_node_image(lambda line: None)
    finally:
        for one in built_images.list_images():
            if one.name not in before:
                built_images.remove(one.name)
