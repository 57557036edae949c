"""Membership: a server goes without its replicas and comes back with nothing, and what the heal waits for."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from assay.cluster.node import ProcessState
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.membership import MembershipChange, MembershipFault
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import parse_target
from assay.system_under_test.broker_rpc import ReplicaPlacement

from helpers.nemesis_fakes import FakeCluster, FakeSystem, Play, now, run


def made(change: str, target: str = "n2", servers: int = 5, exact: bool = False) -> Play:
    step = FaultStep(2.0, f"membership-{change}", parse_target(target), 5.0, {"change": change}, seed=7, exact=exact)
    return Play(FaultSchedule(1, (step,)), FakeCluster(servers))


@pytest.mark.parametrize("text", ["minority", "all", "n1+n2", "zookeepers"])
def test_it_takes_one_server(text: str) -> None:
    with pytest.raises(ScheduleError):
        MembershipFault().draw(random.Random(1), Census(5, 1, ("orders-0",)), parse_target(text))


def test_it_needs_three_servers_and_a_key_and_draws_every_change() -> None:
    def drawn(spares: int, target: str | None = None) -> set[str]:
        census, whom = Census(3, 1, ("a",), spares=spares), None if target is None else parse_target(target)
        return {str(MembershipFault().draw(random.Random(n), census, whom)[1]["change"]) for n in range(40)}

    assert drawn(1) == {"remove", "replace", "add"}
    assert drawn(0) == drawn(1, "leader") == {"remove", "replace"}
    assert drawn(1, "spare") == {"add"}
    whom, _ = MembershipFault(MembershipChange.ADD).draw(random.Random(1), Census(1, 1, ("a",), spares=1), None)
    assert str(whom) == "spare"
    for census in (Census(3, 1, (), spares=1), Census(2, 1, ("a",))):
        with pytest.raises(ScheduleError):
            MembershipFault().draw(random.Random(1), census, None)
    with pytest.raises(ScheduleError, match="needs a spare node"):
        MembershipFault(MembershipChange.ADD).draw(random.Random(1), Census(3, 1, ("a",)), None)


def test_without_a_node_that_waits_none_can_be_added() -> None:
    cluster = FakeCluster(3, spares=0)
    assert "has no spare node" in str(run(MembershipFault(MembershipChange.ADD).probe(cluster, FakeSystem(cluster))))
    assert run(MembershipFault(MembershipChange.REMOVE).probe(cluster, FakeSystem(cluster))) is None


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("servers", [3, 5])
@pytest.mark.parametrize("change", ["remove", "replace"])
def test_its_replicas_go_before_its_process_does_and_come_back_to_an_empty_disk(
    change: str, servers: int, exact: bool
) -> None:
    play = made(change, servers=servers, exact=exact)
    node, placed = play.cluster.node("n2"), list(play.system.placed)
    at: dict[str, tuple[float, list[str], int]] = {}

    def watched(what: str) -> None:
        call = getattr(node, what)

        async def noted() -> None:
            at.setdefault(what, (now(), play.system.placed, len(node.files)))
            await call()

        setattr(node, what, noted)

    watched("terminate")
    watched("start")
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True, row.detail
    assert "n2" not in at["terminate"][1], "its replicas were elsewhere"
    assert len(at["terminate"][1]) == min(3, servers - 1)
    assert at["start"][2] == 0, "its files were gone"
    assert (at["start"][0] >= 7.0) is (change == "remove")
    assert play.system.placed == placed
    evidence = row.detail["evidence"]
    assert [name for name in evidence["members"] if name not in evidence["without"]] == ["n2"]
    assert evidence["with"] == evidence["members"]
    assert evidence["back"] == ["orders-0", "orders-1"]


@pytest.mark.parametrize(
    ("deaf", "reason", "trouble"),
    [
        ("move", "could not be read (ended)", "did not leave n2"),
        ("terminate", "had not ended after it was asked to", "still has n2 as a member"),
        ("leave", "was a member all the time", "still has n2 as a member"),
        ("start", "no new process ran", "did not serve"),
    ],
)
def test_one_that_stops_midway_took_no_effect(deaf: str, reason: str, trouble: str) -> None:
    play = made("replace")
    play.cluster.node("n2").deaf.add(deaf)
    play.play()
    failed = [row.detail["reason"] for row in play.rows if row.phase is FaultPhase.FAILED]
    assert any(trouble in text for text in failed), failed
    healed = [row for row in play.rows if row.phase is FaultPhase.HEALED]
    assert not healed or (healed[0].took_effect is False and reason in healed[0].detail["reason"])
    assert healed or deaf == "start", "a server that does not start cannot be healed"


def test_a_server_without_replicas_has_none_to_move_away() -> None:
    play = made("remove", target="n5")
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.stage is FailureStage.INJECT
    assert "n5 has no replica" in failed.detail["reason"]
    assert play.cluster.untouched


def test_what_it_was_given_before_it_had_ended_is_moved_away_as_well() -> None:
    """A topic that a client made in between."""
    play = made("remove")
    node, asked, more = play.cluster.node("n2"), play.system.standing, {"new-0": ["n2", "n3"]}
    terminate, move = node.terminate, play.system.move
    ended: list[float] = []

    async def noted() -> None:
        ended.append(now())
        await terminate()

    async def standing(cluster: Any) -> ReplicaPlacement:
        found: ReplicaPlacement = await asked(cluster)
        if not ended:
            return found
        return ReplicaPlacement(
            found.members, {**found.replicas, "new-0": [int(n[1:]) for n in more["new-0"]]}, found.moving
        )

    async def moved(cluster: Any, key: str, nodes: Any) -> str | None:
        if key != "new-0":
            return await move(cluster, key, nodes)
        more[key] = [node.name for node in nodes]
        return None

    node.terminate, play.system.standing, play.system.move = noted, standing, moved  # type: ignore[method-assign]
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True, row.detail
    assert len(ended) == 2
    assert more["new-0"] == ["n2", "n3"]
    assert "new-0" in row.detail["evidence"]["back"]


def test_what_a_client_has_moved_since_stays_where_it_is() -> None:
    play = made("replace")
    terminate, node = play.cluster.node("n2").terminate, play.cluster.node("n2")

    async def noted() -> None:
        play.system.placed = ["n5", "n4"]
        await terminate()

    node.terminate = noted  # type: ignore[method-assign]
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True, row.detail
    assert play.system.placed == ["n5", "n4"]
    assert row.detail["evidence"]["back"] == []


@pytest.mark.parametrize("exact", [False, True])
def test_one_that_was_none_joins_has_replicas_and_is_none_again(exact: bool) -> None:
    play = made("add", target="n6" if exact else "spare", exact=exact)
    play.system.leaders = {"orders-0": "n1"}
    spare, placed = play.cluster.node("n6"), list(play.system.placed)
    seen: dict[str, tuple[float, list[str]]] = {}
    terminate = spare.terminate

    async def noted() -> None:
        seen["ended"] = now(), list(play.system.placed)
        await terminate()

    spare.terminate = noted  # type: ignore[method-assign]
    order = play.system.move

    async def ordered(cluster: Any, key: str, nodes: Any) -> str | None:
        names = [node.name for node in nodes]
        seen.setdefault("taken" if "n6" in names else "given back", (now(), names))
        return await order(cluster, key, nodes)

    play.system.move = ordered  # type: ignore[method-assign]
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True, row.detail
    assert row.targets == ("n6",)
    assert play.phases(1) == ["intended", "injected", "healed", "recovered"]
    assert 2.0 <= seen["taken"][0] < 7.0 <= seen["given back"][0] < seen["ended"][0]
    assert len(seen["taken"][1]) == len(placed)
    assert seen["ended"][1] == play.system.placed == placed
    evidence = row.detail["evidence"]
    assert evidence["with"] == [*evidence["members"], "n6"]
    assert evidence["without"] == evidence["members"]
    assert evidence["taken"]
    assert play.cluster.untouched


@pytest.mark.parametrize(
    ("deaf", "trouble"),
    [("start", "n6 did not serve"), ("move", "did not come to n6"), ("terminate", "still has n6 as a member")],
)
def test_one_that_does_not_join_or_leave_took_no_effect(deaf: str, trouble: str) -> None:
    play = made("add", target="spare")
    play.cluster.node("n6").deaf.add(deaf)
    play.play()
    failed = [row.detail["reason"] for row in play.rows if row.phase is FaultPhase.FAILED]
    assert any(trouble in text for text in failed), failed
    assert not any(row.took_effect for row in play.rows if row.phase is FaultPhase.HEALED)


@pytest.mark.parametrize("change", ["remove", "replace", "add"])
def test_a_proof_that_is_asked_for_while_all_of_it_goes_on_holds_only_in_the_end(change: str) -> None:
    """Each call to a node takes its time, and the proof is asked for again and again."""
    play = made(change, target="spare" if change == "add" else "n2")
    node = play.cluster.node("n6" if change == "add" else "n2")

    def slow(what: str) -> None:
        call = getattr(node, what)

        async def slowly(*given: Any) -> Any:
            await asyncio.sleep(0.7)
            return await call(*given)

        setattr(node, what, slowly)

    for what in ("start", "terminate", "contents", "remove_contents", "process"):
        slow(what)
    play.play()
    assert [row.took_effect for row in play.rows if row.phase is FaultPhase.HEALED] == [True]
    assert not [row for row in play.rows if row.phase is FaultPhase.FAILED]


def test_a_server_that_is_a_member_cannot_be_added() -> None:
    play = made("add", target="n2")
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.stage is FailureStage.INJECT
    assert "n2 is already a member" in failed.detail["reason"]
    assert play.cluster.node("n2").incarnation == 1


def test_what_a_client_has_moved_on_is_not_fetched_back_and_nothing_is_left_there() -> None:
    """Clients take one key from the new server, and give it another in exchange."""
    play = made("add", target="spare")
    moved: dict[str, list[str]] = {}
    order, asked = play.system.move, play.system.standing

    async def ordered(cluster: Any, key: str, nodes: Any) -> str | None:
        if key == "new-0":
            moved[key] = [node.name for node in nodes]
            return None
        return await order(cluster, key, nodes)

    async def standing(cluster: Any) -> ReplicaPlacement:
        found: ReplicaPlacement = await asked(cluster)
        if 6 in (index for indexes in found.replicas.values() for index in indexes):
            moved.setdefault("new-0", ["n6", "n1"])
        more = {key: [int(name[1:]) for name in names] for key, names in moved.items()}
        return ReplicaPlacement(found.members, {**found.replicas, **more}, found.moving)

    play.system.move, play.system.standing = ordered, standing  # type: ignore[method-assign]
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True, row.detail
    assert "n6" not in moved["new-0"]
    assert len(moved["new-0"]) == 2
    assert row.detail["evidence"]["kept"] == []


def played_with_slow_moves(begin: float, *others: FaultStep) -> Play:
    """Plays a removal of n2, and other faults. The system moves nothing before the time ``begin``."""
    step = FaultStep(2.0, "membership-remove", parse_target("n2"), 5.0, {"change": "remove"}, seed=7)
    play = Play(FaultSchedule(1, (step, *others)), FakeCluster(5))
    move = play.system.move

    async def moved(cluster: Any, key: str, nodes: Any) -> str | None:
        return await move(cluster, key, nodes) if now() >= begin else None

    play.system.move = moved  # type: ignore[method-assign]
    play.play()
    return play


def test_moves_that_take_long_are_waited_for() -> None:
    play = played_with_slow_moves(80.0)
    assert play.phases(1) == ["intended", "injected", "healed", "recovered"]
    assert play.row(1, FaultPhase.HEALED).took_effect is True


def test_a_return_that_waits_for_a_server_does_not_keep_that_server_from_being_healed() -> None:
    play = played_with_slow_moves(165.0, FaultStep(100.0, "kill", parse_target("n3"), 60.0))
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(160, abs=2)
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.stage is FailureStage.HEAL
    assert "other faults hold n3" in failed.detail["reason"]
    assert play.row(1, FaultPhase.HEALED)
    assert {node.name for node in play.cluster.nodes if node.state is ProcessState.RUNNING} >= {"n2", "n3"}
