"""Packages of Debian and of Python that a system's nodes need: in images of their own, built once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster, built_images, software
from assay.cluster.docker.layer import ImageError
from assay.cluster.node import Cluster, Node, by_role
from assay.cluster.system import DeploymentError, Software, System

from helpers.live_cluster import run_of_its_own
from helpers.package_index import put_source

OUTPUT = "/var/log/assay/process.log"
PROGRAM = "import os, tabulate, time; print(os.environ['GREETING'], tabulate.__name__, flush=True); time.sleep(1000)"


class Greeting(System):
    """Servers greet by packages that the node image lacks; watchers have none."""

    name, roles = "greeting", ("server", "watcher")

    def software(self, role: str) -> Software:
        return Software(("hello",), ("tabulate",), {"GREETING": "good day"}) if role == "server" else Software()

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return [
            "sh",
            "-c",
            'hello; exec python3 -c "$1"',
            "sh",
            PROGRAM if node.role == "server" else "import tabulate",
        ]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    async def ready(self, node: Node) -> bool:
        """A watcher's traceback has the word, too."""
        return node.role == "server" and b"tabulate" in await node.read_file(OUTPUT)


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_a_role_has_its_packages_its_python_and_its_environment_and_no_other_has(tmp_path: Path) -> None:
    steps: list[str] = []
    system = Greeting()
    before = {one.name for one in built_images.list_images()}

    async def body() -> tuple[bytes, bytes]:
        cluster = DockerCluster(
            system,
            {"server": 1, "watcher": 1},
            run_id=run_of_its_own("test-software"),
            seed=1,
            state_dir=tmp_path,
            progress=steps.append,
        )
        try:
            await cluster.start()
            with pytest.raises(DeploymentError, match="watcher1"):
                await start_system(system, cluster, 30, lambda line: None)
            served, watched = ([node for node in by_role(cluster, role)] for role in system.roles)
            return await served[0].read_file(OUTPUT), await watched[0].read_file(OUTPUT)
        finally:
            await cluster.close()

    try:
        server, watcher = asyncio.run(body())
        assert server.decode().splitlines() == ["Hello, world!", "good day tabulate"]
        assert b"hello: not found" in watcher
        assert b"No module named 'tabulate'" in watcher
        assert any("image with hello, tabulate" in step for step in steps)
        again: list[str] = []
        software.ensure_images(system, system.roles, again.append)
        assert again == [], "it is there"
        assert all(one.used for one in built_images.list_images() if one.name not in before), "nothing to prune"
    finally:
        for one in built_images.list_images():
            if one.name not in before:
                built_images.remove(one.name)


class Sourced(Greeting):
    """Its one role needs a package that has only a source distribution."""

    name, roles = "sourced", ("server",)

    def software(self, role: str) -> Software:
        return Software(python=("assay-sourced==1.0",))

    def argv(self, node: Node) -> Sequence[str]:
        code = "import assay_sourced, time; print('imported', flush=True); time.sleep(1000)"
        return ["python3", "-c", code]

    async def ready(self, node: Node) -> bool:
        return b"imported" in await node.read_file(OUTPUT)


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("engine_needed")
def test_nodes_have_a_package_that_is_built_from_its_source_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    put_source(index, "assay_sourced")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    steps: list[str] = []
    before = {one.name for one in built_images.list_images()}

    async def body() -> None:
        run = run_of_its_own("test-sourced")
        cluster = DockerCluster(
            Sourced(), {"server": 1}, run_id=run, seed=1, state_dir=tmp_path / "state", progress=steps.append
        )
        try:
            await cluster.start()
            await start_system(Sourced(), cluster, 30, lambda line: None)
        finally:
            await cluster.close()

    try:
        asyncio.run(body())
        assert any("assay-sourced==1.0 has no wheel" in step for step in steps), steps
    finally:
        for one in built_images.list_images():
            if one.name not in before:
                built_images.remove(one.name)


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_a_package_that_there_is_not_is_named() -> None:
    class Unknown(Greeting):
        def software(self, role: str) -> Software:
            return Software(python=("no-such-distribution-of-assay",))

    with pytest.raises(ImageError, match=r"role server: wheels of .*ERROR: .*no-such-distribution-of-assay"):
        software.ensure_images(Unknown(), ["server"], lambda line: None)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (Software(packages=("redis; rm -rf /",)), "'redis; rm -rf /'"),
        (Software(packages="redis"), "'redis'"),
        (Software(python=("-r requirements.txt",)), "'-r requirements.txt'"),
        (Software(python=("$(touch /x)",)), r"'\$\(touch /x\)'"),
        (Software(image="Redis; x"), "'Redis; x'"),
        (Software(image="redis:7", dockerfile=Path(__file__)), "an image and a dockerfile: take one"),
        (Software(dockerfile=Path("/nowhere/Dockerfile")), "/nowhere/Dockerfile is not a file"),
        (Software(user="$(touch /x)"), r"'\$\(touch /x\)'"),
    ],
)
def test_what_is_no_name_is_refused_before_anything_is_built(given: Software, shown: str) -> None:
    class Odd(Greeting):
        def software(self, role: str) -> Software:
            return given

    with pytest.raises(DeploymentError, match=rf"software of role server: .*{shown}"):
        software.ensure_images(Odd(), ["server"], lambda line: None)


def test_usual_names_are_taken_and_zookeepers_and_clients_have_nothing_of_it() -> None:
    class Usual(Greeting):
        def software(self, role: str) -> Software:
            return Software(("redis-server", "g++", "etcd-server=3.4.23-4+b4"), ("nats-py==2.9.0", "uvicorn[standard]"))

    found: Any = software.require_software(Usual(), "server")
    assert len(found.packages) == 3
    assert software.require_software(Usual(), "zookeeper") == software.require_software(Usual(), "client") == Software()
