from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.node import Node
from assay.nemesis.schedule.target import (
    CLIENT_KINDS,
    FIND_SECONDS,
    ChosenTarget,
    Target,
    TargetError,
    TargetKind,
    TargetScene,
    count_targeted,
    named_target,
    parse_node_number,
    parse_target,
    resolve_target,
)

from helpers.nemesis_fakes import FakeCluster, FakeSystem, now, run

SIZES = (TargetKind.ONE, TargetKind.MINORITY, TargetKind.HALF, TargetKind.MAJORITY, TargetKind.ALL)
KINDS = [Target(kind) for kind in TargetKind if kind not in (TargetKind.NAMED, TargetKind.ORIGIN)]


def choose(
    target: Target, system: FakeSystem, seed: int = 1, busy: Collection[str] = (), keys: list[str] | None = None
) -> ChosenTarget:
    async def find(what: str, key: str | None) -> Node | None:
        node: Node | None = await system.find(system.cluster, what, key)
        return node

    cluster = system.cluster
    keys = list(system.keys()) if keys is None else keys
    scene = TargetScene(
        cluster.servers,
        cluster.zookeepers,
        keys,
        find,
        busy,
        clients=cluster.clients,
        groups=system.groups,
        spares=cluster.spares,
    )
    return run(resolve_target(target, scene, random.Random(seed)))


def names(chosen: ChosenTarget) -> list[str]:
    return [node.name for node in chosen.nodes]


@given(st.sampled_from(KINDS), st.integers(1, 7), st.integers(0, 3), st.integers())
def test_resolution_is_a_function_of_its_arguments(target: Target, servers: int, zookeepers: int, seed: int) -> None:
    def once() -> list[str] | str:
        cluster = FakeCluster(servers, zookeepers)
        system = FakeSystem(cluster)
        system.leaders, system.controller, system.coordinator = {"a": "n1"}, "n1", "n1"
        try:
            return names(choose(target, system, seed))
        except TargetError as error:
            return str(error)

    assert once() == once()


@given(st.integers(1, 9), st.integers())
def test_sizes(count: int, seed: int) -> None:
    system = FakeSystem(FakeCluster(count))
    for kind in SIZES:
        chosen = choose(Target(kind), system, seed)
        assert len(set(names(chosen))) == len(chosen.nodes) == max(1, count_targeted(kind, count))
        assert chosen.fell_back == (count_targeted(kind, count) == 0)
        assert all(node.role == "broker" for node in chosen.nodes)
    assert count_targeted(TargetKind.MINORITY, count) < count / 2 < count_targeted(TargetKind.MAJORITY, count) <= count


@given(st.sampled_from(KINDS), st.sets(st.sampled_from(["n1", "n2", "n3", "n4", "zk1", "client1"])), st.integers())
def test_busy_nodes_are_never_chosen(target: Target, busy: set[str], seed: int) -> None:
    system = FakeSystem(FakeCluster(4, 2))
    others = (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS, *CLIENT_KINDS, TargetKind.SPARE)
    if target.kind not in others and {"n1", "n2", "n3", "n4"} <= busy:
        with pytest.raises(TargetError, match="faults of the same scope are active on every server"):
            choose(target, system, seed, sorted(busy))
    else:
        chosen = choose(target, system, seed, sorted(busy))
        assert chosen.nodes
        assert not busy & set(names(chosen))


def test_a_spare_is_no_server_unless_it_is_asked_for() -> None:
    system = FakeSystem(FakeCluster(3, spares=2))
    assert names(choose(parse_target("all"), system)) == ["n1", "n2", "n3"]
    assert {name for seed in range(40) for name in names(choose(parse_target("spare"), system, seed))} == {"n4", "n5"}
    assert names(choose(parse_target("n4"), system)) == ["n4"]
    with pytest.raises(TargetError, match="active on every spare node"):
        choose(parse_target("spare"), system, busy=["n4", "n5"])
    with pytest.raises(TargetError, match="has no spare node"):
        choose(parse_target("spare"), FakeSystem(FakeCluster(3, spares=0)))


def test_every_server_is_one_some_day() -> None:
    system = FakeSystem(FakeCluster(3))
    assert {name for seed in range(40) for name in names(choose(parse_target("one"), system, seed))} == {
        "n1",
        "n2",
        "n3",
    }


def test_leader_follower_controller() -> None:
    system = FakeSystem(FakeCluster(3))
    assert names(choose(parse_target("leader:orders-1"), system)) == ["n2"]
    assert names(choose(parse_target("controller"), system)) == ["n3"]
    followers = {name for seed in range(40) for name in names(choose(parse_target("follower:orders-1"), system, seed))}
    assert followers == {"n1", "n3"}


def test_consumers_and_the_coordinator_of_their_group() -> None:
    system = FakeSystem(FakeCluster(3, 1, 3))
    assert names(choose(parse_target("consumers"), system)) == ["client1", "client2", "client3"]
    found = [names(choose(parse_target("consumer"), system, seed)) for seed in range(40)]
    assert {len(nodes) for nodes in found} == {1}
    assert {nodes[0] for nodes in found} == {"client1", "client2", "client3"}
    assert names(choose(parse_target("client2"), system)) == ["client2"]
    assert names(choose(parse_target("coordinator:members"), system)) == ["n2"]
    assert choose(parse_target("coordinator"), system).key == "members"
    assert system.asked == [("coordinator", "members")] * 2
    with pytest.raises(TargetError, match="no client node"):
        choose(parse_target("consumer"), FakeSystem(FakeCluster(3, 1, 0)))
    assert [parse_node_number(name) for name in ("n2", "client13", "zk1")] == [2, 13, 1]


def test_leader_of_a_random_key_tells_which() -> None:
    system = FakeSystem(FakeCluster(3))
    seen = {
        (chosen.key, *names(chosen)) for chosen in (choose(parse_target("leader"), system, seed) for seed in range(20))
    }
    assert seen == {("orders-0", "n1"), ("orders-1", "n2")}


@pytest.mark.parametrize("target", ["leader:orders-0", "controller", "follower:orders-0", "coordinator:members"])
def test_a_finder_that_knows_no_one_is_asked_again_and_then_one_is_taken(target: str) -> None:
    system = FakeSystem(FakeCluster(3))
    system.leaders["orders-0"] = system.controller = system.coordinator = None
    chosen = choose(parse_target(target), system)
    assert len(system.asked) > 3
    assert chosen.fell_back
    assert len(chosen.nodes) == 1
    assert "took one" in (chosen.note or "")


def test_a_leader_elected_meanwhile_is_found() -> None:
    async def main() -> ChosenTarget:
        system = FakeSystem(FakeCluster(3))

        async def find(what: str, key: str | None) -> Node | None:
            return system.cluster.node("n3") if now() > FIND_SECONDS / 2 else None

        scene = TargetScene(system.cluster.servers, [], ["orders-0"], find)
        return await resolve_target(parse_target("leader:orders-0"), scene, random.Random(1))

    chosen = run(main())
    assert (names(chosen), chosen.fell_back) == (["n3"], False)


def test_a_busy_leader_is_replaced_and_the_note_says_so() -> None:
    chosen = choose(parse_target("leader:orders-0"), FakeSystem(FakeCluster(3)), busy=["n1"])
    assert chosen.fell_back
    assert names(chosen) != ["n1"]
    assert "n1, leader of orders-0, is held" in (chosen.note or "")


ROLES = {"server": ["n1", "n2"], "sentinel": ["sentinel1", "sentinel2", "sentinel3"]}


async def of_roles(text: str, *, busy: Sequence[str] = (), seed: int = 1) -> ChosenTarget:
    nodes: list[Any] = [SimpleNamespace(name=name, role=role) for role, names in ROLES.items() for name in names]
    scene = TargetScene(nodes, [], [], FakeSystem(FakeCluster(1)).find, busy)  # type: ignore[arg-type]
    return await resolve_target(parse_target(text), scene, random.Random(seed))


@pytest.mark.parametrize(("text", "count"), [("one", 1), ("minority", 1), ("majority", 2), ("all", 3)])
def test_a_size_of_a_role_is_of_its_servers_alone(text: str, count: int) -> None:
    picked = [names(run(of_roles(f"{text}:sentinel", seed=seed))) for seed in range(20)]
    assert {len(some) for some in picked} == {count}
    assert {name for some in picked for name in some} == set(ROLES["sentinel"])


def test_a_role_that_is_held_or_not_there_has_no_target() -> None:
    with pytest.raises(TargetError, match="no server of role proxy"):
        run(of_roles("one:proxy"))
    with pytest.raises(TargetError, match="active on every server of role server"):
        run(of_roles("all:server", busy=["n1", "n2"]))
    assert "2 servers of role server have no minority" in (run(of_roles("minority:server")).note or "")
    assert str(parse_target("one:sentinel")) == "one of role sentinel"


def test_zookeeper_and_named() -> None:
    system = FakeSystem(FakeCluster(3, 1))
    assert names(choose(parse_target("zookeeper"), system)) == ["zk1"]
    assert names(choose(named_target("n3", "zk1", "n1"), system)) == ["n1", "n3", "zk1"]
    with pytest.raises(TargetError, match="there is no node n9; the nodes are n1, n2, n3, zk1, client1"):
        choose(named_target("n9"), system)
    with pytest.raises(TargetError, match="no ZooKeeper node"):
        choose(parse_target("zookeeper"), FakeSystem(FakeCluster(3, 0)))


@pytest.mark.parametrize("text", ["one", "leader", "leader:orders-0", "follower:a:b", "n2", "n1+zk1", "zookeeper"])
def test_what_is_written_is_read(text: str) -> None:
    target = parse_target(text)
    assert text.split(":")[0] == (str(target) if target.kind is TargetKind.NAMED else target.kind)


@pytest.mark.parametrize("text", ["one@agent", "leader:orders-0@main", "n1+n2@a-1"])
def test_one_process_of_each_node_is_named_behind_them(text: str) -> None:
    whom, _, process = text.rpartition("@")
    target = parse_target(text)
    assert target.process == process
    assert msgspec.structs.replace(target, process=None) == parse_target(whom)
    assert str(target) == f"{parse_target(whom)}, its process {process}"
    assert msgspec.json.decode(msgspec.json.encode(target), type=Target) == target


@pytest.mark.parametrize(
    "text",
    ["", "one@", "one@Agent", "@main", "one@a@b", "ones", "leader:", "zookeeper:k", "n2+", "n2:x", "n1+n1", "named"],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TargetError):
        parse_target(text)


def test_origin_is_where_the_event_appeared_and_zookeepers_are_all_of_them() -> None:
    system = FakeSystem(FakeCluster(3, 3))

    async def main() -> tuple[list[str], list[str]]:
        scene = TargetScene(system.cluster.servers, system.cluster.zookeepers, [], system.find, origin="n2")  # type: ignore[arg-type]
        rng = random.Random(1)
        return names(await resolve_target(parse_target("origin"), scene, rng)), names(
            await resolve_target(parse_target("zookeepers"), scene, rng)
        )

    assert run(main()) == (["n2"], ["zk1", "zk2", "zk3"])
    with pytest.raises(TargetError, match="has no trigger by an event"):
        choose(parse_target("origin"), system)


def test_a_node_has_no_number_of_thousands_of_digits() -> None:
    with pytest.raises(TargetError, match="unknown target"):
        parse_target(f"n{'1' * 5000}")
