"""The schedule of a run: what has no time is refused, and what a run came to can be played again."""

from pathlib import Path
from typing import Any

import pytest

from assay.harness.run.faults import plan_schedule
from assay.harness.run.settings import Settings
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import (
    FaultSchedule,
    FaultStep,
    ResolvedStep,
    ScheduleError,
    ScheduleRecord,
    encode_schedule,
)
from assay.nemesis.schedule.target import parse_target

from helpers.ping_pong import PingPong


def replayed(root: Path, found: FaultSchedule) -> FaultSchedule:
    path = root / "schedule.json"
    path.write_bytes(encode_schedule(found))
    system: Any = PingPong()
    return plan_schedule(system, Settings(seed=1, time_limit=30.0, replay=path), FaultCatalogue.standard())


def test_a_fault_that_went_on_until_the_run_ended_is_played_again(tmp_path: Path) -> None:
    """A lingering fault is healed as the main phase ends, a moment after the time limit."""
    step = FaultStep(20.0, "partition-one", parse_target("one"), 9.0, seed=1)
    record = ScheduleRecord(FaultSchedule(1, (step,)), (ResolvedStep(step, ("n2",), 20.001, 30.02, {}),))
    assert replayed(tmp_path, record.as_resolved()).steps[0].until == 30.02


@pytest.mark.parametrize(("at", "duration", "exact"), [(20.0, 10.0, False), (30.0, 1.0, True)])
def test_what_does_not_fit_the_time_is_refused(tmp_path: Path, at: float, duration: float, *, exact: bool) -> None:
    meant = FaultSchedule(1, (FaultStep(at, "kill", parse_target("n2"), duration, exact=exact),))
    with pytest.raises(ScheduleError, match="raise --time-limit above"):
        replayed(tmp_path, meant)
