"""Damaged files: in the region, disjoint, on a minority; and what hold, restart and freeze do node by node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.node import NodeError, ProcessState
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.faults.restart import READY_WITHIN
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import Target, TargetKind, parse_target

from helpers.examples import some_of
from helpers.nemesis_fakes import DURABLE, FakeCluster, Play, now, run

PATHS = [f"/data/orders-{index}/0{index}.log" for index in range(4)]
WAYS = ["truncate-tail", "corrupt", "garbage-tail"]


def damaged(way: str, whom: str, seed: int, region: str = "unflushed") -> Play:
    step = FaultStep(2.0, way, parse_target(whom), 5.0, {"region": region}, seed)
    play = Play(FaultSchedule(1, (step,)), FakeCluster(5))
    for node in play.cluster.servers:
        node.files = {path: bytes(range(200)) for path in PATHS}
    play.play()
    return play


@settings(max_examples=some_of(60), deadline=None)
@given(st.sampled_from(WAYS), st.sampled_from(["n2", "n2+n4"]), st.integers(0, 2**32))
def test_no_durable_byte_changes_and_no_file_is_damaged_twice(way: str, whom: str, seed: int) -> None:
    play = damaged(way, whom, seed)
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    changed = [
        (node.name, path) for node in play.cluster.servers for path in PATHS if node.files[path] != bytes(range(200))
    ]
    assert sorted(path for _, path in changed) == PATHS, "each file on one node"
    assert {name for name, _ in changed} == set(whom.split("+"))
    for node in play.cluster.servers:
        for path in PATHS:
            data = node.files[path]
            assert data[:DURABLE] == bytes(range(DURABLE))
            assert len(data) < 200 or way != "truncate-tail" or (node.name, path) not in changed
            assert way != "garbage-tail" or data[:200] == bytes(range(200))
            assert way != "corrupt" or len(data) == 200


def test_the_whole_file_is_damaged_when_asked_for() -> None:
    files = [damaged("truncate-tail", "n2", seed, "file").cluster.node("n2").files for seed in range(10)]
    assert min(len(file[path]) for file in files for path in PATHS) < DURABLE


def test_the_whole_file_is_damaged_if_the_system_does_not_know_what_is_durable() -> None:
    async def answer_unknown(node: Any, path: str) -> int | None:
        return None

    kept = set()
    for seed in range(10):
        play = Play(FaultSchedule(1, (FaultStep(2.0, "truncate-tail", parse_target("n2"), 5.0, {}, seed),)))
        node, play.system.durable_size = play.cluster.node("n2"), answer_unknown  # type: ignore[method-assign]
        node.files = {PATHS[0]: bytes(200)}
        play.play()
        assert play.row(1, FaultPhase.HEALED).took_effect is True
        kept.add(len(node.files[PATHS[0]]))
    assert min(kept) < DURABLE


def test_the_same_seed_does_the_same_damage() -> None:
    one, two, other = (damaged("corrupt", "n2", seed).cluster.node("n2").files for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize("way", WAYS)
def test_more_than_a_minority_is_refused_before_anything_is_killed(way: str) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, way, parse_target("n1+n2"), 5.0),)), FakeCluster(3))
    play.play()
    failed = play.row(1, FaultPhase.FAILED)
    assert failed.detail["stage"] == FailureStage.INJECT
    assert "must leave a majority" in failed.detail["reason"]
    assert not any("kill" in node.calls for node in play.cluster.nodes)


def test_a_file_that_the_system_removes_meanwhile_is_left_alone() -> None:
    """A replica may move away between the listing of its files and the look at them."""
    play = Play(FaultSchedule(1, (FaultStep(2.0, "garbage-tail", parse_target("n2"), 5.0),)))
    node, measure = play.cluster.node("n2"), play.system.durable_size
    node.files = {path: bytes(range(200)) for path in PATHS}

    async def remove_first(node: Any, path: str) -> int:
        if path == PATHS[0]:
            raise FileNotFoundError(2, "no such file", path)
        return await measure(node, path)

    play.system.durable_size = remove_first  # type: ignore[method-assign]
    play.play()
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    assert node.files[PATHS[0]] == bytes(range(200))
    assert all(len(node.files[path]) > 200 for path in PATHS[1:])


@pytest.mark.parametrize("way", ["truncate-tail", "corrupt"])
def test_where_nothing_lies_in_the_region_nothing_took_effect(way: str) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, way, parse_target("n2"), 5.0),)))
    play.cluster.node("n2").files = {PATHS[0]: bytes(DURABLE)}
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert "no file had bytes in the region" in row.detail["reason"]
    assert play.cluster.untouched


def test_flipped_bits_prove_damage_only_if_each_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    content, partly = bytes(200), 0
    for seed in range(12):
        play = Play(FaultSchedule(1, (FaultStep(2.0, "corrupt", parse_target("n2"), 5.0, {}, seed),)))
        node, lost = play.cluster.node("n2"), iter([True])
        node.files = {PATHS[0]: content}
        write = node.write_range

        async def lose_first(path: str, position: int, data: bytes) -> None:
            if not next(lost, False):  # noqa: B023
                await write(path, position, data)  # noqa: B023

        monkeypatch.setattr(node, "write_range", lose_first)
        play.play()
        assert play.row(1, FaultPhase.HEALED).took_effect is False
        partly += node.files[PATHS[0]] != content
    assert partly, "some faults flip more than one bit"


# Hold


def held(play: Play, *happenings: tuple[float, Callable[[], None]]) -> Play:
    """Plays while these things happen at these seconds."""

    async def main() -> None:
        conductor = play.conductor()
        for at, happening in happenings:
            asyncio.get_running_loop().call_at(at, happening)
        await conductor.run()
        await conductor.wait_for_recoveries()

    run(main())
    return play


def test_a_process_that_has_just_flushed_everything_is_killed_when_there_is_more() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "corrupt", parse_target("n2"), 5.0),)))
    node = play.cluster.node("n2")
    node.files = {PATHS[0]: bytes(DURABLE)}
    row = held(play, (3.0, lambda: node.files.update({PATHS[0]: bytes(DURABLE + 50)}))).row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert node.files[PATHS[0]][:DURABLE] == bytes(DURABLE)
    assert any(node.files[PATHS[0]])


def hold(whom: Target, **parameters: Any) -> Play:
    return Play(FaultSchedule(1, (FaultStep(2.0, "hold", whom, 5.0, parameters),)))


def says(play: Play, name: str, event: str, key: str | None = None) -> Callable[[], None]:
    return lambda: play.cluster.node(name).say(event, key)


def test_hold_stops_at_the_event_and_key_and_is_withdrawn() -> None:
    play = hold(parse_target("n1"), event="isr-change", key="orders-1")
    first, second = says(play, "n1", "isr-change", "orders-0"), says(play, "n1", "isr-change", "orders-1")
    row = held(play, (3.0, first), (4.0, second)).row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert row.detail["evidence"]["n1"]["last_event"]["key"] == "orders-1"
    assert play.phases(1)[-1] == "recovered"
    assert play.cluster.untouched


def test_hold_at_an_event_that_does_not_come_took_no_effect() -> None:
    play = hold(parse_target("n1"), event="isr-change")
    row = held(play, (3.0, says(play, "n1", "became-leader"))).row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert "never reached isr-change" in row.detail["reason"]


def test_of_several_one_that_stopped_is_enough() -> None:
    play = hold(Target(TargetKind.ALL), event="became-controller")
    held(play, (3.0, says(play, "n2", "became-controller")))
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    assert play.cluster.untouched


def test_a_process_stopped_by_something_else_was_not_held() -> None:
    play = hold(parse_target("n1"), event="isr-change")

    def stop() -> None:
        play.cluster.node("n1").state = ProcessState.STOPPED

    held(play, (3.0, says(play, "n1", "became-leader")), (4.0, stop))
    assert "its last event was became-leader, not isr-change" in play.row(1, FaultPhase.HEALED).detail["reason"]


@pytest.mark.parametrize("event", ["registered", "recovered"])
def test_held_in_the_middle_of_a_start(event: str) -> None:
    play = held(hold(parse_target("n3"), event=event, restart=True))
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    assert play.row(1, FaultPhase.HEALED).detail["evidence"]["n3"]["last_event"]["event"] == event


# Restart


def test_a_rolling_restart_has_at_most_one_server_down() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "restart-rolling", Target(TargetKind.ALL), 5.0),)))
    down: list[int] = []
    for node in play.cluster.servers:

        async def start(node: Any = node, plain: Any = node.start) -> None:
            down.append(sum(other.state != "running" for other in play.cluster.servers))
            await plain()

        node.start = start  # type: ignore[method-assign]
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert down == [1, 1, 1]
    assert row.targets == ("n1", "n2", "n3")


@pytest.mark.parametrize("never", [False, True])
def test_a_server_that_starts_may_have_ready_raise_anything(never: bool) -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "restart-rolling", Target(TargetKind.ALL), 5.0),)))
    plain, asked = play.system.ready, 0

    async def ready(node: Any) -> bool:
        nonlocal asked
        asked += 1
        if asked < 3 or (never and 2.0 < now() < 4.0 + READY_WITHIN):
            raise ValueError("the database system is starting up")
        return await plain(node)

    play.system.ready = ready  # type: ignore[method-assign]
    play.play()
    assert asked > 3
    assert play.cluster.untouched
    if never:
        assert "ready() raised ValueError: the database system" in play.row(1, FaultPhase.FAILED).detail["reason"]
    else:
        assert play.row(1, FaultPhase.HEALED).took_effect is True
        assert play.row(1, FaultPhase.HEALED).targets == ("n1", "n2", "n3")


def test_a_process_that_does_not_end_is_killed_at_the_heal_and_reported() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "restart", parse_target("n2"), 5.0),)))
    play.cluster.node("n2").refuse["terminate"] = 1
    play.play()
    assert play.row(1, FaultPhase.FAILED).detail["stage"] == FailureStage.INJECT
    assert "kill" in play.cluster.node("n2").calls
    assert play.cluster.untouched


def test_a_rolling_restart_that_could_not_be_healed_at_first_is_healed_later() -> None:
    """The first attempt ended the restart under way, and the next attempts do not wait for it."""
    play = Play(FaultSchedule(1, (FaultStep(2.0, "restart-rolling", parse_target("all"), 2.0),)))
    node = play.cluster.node("n1")
    start, starts = node.start, []

    async def badly() -> None:
        starts.append(now())
        if len(starts) == 1:
            await asyncio.sleep(1000)
        if len(starts) < 3:
            raise NodeError("not now")
        await start()

    node.start = badly  # type: ignore[method-assign]

    async def main() -> None:
        conductor = play.conductor()
        await conductor.run()
        await conductor.close()
        assert conductor.active_faults == ()

    run(main())
    assert len(starts) == 3
    assert play.phases(1)[:3] == ["intended", "injected", "failed"]
    assert play.cluster.untouched


def test_a_frozen_machine_is_left_alone_by_every_other_fault() -> None:
    steps = (FaultStep(2.0, "freeze", parse_target("n2"), 8.0), FaultStep(3.0, "kill", parse_target("n2"), 2.0))
    play = Play(FaultSchedule(1, (*steps, FaultStep(4.0, "partition-one", parse_target("n2"), 2.0))))
    play.play()
    assert play.row(1, FaultPhase.HEALED).took_effect is True
    for number in (2, 3):
        assert play.row(number, FaultPhase.INJECTED).time >= play.row(1, FaultPhase.HEALED).time, (
            "they wait for its end"
        )
    assert play.cluster.untouched
