"""A step that waits acts when its trigger is fulfilled, and says so when it never is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, decode_schedule, encode_schedule
from assay.nemesis.schedule.target import named_target
from assay.nemesis.schedule.target import parse_target as target
from assay.nemesis.schedule.trigger import (
    AfterOperations,
    ArmedTrigger,
    OnEvent,
    Trigger,
    TriggerError,
    parse_trigger,
    repeat_trigger,
)

from helpers.nemesis_fakes import FakeCluster, Play, now, run

WORDS = st.sampled_from(["became-leader", "isr-change"])
TRIGGERS: st.SearchStrategy[Trigger] = st.builds(AfterOperations, st.integers(1, 1000), st.floats(0, 5)) | st.builds(
    OnEvent,
    WORDS,
    st.none() | st.just("orders-0"),
    st.dictionaries(st.just("epoch"), st.integers(0, 3)),
    st.integers(1, 3),
)


def waiting(trigger: Trigger, *, at: float = 2.0, fault: str = "kill", whom: str = "n2", duration: float = 5.0) -> Play:
    return Play(FaultSchedule(1, (FaultStep(at, fault, target(whom), duration, trigger=trigger),)), FakeCluster(5))


def play(play: Play, *happenings: tuple[float, Callable[[Conductor], None]]) -> Play:
    """Plays while these things happen at these seconds."""

    async def main() -> None:
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        for at, happening in happenings:
            await asyncio.sleep(at - now())
            happening(conductor)
        await running
        await conductor.wait_for_recoveries()
        play.record = conductor.outcome

    run(main())
    return play


def line(event: str, key: str | None = None, **fields: object) -> str:
    return msgspec.json.encode({"event": event, "key": key, **fields}).decode()


@given(TRIGGERS)
def test_a_step_with_a_trigger_survives_json_and_names_it(trigger: Trigger) -> None:
    schedule = FaultSchedule(1, (FaultStep(2.0, "kill", target("n2"), 5.0, trigger=trigger),))
    assert decode_schedule(encode_schedule(schedule)) == schedule
    assert str(trigger) in str(schedule.steps[0])


def test_after_so_many_operations_counted_since_it_was_armed() -> None:
    done = play(
        waiting(AfterOperations(10)),
        (1.0, lambda conductor: conductor.count_acknowledged(50)),
        (4.0, lambda conductor: conductor.count_acknowledged(9)),
        (6.0, lambda conductor: conductor.count_acknowledged()),
    )
    assert done.at(1, FaultPhase.INJECTED) == pytest.approx(6.0)
    assert done.at(1, FaultPhase.HEALED) == pytest.approx(11.0), "it lasts from when it was injected"
    assert done.row(1, FaultPhase.HEALED).took_effect is True


def test_a_trigger_that_fires_between_a_timeout_and_the_conductors_turn_is_noticed() -> None:
    """On a busy machine several callbacks are due at once. The step would otherwise be given up although it fired."""
    waits = waiting(AfterOperations(10, within=3.0), at=0.0)

    async def main() -> bool:
        conductor = waits.conductor()
        conductor._reporter.start_clock()
        await conductor._waiting.arm(1, AfterOperations(10, within=3.0))
        turn = asyncio.create_task(conductor._wait_until(0.0))
        await asyncio.sleep(0)  # the turn waits, and its timeout is due
        asyncio.get_running_loop().call_soon(conductor.count_acknowledged, 10)
        return await turn

    assert run(main()) is False


def test_on_an_event_with_its_key_and_fields_the_nth_time() -> None:
    wanted = OnEvent("became-leader", "orders-0", {"epoch": 2, "reason": "election"}, nth=2)
    good = line("became-leader", "orders-0", epoch=2, detail={"reason": "election"})
    done = play(
        waiting(wanted, whom="origin"),
        (1.0, lambda conductor: conductor.handle_event("n1", good)),
        (3.0, lambda conductor: conductor.handle_event("n1", good)),
        (4.0, lambda conductor: conductor.handle_event("n1", line("became-leader", "orders-1", epoch=2))),
        (4.1, lambda conductor: conductor.handle_event("n1", line("became-leader", "orders-0", epoch=3))),
        (4.2, lambda conductor: conductor.handle_event("n1", line("became-follower", "orders-0", epoch=2))),
        (4.3, lambda conductor: conductor.handle_event("n1", "cut short")),
        (5.0, lambda conductor: conductor.handle_event("n4", good)),
    )
    row = done.row(1, FaultPhase.INJECTED)
    assert done.at(1, FaultPhase.INJECTED) == pytest.approx(5.0)
    assert row.targets == ("n4",), "the node on which the event appeared"
    assert row.detail["trigger"]["origin"] == "n4"
    assert row.detail["trigger"]["line"]["event"] == "became-leader"


@pytest.mark.parametrize(("about", "leader"), [("orders-0", "n1"), ("orders-1", "n2")])
@pytest.mark.parametrize("seed", range(4))
def test_a_leader_without_a_key_is_that_of_what_the_event_was_about(about: str, leader: str, seed: int) -> None:
    step = FaultStep(2.0, "kill", target("leader"), 5.0, trigger=OnEvent("truncated"), seed=seed)
    done = play(
        Play(FaultSchedule(1, (step,)), FakeCluster(5)),
        (3.0, lambda conductor: conductor.handle_event("n4", line("truncated", about))),
    )
    assert done.row(1, FaultPhase.INJECTED).targets == (leader,)


def test_an_event_about_nothing_that_has_a_leader_leaves_the_key_to_be_drawn() -> None:
    done = play(
        waiting(OnEvent("truncated"), whom="leader"),
        (3.0, lambda conductor: conductor.handle_event("n4", line("truncated", "another-0"))),
    )
    assert done.row(1, FaultPhase.INJECTED).targets[0] in ("n1", "n2")


def test_the_delay_is_kept_and_recorded() -> None:
    done = play(
        waiting(AfterOperations(1, delay=1.5)),
        (4.0, lambda conductor: conductor.count_acknowledged()),
    )
    trigger = done.row(1, FaultPhase.INJECTED).detail["trigger"]
    assert done.at(1, FaultPhase.INJECTED) == pytest.approx(5.5)
    assert (trigger["at"], trigger["delay"]) == (pytest.approx(4.0), pytest.approx(1.5))


@pytest.mark.parametrize("trigger", [AfterOperations(10, within=6), OnEvent("isr-change", within=6)])
def test_one_that_waits_in_vain_is_reported_and_the_others_are_played(trigger: Trigger) -> None:
    schedule = FaultSchedule(
        1, (FaultStep(2.0, "kill", target("n2"), 5.0, trigger=trigger), FaultStep(12.0, "stop", target("n1"), 3.0))
    )
    done = play(Play(schedule), (3.0, lambda conductor: conductor.count_acknowledged(3)))
    failed = done.row(1, FaultPhase.FAILED)
    assert done.at(1, FaultPhase.FAILED) == pytest.approx(8.0)
    assert failed.detail["stage"] == FailureStage.TRIGGER
    assert f"saw {3 if isinstance(trigger, AfterOperations) else 0} " in failed.detail["reason"]
    assert done.phases(1) == ["intended", "failed"]
    assert done.row(2, FaultPhase.HEALED).took_effect is True
    assert done.cluster.untouched


def test_an_optional_one_that_waits_in_vain_is_left_out_and_one_that_acts_is_a_fault_like_any_other() -> None:
    trigger = OnEvent("isr-change", within=6, optional=True)
    schedule = FaultSchedule(
        1, (FaultStep(2.0, "kill", target("n2"), 5.0, trigger=trigger), FaultStep(12.0, "stop", target("n1"), 3.0))
    )
    vain = play(Play(schedule))
    assert vain.phases(1) == []
    assert vain.row(2, FaultPhase.HEALED).took_effect is True
    acts = play(Play(schedule), (3.0, lambda conductor: conductor.handle_event("n1", '{"event": "isr-change"}')))
    assert acts.phases(1) == ["intended", "injected", "healed", "recovered"]
    assert acts.row(1, FaultPhase.HEALED).took_effect is True
    assert vain.cluster.untouched
    assert acts.cluster.untouched


def test_one_that_still_waits_when_the_run_ends_is_reported_too() -> None:
    waits = waiting(OnEvent("isr-change"))

    async def main() -> None:
        conductor = waits.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(5)
        await conductor.heal_all()
        await running
        await conductor.close()

    run(main())
    assert waits.phases(1) == ["intended", "failed"]
    assert "the run ended first" in waits.row(1, FaultPhase.FAILED).detail["reason"]


def test_two_triggers_and_a_plain_step_go_on_beside_each_other() -> None:
    steps = (
        FaultStep(2.0, "kill", target("n1"), 3.0, trigger=AfterOperations(5)),
        FaultStep(2.0, "stop", target("n2"), 3.0, trigger=OnEvent("isr-change")),
        FaultStep(4.0, "partition-one", target("n3"), 10.0),
    )
    done = play(
        Play(FaultSchedule(1, steps), FakeCluster(5)),
        (5.0, lambda conductor: conductor.handle_event("n5", line("isr-change"))),
        (9.0, lambda conductor: conductor.count_acknowledged(5)),
    )
    assert [done.at(number, FaultPhase.INJECTED) for number in (1, 2, 3)] == pytest.approx([9.0, 5.0, 4.0])
    assert [done.at(number, FaultPhase.HEALED) for number in (1, 2, 3)] == pytest.approx([12.0, 8.0, 14.0])
    assert all(done.row(number, FaultPhase.HEALED).took_effect for number in (1, 2, 3))


def test_as_resolved_it_is_a_step_at_a_time() -> None:
    done = play(waiting(AfterOperations(1)), (7.0, lambda conductor: conductor.count_acknowledged()))
    (step,) = done.record.as_resolved().steps
    assert (step.trigger, step.target) == (None, named_target("n2"))
    assert (step.at, step.until) == pytest.approx((7.0, 12.0))


@given(TRIGGERS, st.lists(st.integers(0, 400), max_size=8))
def test_an_armed_trigger_counts_only_what_it_waits_for(trigger: Trigger, growth: list[int]) -> None:
    armed, total = ArmedTrigger(trigger, 10.0, 7), 7
    for more in growth:
        total += more
        assert armed.fires_at(total) == (isinstance(trigger, AfterOperations) and total - 7 >= trigger.operations)
        assert not armed.fires_on({"event": "another"})


def test_what_is_written_on_the_command_line() -> None:
    assert parse_trigger("every") is None
    assert parse_trigger("after:500") == AfterOperations(500)
    assert parse_trigger("event:became-controller") == OnEvent("became-controller")
    assert parse_trigger("event:became-leader:orders-0") == OnEvent("became-leader", "orders-0")
    assert repeat_trigger(AfterOperations(500), 3, 9.0) == AfterOperations(1500, within=9.0)
    assert repeat_trigger(OnEvent("isr-change"), 2, 9.0) == OnEvent("isr-change", nth=2, within=9.0)
    for text in ("", "after", "after:", "after:0", "after:x", "event:", "never"):
        with pytest.raises(TriggerError, match="it must be every, after:N"):
            parse_trigger(text)
