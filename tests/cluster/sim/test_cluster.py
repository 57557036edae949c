"""The simulated cluster: a system runs on it, is killed, stopped and cut off, and a seed repeats the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.node import NodeError, ProcessState, by_role
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.runtime import EPOCH

from helpers.counter_system import Counter, ask


def simulate(
    test: Callable[[SimCluster], Coroutine[Any, Any, Any]],
    seed: int = 1,
    zookeepers: int = 1,
    system: Any = None,
    spares: int = 0,
) -> Any:
    async def main() -> Any:
        system_ = system or Counter()
        cluster = SimCluster(system_, {"zookeeper": zookeepers, "broker": 3}, seed, spares)
        await cluster.start()
        try:
            await start_system(system_, cluster, 20, lambda _: None)
            return await test(cluster)
        finally:
            await cluster.close()
            await cluster.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        return runner.run(main())


async def lines_of(node: Any) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in node.events()]


def test_names_roles_and_addresses_follow_from_the_counts() -> None:
    async def test(cluster: SimCluster) -> None:
        assert [(node.name, node.role, node.index) for node in cluster.nodes] == [
            ("zk1", "zookeeper", 1),
            ("n1", "broker", 1),
            ("n2", "broker", 2),
            ("n3", "broker", 3),
        ]
        assert [node.address for node in cluster.nodes] == [f"198.18.0.{number}" for number in range(2, 6)]
        assert cluster.description == {"kind": "sim", "seed": "1"}
        assert await ask(cluster.nodes[1], "members") == "n1 n2 n3"

    simulate(test)


def test_a_spare_waits_with_nothing_on_it_until_it_joins() -> None:
    async def test(cluster: SimCluster) -> None:
        (spare,) = cluster.spares
        assert (spare.name, spare.role, spare.index) == ("n4", "broker", 4)
        assert spare not in cluster.nodes
        assert (await spare.process()).state is ProcessState.DEAD
        assert await ask(cluster.nodes[1], "members") == "n1 n2 n3"
        await spare.start()
        await asyncio.sleep(1)
        assert await ask(cluster.nodes[1], "members") == "n1 n2 n3 n4"
        assert await ask(spare, "add") == "1"

    simulate(test, spares=1)


def test_a_killed_node_keeps_its_disk_loses_its_session_and_starts_as_another_incarnation() -> None:
    async def test(cluster: SimCluster) -> None:
        n1, n2, _ = by_role(cluster, "broker")
        assert [await ask(n1, "add") for _ in range(3)] == ["1", "2", "3"]
        before = await n1.process()
        assert before.state is ProcessState.RUNNING
        with pytest.raises(NodeError, match="alive"):
            await n1.start()
        await n1.kill()
        assert (await n1.process()).state is ProcessState.DEAD
        with pytest.raises(ConnectionRefusedError):
            await ask(n1, "add")
        assert await ask(n2, "members") == "n1 n2 n3"
        await asyncio.sleep(3)
        assert await ask(n2, "members") == "n2 n3"
        await n1.start()
        await asyncio.sleep(1)
        assert (await n1.process()).incarnation not in (None, before.incarnation)
        assert await ask(n1, "add") == "4"
        assert await ask(n1, "members") == "n1 n2 n3"

    simulate(test)


def test_power_loss_keeps_what_was_acknowledged() -> None:
    async def test(cluster: SimCluster) -> None:
        n1 = cluster.nodes[1]
        for _ in range(5):
            await ask(n1, "add")
        await n1.cut_power()
        await n1.start()
        await asyncio.sleep(5)
        assert await ask(n1, "add") == "6"

    simulate(test)


class Storing(Counter):
    """A counter that names its data folder and a log. Each start reports whether it finds their folders."""

    def data_folder(self, node: Any) -> str:
        return "/srv/counter/data"

    def logs(self, node: Any) -> list[str]:
        return ["/srv/log/counter.log"]

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        found = [runtime.storage.exists(path) for path in ("srv/counter/data", "srv/log")]
        runtime.event_log(json.dumps({"folders": found}))
        return await super().entry(runtime, argv)


@pytest.mark.parametrize("lost", ["nothing", "power", "files", "folder", "state"])
def test_each_start_finds_the_data_folder(lost: str) -> None:
    """Whatever a fault, or the process itself, has done to it before."""

    async def test(cluster: SimCluster) -> None:
        n1 = cluster.nodes[1]
        await n1.save("/srv/counter/data")
        await n1.kill()
        match lost:
            case "power":
                await n1.cut_power()
            case "files":
                await n1.remove_contents("/srv/counter/data")
            case "folder":
                n1.disk.remove("/srv")
            case "state":
                await n1.restore("/srv/counter/data")
        await n1.start()
        await asyncio.sleep(0)
        await cluster.close()
        assert [line["folders"] for line in await lines_of(n1) if "folders" in line] == [[True, True]] * 2

    simulate(test, system=Storing())


def test_a_held_process_shows_the_event_and_nothing_later_until_it_is_resumed() -> None:
    async def test(cluster: SimCluster) -> None:
        n1 = by_role(cluster, "broker")[0]
        seen: list[dict[str, Any]] = []

        async def observe() -> None:
            async for line in n1.events():
                seen.append(json.loads(line))

        observer = asyncio.ensure_future(observe())
        asking = asyncio.ensure_future(ask(n1, "hold"))
        await asyncio.sleep(0.5)
        assert seen[-1] == {"holding": 0}
        assert not asking.done()
        assert (await n1.process()).state is ProcessState.STOPPED
        await n1.resume()
        assert await asking == "held"
        await asyncio.sleep(0)
        assert {"went on": 0} in seen
        observer.cancel()

    simulate(test)


def test_a_node_cut_off_from_zookeeper_loses_its_session_and_the_counters_move() -> None:
    async def test(cluster: SimCluster) -> None:
        zk1, n1, n2, _ = cluster.nodes
        await n1.drop_from([zk1])
        await zk1.drop_from([n1])
        await asyncio.sleep(4)
        assert await ask(n2, "members") == "n2 n3"
        assert (await n1.dropped())["zk1"] > 0
        assert (await zk1.dropped())["n1"] > 0
        assert await ask(n1, "add") == "1"
        await n1.accept_all()
        await zk1.accept_all()
        assert await n1.dropped() == {}
        await asyncio.sleep(5)
        await cluster.close()
        states = [line["session"] for line in await lines_of(n1) if "session" in line]
        assert states == ["CONNECTED", "SUSPENDED", "LOST", "CONNECTED"]

    simulate(test)


def test_zookeepers_data_survives_its_restart_and_so_do_the_sessions() -> None:
    async def test(cluster: SimCluster) -> None:
        zk1, n1, _, _ = cluster.nodes
        written = cluster.zookeeper.tree.zxid
        assert written >= 4
        await zk1.kill()
        await asyncio.sleep(10)
        await zk1.start()
        await asyncio.sleep(3)
        assert await ask(n1, "members") == "n1 n2 n3"
        assert cluster.zookeeper.tree.zxid == written

    simulate(test)


def test_stopping_a_lone_zookeeper_expires_the_sessions_when_it_wakes_up() -> None:
    async def test(cluster: SimCluster) -> None:
        zk1, n1, _, _ = cluster.nodes
        await zk1.stop()
        await asyncio.sleep(5)
        await zk1.resume()
        await asyncio.sleep(3)
        assert await ask(n1, "members") == ""

    simulate(test)


def test_an_ensemble_serves_while_a_majority_is_together() -> None:
    async def test(cluster: SimCluster) -> None:
        zk1, zk2, zk3, n1, _, _ = cluster.nodes
        for victim in (zk1, zk2, zk3):
            await victim.kill()
            await asyncio.sleep(4)
            assert await ask(n1, "members") == "n1 n2 n3"
            await victim.start()
            await asyncio.sleep(1)
        for node in (zk1, zk2, zk3):
            await node.drop_from([other for other in (zk1, zk2, zk3) if other is not node])
        await asyncio.sleep(1)
        asking = asyncio.ensure_future(ask(n1, "members"))
        await asyncio.sleep(8)
        assert not asking.done()
        for node in (zk1, zk2, zk3):
            await node.accept_all()
        assert await asyncio.wait_for(asking, 8) == "n1 n2 n3"  # sessions do not expire without a quorum

    simulate(test, zookeepers=3)


def test_exit_codes_and_crashes_are_kept() -> None:
    class Crashing(Counter):
        def argv(self, node: Any) -> list[str]:
            return [*super().argv(node), *(["crash"] if node.name == "n2" else [])]

    async def test(cluster: SimCluster) -> None:
        _, n1, n2, _ = cluster.nodes
        assert await ask(n1, "quit") == "stopping"
        assert await ask(n2, "quit") == "stopping"
        await asyncio.sleep(1)
        assert (await n1.process()).state is ProcessState.DEAD
        assert (n1.exit_code, n2.exit_code) == (3, 1)
        (crash,) = cluster.crashes
        assert (crash.node, crash.incarnation) == ("n2", "n2.1")
        assert "crashed as asked" in crash.traceback
        with pytest.raises(NodeError, match="n1"):
            await n1.stop()

    simulate(test, system=Crashing())


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    async def test(cluster: SimCluster) -> Any:
        loop = asyncio.get_running_loop()
        answers: list[Any] = []
        n1, n2, n3 = by_role(cluster, "broker")
        for _ in range(20):
            for node in (n1, n2, n3):
                answers.append((loop.time(), await ask(node, "add")))
        await n2.kill()
        await asyncio.sleep(5)
        answers.append((loop.time(), await ask(n1, "members")))
        await cluster.close()
        return answers, [await lines_of(node) for node in cluster.nodes], cluster.zookeeper.tree.zxid

    first = simulate(test, seed=1)
    assert simulate(test, seed=1) == first
    assert simulate(test, seed=2) != first


def test_the_harness_has_a_runtime_of_its_own() -> None:
    async def test(cluster: SimCluster) -> None:
        runtime = cluster.harness_runtime()
        now = asyncio.get_running_loop().time()
        assert runtime.wall_clock() == EPOCH + now
        runtime.hold()
        runtime.event_log("{}")
        assert runtime.random.random() != cluster.harness_runtime().random.random()
        zk = runtime.zookeeper(f"{cluster.nodes[0].address}:2181", 2.0)
        await zk.connect(5)
        assert await zk.get_children("/members") == ["n1", "n2", "n3"]
        await zk.close()

    simulate(test)


def test_a_simulated_cluster_needs_the_simulation_loop() -> None:
    async def main() -> None:
        SimCluster(Counter(), {"broker": 1}, 1)

    with pytest.raises(TypeError, match="SimLoop"):
        asyncio.run(main())


def test_a_simulated_node_has_no_programs_to_run() -> None:
    async def test(cluster: SimCluster) -> None:
        with pytest.raises(NodeError, match="n1 is simulated and has no programs, so 'ls /' cannot run there"):
            await cluster.nodes[1].run("ls /")

    simulate(test)
