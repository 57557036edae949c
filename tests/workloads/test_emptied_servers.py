"""A server that lost its data and others that leave meanwhile: of two replicas in sync no one takes both away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.checkers.engine import Engines
from assay.harness.run.experiment import find_experiment
from assay.harness.run.settings import Settings
from assay.harness.search.example import Example
from assay.harness.search.player import Player
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import named_target
from assay.system_under_test.deployment import Broker
from assay.workloads.test_log import test_log as of_log

WIPE = FaultStep(2.0, "wipe", named_target("n2"), 0.6, {"end": "killed"}, 1)
RESTART = FaultStep(2.8, "restart", named_target("n1"), 1.0, {}, 2)


@pytest.mark.slow
def test_the_other_one_is_not_stopped_cleanly_while_the_emptied_one_counts_in_its_former_life(tmp_path: Path) -> None:
    """Its session is not over yet: it would be the last of the in-sync set, and lead with nothing when it is back."""
    found = find_experiment(of_log)
    assert found is not None
    of_two = replace(found, system=Broker(partitions=4, replication=2, min_insync=1))
    player = Player(of_two, Settings(0, store=tmp_path), tmp_path / "schedules", Engines("duckdb", threads=1))
    outcome = player.play(
        Example(3, FaultSchedule(0, (WIPE, RESTART)), nodes=3, zookeepers=1, concurrency=2, rate=50.0, time_limit=12.0)
    )
    assert not outcome.failures, outcome.text
    assert outcome.injected == {1, 2}
