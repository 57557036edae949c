"""A controller that takes partitions and replicas from state to state as it must not: its run fails by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.contract import forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.log.transitions import TRANSITIONS
from assay.harness.core.generator import Generator, mix, once, sequence, stagger
from assay.harness.core.operation import Operation
from assay.harness.run.experiment import Experiment
from assay.harness.run.settings import Settings
from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.state_machines import PartitionStateName, ReplicaStateName, StateMachines
from assay.system_under_test.deployment import Broker
from assay.system_under_test.zookeeper.znodes import PartitionState
from assay.workloads.broker.controller_churn import ControllerClient
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic
from assay.workloads.broker.topic_admin import Create, Delete

from helpers.attempts import played
from helpers.nightly import by_night

pytestmark = pytest.mark.slow

OPERATIONS = [Operation(Create.f, "other", {"partitions": 1, "replication": 2}), Operation(Delete.f, "other")]


def judged(folder: Path, nemesis: tuple[str, ...] = (), replication: int = 1) -> Judgement:
    """Judges a short run in which a topic comes and goes. If there is one replica, no one leads when it is killed."""
    system = Broker(partitions=1, replication=replication)

    def body(_: Settings) -> Generator:
        keys = system.keys()
        return mix(traffic(keys), stagger(0.5, sequence(*map(once, OPERATIONS)))) | drain(keys, seconds=10.0)

    experiment = Experiment("transitions", system, ControllerClient, forbid(*TRANSITIONS.anomalies), body)
    settings = Settings(seed=3, time_limit=10.0, rate=20.0, store=folder, nemesis=nemesis, nemesis_target="leader")
    judgement = played(experiment, settings).judgement
    assert judgement is not None
    return judgement


def deletes_what_is_online(patch: pytest.MonkeyPatch) -> None:
    def begins(self: StateMachines, partition: tuple[str, int], replicas: Iterable[int]) -> None:
        for replica in replicas:
            self._move_replica(partition, replica, ReplicaStateName.DELETION_STARTED)

    patch.setattr(StateMachines, "record_deletion_start", begins)


def is_never_offline(patch: pytest.MonkeyPatch) -> None:
    settled = StateMachines.record_state

    def online(self: StateMachines, partition: tuple[str, int], state: PartitionState, **given: Any) -> None:
        was = self._partitions.get(partition)
        if was is not PartitionStateName.ONLINE or leaders.has_live_leader(state, self._cluster.brokers):
            settled(self, partition, state, **given)

    patch.setattr(StateMachines, "record_state", online)


def says_nothing_of_what_is_offline(patch: pytest.MonkeyPatch) -> None:
    move = StateMachines._move_replica

    def silent(self: StateMachines, partition: tuple[str, int], replica: int, now: ReplicaStateName) -> None:
        if now is ReplicaStateName.OFFLINE:
            self._replicas[partition][replica] = now
        else:
            move(self, partition, replica, now)

    patch.setattr(StateMachines, "_move_replica", silent)


@pytest.mark.parametrize(
    ("breaks", "nemesis", "words"),
    [
        (deletes_what_is_online, (), "of other-0 from Online to ReplicaDeletionStarted, which is no valid transition."),
        by_night(
            is_never_offline, ("kill",), "from Online to Online, though it had written in between that no one leads it."
        ),
        (says_nothing_of_what_is_offline, (), "from Offline to ReplicaDeletionStarted, though it had last taken it to"),
    ],
)
def test_an_illegal_transition_ends_as_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[pytest.MonkeyPatch], None],
    nemesis: tuple[str, ...],
    words: str,
) -> None:
    breaks(monkeypatch)
    judgement = judged(tmp_path, nemesis)
    assert judgement.verdict is Verdict.FAIL, judgement.unknown
    assert {finding.anomaly for finding in judgement.findings} == {"illegal-transition"}
    assert any(words in finding.claim for finding in judgement.findings), [one.claim for one in judgement.findings]


@pytest.mark.parametrize("replication", [1, by_night(3)])
def test_the_correct_controller_takes_no_illegal_one(tmp_path: Path, replication: int) -> None:
    judgement = judged(tmp_path, ("kill",), replication)
    assert not judgement.findings
    (examined,) = [one for one in judgement.examined if one.check == "illegal-transition"]
    assert examined.rows > 10
