"""Each process of a real node finds the system's data folder, and a second copy is traced, whichever user it has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster
from assay.cluster.node import Cluster, Node
from assay.cluster.sidecars import Sidecar
from assay.cluster.system import Software, System

from helpers.echo_system import until
from helpers.live_cluster import run_of_its_own

DATA = "/var/lib/found/data"
LOGS = "/var/log/assay"
USERS = {"rooted": "root", "owned": "daemon"}
LOOKS = f"cd {DATA} && echo found by $(id -un); exec sleep 1000"
WRITES = f"cd {DATA} && echo found by $(id -un) && echo x >> written; exec sleep 1000"


class Finding(System):
    """A server and an agent of another user, which take the data folder for granted."""

    name, roles = "finding", tuple(USERS)

    def software(self, role: str) -> Software:
        return Software(user=None if role == "rooted" else USERS[role])

    def sidecars(self, node: Node) -> Mapping[str, Sidecar]:
        return {"agent": Sidecar(["sh", "-c", LOOKS], user="games")}

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-c", WRITES]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def data_folder(self, node: Node) -> str:
        return DATA

    async def ready(self, node: Node) -> bool:
        return b"found" in await node.read_file(f"{LOGS}/process.log")


async def found(node: Any, log: str, user: str, times: int) -> None:
    async def said() -> bool:
        return (await node.read_file(f"{LOGS}/{log}.log")).decode() == f"found by {user}\n" * times

    await until(said, f"{log} of {node.name} has found the folder {times} times", seconds=60)


async def plays(folder: Path) -> None:
    system = Finding()
    run = run_of_its_own("test-folder")
    cluster = DockerCluster(system, dict.fromkeys(system.roles, 1), run_id=run, seed=1, state_dir=folder)
    try:
        await cluster.start()
        await start_system(system, cluster, 30, lambda line: None)
        for node in cluster.nodes:
            user = USERS[node.role]
            agent = node.part("agent")
            await found(node, "process", user, 1)
            await found(node, "agent", "games", 1)
            assert await node.shell(f"stat -c %U {DATA}") == f"{user}\n"

            await node.kill()
            await node.shell(f"rm -r {DATA}")
            await node.start()
            await found(node, "process", user, 2)
            await found(node, "agent", "games", 2)

            await agent.kill()
            await node.shell(f"mv {DATA} {DATA}.away")
            await agent.start()
            await found(node, "agent", "games", 3)
            await node.shell(f"rm -r {DATA}; mv {DATA}.away {DATA}")

            await node.start_second(DATA)
            await found(node, "second", user, 1)

            async def counted(node: Any = node) -> bool:
                seen = await node.second()
                assert (seen.alive, seen.not_proved) == (True, None)
                return bool(seen.changes == 1)

            await until(counted, "the write of the copy is counted", seconds=60)
            await node.end_second()
            assert not (await node.second()).alive
    finally:
        await cluster.close()


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_each_process_finds_the_data_folder_and_the_changes_of_a_copy_are_counted(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(plays(tmp_path), 240))
