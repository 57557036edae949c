"""An image without a shell runs unchanged beside the node's tools, and faults act on it as on any other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from assay.checkers.judging.verdict import Verdict
from assay.cluster.docker import DockerCluster
from assay.cluster.docker.engine import list_owned, open_docker
from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.sidecars import Sidecar
from assay.cluster.ssh.logs import OWN_LOGS
from assay.cluster.ssh.usage import parse_usage
from assay.harness.run.settings import DOCKER, Settings
from assay.nemesis.faults.clock import Clock

from helpers.attempts import played
from helpers.bare_registers import (
    FILE,
    GID,
    LINKED,
    PORT,
    UID,
    BareRegisters,
    RegisterClient,
    built_image,
    make_experiment,
)
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = pytest.mark.docker
OUTPUT = "/var/log/assay/process.log"


@pytest.fixture(scope="module")
def bare(engine_needed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with built_image(tmp_path_factory.mktemp("bare"), f"bare-registers:{os.getpid()}") as name:
        yield name


@pytest.fixture(scope="module")
def live(bare: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    state = tmp_path_factory.mktemp("bare-state")
    system = BareRegisters(bare, environment={"MORE": "yes"})
    cluster = DockerCluster(
        system,
        {"server": 2},
        run_id=run_of_its_own("test-bare"),
        seed=1,
        state_dir=state,
        own_clocks=True,
        slow_disks=True,
    )
    with started(cluster, state) as live:
        yield live


async def ask(node: Any, value: int | None = None) -> Any:
    """Reads a register of the node's server, or writes it, over a connection of its own."""

    def converse() -> Any:
        with closing(RegisterClient([f"{node.address}:{PORT}"])) as client:
            return client.read("r0") if value is None else client.write("r0", value)

    return await asyncio.to_thread(converse)


async def restarted(node: Any, system: BareRegisters) -> None:
    if (await node.process()).state is not ProcessState.DEAD:
        await node.kill()
    await node.start()
    async with asyncio.timeout(10):
        while True:
            try:
                if await system.ready(node):
                    return
            except OSError:
                await asyncio.sleep(0.02)


def test_the_image_is_as_it_was_and_its_process_has_its_user_environment_and_folder(live: Live, bare: str) -> None:
    async def body() -> None:
        n1, n2 = live.cluster.nodes
        await asyncio.gather(restarted(n1, live.cluster._system), restarted(n2, live.cluster._system))
        assert f"{n2.address}\tn2\n" in (await n1.read_file("/etc/hosts")).decode(), "names need no network"
        said = (await n1.read_file(OUTPUT)).decode().splitlines()
        assert said[-1] == f"{UID}:{GID} hello / in /work"
        pid = str((await n1.process()).incarnation).partition(".")[0]
        variables = (await n1.shell(f"tr '\\0' '\\n' < /proc/{pid}/environ")).splitlines()
        assert sorted(variables) == ["GREETING=hello", "HOME=/", "HOSTNAME=n1", "MORE=yes", "PATH=/srv"]
        assert await n1.shell(f"ps -o sid=,ppid=,comm= -p {pid} | tr -s ' '") == f" {pid} {n1._target.pid} registers\n"

    live.run(body())
    with open_docker() as client:
        container = client.containers.get(f"assay-{live.cluster.run_id}-n1-target")
        found = client.images.get(bare)
        assert container.image.id == found.id
        assert found.labels == {"mine": "yes"}
        assert container.attrs["Config"]["User"] == f"{UID}:{GID}"
        assert found.id in live.cluster.description["image digest"]
        owners = {one.name: one.run_id for one in list_owned(client) if one.run_id == live.cluster.run_id}
        assert container.name in owners, "its labels say whose it is"


def test_a_path_through_an_absolute_link_of_the_image_is_a_file_of_the_image(live: Live) -> None:
    async def body() -> None:
        n1, _ = live.cluster.nodes
        system = live.cluster._system
        await restarted(n1, system)
        assert await n1.shell(f"ls -d {LINKED} /etc/registers.conf 2>/dev/null || true") == "", "not on the holder"
        root = n1._target.root
        assert await n1.shell(f"stat -c %u:%g {root}/run/registers/log") == f"{UID}:{GID}\n"
        await ask(n1, 7)
        assert (await n1.read_file(FILE)) == b"r0 7 1\n"
        assert await n1.find_files(f"{LINKED}/*") == {FILE: 7}
        assert list(await n1.contents(LINKED)) == [FILE]
        assert list(await n1.contents(LINKED, [FILE])) == []
        await n1.write_file("/var/run/new/file", b"here")
        assert await n1.shell(f"cat {root}/run/new/file") == "here"
        assert await n1.shell("ls -d /run/new 2>/dev/null || true") == ""
        with pytest.raises(FileNotFoundError):
            await n1.read_file("/var/run/nothing")

    live.run(body())


def test_event_log_and_sizes_of_logs_are_those_of_the_image(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        _, n2 = live.cluster.nodes
        await restarted(n2, live.cluster._system)
        await ask(n2, 9)
        monkeypatch.setattr(n2, "_event_log", lambda node: FILE)
        events = n2.events()
        assert await anext(events) == "r0 9 1"
        await ask(n2, 10)
        assert await anext(events) == "r0 10 2"
        await events.aclose()
        sizes = n2.log_sizes(OWN_LOGS, [FILE])
        lines = [await anext(sizes) for _ in range(3)]
        assert [line.partition(" ")[2] for line in lines] == [OUTPUT, FILE, ""]
        assert lines[1] == f"15 {FILE}"
        await sizes.aclose()
        await n2.copy_log(FILE, tmp_path / "copy")
        assert (tmp_path / "copy").read_text() == "r0 9 1\nr0 10 2\n"
        usages = n2.usage(LINKED, 0.1, 3)
        usage = parse_usage(await anext(usages))
        assert usage is not None
        assert usage.memory is not None
        assert usage.disk is not None
        await usages.aclose()

    live.run(body())


def test_a_killed_process_finds_its_files_and_damage_done_meanwhile(live: Live) -> None:
    async def body() -> None:
        n1, _ = live.cluster.nodes
        system = live.cluster._system
        await restarted(n1, system)
        version = (await ask(n1, 8))["version"]
        before = await n1.process()
        with pytest.raises(NodeError, match="is alive already"):
            await n1.start()
        with pytest.raises(NodeError, match=r"cannot change .* while the main process is alive"):
            await n1.truncate_file(FILE, 0)
        await restarted(n1, system)
        assert (await n1.process()).incarnation != before.incarnation
        assert await ask(n1) == {"value": 8, "version": version}
        copy = await n1.save(LINKED)
        assert list(copy) == [FILE], "a running process is stopped meanwhile"
        await n1.kill()
        await n1.remove_contents(LINKED)
        assert await n1.find_files(FILE) == {}
        await n1.restore(LINKED)
        assert await n1.contents(LINKED) == copy
        await n1.discard(LINKED)
        size = (await n1.find_files(FILE))[FILE]
        await n1.truncate_file(FILE, size - 1)
        await restarted(n1, system)
        assert (await ask(n1))["version"] == version - 1
        await n1.terminate()
        assert (await n1.process()).state is ProcessState.DEAD

    live.run(body())


def test_a_stopped_and_a_frozen_node_are_silent_and_go_on(live: Live) -> None:
    async def body() -> None:
        n1, _ = live.cluster.nodes
        await restarted(n1, live.cluster._system)
        for silence, end in ((n1.stop, n1.resume), (n1.freeze, n1.thaw)):
            await silence()
            with pytest.raises(OSError, match="timed out"):
                await ask(n1)
            await end()
            assert await ask(n1)
        assert await n1.freezing_unavailable() is None

    live.run(body())


def test_what_cannot_work_is_refused_by_name(live: Live) -> None:
    async def body() -> None:
        n1, _ = live.cluster.nodes
        static = "its program /srv/registers is static, and a static program loads no library"
        refused = f"the clock of n1 cannot be shifted: {static}"
        assert str(await Clock().probe(live.cluster, live.cluster._system)).startswith(refused)
        with pytest.raises(NodeError, match=refused):
            await n1.shift_clock(60.0)
        assert n1.slowness_unavailable() == static
        assert str(n1.second_unavailable()).startswith("its image runs in a container of its own")
        assert str(await n1.memory_unavailable()).startswith("its image runs in a container of its own")
        with pytest.raises(NodeError, match="n1 cannot run out of memory: its image runs in a container"):
            await n1.exhaust_memory()

    live.run(body())


def test_a_dynamic_program_of_such_an_image_has_a_wrong_clock_and_a_slow_disk(
    engine_needed: None, tmp_path: Path
) -> None:
    async def body(image: str) -> None:
        run, system = run_of_its_own("test-bare-dynamic"), BareRegisters(image)
        cluster = DockerCluster(
            system, {"server": 2}, run_id=run, seed=1, state_dir=tmp_path, own_clocks=True, slow_disks=True
        )
        try:
            await cluster.start()
            node, other = cluster.nodes
            assert node.slowness_unavailable() is None
            await asyncio.gather(restarted(node, system), restarted(other, system))
            await node.shift_clock(3600.0)
            assert await node.clock_shift() == pytest.approx(3600.0)
            await node.shift_clock(0.0)
            assert await node.clock_shift() == 0.0
            await node.slow_disk(0.3)
            await ask(node, 7)
            assert (await node.read_disk_delays()).fsyncs == 1
            await node.slow_disk(0.0)
            assert "LD_PRELOAD" not in (await node.run_in_image(["registers", "ask", str(PORT)])).errors
        finally:
            await cluster.close()

    with built_image(tmp_path / "image", f"dynamic-registers:{os.getpid()}", dynamic=True) as image:
        asyncio.run(body(image))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nothing", "nothing: no such file in the image"),
        ("/srv/nothing", "/srv/nothing: no such file in the image"),
        ("/etc/registers.conf", "/etc/registers.conf: Permission denied"),
    ],
)
def test_a_command_that_the_image_lacks_is_an_error_of_the_start(live: Live, command: str, said: str) -> None:
    async def body() -> None:
        n1, _ = live.cluster.nodes
        system = live.cluster._system.inner
        if (await n1.process()).state is not ProcessState.DEAD:
            await n1.kill()
        system.command = [command]
        try:
            with pytest.raises(NodeError, match=f"the process could not be started: {said}"):
                await n1.start()
        finally:
            system.command = ["registers"]
        assert (await n1.process()).state is ProcessState.DEAD

    live.run(body())


CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.bare_registers import BareRegisters
from assay.cluster.docker import DockerCluster

async def main():
    cluster = DockerCluster(
        BareRegisters(sys.argv[2]), {"server": 1}, run_id=sys.argv[4], seed=1, state_dir=Path(sys.argv[3])
    )
    await cluster.start()
    await cluster.nodes[0].start()
    await cluster.nodes[0].freeze()
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


HEAL = (
    "import sys; from assay.cluster import leftovers; print(leftovers.heal(state=leftovers.Path(sys.argv[1])).failed)"
)


def list_left(run_id: str) -> list[str]:
    """Returns the names of a run's containers and networks, and of the volumes of the containers."""
    with open_docker() as client:
        names = [one.name for one in list_owned(client) if one.run_id == run_id]
        containers = [client.containers.get(name) for name in names if not name.endswith("-net")]
        return names + [mount["Name"] for container in containers for mount in container.attrs["Mounts"]]


def test_after_the_death_of_the_harness_heal_leaves_nothing(bare: str, tmp_path: Path) -> None:
    run_id = run_of_its_own("test-bare-killed")
    tests = str(Path(__file__).parents[2])
    argv = [sys.executable, "-c", CHILD, tests, bare, str(tmp_path), run_id]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.kill()
    before = list_left(run_id)
    assert len(before) == 4, "two containers, a network, and the volume that the image declares"
    # In a process of its own, because heal also ends the clusters of its own process.
    healed = subprocess.run([sys.executable, "-c", HEAL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert healed.stdout == "[]\n", healed.stderr
    assert list_left(run_id) == []
    with open_docker() as client, pytest.raises(NotFound):
        client.volumes.get(before[-1])


def make_step(at: float, fault: str, duration: float = 0.5, **parameters: Any) -> dict[str, Any]:
    return {"at": at, "fault": fault, "target": {"kind": "one"}, "duration": duration, "parameters": parameters}


STEPS = [
    make_step(0.5, "kill", 1),
    make_step(2.0, "stop", 1),
    make_step(3.5, "partition", 1, shape="one"),
    make_step(5.0, "packets", 1, way="delay", seconds=0.01),
]
"""A busy machine injects a fault up to half a second late, and heals it on time."""
DAMAGE = make_step(2, "truncate-tail", 1, region="file")


def play(bare: str, folder: Path, steps: list[dict[str, Any]], limit: float) -> Any:
    schedule = folder / "schedule.json"
    schedule.write_text(json.dumps({"type": "schedule", "seed": 0, "steps": steps}))
    settings = Settings(seed=3, cluster=DOCKER, time_limit=limit, rate=100.0, store=folder, replay=schedule)
    return played(make_experiment(BareRegisters(bare)), settings).judgement


def test_registers_of_an_image_without_a_shell_pass_under_faults_that_took_effect(bare: str, tmp_path: Path) -> None:
    judgement = play(bare, tmp_path, STEPS, 6.5)
    assert judgement.verdict is Verdict.PASS, (judgement.unknown, judgement.findings)


@pytest.mark.long
def test_a_file_that_was_truncated_while_its_process_was_dead_is_found(bare: str, tmp_path: Path) -> None:
    judgement = play(bare, tmp_path, [DAMAGE], 4.0)
    assert judgement.verdict is Verdict.FAIL
    assert set(judgement.anomalies) <= {"stale-read", "lost-update", "future-read"}


@pytest.mark.long
def test_unsynced_bytes_of_an_image_without_a_shell_are_lost_with_the_power(bare: str, tmp_path: Path) -> None:
    async def body() -> None:
        run = run_of_its_own("test-bare-power")
        system = BareRegisters(bare)
        cluster = DockerCluster(system, {"server": 1}, run_id=run, seed=1, state_dir=tmp_path, own_disks=True)
        try:
            await cluster.start()
            (node,) = cluster.nodes
            if (reason := node.own_disk_unavailable()) is not None:
                pytest.skip(reason)
            await restarted(node, system)
            await ask(node, 7)
            await node.shell(f"printf unsynced > {node._root}{LINKED.removeprefix('/var')}/other")
            assert await node.cut_power() == {f"{LINKED}/other": 8}
            await restarted(node, system)
            assert (await ask(node))["value"] == 7
            await node.fill_disk()
            assert (await node.room()).refused
            await node.free_disk()
            assert not (await node.room()).refused
        finally:
            await cluster.close()

    asyncio.run(body())


class Attended(BareRegisters):
    """A server with an agent."""

    agent_user: str | None = None

    def sidecars(self, node: Node) -> Mapping[str, Sidecar]:
        return {"agent": Sidecar(["registers", "7001", "/dev/shm/agent"], {"GREETING": "bye"}, user=self.agent_user)}


@pytest.mark.long
def test_a_sidecar_runs_in_the_image_and_what_ends_it_is_said(bare: str, tmp_path: Path) -> None:
    async def body() -> None:
        run = run_of_its_own("test-bare-agent")
        system = Attended(bare)
        cluster = DockerCluster(system, {"server": 1}, run_id=run, seed=1, state_dir=tmp_path)
        try:
            await cluster.start()
            (node,) = cluster.nodes
            await restarted(node, system)
            agent = node.part("agent")
            assert (await node.read_file("/var/log/assay/agent.log")).decode() == f"{UID}:{GID} bye / in /work\n"
            await agent.kill()
            assert (await agent.process()).state is ProcessState.DEAD
            assert (await node.process()).state is ProcessState.RUNNING
            system.agent_user = "4321"
            with pytest.raises(NodeError, match=r"agent cannot run as user 4321, because its image runs unchanged"):
                await agent.start()
            with open_docker() as client:
                client.containers.get(f"assay-{run}-n1-target").kill()
            with pytest.raises(NodeError, match="the container of the image has ended"):
                await node.find_files(f"{LINKED}/*")
            with pytest.raises(NodeError, match="the container of the image has ended"):
                await node.read_file(FILE)
            assert (await node.process()).state is ProcessState.DEAD
        finally:
            await cluster.close()

    asyncio.run(body())
