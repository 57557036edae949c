"""The doctor names a remedy for whatever is wrong, and looks only."""

from __future__ import annotations

import errno
import grp
from collections.abc import Callable
from pathlib import Path

import pytest
from docker.models.containers import Container

from assay.cluster import doctor, owner
from assay.cluster.docker import engine, image, layer
from assay.cluster.docker.ability_trials import ABILITY_TRIALS
from assay.cluster.docker.engine_machine import describe_machine
from assay.cluster.docker_endpoint import Endpoint
from assay.cluster.doctor import DoctorFinding


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_a_docker_cluster_is_not_available() -> None:
    assert not doctor.docker_available()


@pytest.mark.slow
@pytest.mark.usefixtures("no_engine")
def test_every_bad_finding_has_a_remedy_and_says_what_it_costs() -> None:
    findings = list(doctor.diagnose())
    assert "docker engine" in {finding.name for finding in findings if not finding.good}
    for finding in findings:
        assert finding.detail
        if not finding.good:
            assert finding.remedy, finding
            assert "make" not in finding.remedy.split(), "an installed project has no Makefile"
            assert finding.enables, finding


@pytest.mark.slow
@pytest.mark.usefixtures("no_engine")
def test_each_finding_is_there_before_the_next_step_begins() -> None:
    order: list[str] = []
    for finding in doctor.diagnose(order.append):
        order.append(finding.name)
    asking = "asking the Docker engine at unix:///nonexistent/docker.sock (from DOCKER_HOST)"
    assert order[2:5] == [asking, "root", "engine's machine"]
    assert order[-4:] == ["asking java for its version", "java", "zookeeper", "chromium"]


@pytest.mark.slow
def test_each_trial_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    good = DoctorFinding("any", True, "found")
    monkeypatch.setattr(doctor, "_find_machine", lambda: None)
    monkeypatch.setattr(doctor, "_engine", lambda: good)
    monkeypatch.setattr(doctor, "_image", lambda machine: good)
    monkeypatch.setattr(doctor, "_preloads", lambda reference: good)
    monkeypatch.setattr(doctor, "_try_in_node", lambda trial, reference, machine: DoctorFinding(trial.name, True, ""))
    order: list[str] = []
    for finding in doctor.diagnose(order.append):
        order.append(finding.name)
    first = order.index("trying in a container: iptables in a node")
    assert order[first - 2 : first] == ["looking for the node image", "any"]
    trials = [step for trial in ABILITY_TRIALS for step in (f"trying in a container: {trial.name}", trial.name)]
    assert order[first : first + len(trials)] == trials


def test_a_rootless_engine_gets_no_advice_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user is no root, and neither debootstrap nor the kernel's modules help."""
    info = {"Name": "laptop", "SecurityOptions": ["name=rootless"], "CgroupVersion": "1"}
    machine = describe_machine(info, Endpoint("unix:///run/user/1000/docker.sock"))
    good = DoctorFinding("any", True, "found")
    monkeypatch.setattr(doctor, "_find_machine", lambda: machine)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_engine", lambda: good)
    monkeypatch.setattr(doctor, "_disk", lambda machine: good)
    monkeypatch.setattr(doctor, "_java", lambda: good)
    monkeypatch.setattr(image, "exists", lambda: False)
    monkeypatch.setattr(image, "can_build", lambda: False)
    announced: list[str] = []
    findings = {one.name: one for one in doctor.diagnose(announced.append)}
    assert findings["root"].good
    assert findings["node image"].remedy.startswith("copy the base image from an engine that has it, ")
    assert "debootstrap" not in findings["node image"].remedy
    for name in ("freezing a node", "memory of a node", "power loss in a node"):
        assert findings[name].detail.startswith("the engine is rootless, ")
        assert findings[name].remedy.startswith("choose an engine that runs as root, or ")
    assert findings["packets of a node"].detail == doctor.NOT_TRIED
    assert not [step for step in announced if step.startswith(("trying", "compiling"))]


@pytest.mark.slow
def test_the_names_of_findings_fit_in_their_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    names = [*(one.name for one in doctor.diagnose()), doctor._image().name, doctor._preloads(None).name]
    assert max(map(len, [*names, *(trial.name for trial in ABILITY_TRIALS)])) == doctor.NAME_WIDTH


@pytest.mark.usefixtures("no_engine")
def test_on_macos_no_remedy_is_a_package_of_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ON_MACOS", True)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.zookeeper, "JARS", "/nowhere/zookeeper.jar")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 501)
    bad = {finding.name: finding.remedy for finding in doctor.diagnose() if not finding.good}
    assert {"root", "docker engine", "java", "zookeeper", "chromium"} <= bad.keys()
    assert not [remedy for remedy in bad.values() if "apt" in remedy or "dockerd" in remedy]


@pytest.mark.usefixtures("no_engine")
def test_an_engine_error_says_how_to_get_one() -> None:
    with (
        pytest.raises(
            engine.DockerEngineError,
            match=r"docker.sock \(from DOCKER_HOST\): .* start the engine there, or correct or unset DOCKER_HOST",
        ),
        engine.open_docker(timeout=1),
    ):
        pytest.fail("there is no engine to talk to")


@pytest.mark.parametrize("group", ["docker", "root"])
def test_a_socket_that_is_closed_to_this_user_names_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """The engine runs, so the remedy is not to start one. A group that is root's own gives no remedy."""
    path = tmp_path / "docker.sock"
    path.touch()
    monkeypatch.setattr(doctor, "_is_default_endpoint", lambda: True)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((group, "x", number, [])))

    def forbid(endpoint: Endpoint, timeout: float) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(engine, "_require_listener", forbid)
    finding = doctor._engine()
    assert finding.detail.startswith(f"no Docker engine answers: unix://{path} ")
    assert finding.detail.endswith("Permission denied")
    assert finding.remedy.startswith(engine.FORBIDDEN)
    assert "dockerd" not in finding.remedy
    assert ("`usermod -aG docker " in finding.remedy) == (group == "docker")


@pytest.mark.parametrize("host", ["unix:///run/user/1000/docker.sock", "tcp://docker:2375"])
def test_the_command_that_copies_the_base_image_names_both_engines(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Neither depends on the variables of the user who runs it."""
    monkeypatch.setenv("DOCKER_HOST", host)
    command = f"`docker -H unix:///var/run/docker.sock save assay-base:bookworm | DOCKER_HOST={host} docker load`"
    assert layer.describe_copy().endswith(command)
    monkeypatch.setenv("DOCKER_HOST", "unix:///var/run/docker.sock")
    assert layer.describe_copy().endswith("| DOCKER_HOST=unix:///var/run/docker.sock docker load`")
    assert "docker -H unix:///var/run" not in layer.describe_copy()


@pytest.mark.slow
def test_an_engine_elsewhere_is_named_and_the_advice_is_not_to_start_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    found = {finding.name: finding for finding in doctor.diagnose()}
    assert found["docker engine"].detail.startswith("no Docker engine answers: tcp://127.0.0.1:1 (from DOCKER_HOST): ")
    assert found["docker engine"].remedy == "start the engine there, or correct or unset DOCKER_HOST"
    assert found["disk"].detail == "not examined: the engine is at tcp://127.0.0.1:1 (from DOCKER_HOST)"


@pytest.mark.slow
def test_a_missing_program_is_an_error_with_a_remedy() -> None:
    with pytest.raises(layer.ImageError, match="no-such-program-of-assay is not installed"):
        layer.run_command(["no-such-program-of-assay"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", [layer.run_command, lambda argv: layer.docker_build([], lambda step: None)], ids=["any", "docker"]
)
def test_a_program_that_this_user_may_not_run_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[list[str]], object]
) -> None:
    """A folder of PATH that this user cannot read has the same effect, but not for root."""
    (tmp_path / "docker").write_text("no program")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(layer.ImageError, match="docker is not installed, or this user may not run it; "):
        run(["docker"])


@pytest.mark.slow
def test_a_failed_command_shows_its_last_lines() -> None:
    with pytest.raises(layer.ImageError, match="exited 3:\nthe very last line"):
        layer.run_command(["sh", "-c", "echo the very last line; exit 3"])


@pytest.mark.parametrize("check", [doctor._python, doctor._memory, doctor._disk])
def test_this_machine_is_measured(check: Callable[[], DoctorFinding]) -> None:
    assert any(character.isdigit() for character in check().detail)


@pytest.mark.docker
def test_a_container_of_a_doctor_that_is_interrupted_is_one_that_the_next_session_takes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not doctor.docker_available() or not image.exists():
        pytest.skip("no Docker engine answers, or there is no node image; `assay doctor` says what is missing")

    def interrupted(container: Container, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Container, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        doctor._try_in_node(ABILITY_TRIALS[0], image.image_reference())
    with engine.open_docker() as client:
        ours = [one for one in engine.list_owned(client) if one.owner == str(owner.current_owner())]
        left = [one for one in ours if one.run_id == "doctor"]  # other tests of this process may have containers
        assert [one.kind for one in left] == ["container"]
        assert engine.remove_container(client, left[0].name)


@pytest.mark.slow
def test_a_java_that_hangs_or_cannot_start_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "JAVA_SECONDS", 0.1)
    for script in ("#!/bin/sh\nexec /bin/sleep 60\n", "#!/nonexistent/interpreter\n"):
        java.write_text(script)
        java.chmod(0o755)
        found = doctor._java()
        assert not found.good
        assert found.detail
        assert "apt install" in found.remedy
