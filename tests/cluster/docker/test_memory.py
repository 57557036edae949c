"""A node runs out of memory: its kernel ends the main process, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.docker import DockerCluster
from assay.cluster.docker.cluster import MEMORY
from assay.cluster.node import NodeError, ProcessState

from helpers.echo_system import Echo, echoes, until
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("engine_needed")]


@pytest.fixture(scope="module")
def limited(engine_needed: None, echo: Echo, state: Path) -> Iterator[Live]:
    cluster = DockerCluster(
        echo, {"broker": 1}, run_id=run_of_its_own("test-memory"), seed=1, state_dir=state, own_memory=True
    )
    with started(cluster, state) as live:
        yield live


async def children(node: Any) -> int:
    return len((await node.shell("pgrep -x sleep || true")).split())


def test_the_kernel_ends_the_main_process_its_children_go_and_another_can_start(limited: Live) -> None:
    async def body() -> None:
        node = limited.node("n1")
        assert await node.memory_unavailable() is None
        await node.start()
        await until(lambda: echoes(node), "n1 echoes")
        before = await node.process()
        assert await children(node) == 1
        ssh = await node.shell("pgrep -f 'sshd.*-D|sshd: /usr' | head -1")
        found = await node.exhaust_memory()
        assert found.limit == MEMORY
        assert MEMORY // 2 < found.taken <= MEMORY
        assert found.ended == 1
        assert (await node.process()).state is ProcessState.DEAD
        assert await children(node) == 0
        assert await node.shell("pgrep -f 'sshd.*-D|sshd: /usr' | head -1") == ssh, "all else goes on"
        with pytest.raises(NodeError, match="not running"):
            await node.exhaust_memory()
        await node.start()
        await until(lambda: echoes(node), "n1 echoes")
        assert (await node.process()).incarnation != before.incarnation
        assert (await node.exhaust_memory()).ended == 1, "there is as much to be taken as before"

    limited.run(body())


def test_a_machine_without_a_limit_is_left_alone(live: Live) -> None:
    async def body() -> None:
        node = live.node("n1")
        assert "no limit of its own" in str(await node.memory_unavailable())
        await node.start()
        await until(lambda: echoes(node), "n1 echoes")
        with pytest.raises(NodeError, match="no limit of its own"):
            await node.exhaust_memory()
        assert await echoes(node)

    live.run(body())
