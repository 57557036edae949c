"""Each fault takes effect in the simulation, heals, and is recovered from, on a system that does nothing but talk."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.node import Node, ProcessState
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.host import PacketFate, SimHost
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.network import Network
from assay.cluster.system import ZOOKEEPER_PORT
from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.reporter import FaultPhase, FaultRow
from assay.nemesis.faults.fault import Census, take_census
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, Parameter, ScheduleRecord
from assay.nemesis.schedule.target import parse_target

from helpers.nemesis_fakes import FAULTS, draw
from helpers.nightly import by_night, some_by_day
from helpers.ping_pong import PORT, PingPong

CENSUS = Census(3, 1, ("orders-0",), 2, ("members",))
COUNTS = {"zookeeper": 1, "broker": 3, "client": 2}

SIMULATED = [name for name in FAULTS if name != "upgrade"]
"""Faults of simulated nodes, which have no images."""


def play(
    schedule: FaultSchedule | list[str], seed: int = 1, counts: dict[str, int] = COUNTS
) -> tuple[list[FaultRow], ScheduleRecord]:
    """The rows and the record; a list of names is drawn as the random nemesis does."""
    rows: list[FaultRow] = []

    async def main() -> ScheduleRecord:
        system = PingPong()
        cluster = system.cluster = SimCluster(system, counts, seed, spares=1)
        try:
            await start_system(system, cluster, 30.0, lambda _: None)
            for name, fault in FAULTS.items():
                if name in SIMULATED and (name != "partition-majorities-ring" or counts["broker"] > 3):
                    assert await fault.probe(cluster, system) is None
            meant = schedule
            if isinstance(meant, list):
                meant = draw(seed, meant, census=take_census(cluster, system))
            stamps = itertools.count(1)
            conductor = Conductor(
                cluster, system, meant, random.Random(seed), rows.append, stamps.__next__, catalogue=FAULTS
            )
            followers = [asyncio.create_task(follow(node, conductor)) for node in cluster.nodes]
            await conductor.run()
            await conductor.wait_for_recoveries()
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
            assert await conductor.close() == ()
            for node in cluster.nodes:
                assert (await node.process()).state is ProcessState.RUNNING
                assert not await node.dropped()
            return conductor.outcome
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        return rows, runner.run(main())


async def follow(node: Node, conductor: Conductor) -> None:
    async for line in node.events():
        conductor.handle_event(node.name, line)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
@pytest.mark.parametrize("name", SIMULATED)
def test_each_fault_takes_effect_heals_and_is_recovered_from(name: str, seed: int) -> None:
    rows, _ = play([name], seed, {"zookeeper": 3, "broker": 5, "client": 1} if seed else COUNTS | {"broker": 4})
    assert [row.detail for row in rows if row.phase is FaultPhase.FAILED] == []
    assert [row.took_effect for row in rows if row.phase is FaultPhase.HEALED] == [True] * 3
    assert [row.id for row in rows if row.phase is FaultPhase.RECOVERED] == [1, 2, 3]


@pytest.mark.parametrize("seed", some_by_day(range(6), range(2)))
def test_combined_faults_bite(seed: int) -> None:
    rows, record = play(["kill", "partition", "stop"], seed)
    assert [row.detail for row in rows if row.phase is FaultPhase.FAILED] == []
    assert all(row.took_effect for row in rows if row.phase is FaultPhase.HEALED)
    assert {step.fault for step in record.schedule.steps} == {"kill", "partition", "stop"}


@pytest.mark.parametrize("seed", some_by_day(range(4), (0,)))
def test_faults_of_consumers_and_of_servers_take_effect_together(seed: int) -> None:
    faults = ["cut-consumer", "kill", "stop-consumer", "zookeeper-expire"]
    rows, record = play(FaultSchedule(seed, draw(seed, faults, census=CENSUS, time_limit=60).steps), seed)
    assert [row.detail for row in rows if row.phase is FaultPhase.FAILED] == []
    assert all(row.took_effect for row in rows if row.phase is FaultPhase.HEALED)
    assert {step.fault for step in record.schedule.steps} == set(faults)


WHOM = ["zookeeper", "all", "majority", "leader", "controller", "coordinator", "consumer", "consumers", "n1+n2"]


@pytest.mark.parametrize("target", WHOM)
@pytest.mark.parametrize("name", ["kill", by_night("stop")])
def test_process_faults_on_every_sort_of_target(name: str, target: str) -> None:
    rows, _ = play(FaultSchedule(1, (FaultStep(2.0, name, parse_target(target), 5.0),)))
    assert [str(row.phase) for row in rows] == ["intended", "injected", "healed", "recovered"]
    assert rows[2].took_effect is True


def test_a_partition_from_zookeeper_drops_the_packets_of_the_session() -> None:
    rows, _ = play(FaultSchedule(1, (FaultStep(2.0, "partition-from-zookeeper", parse_target("n2"), 5.0),)))
    evidence = rows[2].detail["evidence"]
    assert evidence["cut"] == ["n2|zk1"]
    assert sum(evidence["dropped"].values()) > 0


CONNECTIONS = {
    # who opened it, to whom, at which port
    "connection-fetch": ("n1", {"n2"}, PORT),
    "connection-controller": ("n3", {"n1", "n2"}, PORT),
    "connection-zookeeper": ("n1", {"zk1", "zk2", "zk3"}, ZOOKEEPER_PORT),
    "consumer-zookeeper-resets": ("client1", {"zk1", "zk2", "zk3"}, ZOOKEEPER_PORT),
}


WAYS = list(itertools.product(CONNECTIONS, ("answers", "requests"), (False, True), (1, 3)))
WAYS_BY_DAY = [one for one in WAYS if one[3] == 3 or one[:3] == ("connection-fetch", "answers", True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "lost", "every"), [one if one in WAYS_BY_DAY else by_night(*one) for one in WAYS]
)
def test_one_connection_is_hit_in_one_direction_and_no_other(
    name: str, way: str, lost: bool, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leader is n2, controller n3. Packets pass meanwhile on all other connections, also of the same two nodes."""
    resets = name == "consumer-zookeeper-resets"
    if resets and (way, lost) != ("answers", True):
        return
    seen: list[tuple[str, str, tuple[int, int], PacketFate]] = []
    fate = Network.fate

    def watched(network: Network, source: SimHost, target: SimHost, ports: tuple[int, int]) -> PacketFate:
        found = fate(network, source, target, ports)
        seen.append((source.name, target.name, ports, found))
        return found

    monkeypatch.setattr(Network, "fate", watched)
    opener, ends, port = CONNECTIONS[name]
    parameters: dict[str, Parameter] = {"way": way, "lost": lost, "every": every, "key": "orders-0"}
    step = FaultStep(2.0, name, parse_target(opener), 6.0, {"every": every} if resets else parameters)
    rows, _ = play(FaultSchedule(1, (step,)), counts=COUNTS | {"zookeeper": 3})
    assert rows[2].took_effect is True

    def of_it(source: str, target: str, ports: tuple[int, int]) -> bool:
        near, far, at = (target, source, ports[0]) if way == "answers" else (source, target, ports[1])
        return near == opener and far in ends and at == port

    hit = [one for one in seen if of_it(*one[:3]) and one[3] is not PacketFate.PASSES]
    others = {(source, target) for source, target, ports, _ in seen if not of_it(source, target, ports)}
    assert {found for *_, found in hit} == {PacketFate.REJECTED if lost else PacketFate.LOST}
    assert port == ZOOKEEPER_PORT or len({frozenset((source, target)) for source, target, *_ in hit}) == 1
    meanwhile = seen[seen.index(hit[0]) : len(seen) - seen[::-1].index(hit[-1])]
    assert (every > 1) is any((*one[:3], hit[0][3]) in hit and one[3] is PacketFate.PASSES for one in meanwhile)
    assert not [one for one in seen if one[3] is not PacketFate.PASSES and not of_it(*one[:3])]
    assert {(opener, other) for other in ("n1", "n2", "n3") if other != opener} <= others
    if port == PORT:
        assert {(end, opener) for end in ends} <= others, "the other's own connections to it"


def test_a_session_expires_and_not_before_it_has_lasted_its_time() -> None:
    for who in ("n2", "client1"):
        rows, _ = play(FaultSchedule(1, (FaultStep(2.0, "zookeeper-expire", parse_target(who), 0.5),)))
        evidence = rows[2].detail["evidence"]
        assert rows[2].took_effect is True
        assert evidence["cut"] == [f"{who}|zk1" if who < "zk1" else f"zk1|{who}"]
        assert list(evidence["sessions"][who].values()) == [3.0]
        assert evidence["alive"] == []
        assert 2.0 < rows[2].detail["at"] - 2.0 < 4.5, "it lasted beyond its half second, as long as the session"


def test_a_process_killed_behind_a_partition_comes_up_behind_it() -> None:
    rows, _ = play(
        FaultSchedule(
            1,
            (
                FaultStep(2.0, "partition-one", parse_target("n1"), 10.0),
                FaultStep(4.0, "kill", parse_target("n1"), 4.0),
            ),
        )
    )
    assert [row.took_effect for row in rows if row.phase is FaultPhase.HEALED] == [True, True]


def test_one_seed_one_story() -> None:
    first, second = play(["kill", "partition", "stop"], 5), play(["kill", "partition", "stop"], 5)
    assert first == second
    other, _ = play(["kill", "partition", "stop"], 6)
    assert other != first[0]


def test_a_run_plays_again_as_it_came_out() -> None:
    rows, record = play(["kill", "partition"], 3)

    def story(rows: list[FaultRow]) -> list[tuple[object, ...]]:
        recorded = (FaultPhase.INJECTED, FaultPhase.HEALED)
        return [(row.id, row.fault, row.phase, row.targets, row.took_effect) for row in rows if row.phase in recorded]

    again, _ = play(record.as_resolved(), 3)
    assert story(again) == story(rows)
