"""Tests what a session is refused before it begins, for the kind of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from assay.cluster.docker import ability_trials
from assay.cluster.node import SupportsFreezing, SupportsPowerLoss
from assay.harness.plugin import clusters
from assay.harness.run.attempt import Attempt

ATTACH = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q", "--cluster=attach", "--hosts=hosts.toml")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--nemesis=kill", "--cluster=attach has no faults"),
        ("--nemesis=all", "--cluster=attach has no faults"),
        ("--set=a=b", "leave out --set, --defect and --workload-mix"),
        ("--defect=forgetful", "leave out --set, --defect and --workload-mix"),
        ("--repeat=2", "--cluster=attach runs a test once"),
        ("--explore=5", "--explore searches in the simulation"),
    ],
)
def test_a_cluster_that_runs_already_is_taken_as_it_is(toy_project: pytest.Pytester, option: str, said: str) -> None:
    toy_project.makefile(".toml", hosts='[[host]]\naddress = "127.0.0.1"\n')
    result = toy_project.runpytest_inprocess(*ATTACH, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join([*result.outlines, *result.errlines])


REASON = "the engine is rootless; choose another"


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[set[type]]:
    """A Docker engine that can neither freeze nor make disks. Returns what it was asked for. No cluster may start."""
    asked: list[set[type]] = []

    def find_missing(protocols: Collection[type], note: Callable[[str], None]) -> dict[type, str]:
        asked.append(set(protocols))
        note("trying on the Docker engine: freezing a node ...")
        return dict.fromkeys({SupportsFreezing, SupportsPowerLoss} & set(protocols), REASON)

    def start(attempt: Attempt) -> None:
        pytest.fail("a cluster was started")

    monkeypatch.setattr(ability_trials, "find_missing_abilities", find_missing)
    monkeypatch.setattr(clusters, "_check_docker", lambda: None)
    monkeypatch.setattr(clusters, "sweep_leftovers", lambda cluster: "")
    monkeypatch.setattr(Attempt, "set_up", start)
    return asked


def errors(result: pytest.RunResult) -> list[str]:
    return [line for line in (*result.outlines, *result.errlines) if line.startswith("ERROR: ")]


DOCKER = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--cluster=docker", "--nodes=3")


def test_named_faults_that_an_engine_cannot_inject_are_usage_errors_before_a_cluster_starts(
    toy_project: pytest.Pytester, refusing: list[set[type]]
) -> None:
    result = toy_project.runpytest_inprocess(*DOCKER, "--nemesis=kill,freeze", "--nemesis=power-loss", "--nemesis=stop")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert errors(result) == [
        f"ERROR: --nemesis=freeze is not available here: the machine of a node cannot be frozen: {REASON}",
        f"ERROR: --nemesis=power-loss is not available here: the power of a node cannot be cut: {REASON}",
    ]
    assert refusing == [{SupportsFreezing, SupportsPowerLoss}]
    assert "trying on the Docker engine: freezing a node ..." in result.outlines
    assert not (toy_project.path / "store").exists()


def test_a_session_that_only_lists_its_tests_asks_no_engine(
    toy_project: pytest.Pytester, refusing: list[set[type]]
) -> None:
    for option in ("--collect-only", "--workload-mix-list"):
        assert toy_project.runpytest_inprocess(*DOCKER, "--nemesis=freeze", option).ret == 0
    assert refusing == []


def test_all_faults_go_without_those_that_an_engine_cannot_inject(
    toy_project: pytest.Pytester, refusing: list[set[type]]
) -> None:
    result = toy_project.runpytest_inprocess(*DOCKER, "--nemesis=all", "-k", "freeze", "-rs")
    result.assert_outcomes(skipped=1, deselected=result.parseoutcomes()["deselected"])
    assert f"the machine of a node cannot be frozen: {REASON}" in result.stdout.str()


def test_a_system_without_a_data_folder_has_no_disk_that_can_fail(
    toy_project: pytest.Pytester, refusing: list[set[type]]
) -> None:
    result = toy_project.runpytest_inprocess(*DOCKER, "--nemesis=disk-error")
    assert errors(result) == [
        "ERROR: --nemesis=disk-error is not available here: the disk of a node cannot be made to fail: "
        "toy does not say where its data are: define its method data_folder"
    ]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("unix:///nonexistent.sock", []),
        (
            "ssh://me@builder",
            [
                "asking the Docker engine ssh://me@builder (from DOCKER_HOST) ...",
                "looking for leftovers of dead sessions on ssh://me@builder (from DOCKER_HOST) ...",
            ],
        ),
    ],
)
def test_a_session_with_an_engine_elsewhere_says_what_it_asks(
    toy_project: pytest.Pytester,
    refusing: list[set[type]],
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    expected: list[str],
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    result = toy_project.runpytest_inprocess(*DOCKER, "--collect-only")
    lines = ("asking the Docker engine", "looking for leftovers")
    assert [line for line in result.outlines if line.startswith(lines)] == expected
    quiet = toy_project.runpytest_inprocess(*DOCKER, "--collect-only", "-q")
    assert not [line for line in quiet.outlines if line.startswith(lines)]


def test_a_line_of_progress_after_the_letter_of_a_test_begins_on_a_line_of_its_own(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Attempt.tear_down

    def tear_down(attempt: Attempt) -> None:
        attempt.progress.note("removing the cluster ...")
        real(attempt)

    monkeypatch.setattr(Attempt, "tear_down", tear_down)
    sim = ("--cluster=sim", "--nodes=1", "--time-limit=1", "--rate=50", "--reports=never")
    result = toy_project.runpytest_inprocess(*DOCKER, *sim)
    assert result.ret == pytest.ExitCode.OK
    assert "removing the cluster ..." in result.outlines


@pytest.mark.parametrize("fault", ["freeze", "clock", "slow-disk", "disk-error", "disk-full", "power-loss"])
def test_faults_that_no_host_can_suffer_are_refused_before_any_host_is_reached(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(clusters, "sweep_leftovers", lambda cluster: "")
    monkeypatch.setattr(clusters, "_check_hosts", lambda cluster, hosts: None)
    monkeypatch.setattr(Attempt, "set_up", lambda attempt: pytest.fail("a host was reached"))
    result = toy_project.runpytest_inprocess(*DOCKER, "--cluster=ssh", f"--nemesis={fault}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = errors(result)
    assert line.startswith(f"ERROR: --nemesis={fault} is not available here: the ")
