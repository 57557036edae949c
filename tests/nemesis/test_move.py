"""Moving replicas: where to, whom it takes, and what the heal waits for."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.node import ProcessState
from assay.nemesis.engine.reporter import FailureStage, FaultPhase, FaultRow
from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.move import MOVE_SECONDS, MoveReplicas, choose_placement
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, TargetKind, parse_target

from helpers.nemesis_fakes import FakeCluster, Play, run

SERVERS = ["n1", "n2", "n3", "n4", "n5"]


@given(st.permutations(SERVERS), st.integers(1, 5), st.integers(2, 5), st.data(), st.integers())
def test_the_target_has_a_replica_where_it_had_none_and_none_where_it_had_one(
    order: list[str], replicas: int, servers: int, data: st.DataObject, seed: int
) -> None:
    everybody = order[:servers]
    before = everybody[: min(replicas, servers)]
    target = data.draw(st.sampled_from(everybody))
    after = choose_placement(before, target, everybody, random.Random(seed))
    assert (target in after) is (target not in before)
    assert len(set(after)) == len(after) == len(before) - (len(before) == len(everybody))
    assert set(after) <= set(everybody)
    assert [a for a, b in zip(after, before, strict=False) if a != b][1:] == [] or len(after) < len(before)


def test_the_only_replica_on_the_only_server_stays() -> None:
    with pytest.raises(TargetError):
        choose_placement(["n1"], "n1", ["n1"], random.Random(1))


@pytest.mark.parametrize("text", ["minority", "majority", "all", "half", "n1+n2", "zookeepers"])
def test_it_takes_one_server(text: str) -> None:
    with pytest.raises(ScheduleError):
        MoveReplicas().draw(random.Random(1), Census(5, 1, ("orders-0",)), parse_target(text))


def test_it_draws_leaders_and_followers_of_known_keys() -> None:
    drawn = {MoveReplicas().draw(random.Random(n), Census(3, 1, ("a", "b")), None)[0] for n in range(60)}
    assert drawn == {Target(kind, key=key) for kind in (TargetKind.LEADER, TargetKind.FOLLOWER) for key in "ab"}
    for census in (Census(3, 1, ()), Census(1, 1, ("a",))):
        with pytest.raises(ScheduleError):
            MoveReplicas().draw(random.Random(1), census, None)


def play(servers: int, target: str = "n2", moving: float = 1.0, refusals: int = 0) -> Play:
    made = Play(FaultSchedule(1, (FaultStep(2.0, "move-replicas", parse_target(target), 5.0),)), FakeCluster(servers))
    made.system.slow = moving
    made.system.refusals = ["not now"] * refusals
    made.play()
    return made


def test_the_heal_waits_for_the_end_and_the_evidence_says_where_from_and_where_to() -> None:
    done = play(5, moving=9.0, refusals=3)
    row = done.row(1, FaultPhase.HEALED)
    evidence = row.detail["evidence"]
    assert row.took_effect is True
    assert evidence["before"] == ["n1", "n2", "n3"]
    assert evidence["after"] == evidence["meant"] == done.system.placed
    assert "n2" not in evidence["after"]
    assert done.at(1, FaultPhase.HEALED) >= 2.0 + 0.6 + 9.0


def undone(key: str | None, *replicas: int) -> Play:
    """A client undoes the move as soon as it has ended; a log says that these nodes had the replicas meanwhile."""
    made = Play(FaultSchedule(1, (FaultStep(2.0, "move-replicas", parse_target("n2"), 5.0),)), FakeCluster(5))
    made.system.slow, placed = 0.3, list(made.system.placed)
    move = made.system.move

    async def moved(cluster: Any, wanted: str, nodes: Any) -> str | None:
        trouble = await move(cluster, wanted, nodes)
        if replicas:
            made.cluster.node("n4").say("moved", wanted if key is None else key, replicas=list(replicas))
        made.system.placed = placed
        return trouble

    made.system.move = moved  # type: ignore[method-assign]
    made.play()
    return made


def test_a_move_that_a_client_undoes_at_once_took_effect_as_a_log_says() -> None:
    row = undone(None, 5, 1, 3).row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert row.detail["evidence"]["after"] == ["n5", "n1", "n3"]


@pytest.mark.parametrize(("key", "replicas"), [(None, []), (None, [3, 2, 1]), ("another", [5, 1, 3])])
def test_what_no_log_says_of_these_replicas_took_no_effect(key: str | None, replicas: list[int]) -> None:
    row = undone(key, *replicas).row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert "are where they were" in row.detail["reason"]


def test_without_another_server_the_replica_goes_and_comes_back() -> None:
    evidence = play(3).row(1, FaultPhase.HEALED).detail["evidence"]
    assert evidence["after"] == ["n1", "n3"]
    assert evidence["back"] == ["n1", "n2", "n3"]


def test_a_move_that_does_not_end_is_a_heal_that_failed_and_is_tried_again_at_the_end() -> None:
    done = play(5, moving=5.0 + MOVE_SECONDS + 13.0)
    assert [row.detail["stage"] for row in done.rows if row.phase is FaultPhase.FAILED] == [FailureStage.HEAL]
    assert done.row(1, FaultPhase.HEALED).took_effect is True


def test_other_faults_do_not_wait_for_its_end() -> None:
    kill = FaultStep(8.0, "kill", parse_target("n3"), 2.0)
    made = Play(FaultSchedule(1, (FaultStep(2.0, "move-replicas", parse_target("n2"), 5.0), kill)), FakeCluster(5))
    made.system.slow = 20.0
    made.play()
    assert made.at(2, FaultPhase.INJECTED) == pytest.approx(8.0)
    assert made.at(2, FaultPhase.HEALED) == pytest.approx(10.0)
    assert made.at(1, FaultPhase.HEALED) == pytest.approx(22.0, abs=0.3)
    assert made.row(1, FaultPhase.HEALED).took_effect is True
    assert not any(row.phase is FaultPhase.FAILED for row in made.rows)


def test_one_that_another_fault_keeps_from_ending_is_healed_after_that_when_the_run_ends() -> None:
    """A system that cannot move anything while one of its servers stands still."""
    stop = FaultStep(2.5, "stop", parse_target("n1"), 40.0)
    made = Play(FaultSchedule(1, (FaultStep(2.0, "move-replicas", parse_target("n2"), 1.0), stop)), FakeCluster(5))
    asked = made.system.replicas_of

    async def replicas_of(cluster: Any, key: str) -> Any:
        stopped = (await made.cluster.node("n1").process()).state is ProcessState.STOPPED
        return None if stopped else await asked(cluster, key)

    made.system.replicas_of = replicas_of  # type: ignore[method-assign]

    async def main() -> None:
        conductor = made.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(10.0)
        began = asyncio.get_running_loop().time()
        assert await conductor.heal_all() == ()
        assert asyncio.get_running_loop().time() - began < 2.0
        await running
        await conductor.close()

    run(main())
    assert made.row(1, FaultPhase.HEALED).took_effect is True


def test_an_order_that_no_one_takes_is_a_failed_fault() -> None:
    done = play(5, refusals=1000)
    failed = done.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.INJECT
    assert "not now" in failed.detail["reason"]


SLOW = FaultStep(1.0, "slow-network", parse_target("n1"), 9.0, {"seconds": 0.2})
LATER = FaultStep(6.0, "kill", parse_target("n3"), 2.0)


def hindered(other: FaultStep | None, *, yields: bool = True) -> Play:
    """No one takes the order of the second step, which comes while this other one is in force; a third comes later."""
    move = FaultStep(2.0, "move-replicas", parse_target("n2"), 2.0, yields=yields)
    made = Play(FaultSchedule(1, tuple(step for step in (other, move, LATER) if step is not None)), FakeCluster(5))
    made.system.refusals = ["not now"] * 1000
    made.play()
    return made


def missed(play: Play) -> FaultRow:
    (row,) = [
        row
        for row in play.rows
        if row.fault == "move-replicas" and row.stage in (FailureStage.INJECT, FailureStage.HINDERED)
    ]
    return row


def test_an_order_that_no_one_takes_while_another_fault_is_in_force_is_recorded_as_hindered_by_that() -> None:
    row = missed(hindered(SLOW))
    assert row.stage is FailureStage.HINDERED
    assert "not now" in row.detail["reason"]
    assert "fault 1 (slow-network)" in row.detail["reason"]


@pytest.mark.parametrize(
    ("other", "yields"),
    [(SLOW, False), (None, True), (msgspec.structs.replace(SLOW, duration=0.9), True)],
    ids=["asked for", "nothing else in force", "no longer in force"],
)
def test_no_other_order_is_hindered(other: FaultStep | None, yields: bool) -> None:
    row = missed(hindered(other, yields=yields))
    assert row.stage is FailureStage.INJECT
    assert "in force" not in row.detail["reason"]


@pytest.mark.parametrize("what", ["replicas_of", "move"])
def test_a_controller_that_does_not_answer_delays_other_faults_no_longer_than_the_move_was_to_last(what: str) -> None:
    made = Play(FaultSchedule(1, (FaultStep(2.0, "move-replicas", parse_target("n2"), 2.0), LATER)), FakeCluster(5))
    answer = getattr(made.system, what)

    async def slowly(*arguments: Any) -> Any:
        await asyncio.sleep(3.0)
        return await answer(*arguments)

    setattr(made.system, what, slowly)
    made.play()
    assert made.phases(1)[:2] == ["intended", "failed"]
    failed = next(row for row in made.rows if row.stage is FailureStage.INJECT)
    assert made.at(2, FaultPhase.INJECTED) == pytest.approx(LATER.at, abs=3.1 if what == "move" else 0.1)
    assert failed.detail["stage"] == FailureStage.INJECT


def test_an_order_without_an_answer_that_is_carried_out_does_not_keep_the_fault_in_its_way_from_being_healed() -> None:
    move = FaultStep(2.0, "move-replicas", parse_target("n2"), 2.0, yields=True)
    made = Play(FaultSchedule(1, (msgspec.structs.replace(SLOW, duration=4.0), move, LATER)), FakeCluster(5))
    made.system.slow = 6.0
    taken = made.system.move

    async def unanswered(*arguments: Any) -> Any:
        await taken(*arguments)
        await asyncio.sleep(3.0)

    made.system.move = unanswered  # type: ignore[method-assign]
    made.play()
    assert missed(made).stage is FailureStage.HINDERED
    assert made.at(1, FaultPhase.HEALED) == pytest.approx(SLOW.at + 4.0, abs=0.3)
    assert made.at(3, FaultPhase.INJECTED) == pytest.approx(LATER.at, abs=0.1)
    assert made.row(2, FaultPhase.HEALED).took_effect is True
