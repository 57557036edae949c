"""The wall clock of a node's process is shifted while it runs, and no other clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.docker import DockerCluster, preload
from assay.cluster.docker.engine import open_docker, undo_action
from assay.cluster.journal import RunInContainer, read_journal
from assay.cluster.node import NodeError

from helpers.echo_system import EVENTS, Echo, echoes, until
from helpers.live_cluster import Live, run_of_its_own, started

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("engine_needed")]


@pytest.fixture(scope="module")
def clocked(engine_needed: None, echo: Echo, state: Path) -> Iterator[Live]:
    try:
        preload.compile_here(preload.CLOCK)
    except preload.PreloadError as error:
        pytest.skip(str(error))
    cluster = DockerCluster(
        echo,
        {"zookeeper": 1, "broker": 1},
        run_id=run_of_its_own("test-clock"),
        seed=1,
        state_dir=state,
        own_clocks=True,
    )
    with started(cluster, state) as live:
        yield live


async def seen(node: Any) -> tuple[float, float]:
    """By how much the process's own wall and monotonic clocks are ahead of the machine's, as its event log says."""
    now, up = map(float, (await node.shell("date +%s.%N; cut -d ' ' -f 1 /proc/uptime")).split())
    await echoes(node)
    last = json.loads((await node.read_file(EVENTS)).splitlines()[-1])
    return last["wall"] - now, last["monotonic"] - up


async def shown(node: Any) -> float:
    """As the proof has it; the process reads its clock when it answers."""
    found, _ = await asyncio.gather(node.clock_shift(), echoes(node))
    return float(found)


def test_the_wall_clock_jumps_both_ways_and_the_monotonic_one_does_not(clocked: Live) -> None:
    async def body() -> None:
        node = clocked.node("n1")
        await node.start()
        await until(lambda: echoes(node), "n1 echoes")
        before = await node.process()
        _, steady = await seen(node)
        for seconds in (290.0, -290.0, 0.25, 0.0):
            await node.shift_clock(seconds)
            assert await shown(node) == seconds
            wall, monotonic = await seen(node)
            assert wall == pytest.approx(seconds, abs=2.0)
            assert monotonic == pytest.approx(steady, abs=2.0)
        assert await node.process() == before

    clocked.run(body())


def test_the_measured_offset_of_the_engine_is_that_of_the_unshifted_clock(clocked: Live) -> None:
    async def body() -> None:
        before = clocked.cluster.description["clocks"]
        node = clocked.node("n1")
        await node.shift_clock(290.0)
        await clocked.cluster.measure_clocks_again()
        await node.shift_clock(0.0)
        words = [text.split() for text in (before, clocked.cluster.description["clocks at the end"])]
        assert float(words[1][1]) == pytest.approx(float(words[0][1]), abs=1.0)

    clocked.run(body())


def test_another_process_of_the_machine_is_as_wrong(clocked: Live) -> None:
    async def body() -> None:
        node = clocked.node("n1")
        await node.shift_clock(-100.0)
        await node.kill()
        assert await node.clock_shift() == 0.0, "no one has read it since"
        await node.start()
        await until(lambda: echoes(node), "n1 echoes")
        assert await shown(node) == -100.0
        await node.shift_clock(0.0)
        assert (await seen(node))[0] == pytest.approx(0.0, abs=2.0)

    clocked.run(body())


def test_a_clock_that_is_left_wrong_is_set_right_from_the_journal(clocked: Live) -> None:
    async def body() -> None:
        node = clocked.node("n1")
        await node.shift_clock(50.0)
        (path,) = (clocked.state / "journals").glob("*.jsonl")
        actions = [action for _, action in read_journal(path).actions if isinstance(action, RunInContainer)]

        def undo() -> None:
            with open_docker() as client:
                for action in actions:
                    assert undo_action(client, action), action

        await asyncio.to_thread(undo)
        assert (await seen(node))[0] == pytest.approx(0.0, abs=2.0)
        await node.shift_clock(0.0)

    clocked.run(body())


def test_zookeeper_keeps_its_clock(clocked: Live) -> None:
    async def body() -> None:
        assert await clocked.node("zk1").shell("ls /opt/assay-clock 2>/dev/null | wc -l") == "0\n"

    clocked.run(body())


def test_without_a_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, echo: Echo, state: Path) -> None:
    said = list[str]()

    def compiled(*_: object) -> bytes:
        raise preload.PreloadError("there is no C compiler (cc)")

    monkeypatch.setattr(preload, "compile_library", compiled)

    async def body() -> None:
        cluster = DockerCluster(
            echo,
            {"broker": 1},
            run_id=run_of_its_own("no-cc"),
            seed=1,
            state_dir=state,
            own_clocks=True,
            progress=said.append,
        )
        try:
            await cluster.start()
            assert "this run has no wrong clocks: there is no C compiler (cc)" in said
            with pytest.raises(NodeError, match="n1 cannot be shifted: there is no C compiler"):
                await cluster.nodes[0].clock_shift()
        finally:
            await cluster.close()

    asyncio.run(body())
