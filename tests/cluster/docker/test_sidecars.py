"""Nodes that run processes beside their main one: each with a log, a user, and an end of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster
from assay.cluster.node import Cluster, Node, NodeError, Part
from assay.cluster.sidecars import Sidecar, find_sidecars
from assay.cluster.ssh.node import SshNode
from assay.cluster.system import DeploymentError, Software, System

from helpers.live_cluster import run_of_its_own

DATA = "/var/lib/pair"
MAIN = f"echo main $(id -un) $GREETING; touch {DATA}/main; exec sleep 1000"
AGENT = f"echo agent $(id -un) $GREETING; touch {DATA}/agent || exit; exec sleep 1000"
LOGS = "/var/log/assay"


class Pair(System):
    """A server and an agent on each node."""

    name, roles = "pair", ("server",)
    given: Mapping[str, Sidecar] = {
        "agent": Sidecar(["sh", "-c", AGENT], {"GREETING": "hello"}),
        "watch-1": Sidecar(["sh", "-c", "echo watch $(id -un) $GREETING; exec sleep 1000"], user="games"),
    }

    def software(self, role: str) -> Software:
        return Software(environment={"GREETING": "hi"}, user="daemon")

    def sidecars(self, node: Node) -> Mapping[str, Sidecar]:
        return self.given

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-c", MAIN]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def data_folder(self, node: Node) -> str:
        return DATA

    async def ready(self, node: Node) -> bool:
        return set(await node.find_files(f"{DATA}/*")) == {f"{DATA}/agent", f"{DATA}/main"}


async def states(node: SshNode) -> list[str]:
    return [str((await node.part(named).process()).state) for named in ("main", *node.sidecars)]


async def pair(folder: Path) -> None:
    system = Pair()
    cluster = DockerCluster(system, {"server": 1}, run_id=run_of_its_own("test-pair"), seed=1, state_dir=folder)
    try:
        await cluster.start()
        await start_system(system, cluster, 20, lambda line: None)
        (node,) = cluster.nodes
        agent: Part = node.part("agent")
        with pytest.raises(NodeError, match="n1 has no process other; its processes are agent, watch-1, main"):
            node.part("other")

        await agent.stop()
        assert await states(node) == ["running", "stopped", "running"]
        await node.stop()
        assert await states(node) == ["stopped", "stopped", "stopped"]
        await node.resume()
        assert await states(node) == ["running", "running", "running"]

        before = await agent.process()
        await agent.kill()
        assert await states(node) == ["running", "dead", "running"]
        await agent.start()
        assert (await agent.process()).incarnation not in (None, before.incarnation)
        with pytest.raises(NodeError, match="alive already"):
            await agent.start()

        await node.part("watch-1").kill()
        await node.part("watch-1").start()
        assert await node.shell(f"stat -c %U {DATA} {LOGS}/watch-1.log") == "daemon\ngames\n"

        await node.part("main").kill()
        assert await states(node) == ["dead", "running", "running"]
        with pytest.raises(NodeError, match=f"cannot change {DATA} while the agent process is alive"):
            await node.remove_contents(DATA)
        await node.start()
        await node.terminate()
        assert await states(node) == ["dead", "dead", "dead"]
        await node.remove_contents(DATA)
        await node.start()
        await agent.kill()
        await node.kill()
        assert await states(node) == ["dead", "dead", "dead"], "also when one of them is dead already"

        assert await cluster.collect_logs(folder / "logs") == []
        said = {path.name: sorted(set(path.read_text().splitlines())) for path in (folder / "logs" / "n1").iterdir()}
        assert said == {
            "process.log": ["main daemon hi"],
            "agent.log": ["agent daemon hello"],
            "watch-1.log": ["watch games hi"],
        }
        system.given = {"agent": Sidecar(["false"])}
        with pytest.raises(DeploymentError, match=r"n1 \(server\): its process agent ended before it was ready"):
            await start_system(system, cluster, 20, lambda line: None)
    finally:
        await cluster.close()


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_all_are_started_stopped_and_ended_or_one_alone(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(pair(tmp_path), 60))


class _Node:
    name, role, index, address = "n1", "server", 1, "198.18.0.1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"main": Sidecar(["x"])}, "'main' is not a valid process name: .*not main, process, packets"),
        ({"Agent": Sidecar(["x"])}, "'Agent' is not a valid process name"),
        ({"agent": ["x"]}, r"\['x'\] for agent: it takes Sidecar"),
        ({"agent": Sidecar("x")}, "for agent: it takes Sidecar"),
        ({"agent": Sidecar([])}, "for agent: it takes Sidecar"),
        ({"agent": Sidecar(["x"], user="$(touch /x)")}, r"'\$\(touch /x\)', the user of agent, is neither a name"),
    ],
)
def test_what_is_no_process_is_refused_with_the_node(given: Mapping[str, Sidecar], said: str) -> None:
    system = Pair()
    system.given = given
    node: Node = _Node()  # type: ignore[assignment]
    with pytest.raises(DeploymentError, match=rf"sidecars\(\) of n1.*{said}"):
        find_sidecars(system, node)


def test_nodes_that_are_not_the_systems_own_have_one_process() -> None:
    class Client(_Node):
        role = "client"

    node: Node = Client()  # type: ignore[assignment]
    assert find_sidecars(Pair(), node) == {}
