"""Clusters keep out of each other's way and leave nothing behind, however their owner ends."""

from __future__ import annotations

import asyncio
import ipaddress
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from assay.cluster import journal, leftovers
from assay.cluster.docker import DockerCluster, network
from assay.cluster.docker.engine import list_owned, open_docker, remove_network, undo_action
from assay.cluster.node import NodeError

from helpers.echo_system import Echo
from helpers.live_cluster import run_of_its_own

CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.echo_system import Echo
from assay.cluster.docker import DockerCluster

async def main():
    cluster = DockerCluster(
        Echo(Path(sys.argv[2])), {"broker": 1}, run_id=sys.argv[4], seed=1, state_dir=Path(sys.argv[3])
    )
    await cluster.start()
    node = cluster.nodes[0]
    await node.start()
    await node.drop_from([node])
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def left(run_id: str) -> list[str]:
    with open_docker() as client:
        return [thing.name for thing in list_owned(client) if thing.run_id == run_id]


def test_the_lowest_subnet_that_meets_no_other_is_chosen() -> None:
    taken = {ipaddress.IPv4Network("198.18.0.0/24"), ipaddress.IPv4Network("198.18.2.0/23")}
    assert network.find_free_subnet(taken) == ipaddress.IPv4Network("198.18.1.0/24")
    lower_half = ipaddress.IPv4Network("198.18.0.0/16")
    assert network.find_free_subnet({lower_half}) == ipaddress.IPv4Network("198.19.0.0/24")
    assert network.find_free_subnet({ipaddress.IPv4Network("198.0.0.0/8")}) is None


def test_a_subnet_of_another_engine_on_this_machine_is_left_alone() -> None:
    first, second = ipaddress.IPv4Network("198.18.0.0/24"), ipaddress.IPv4Network("198.18.1.0/24")
    assert network.choose_subnet(set(), {first}) == second
    assert network.choose_subnet({second}, {first}) == ipaddress.IPv4Network("198.18.2.0/24")


def test_a_route_to_the_whole_range_is_overlapped_but_no_narrower_one() -> None:
    vpn, bridge = network.RANGE, ipaddress.IPv4Network("198.18.0.0/25")
    assert network.choose_subnet(set(), {vpn, bridge}) == ipaddress.IPv4Network("198.18.1.0/24")
    assert network.choose_subnet({network.RANGE}, {vpn}) is None


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_two_clusters_at_once_have_distinct_subnets_and_close_leaves_nothing(echo: Echo, state: Path) -> None:
    async def body() -> None:
        both = [
            DockerCluster(echo, {"broker": 1}, run_id=f"test-two-{number}", seed=number, state_dir=state)
            for number in (1, 2)
        ]
        try:
            await asyncio.gather(*(cluster.start() for cluster in both))
            subnets = [cluster.description["subnet"] for cluster in both]
            assert len(set(subnets)) == 2
            assert left("test-two-1")
        finally:
            for cluster in both:
                await cluster.close()
                await cluster.close()

    asyncio.run(body())
    assert left("test-two-1") == left("test-two-2") == []
    assert not [found for found in journal.read_journals(state)[0] if found.run_id.startswith("test-two")]


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_both_networks_that_two_sessions_have_made_of_one_name_go(tmp_path: Path) -> None:
    """An engine that rejects the second network leaves no two of one name; newer ones do (Docker 26)."""
    name = run_of_its_own("test-same-name")
    with open_docker() as client:
        try:
            network.create_network(client, name, {}, tmp_path)
            refusals = []
            try:
                network.create_network(client, name, {}, tmp_path)
            except APIError as error:
                refusals = [(error.status_code, error.explanation)]
            made = len(client.networks.list(names=[f"^{name}$"]))
            assert (made, refusals) in [(2, []), (1, [(409, f"network with name {name} already exists")])]
            network.create_network(client, f"{name}-other", {}, tmp_path)
            assert remove_network(client, name)
            assert [found.name for found in client.networks.list(names=[name])] == [f"{name}-other"]
            assert not remove_network(client, name), "they are gone already"
        finally:
            for found in client.networks.list(names=[name]):
                client.networks.get(found.id).remove()


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_a_start_that_fails_takes_away_what_it_had_made(echo: Echo, state: Path, monkeypatch: Any) -> None:
    def broken(node: object, cluster: object) -> dict[str, bytes]:
        raise NodeError("no files today")

    run_id = run_of_its_own("test-broken")

    async def body() -> None:
        monkeypatch.setattr(echo, "files", broken, raising=False)
        cluster = DockerCluster(echo, {"broker": 1}, run_id=run_id, seed=1, state_dir=state)
        with pytest.raises(NodeError, match="no files today"):
            await cluster.start()

    asyncio.run(body())
    assert left(run_id) == []


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
@pytest.mark.parametrize("journal_lost", [False, True])
def test_kill_9_of_the_owner_then_a_sweep_leaves_nothing(tmp_path: Path, journal_lost: bool) -> None:
    run_id = run_of_its_own(f"test-orphan-{int(journal_lost)}")
    state = tmp_path / "state"
    arguments = [str(Path(__file__).parents[2]), str(tmp_path / "echo"), str(state), run_id]
    with subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        leftovers.sweep(state)
        assert len(left(run_id)) == 2, "a live owner's cluster is left alone"
        child.kill()
    assert len(left(run_id)) == 2
    (found,), _ = journal.read_journals(state)
    kinds = [type(action) for _, action in found.actions]
    assert kinds == [journal.RunInContainer, journal.RemoveContainer, journal.RemoveNetwork]
    if journal_lost:
        found.path.unlink()
    report = leftovers.sweep(state)
    assert not report.failed
    assert len(report.undone) == 2
    assert left(run_id) == []
    assert journal.read_journals(state) == ([], [])


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_a_fault_noted_in_the_journal_is_undone_by_replay(live: Any) -> None:
    """Heal undoes faults inside containers that stay: the engine, not SSH, runs the entry's command."""
    node = live.node("n1")
    live.run(node.drop_from([live.node("n2")]))
    (found,) = [found for found in journal.read_journals(live.state)[0] if found.run_id == live.cluster.run_id]
    _, action = found.actions[0]
    assert isinstance(action, journal.RunInContainer)
    with open_docker() as client:
        assert undo_action(client, action)
    assert live.run(node.dropped()) == {}
    live.run(node.accept_all())
    (found,) = [found for found in journal.read_journals(live.state)[0] if found.run_id == live.cluster.run_id]
    assert not [action for _, action in found.actions if isinstance(action, journal.RunInContainer)]
