"""A fault that strikes only what passes by stays until something has, and not for long."""

from __future__ import annotations

import asyncio

import pytest

from assay.nemesis.engine.conductor import POLL_SECONDS
from assay.nemesis.engine.reporter import FailureStage, FaultPhase
from assay.nemesis.faults.fault import LINGER_SECONDS
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import parse_target

from helpers.nemesis_fakes import Play, run

CUT = FaultStep(2.0, "partition-one", parse_target("n2"), 5.0)
UNTIL = 7.0


def played(play: Play, *, silent_until: float | None) -> None:
    """No packet passes before that; None: for ever."""

    async def main() -> None:
        for node in play.cluster.nodes:
            node.quiet = True
        if silent_until is not None:
            asyncio.get_running_loop().call_later(silent_until, talk)
        conductor = play.conductor()
        await conductor.run()
        await conductor.close()

    def talk() -> None:
        for node in play.cluster.nodes:
            node.quiet = False

    run(main())


@pytest.mark.parametrize(
    ("silent_until", "struck"),
    [(3.0, True), (UNTIL + LINGER_SECONDS - 0.5, True), (UNTIL + LINGER_SECONDS + 0.5, False), (None, False)],
)
def test_it_is_in_force_until_it_has_struck_within_a_bound(silent_until: float | None, struck: bool) -> None:
    play = Play(FaultSchedule(1, (CUT,)))
    played(play, silent_until=silent_until)
    healed = play.row(1, FaultPhase.HEALED)
    assert healed.took_effect is struck
    assert any(row.stage is FailureStage.EFFECT for row in play.rows) is not struck
    last = UNTIL + LINGER_SECONDS if not struck else max(UNTIL, silent_until or 0.0)
    assert last - 0.01 <= play.at(1, FaultPhase.HEALED) <= last + POLL_SECONDS


def test_what_can_be_seen_to_have_done_nothing_at_once_is_healed_in_time() -> None:
    play = Play(FaultSchedule(1, (FaultStep(2.0, "kill", parse_target("n2"), 5.0),)))
    play.cluster.node("n2").kill_by_itself()
    played(play, silent_until=None)
    assert play.row(1, FaultPhase.HEALED).took_effect is False
    assert play.at(1, FaultPhase.HEALED) == pytest.approx(UNTIL)


def test_other_faults_do_not_wait_for_it() -> None:
    kill = FaultStep(UNTIL + 0.5, "kill", parse_target("n1"), 1.0)
    play = Play(FaultSchedule(1, (CUT, kill)))
    played(play, silent_until=None)
    assert play.at(2, FaultPhase.INJECTED) == pytest.approx(UNTIL + 0.5)
    assert play.at(2, FaultPhase.HEALED) == pytest.approx(UNTIL + 1.5)


def test_it_ends_with_the_run() -> None:
    play = Play(FaultSchedule(1, (CUT,)))

    async def main() -> None:
        for node in play.cluster.nodes:
            node.quiet = True
        conductor = play.conductor()
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(UNTIL + 1.0)
        assert len(conductor.active_faults) == 1
        assert await conductor.heal_all() == ()
        await running
        assert conductor.active_faults == ()
        await conductor.close()

    run(main())
    assert play.at(1, FaultPhase.HEALED) == pytest.approx(UNTIL + 1.0)
    assert play.cluster.untouched
