"""Tests what is advised when the Docker engine does not do what it is asked; without an engine."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import nullcontext, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import requests
from docker.errors import APIError, DockerException

from assay.cluster import journal, owner
from assay.cluster.docker import disk, layer
from assay.cluster.docker import engine as module
from assay.cluster.docker.engine import DockerEngineError, open_docker, remove_network
from assay.cluster.docker_endpoint import LOCAL_SOCKET, Endpoint

from helpers.loop_devices import find_loop_devices

TAKEN = 'Conflict. The container name "/assay-r1-n1" is already in use by container "0f3a". You have to remove it.'

SAME_NETWORK = "network with name assay-r1-net already exists"


def refused(status: int, said: str) -> APIError:
    response: Any = requests.Response()
    response.status_code, response.reason = status, "as it is"
    return APIError("refused", response=response, explanation=said)


def advice(monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
    """Returns what is said when a call raises this."""
    monkeypatch.setenv("DOCKER_HOST", LOCAL_SOCKET)
    monkeypatch.setattr(module, "_connect", lambda endpoint, timeout: SimpleNamespace(close=lambda: None))
    with pytest.raises(DockerEngineError) as raised, open_docker():
        raise error
    return str(raised.value)


@pytest.mark.parametrize(
    ("explanation", "name", "removal"),
    [
        (TAKEN, "a container assay-r1-n1", "docker rm -f assay-r1-n1"),
        (SAME_NETWORK, "a network assay-r1-net", "docker network rm assay-r1-net"),
    ],
    ids=["container", "network"],
)
def test_a_name_that_is_taken_says_whose_it_is_and_what_removes_it(
    monkeypatch: pytest.MonkeyPatch, explanation: str, name: str, removal: str
) -> None:
    said = advice(monkeypatch, refused(409, explanation))
    assert f"{name} exists already" in said
    assert "`assay heal`" in said
    assert f"`{removal}`" in said
    assert "dockerd" not in said


class FakeNetworks:
    """The networks of an engine that allows equal names; ``list`` takes the engine's pattern."""

    def __init__(self, **names: str) -> None:
        self.names = names

    def list(self, names: list[str]) -> list[Any]:
        return [SimpleNamespace(id=one) for one, name in self.names.items() if re.search(names[0], name)]

    def get(self, network_id: str) -> Any:
        return SimpleNamespace(remove=lambda: self.names.pop(network_id))


def test_all_networks_of_one_name_go_on_an_engine_that_allows_several() -> None:
    networks = FakeNetworks(first="assay-r1-net", second="assay-r1-net", third="assay-r1-net-other")
    client: Any = SimpleNamespace(networks=networks)
    assert remove_network(client, "assay-r1-net")
    assert networks.names == {"third": "assay-r1-net-other"}
    assert not remove_network(client, "assay-r1-net"), "they are gone already"


@pytest.mark.parametrize(
    "error", [refused(409, "removal of container 0f3a is already in progress"), refused(500, "no space left on device")]
)
def test_an_engine_that_refuses_need_not_be_started(monkeypatch: pytest.MonkeyPatch, error: APIError) -> None:
    said = advice(monkeypatch, error)
    assert str(error.explanation) in said
    assert "`assay doctor`" in said
    assert "dockerd" not in said


@pytest.mark.parametrize("error", [DockerException("no answer"), requests.ConnectionError("reset")])
def test_one_that_breaks_off_may_have_to_be_started(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert "`dockerd`" in advice(monkeypatch, error)


PODMAN = {"BuildahVersion": "1.28.2", "Name": "laptop", "DockerRootDir": "/var/lib/containers", "Rootless": False}


def test_podman_is_known_again_although_each_of_its_answers_has_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    machine = "laptop"
    client = SimpleNamespace(info=lambda: PODMAN | {"ID": f"id-{next(numbers)}", "Name": machine})
    monkeypatch.setattr(module, "open_docker", lambda *_: nullcontext(client))
    endpoint = Endpoint(LOCAL_SOCKET)
    first = module.identify_engine(endpoint=endpoint)
    assert first.is_same_as(module.identify_engine(endpoint=endpoint))
    machine = "other"
    assert not first.is_same_as(module.identify_engine(endpoint=endpoint))


def test_an_engine_of_docker_is_known_by_its_own_id() -> None:
    assert module.find_engine_id({"ID": "AAAA", "Name": "laptop"}) == "AAAA"


@pytest.mark.parametrize(
    "answer", [{"SecurityOptions": ["name=seccomp", "name=rootless"]}, PODMAN | {"Rootless": True}]
)
def test_a_rootless_engine_makes_no_disks(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    client = SimpleNamespace(info=lambda: answer)
    monkeypatch.setattr(disk, "open_docker", lambda: nullcontext(client))
    with pytest.raises(disk.DiskError, match="engine is rootless"):
        disk.start_disk_container("assay-r1-disks", "image", {})


@pytest.mark.parametrize(("answer", "is_privileged"), [({"ID": "AAAA"}, False), (PODMAN, True)])
def test_only_podman_gets_a_privileged_container_for_disks(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], is_privileged: bool
) -> None:
    created: dict[str, Any] = {}
    api = SimpleNamespace(
        create_host_config=lambda **options: options,
        create_container=lambda image, **options: created.update(options) or {"Id": "0f3a"},
        start=lambda container: None,
    )
    monkeypatch.setattr(disk, "open_docker", lambda: nullcontext(SimpleNamespace(info=lambda: answer, api=api)))
    disk.start_disk_container("assay-r1-disks", "image", {})
    assert created["host_config"]["privileged"] is is_privileged
    assert created["host_config"]["network_mode"] == "none"


def test_a_disk_of_an_earlier_version_is_removed_with_its_device(tmp_path: Path) -> None:
    """Its journal has the path of an image on this machine."""
    image = tmp_path / "n1.ext4"
    image.write_bytes(bytes(1 << 16))
    if os.geteuid() == 0 and shutil.which("losetup") is not None:
        subprocess.run(["losetup", "--find", str(image)], check=False)
    undo = journal.RemoveDisk(str(image))
    client: Any = None
    assert module.undo_action(client, undo)
    assert not image.exists()
    assert find_loop_devices(str(image)) == []
    assert not module.undo_action(client, undo), "it was gone already"


def test_a_record_names_podman_and_docker() -> None:
    assert module.name_engine({"Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}) == "podman"
    assert module.name_engine({"Components": [{"Name": "Engine"}]}) == "docker"
    assert module.name_engine({}) == "docker"


class FakeContainer:
    """A container of an engine that may be unable to pause."""

    def __init__(self, can_pause: bool) -> None:
        self.can_pause = can_pause
        self.status = "running"

    def pause(self) -> None:
        if not self.can_pause:
            raise refused(500, "cannot toggle freezer: cgroups not configured for container")
        self.status = "paused"

    def unpause(self) -> None:
        self.status = "running"


@pytest.mark.parametrize("can_pause", [True, False])
def test_a_freezer_says_before_the_run_whether_the_engine_can_freeze(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, can_pause: bool
) -> None:
    container = FakeContainer(can_pause)
    client = SimpleNamespace(containers=SimpleNamespace(get=lambda name: container), close=lambda: None)
    monkeypatch.setenv("DOCKER_HOST", LOCAL_SOCKET)
    monkeypatch.setattr(module, "_connect", lambda endpoint, timeout: client)
    undo = journal.UndoJournal(tmp_path, "r1", owner.current_owner(), None)
    obstacle = module.DockerFreezer(undo, ["assay-r1-n1"], "n1").find_obstacle()
    assert container.status == "running"
    assert journal.read_journal(undo.path).actions == ()
    if can_pause:
        assert obstacle is None
    else:
        assert "cgroups not configured" in str(obstacle)
        assert "control groups of version 2" in str(obstacle)


def test_a_refused_call_is_explained_by_the_engine_and_not_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    said = advice(monkeypatch, refused(500, "cannot toggle freezer"))
    assert said == f"the Docker engine rejected the call or broke off: cannot toggle freezer; {module.DOCTOR_REMEDY}"


class Engine(BaseHTTPRequestHandler):
    """An engine that answers a ping, and counts all other calls."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def test_an_engine_is_not_asked_for_its_parts_to_learn_the_version_of_its_api() -> None:
    """Podman starts programs to answer ``docker version``, which takes seconds."""
    Engine.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open_docker(5, Endpoint(f"tcp://127.0.0.1:{server.server_port}")) as client:
            assert client.ping()
        server.shutdown()
    assert {path.rpartition("/")[2] for path in Engine.asked} == {"_ping"}


def test_a_query_of_an_engine_that_hangs_ends_in_half_a_minute_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert inspect.signature(layer.run_command).parameters["timeout"].default <= 30
    with pytest.raises(layer.ImageError, match=r"`docker image ls` did not end within 0.2 s: the engine hangs"):
        layer.run_command(["docker", "image", "ls"], timeout=0.2)


class TricklingEngine(Engine):
    """An engine whose answers to all but a ping never end."""

    def do_GET(self) -> None:
        if self.path.endswith("_ping"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b"1\r\n \r\n")
                time.sleep(0.05)


def test_an_answer_that_never_ends_is_given_up_at_the_limit() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), TricklingEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            pytest.raises(DockerEngineError, match="its answer is not complete after 1 s"),
            open_docker(1, Endpoint(f"tcp://127.0.0.1:{server.server_port}")) as client,
        ):
            client.info()
        server.shutdown()
