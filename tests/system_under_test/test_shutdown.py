"""A broker that is to stop: others lead, its logs are on the disk, its sockets close, and last its session ends."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.sim.node import SimNode
from assay.nemesis.faults.restart import wait_until_serving
from assay.system_under_test.client.metadata import BACK_OFF
from assay.system_under_test.deployment import Broker
from assay.system_under_test.log.segment_list import SegmentList
from assay.system_under_test.network.server import Server

from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

KEYS = [f"orders-{index}" for index in range(3)]
ROUND_TRIPS_MS = 30
"""For a send, a refusal, a look for the leader and another send: each takes some milliseconds."""
LONGEST_MS = BACK_OFF * 1000 + ROUND_TRIPS_MS
BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def restarted() -> Callable[[int, int], Any]:
    """Plays a rolling restart and measures its sends in milliseconds, by seed and ``controlled.shutdown.max.ms``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        measure_run = importlib.import_module("rolling_restart").measure_run
    return lambda seed, shutdown_ms: measure_run("sim", seed, len(KEYS), shutdown_ms, per_partition=1)


def system(**settings: str) -> Broker:
    made = Broker(partitions=len(KEYS))
    for name, value in settings.items():
        made = made.with_setting(name.replace("_", "."), value)
    return made


async def states(cluster: Brokers) -> list[dict[str, Any]]:
    zookeeper = await zookeeper_of(cluster)
    paths = [f"/brokers/topics/orders/partitions/{index}/state" for index in range(len(KEYS))]
    found = [json.loads((await zookeeper.get(path))[0]) for path in paths]
    await zookeeper.close()
    return found


async def in_sync(cluster: Brokers) -> bool:
    return all(len(state["isr"]) == 3 for state in await states(cluster))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 2, 3))])
def test_no_send_waits_longer_than_one_look_for_the_leader_under_a_rolling_restart(
    seed: int, restarted: Callable[[int, int], Any]
) -> None:
    sends = restarted(seed, 5_000).sends
    assert len(sends) > 1000
    assert max(sends) < LONGEST_MS


@pytest.mark.long
def test_without_that_a_send_waits_longer(restarted: Callable[[int, int], Any]) -> None:
    """So the measure would show it."""
    assert max(restarted(1, 1).sends) > LONGEST_MS


@pytest.mark.parametrize("controls", [False, True])
def test_leads_move_then_logs_are_flushed_then_sockets_close_then_the_session_ends(
    monkeypatch: pytest.MonkeyPatch, controls: bool
) -> None:
    async def check() -> None:
        async with brokers(system(flush_ms="60000")) as cluster:
            controller = await cluster.controller()
            leaders = [await cluster.leader(key) for key in KEYS]
            leaving = controller if controls else next(node for node in leaders if node is not controller)
            for partition in range(len(KEYS)):
                await cluster.producer.send("orders", partition, [(None, b"x")])
            order: list[str] = []
            closed, flushed = Server.close, SegmentList.flush

            async def close(server: Server) -> None:
                order.append("sockets")
                await asyncio.sleep(1)
                await closed(server)

            async def flush(row: SegmentList) -> None:
                await flushed(row)
                order.append("flush")

            zookeeper = await zookeeper_of(cluster)
            monkeypatch.setattr(Server, "close", close)
            monkeypatch.setattr(SegmentList, "flush", flush)
            stopping = asyncio.ensure_future(leaving.terminate())
            await until(lambda: "sockets" in order, "sockets close")
            assert order.index("flush") < order.index("sockets")
            assert await zookeeper.exists(f"/brokers/ids/{leaving.index}") is not None, "its session goes on"
            moved = await states(cluster)
            assert all(leaving.index not in (state["leader"], *state["isr"]) for state in moved), "others lead by now"
            assert all(len(state["isr"]) == 2 for state in moved)
            await stopping
            assert await zookeeper.exists(f"/brokers/ids/{leaving.index}") is None
            await zookeeper.close()
            assert leaving.exit_code == 0
            (began,), (ended,) = (cluster.events(leaving, f"shutdown-{name}") for name in ("began", "handed-over"))
            assert (began["value"], ended["value"]) == (sum(node is leaving for node in leaders), 0)

    simulate(check)


def test_the_controller_is_asked_again_until_there_is_one() -> None:
    async def check() -> None:
        async with brokers(system()) as cluster:
            controller = await cluster.controller()
            leaders = {key: await cluster.leader(key) for key in KEYS}
            leaving = next(node for node in leaders.values() if node is not controller)
            await controller.kill()
            stopping = asyncio.ensure_future(leaving.terminate())
            await asyncio.sleep(0.5)
            assert not stopping.done()
            await stopping
            (ended,) = cluster.events(leaving, "shutdown-handed-over")
            assert ended["value"] == 0
            assert all(state["leader"] != leaving.index for state in await states(cluster))

    simulate(check)


@pytest.mark.parametrize("missing", ["zookeeper", "controller"])
def test_it_gives_up_in_time(missing: str) -> None:
    """Without ZooKeeper no one can be elected; a controller that stands still answers no one."""

    async def check() -> None:
        async with brokers(system()) as cluster:
            controller = await cluster.controller()
            leaders = [await cluster.leader(key) for key in KEYS]
            leaving = next(node for node in leaders if node is not controller)
            stopped: list[SimNode] = cluster.zookeepers if missing == "zookeeper" else [controller]
            for node in stopped:
                await node.stop()
            began = asyncio.get_running_loop().time()
            await leaving.terminate()
            assert asyncio.get_running_loop().time() - began < 10
            assert leaving.exit_code == 0
            (ended,) = cluster.events(leaving, "shutdown-handed-over")
            kept = ended["detail"]["kept"]
            assert ended["value"] == len(kept) == (1 if missing == "zookeeper" else 0)
            assert {*kept.values()} <= {"no controller moved it in time"}
            assert system().handed_over(ended) == (1, kept)
            for node in stopped:
                await node.resume()
            await leaving.start()
            await until(lambda: in_sync(cluster), "all are in sync again", 30)
            assert cluster.events(leaving, "recovered")[-1]["detail"]["clean"] is True

    simulate(check)


def test_a_lead_that_no_other_can_take_is_kept_and_named_with_the_reason() -> None:
    async def check() -> None:
        async with brokers(system()) as cluster:
            leaving, *others = cluster.nodes
            for node in others:
                await node.kill()
            zookeeper = await zookeeper_of(cluster)

            async def alone() -> bool:
                gone = [await zookeeper.exists(f"/brokers/ids/{node.index}") is None for node in others]
                return all(gone)

            await until(alone, "the others are missed", 30)
            await until(lambda: all_led_by(cluster, leaving), "it leads all", 30)
            await zookeeper.close()
            await leaving.terminate()
            (ended,) = cluster.events(leaving, "shutdown-handed-over")
            assert ended["detail"] == {"led": len(KEYS), "kept": dict.fromkeys(KEYS, "no other replica lives")}

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [0, 1, 3, 10, 30, 100])
def test_one_that_is_asked_while_it_starts_says_that_it_led_nothing(milliseconds: int) -> None:
    async def check() -> None:
        async with brokers(system()) as cluster:
            leaving = cluster.nodes[0]
            await leaving.kill()
            await leaving.start()
            await asyncio.sleep(milliseconds / 1000)
            await leaving.terminate()
            (ended,) = cluster.events(leaving, "shutdown-handed-over")
            assert ended["detail"] == {"led": 0, "kept": {}}

    simulate(check)


async def all_led_by(cluster: Brokers, node: SimNode) -> bool:
    return all(state["leader"] == node.index for state in await states(cluster))


def test_the_last_of_a_cluster_does_not_wait_for_a_successor() -> None:
    async def check() -> None:
        async with brokers(system()) as cluster:
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(node.terminate() for node in cluster.nodes))
            assert asyncio.get_running_loop().time() - began < 2
            for node in cluster.nodes:
                await node.start()
            await until(lambda: in_sync(cluster), "all are in sync again", 30)

    simulate(check)


def test_it_waits_for_one_that_was_restarted_before_to_be_in_sync_again() -> None:
    """Else two of three were enough for no acknowledgement."""

    async def check() -> None:
        async with brokers(system()) as cluster:
            first, second, _ = cluster.nodes
            await first.terminate()
            await first.start()
            await wait_until_serving(system(), first)  # one that is not there yet is not waited for
            await second.terminate()
            assert all(sorted(state["isr"]) == [1, 3] and state["elr"] == [] for state in await states(cluster))

    simulate(check)
