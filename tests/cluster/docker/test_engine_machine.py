"""Tests which machine an engine describes, and that proofs belong to one engine, kernel and image."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.cluster import doctor, owner
from assay.cluster.docker import engine_machine as module
from assay.cluster.docker import image
from assay.cluster.docker.ability_trials import ABILITY_TRIALS, AbilityTrial
from assay.cluster.docker.engine import DockerEngineError, list_owned, open_docker
from assay.cluster.docker.engine_machine import EngineMachine, describe_machine, is_proved, run_in_trial, store_proof
from assay.cluster.docker_endpoint import LOCAL_SOCKET, Endpoint

HERE: dict[str, Any] = {
    "ID": "AAAA",
    "Name": platform.node(),
    "KernelVersion": platform.release(),
    "DockerRootDir": "/var/lib/docker",
    "MemTotal": 3 << 30,
    "NCPU": 4,
}
VIRTUAL = HERE | {"Name": "docker-desktop", "KernelVersion": "6.6.12-linuxkit"}
LOCAL = Endpoint(LOCAL_SOCKET)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "state_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "endpoint", "is_here"),
    [
        (HERE, LOCAL, True),
        (HERE, Endpoint("tcp://10.0.0.5:2375"), False),
        (HERE, Endpoint("ssh://me@builder"), False),
        (VIRTUAL, LOCAL, False),
        (HERE | {"Name": "other"}, LOCAL, False),
        (HERE | {"KernelVersion": "6.6.12-linuxkit"}, LOCAL, False),
    ],
)
def test_an_engine_is_here_if_its_socket_name_and_kernel_are(
    answer: dict[str, Any], endpoint: Endpoint, is_here: bool
) -> None:
    assert describe_machine(answer, endpoint).is_here == is_here


def test_a_rootless_podman_is_described() -> None:
    found = describe_machine(HERE | {"BuildahVersion": "1.28", "Rootless": True, "Name": "laptop"}, LOCAL)
    assert str(found) == f"laptop, 4 CPUs, kernel {platform.release()}, rootless podman"
    assert found.id == "podman on laptop"


def test_a_proof_is_valid_for_this_engine_kernel_and_image_alone(state: Path) -> None:
    machine = describe_machine(VIRTUAL, LOCAL)
    assert not is_proved(machine, "node:1", "iptables")
    store_proof(machine, "node:1", "iptables")
    store_proof(machine, "node:1", "packets")
    assert is_proved(machine, "node:1", "iptables")
    assert is_proved(machine, "node:1", "packets")
    assert not is_proved(machine, "node:2", "iptables")
    for other in (
        replace(machine, id="BBBB"),
        replace(machine, root="/elsewhere"),
        replace(machine, kernel="6.7"),
    ):
        assert not is_proved(other, "node:1", "iptables")


def test_a_broken_file_of_proofs_proves_nothing_and_is_replaced(state: Path) -> None:
    machine = describe_machine(VIRTUAL, LOCAL)
    store_proof(machine, "node:1", "iptables")
    (path,) = (state / module.FOLDER).iterdir()
    for content in ("", "{", '{"node:1": "iptables"}'):
        path.write_text(content)
        assert not is_proved(machine, "node:1", "iptables")
    store_proof(machine, "node:1", "iptables")
    assert is_proved(machine, "node:1", "iptables")


def far() -> EngineMachine:
    return describe_machine(VIRTUAL, LOCAL)


def test_the_doctor_describes_the_memory_and_disk_of_an_engine_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.image, "exists", lambda: True)
    monkeypatch.setattr(doctor, "measure_free_disk", lambda reference: 7 << 30)
    assert doctor._memory(far()).detail == "3.0 GiB in total, on docker-desktop"
    assert doctor._disk(far()).detail == "7 GiB free for containers, on docker-desktop"
    assert "another one than this" in doctor._machine(far()).detail
    small = replace(far(), memory=1 << 30)
    assert not doctor._memory(small).good
    assert "docker-desktop" in doctor._memory(small).remedy


def test_the_doctor_says_that_the_disk_of_an_engine_without_the_image_is_not_examined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor.image, "exists", lambda: False)
    found = doctor._disk(far())
    assert not found.good
    assert found.remedy == "`assay image build`"


def test_a_trial_elsewhere_is_not_repeated_once_it_succeeded(state: Path) -> None:
    tried: list[str] = []
    trial = AbilityTrial("ability", "works", tried.append, "a remedy", "a fault")
    reference = image.image_reference()
    assert doctor._try_in_node(trial, reference, far()).detail == "works"
    assert doctor._try_in_node(trial, reference, far()).detail == "works, as an earlier trial showed"
    assert len(tried) == 1
    here = describe_machine(HERE, LOCAL)
    for _ in range(2):
        assert doctor._try_in_node(trial, reference, here).detail == "works"
    assert len(tried) == 3


def test_a_trial_that_failed_is_repeated(state: Path) -> None:
    tried: list[str] = []

    def fail(reference: str) -> None:
        tried.append(reference)
        raise DockerEngineError("first\nexit code 1: no netem")

    trial = AbilityTrial("ability", "works", fail, "a remedy", "a fault")
    for _ in range(2):
        found = doctor._try_in_node(trial, image.image_reference(), far())
        assert (found.good, found.detail, found.remedy) == (False, "exit code 1: no netem", "a remedy")
    assert len(tried) == 2


@pytest.mark.docker
def test_a_trial_prints_names_its_failure_and_leaves_no_container(engine_needed: None) -> None:
    reference = image.image_reference()
    assert run_in_trial(reference, "echo said") == "said\n"
    with pytest.raises(DockerEngineError, match="exit code 3: too bad"):
        run_in_trial(reference, "echo too bad >&2; exit 3")
    with pytest.raises(DockerEngineError):
        run_in_trial(reference, "true", runtime="no-such-runtime")
    with open_docker() as client:
        ours = [one for one in list_owned(client) if one.owner == str(owner.current_owner())]
    assert not [one for one in ours if one.run_id == module.DOCTOR_RUN]


@pytest.mark.docker
def test_the_engine_of_these_tests_can_do_what_every_fault_needs(engine_needed: None) -> None:
    if module.find_engine_machine().is_rootless:
        pytest.skip("a rootless engine may refuse to freeze, and to limit memory")
    assert module.measure_free_disk(image.image_reference()) > 0
    findings = [doctor._try_in_node(trial, image.image_reference()) for trial in ABILITY_TRIALS]
    assert [finding for finding in findings if not finding.good] == []
