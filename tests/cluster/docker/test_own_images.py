"""Images of the user's own: what a node needs is added, by the package manager or as copies, or it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster, built_images, image, image_contents, layer, software, user_images
from assay.cluster.docker.layer import ImageError
from assay.cluster.node import Cluster, Node, ProcessState
from assay.cluster.system import Software, System

from helpers.live_cluster import run_of_its_own

OUTPUT = "/var/log/assay/process.log"
PROGRAM = 'id -un; id -gn; pwd; echo "$GREETING"; echo mine > /var/lib/mine/file; echo up; exec sleep 1000'
WITHOUT_TOOLS = """\
FROM {node}
RUN rm -rf /usr/bin/apt-get /usr/sbin/sshd /usr/sbin/iptables* /usr/bin/python3* /usr/bin/pkill /usr/bin/setpriv \\
           /usr/lib/python3.11 /usr/lib/x86_64-linux-gnu/xtables /etc/ssh
RUN useradd --create-home alice && mkdir /srv/mine
COPY greeting /srv/mine/
ENV GREETING=hello
WORKDIR /srv/mine
USER alice
"""


@dataclass
class Mine(System):
    """Servers of an image of the user's."""

    given: Software
    name: str = "mine"
    roles: Sequence[str] = ("server",)
    environment: Mapping[str, str] = field(default_factory=dict)

    def software(self, role: str) -> Software:
        return self.given

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-c", PROGRAM]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def data_folder(self, node: Node) -> str:
        return "/var/lib/mine"

    async def ready(self, node: Node) -> bool:
        return (await node.read_file(OUTPUT)).endswith(b"up\n")


@pytest.fixture
def nothing_left(engine_needed: None) -> Iterator[None]:
    """Images that a test has built are removed, but for the copies of the node image's programs."""
    before = {user_images.bundle_reference(), *(one.name for one in built_images.list_images())}
    yield
    while left := [one.name for one in built_images.list_images() if one.name not in before]:
        removed = [layer.run_command(["docker", "image", "rm", "-f", name], check=False) for name in left]
        assert any(done.returncode == 0 for done in removed), removed


def dockerfile(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "greeting").write_text("hello")
    (folder / "Dockerfile").write_text(text)
    return folder / "Dockerfile"


def ensure(given: Software) -> tuple[software.NodeImage, list[str]]:
    """The servers' image, and the lines of progress."""
    steps: list[str] = []
    return software.ensure_images(Mine(given), ["server"], steps.append)["server"], steps


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.long
def test_an_image_without_a_package_manager_gets_copies_and_is_a_node_like_any(tmp_path: Path) -> None:
    image.ensure_node_image(lambda line: None)
    path = dockerfile(tmp_path / "mine", WITHOUT_TOOLS.format(node=image.image_reference()))
    system = Mine(Software(dockerfile=path))
    steps: list[str] = []

    async def body() -> None:
        cluster = DockerCluster(
            system,
            {"server": 2},
            run_id=run_of_its_own("test-own-image"),
            seed=1,
            state_dir=tmp_path,
            progress=steps.append,
            own_clocks=True,
        )
        try:
            await cluster.start()
            await start_system(system, cluster, 30, lambda line: None)
            one, other = cluster.nodes
            said = (await one.read_file(OUTPUT)).decode().split()
            assert said == ["alice", "alice", "/srv/mine", "hello", "up"]
            await one.stop()
            assert (await one.process()).state is ProcessState.STOPPED
            await one.kill()
            assert (await one.process()).state is ProcessState.DEAD
            assert set(await one.contents("/var/lib/mine")) == {"/var/lib/mine/file"}
            await one.remove_contents("/var/lib/mine")
            assert not await one.contents("/var/lib/mine")
            await one.drop_from([other])
            assert await one.dropped() == {other.name: 0}
            assert await one.shell("python3 -c 'import ctypes, ssl, sys; print(sys.version_info[0])'") == "3\n"
            assert one._clock_missing is None, "what was compiled here is loaded there"
        finally:
            await cluster.close()

    asyncio.run(body())
    shown = next(step for step in steps if step.endswith("(copied from the node image) ..."))
    assert "sshd, iptables, iptables-restore, python3, pkill, setpriv" in shown
    found, again = ensure(system.given)
    assert again == [], "it is there"
    assert found.environment["GREETING"] == "hello"


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_what_a_dockerfile_copies_is_looked_at_each_time_and_the_rest_comes_from_the_cache(tmp_path: Path) -> None:
    image.ensure_node_image(lambda line: None)
    path = dockerfile(tmp_path / "mine", f"FROM {image.image_reference()}\nCOPY greeting /greeting\n")
    steps: list[str] = []
    first = user_images.build_dockerfile(path, steps.append)
    assert steps == [f"{path}: step 2/5, COPY greeting /greeting"]
    assert user_images.build_dockerfile(path, steps.append) == first
    assert len(steps) == 1, "it came from the cache"
    (path.parent / "greeting").write_text("good day")
    other = user_images.build_dockerfile(path, steps.append)
    assert (other.name, other.id != first.id, len(steps)) == (first.name, True, 2)
    assert [one.used for one in built_images.list_images() if one.source == str(path) and one.name == other.name] == [
        True
    ]
    path.unlink()
    assert [one.used for one in built_images.list_images() if one.source == str(path)] == [False, False], (
        "the former has another name"
    )


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_what_fails_names_the_role_the_file_the_step_and_the_last_lines(tmp_path: Path) -> None:
    image.ensure_node_image(lambda line: None)
    path = dockerfile(tmp_path, f"FROM {image.image_reference()}\nRUN echo the very last words; false\nRUN true\n")
    with pytest.raises(ImageError) as caught:
        ensure(Software(dockerfile=path))
    said = str(caught.value)
    assert f"no image for the nodes of role server: {path}: step 2/" in said
    assert "RUN echo the very last words; false failed:" in said
    assert "\nthe very last words\n" in said

    without = "rm /usr/sbin/sshd; printf '#!/bin/sh\\necho no mirror answers; exit 100' > /usr/bin/apt-get"
    path.write_text(f"FROM {image.image_reference()}\nRUN {without}\n")
    with pytest.raises(ImageError) as caught:
        ensure(Software(dockerfile=path))
    said = str(caught.value)
    assert "no mirror answers" in said
    assert f"{path} lacks sshd, and apt-get needs a network to install it" in said
    assert said.endswith("or install openssh-server in its own Dockerfile")


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_an_image_without_a_shell_is_taken_as_it_is_and_gets_no_packages(tmp_path: Path) -> None:
    path = dockerfile(tmp_path, "FROM scratch\nCOPY greeting /greeting\nENV GREETING=hello\nUSER 7:8\n")
    found, _ = ensure(Software(dockerfile=path))
    assert (found.id, found.user) == (image.ensure_node_image(lambda line: None), "7:8")
    assert found.below == (found.target,)
    refused = rf"tabulate cannot be installed: {path} has no shell \(/bin/sh\).*build it FROM an image that has one"
    with pytest.raises(ImageError, match=refused):
        ensure(Software(dockerfile=path, python=("tabulate",)))
    with pytest.raises(ImageError, match=rf"{path} has no shell"):
        software.ensure_software_image(Software(dockerfile=path), lambda line: None)


@pytest.mark.docker
@pytest.mark.usefixtures("nothing_left")
def test_an_image_that_is_nowhere_is_refused_with_the_remedy() -> None:
    # Port 9 of this machine: no registry answers there.
    with pytest.raises(ImageError, match=r"(?s)docker pull.*localhost:9/no/such:image is not on this engine either"):
        ensure(Software(image="localhost:9/no/such:image"))


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_debian_as_it_comes_gets_what_it_lacks_by_apt_and_wheels_for_its_own_python(tmp_path: Path) -> None:
    image.ensure_node_image(lambda line: None)
    base = next(name for name in (layer.REGISTRY_BASE, layer.IMPORTED_BASE) if layer.exists(name))
    found, steps = ensure(Software(packages=("hello",), python=("tabulate",), image=base))
    assert any("openssh" not in step and "sshd" in step and step.endswith("(apt-get) ...") for step in steps)
    assert not {"sshd", "iptables", "python3"} & set(image_contents.examine_image(found.id, "it").missing)
    done = layer.run_command(
        [
            "docker",
            "run",
            "--rm",
            "--network=none",
            "--entrypoint=sh",
            found.id,
            "-c",
            "hello; python3 -c 'import tabulate; print(tabulate)'",
        ]
    )
    assert "Hello, world!" in done.stdout
    assert "tabulate" in done.stdout
    assert ensure(Software(packages=("hello",), python=("tabulate",), image=base)) == (found, [])
