"""A Compose file becomes a cluster of its own, which leaves a running stack of the same file alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from assay import REGISTER_ANOMALIES, Compose, Generator, Settings, experiment, forbid
from assay.checkers.judging.verdict import Verdict
from assay.cluster.compose import project
from assay.cluster.compose.project import ComposeError
from assay.cluster.containers import Container, Job
from assay.cluster.docker import DockerCluster, layer, target_container
from assay.cluster.docker.engine import DockerEngineError, list_owned, open_docker
from assay.cluster.docker.image import ensure_node_image
from assay.cluster.docker.user_images import DOCKERFILE_LABEL
from assay.cluster.node import NodeError
from assay.cluster.system import DeploymentError
from assay.harness.run.settings import DOCKER
from assay.workloads.generic.registers import unique_values

from helpers.attempts import played
from helpers.bare_registers import FILE, GID, KEYS, PORT, UID, RegisterClient, built_image
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = pytest.mark.docker

FOLDER = "/run/registers"
SUBNET = f"198.19.{200 + os.getpid() % 50}.{os.getpid() // 50 % 16 * 16}/28"
"""Another one in each process, so that tests of two checkouts do not collide."""
NEWER = f"newer-registers:{os.getpid()}"
TEXT = f"""\
version: "3.8"
x-server: &server
  build: {{context: own, args: {{IMAGE: "${{IMAGE}}"}}}}
  environment: {{GREETING: "good $$day", MORE: "${{MORE}}"}}
  restart: always
services:
  prepare:
    image: ${{NODE}}
    entrypoint: ["sh", "-c", "getent hosts server3 > /shared/prepared || true"]
    volumes: ["shared:/shared"]
  server1: &first
    <<: *server
    command: registers {PORT} {FILE} server2 other
    ports: ["127.0.0.1:${{PUBLISHED}}:{PORT}"]
    volumes: ["data1:{FOLDER}", "shared:/shared", "./conf:/etc/conf:ro"]
    healthcheck: {{test: ["CMD", "registers", "ask", "{PORT}"]}}
  server2:
    <<: *first
    ports: []
    command: registers {PORT} {FILE} server1 server3
    volumes: ["data2:{FOLDER}", "shared:/shared"]
    hostname: second
    stop_signal: SIGQUIT
    depends_on: {{server1: {{condition: service_started}}, prepare: {{condition: service_completed_successfully}}}}
  server3:
    <<: *server
    command: ["registers", "{PORT}", "{FILE}", "server1", "server2"]
    networks: {{default: {{aliases: [other]}}}}
    volumes: ["data3:{FOLDER}"]
    depends_on: {{server2: {{condition: service_started}}}}
volumes: {{data1: {{}}, data2: {{}}, data3: {{}}, shared: {{}}}}
networks: {{default: {{ipam: {{config: [{{subnet: {SUBNET}}}]}}}}}}
"""
DOCKERFILE = f"""\
ARG IMAGE
FROM $IMAGE
COPY --chown={UID}:{GID} empty {FOLDER}
STOPSIGNAL SIGINT
HEALTHCHECK CMD ["registers", "ask", "{PORT}"]
"""


@pytest.fixture(scope="module")
def file(engine_needed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        project.find_command()
    except ComposeError:
        pytest.skip("no command of Compose is installed")
    folder = tmp_path_factory.mktemp("shop")
    node = ensure_node_image(lambda line: None)
    with built_image(tmp_path_factory.mktemp("bare"), f"bare-registers:{os.getpid()}") as image:
        (folder / "own/empty").mkdir(parents=True)
        (folder / "own/empty/.keep").touch()
        (folder / "own/Dockerfile").write_text(DOCKERFILE)
        (folder / "conf").mkdir()
        (folder / "conf/settings").write_text("nothing\n")
        (folder / ".env").write_text(f"IMAGE={image}\nNODE={node}\nMORE=of the file\nPUBLISHED=0\n")
        (folder / "docker-compose.yml").write_text(TEXT)
        (folder / "newer").mkdir()
        (folder / "newer/Dockerfile").write_text(f"FROM {image}\nENV NEWER=yes\nEXPOSE {PORT}\n")
        layer.run_command(["docker", "build", "-q", "-t", NEWER, str(folder / "newer")], timeout=60)
        try:
            yield folder / "docker-compose.yml"
        finally:
            with open_docker() as client:
                label = f"{DOCKERFILE_LABEL}={folder / 'own/Dockerfile'}"
                for built in client.images.list(filters={"label": label}):
                    client.images.remove(str(built.id), force=True)
            layer.run_command(["docker", "image", "rm", "-f", NEWER], check=False)


def make_system(file: Path) -> Compose:
    return Compose(file, roles={"server": PORT}, files={"server": ["log"]}, upgrade={"server": NEWER})


@pytest.fixture(scope="module")
def live(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    state = tmp_path_factory.mktemp("compose-state")
    cluster = DockerCluster(
        make_system(file), {"server": 3}, run_id=run_of_its_own("test-compose"), seed=1, state_dir=state
    )
    with started(cluster, state) as live:
        yield live


async def start_all(nodes: Sequence[Any], system: Any) -> None:
    for node in nodes:
        if str((await node.process()).state) == "dead":
            await node.start()
    async with asyncio.timeout(20):
        for node in nodes:
            while True:
                try:
                    if await system.ready(node):
                        break
                except OSError:
                    await asyncio.sleep(0.05)


def test_each_container_is_as_the_file_says(live: Live, file: Path) -> None:
    async def body() -> None:
        nodes = live.cluster.nodes
        assert [node.name for node in nodes] == ["server1", "server2", "server3"]
        await start_all(nodes, live.cluster._system)
        first, second, third = nodes
        said = (await first.read_file("/var/log/assay/process.log")).decode().splitlines()
        assert said[-1] == f"{UID}:{GID} good $day / in /work"
        pid = str((await first.process()).incarnation).partition(".")[0]
        variables = (await first.shell(f"tr '\\0' '\\n' < /proc/{pid}/environ")).splitlines()
        assert {"GREETING=good $day", "MORE=of the file"} <= set(variables)
        assert await first.read_file("/etc/conf/settings") == b"nothing\n"
        assert (await first.run_in_image(["registers", "ask", str(PORT)])).status == 0
        assert (await first.run_in_image(["registers", "ask", "7999"])).status == 1
        hosts = (await first.shell("cat /etc/hosts")).splitlines()
        assert f"{third.address}\tserver3" in hosts
        assert f"{third.address}\tother" in hosts
        assert await second.shell("hostname") == "second\n"

    live.run(body())


def test_a_volume_of_two_services_is_one_and_every_other_is_its_containers_own(live: Live) -> None:
    async def body() -> None:
        first, second, third = live.cluster.nodes
        await first.shell(f"echo here > {first._root}/shared/note")
        assert await second.read_file("/shared/note") == b"here\n"
        await first.shell(f"echo mine > {first._root}{FOLDER}/note")
        assert await second.find_files(f"{FOLDER}/note") == {}
        assert await third.find_files("/shared/*") == {}

    live.run(body())
    run_id = live.cluster.run_id
    with open_docker() as client:
        assert client.volumes.get(f"assay-{run_id}-shared").attrs["Labels"]["assay.run"] == run_id


def test_an_upgraded_node_has_the_new_image_and_its_old_volumes(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        system, (_, node, _) = live.cluster._system, live.cluster.nodes
        await start_all(live.cluster.nodes, system)
        with closing(RegisterClient([f"{node.address}:{PORT}"])) as user:
            written = await asyncio.to_thread(user.write, "r0", 9)
        with pytest.raises(NodeError, match="cannot change its image while the main process is alive"):
            await node.change_image()
        await node.kill()
        with monkeypatch.context() as patch:
            patch.setattr(target_container, "start_target", fail)
            with pytest.raises(NodeError, match="server2: its image could not be changed: refused by a test"):
                await node.change_image()
        assert await node.find_files(f"{FOLDER}/log"), "the former container runs again"
        changed = await node.change_image()
        with open_docker() as client:
            assert changed.wanted == changed.found == client.images.get(NEWER).id
        assert list(node.exposed_ports) == [PORT], "the settings are those of the new image"
        assert await node.change_image() == changed, "it has the image already"
        await node.start()
        await start_all(live.cluster.nodes, system)
        pid = str((await node.process()).incarnation).partition(".")[0]
        assert "NEWER=yes" in (await node.shell(f"tr '\\0' '\\n' < /proc/{pid}/environ")).splitlines()
        with closing(RegisterClient([f"{node.address}:{PORT}"])) as user:
            assert await asyncio.to_thread(user.read, "r0") == {"value": 9, "version": written["version"]}
        assert (await node.read_file("/shared/note")).decode() == "here\n", "also the volume that it shares"

    live.run(body())


def fail(*_: Any) -> None:
    raise DockerEngineError("refused by a test")


def test_health_check_and_stop_signal_are_those_of_the_image_unless_the_file_has_others(live: Live) -> None:
    nodes = live.cluster.nodes
    assert [node.stop_signal for node in nodes] == [Signals.SIGINT, Signals.SIGQUIT, Signals.SIGINT]
    assert [node.health_command for node in nodes] == [["registers", "ask", str(PORT)]] * 3


def test_a_job_runs_until_its_end_with_the_names_and_volumes_of_the_nodes(live: Live, file: Path) -> None:
    (job,) = make_system(file).jobs
    assert (job.name, job.after) == ("prepare", None)
    live.run(live.cluster.run_job(job))
    first, _, third = live.cluster.nodes
    assert live.run(first.read_file("/shared/prepared")).split()[0] == third.address.encode()


def test_a_job_that_fails_is_an_error_with_its_last_lines(live: Live) -> None:
    images, command = live.cluster._images, ("sh", "-c", "echo no such table; exit 3")
    images["the job broken"] = replace(images["the job prepare"], argv=command)
    with pytest.raises(DeploymentError, match=r"the job broken ended with exit code 3; .*\n  no such table"):
        live.run(live.cluster.run_job(Job("broken", Container())))


def test_a_disk_that_would_hide_a_shared_volume_is_refused(live: Live) -> None:
    first, _, third = live.cluster.nodes
    assert live.cluster._find_shared_volume(first, "/shared/inside") == "shared"
    assert live.cluster._find_shared_volume(first, FOLDER) is None
    assert live.cluster._find_shared_volume(third, "/shared") is None


def test_a_service_without_a_volume_has_no_data(file: Path, tmp_path: Path) -> None:
    (tmp_path / "compose.yml").write_text("services: {app: {image: app}}\n")
    system = Compose(tmp_path / "compose.yml", roles={"app": 80})
    node: Any = type("Node", (), {"name": "app1", "role": "app", "index": 1})()
    with pytest.raises(DeploymentError, match=r"app1 has no volume: .*`data="):
        system.data_folder(node)
    unknown = Compose(tmp_path / "compose.yml", roles={"web": 80})
    with pytest.raises(ComposeError, match="has no service web, which `roles` names; its services are app"):
        unknown.roles  # noqa: B018 - reading it reads the file


def make_experiment(system: Compose) -> Any:
    @experiment(system=system, client=RegisterClient, contract=forbid(*REGISTER_ANOMALIES))
    def test_shop(settings: Settings) -> Generator:
        return unique_values(KEYS)

    return test_shop


def make_step(at: float, fault: str, **parameters: Any) -> dict[str, Any]:
    return {"at": at, "fault": fault, "target": {"kind": "one"}, "duration": 1.0, "parameters": parameters}


def list_containers(name: str) -> dict[str, tuple[str, int]]:
    """Returns the start and the number of restarts of each container of a Compose project."""
    with open_docker() as client:
        found = client.containers.list(filters={"label": f"com.docker.compose.project={name}"})
        return {one.name: (one.attrs["State"]["StartedAt"], one.attrs["RestartCount"]) for one in found}


def test_faults_strike_the_run_and_not_the_stack_of_the_same_file_that_runs_beside(file: Path, tmp_path: Path) -> None:
    name = f"beside{os.getpid()}"
    compose = [*project.find_command(), "-p", name, "-f", str(file)]
    environment = layer.command_environment()
    try:
        subprocess.run([*compose, "up", "-d"], env=environment, check=True, capture_output=True, timeout=120)
        with open_docker() as client:
            (first,) = client.containers.list(
                filters={"label": [f"com.docker.compose.project={name}", "com.docker.compose.service=server1"]}
            )
            (settings,) = first.attrs["NetworkSettings"]["Networks"].values()
        with closing(RegisterClient([f"{settings['IPAddress']}:{PORT}"])) as user:
            written = user.write("r0", 5)
            before = list_containers(name)
            steps = [make_step(0.5, "kill"), make_step(2.0, "partition", shape="one")]
            schedule = tmp_path / "schedule.json"
            schedule.write_text(json.dumps({"type": "schedule", "seed": 0, "steps": steps}))
            given = Settings(seed=3, cluster=DOCKER, time_limit=3.5, rate=100.0, store=tmp_path, replay=schedule)
            judgement = played(make_experiment(make_system(file)), given).judgement
            assert judgement is not None
            assert judgement.verdict is Verdict.PASS, (judgement.unknown, judgement.findings)
            assert user.read("r0") == {"value": 5, "version": written["version"]}
            assert list_containers(name) == before
    finally:
        subprocess.run(
            [*compose, "down", "-t", "0", "-v", "--rmi", "local"],
            env=environment,
            check=False,
            capture_output=True,
            timeout=120,
        )
    with open_docker() as client:
        left = [one.name for one in list_owned(client) if one.owner.endswith(str(os.getpid()))]
        assert [name for name in left if "shop" in name] == []
