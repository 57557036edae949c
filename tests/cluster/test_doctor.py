"""The doctor names a remedy for whatever is wrong, and looks only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from docker.models.containers import Container

from assay.cluster import doctor, owner
from assay.cluster.docker import engine, image, layer
from assay.cluster.docker.ability_trials import ABILITY_TRIALS
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
    assert order[2:5] == ["root", asking, "engine's machine"]
    assert order[-4:] == ["asking java for its version", "java", "zookeeper", "chromium"]


@pytest.mark.slow
def test_each_trial_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    good = DoctorFinding("any", True, "found")
    monkeypatch.setattr(doctor, "_find_machine", lambda: None)
    for name in ("_engine", "_image"):
        monkeypatch.setattr(doctor, name, lambda: good)
    monkeypatch.setattr(doctor, "_preloads", lambda reference: good)
    monkeypatch.setattr(doctor, "_try_in_node", lambda trial, reference, machine: DoctorFinding(trial.name, True, ""))
    order: list[str] = []
    for finding in doctor.diagnose(order.append):
        order.append(finding.name)
    first = order.index("trying in a container: iptables in a node")
    assert order[first - 2 : first] == ["looking for the node image", "any"]
    trials = [step for trial in ABILITY_TRIALS for step in (f"trying in a container: {trial.name}", trial.name)]
    assert order[first : first + len(trials)] == trials


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
