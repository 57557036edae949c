"""Tests which abilities of an engine are known without a cluster, and that a session tries no more than it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cluster.docker import ability_trials as module
from assay.cluster.docker import engine_machine
from assay.cluster.docker.ability_trials import AbilityTrial, find_missing_abilities
from assay.cluster.docker.disk import DiskError
from assay.cluster.docker.engine import DockerEngineError
from assay.cluster.docker.engine_machine import EngineMachine, describe_machine, is_proved
from assay.cluster.docker_endpoint import LOCAL_SOCKET, Endpoint
from assay.cluster.node import SupportsDiskFull, SupportsFreezing, SupportsPacketShaping, SupportsPowerLoss

ROOTLESS = {
    "ID": "A",
    "Name": "far",
    "KernelVersion": "6.1",
    "CgroupVersion": "1",
    "SecurityOptions": ["name=rootless"],
}


class FakeEngine:
    """An engine whose trials are counted. ``failing``: the error of each trial."""

    def __init__(self) -> None:
        self.machine: EngineMachine = describe_machine(ROOTLESS | {"SecurityOptions": []}, Endpoint(LOCAL_SOCKET))
        self.failing: Exception | None = None
        self.has_image = True
        self.tried: list[str] = []
        self.notes: list[str] = []

    def run(self, name: str) -> Callable[[str], None]:
        def attempt(reference: str) -> None:
            self.tried.append(name)
            if self.failing is not None:
                raise self.failing

        return attempt

    def find_missing(self, *protocols: type) -> dict[type, str]:
        return dict(find_missing_abilities(protocols, self.notes.append))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    trials = [replace(trial, run=fake.run(trial.name)) for trial in module.ABILITY_TRIALS]
    monkeypatch.setattr(module, "ABILITY_TRIALS", trials)
    monkeypatch.setattr(module, "find_engine_machine", lambda: fake.machine)
    monkeypatch.setattr(module.image, "exists", lambda: fake.has_image)
    monkeypatch.setattr(engine_machine, "state_folder", lambda: tmp_path)
    return fake


def test_only_what_the_faults_need_is_tried_and_once_is_enough(engine: FakeEngine) -> None:
    assert engine.find_missing() == {}
    assert engine.tried == []
    for _ in range(2):
        assert engine.find_missing(SupportsPacketShaping) == {}
        assert engine.tried == ["packets of a node"]
        assert engine.notes == ["trying on the Docker engine: packets of a node ..."]


def test_one_trial_is_enough_for_all_faults_that_need_a_disk(engine: FakeEngine) -> None:
    engine.failing = DiskError("no loop devices; `modprobe loop`")
    reason = "no loop devices; `modprobe loop`"
    assert engine.find_missing(SupportsDiskFull, SupportsPowerLoss) == dict.fromkeys(
        (SupportsPowerLoss, SupportsDiskFull), reason
    )
    assert engine.tried == ["power loss in a node"]


def test_a_failure_is_not_remembered_and_ends_an_earlier_proof(engine: FakeEngine) -> None:
    (trial,) = (one for one in module.ABILITY_TRIALS if SupportsPacketShaping in one.protocols)
    trial.require(engine.machine, lambda: "node:1", trusts_proof=False)
    reference = module.image.image_reference()
    assert is_proved(engine.machine, "node:1", trial.name)
    engine.failing = DockerEngineError("the whole command\nexit code 1: no nfnetlink_queue")
    with pytest.raises(module.AbilityError, match=r"^exit code 1: no nfnetlink_queue$"):
        trial.require(engine.machine, lambda: "node:1", trusts_proof=False)
    assert not is_proved(engine.machine, "node:1", trial.name)
    for tries in (3, 4):
        missing = engine.find_missing(SupportsPacketShaping)
        assert missing[SupportsPacketShaping].startswith("exit code 1: no nfnetlink_queue; the kernel needs ")
        assert len(engine.tried) == tries
    assert not is_proved(engine.machine, reference, trial.name)


def test_a_rootless_engine_is_known_by_its_own_words_and_nothing_is_tried(engine: FakeEngine) -> None:
    engine.machine = describe_machine(ROOTLESS, Endpoint(LOCAL_SOCKET))
    engine.has_image = False
    missing = engine.find_missing(SupportsFreezing)
    assert missing[SupportsFreezing].startswith("the engine is rootless, with control groups of version 1; ")
    assert engine.tried == []
    engine.machine = describe_machine(ROOTLESS | {"CgroupVersion": "2"}, Endpoint(LOCAL_SOCKET))
    engine.has_image = True
    assert engine.find_missing(SupportsFreezing) == {}
    assert engine.tried == ["freezing a node"]


def test_no_disk_is_tried_on_a_rootless_engine_and_the_kernel_is_not_blamed(engine: FakeEngine) -> None:
    engine.machine = describe_machine(ROOTLESS | {"CgroupVersion": "2"}, Endpoint(LOCAL_SOCKET))
    missing = engine.find_missing(SupportsPowerLoss)
    assert missing[SupportsPowerLoss].startswith("the engine is rootless, and only root can make loop devices; choose ")
    assert "modprobe" not in missing[SupportsPowerLoss]
    assert engine.tried == []


@pytest.mark.parametrize("obstacle", ["image", "engine"])
def test_what_only_the_start_of_a_cluster_can_show_is_left_to_it(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    def raise_error() -> EngineMachine:
        raise DockerEngineError("no engine answers; start one")

    if obstacle == "engine":
        monkeypatch.setattr(module, "find_engine_machine", raise_error)
    engine.has_image = obstacle != "image"
    engine.failing = DockerEngineError("never reached")
    assert engine.find_missing(SupportsPacketShaping, SupportsFreezing) == {}
    assert engine.tried == []


def test_each_ability_that_a_trial_shows_has_one_trial() -> None:
    protocols = [protocol for trial in module.ABILITY_TRIALS for protocol in trial.protocols]
    assert len(protocols) == len(set(protocols))
    assert all(isinstance(trial, AbilityTrial) and trial.remedy and trial.enables for trial in module.ABILITY_TRIALS)
