"""Compose files as Compose prints them, in the short forms of version 1.29 and the long forms of later versions."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import REGISTER_ANOMALIES, Compose, experiment, forbid
from assay.cluster.compose import project
from assay.cluster.compose.project import ComposeError, Dependency, Service, parse_project, sort_by_dependency
from assay.cluster.containers import Container
from assay.cluster.hosts.cluster import HostCluster
from assay.cluster.system import DeploymentError
from assay.harness.run.experiment import IncompleteError
from assay.workloads.generic.registers import unique_values

from helpers.bare_registers import RegisterClient

FILE = Path("docker-compose.yml")
NO_COMMAND = "no command of Compose is installed"


def parse(settings: dict[str, Any], **sections: Any) -> Service:
    found = parse_project(FILE, {"services": {"store": {"image": "store:1", **settings}}, **sections})
    return found.services["store"]


def test_short_and_long_forms_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "conf").touch()
    short = {
        "command": "serve --port 7000 'a b'",
        "environment": ["A=1", "B=x=y", "UNSET"],
        "volumes": ["data:/data:rw", f"{tmp_path}/conf:/etc/conf:ro", "/cache"],
        "tmpfs": "/tmp:size=1m",
        "extra_hosts": ["far:198.18.0.9"],
        "depends_on": ["base"],
        "configs": ["conf"],
        "ulimits": {"nofile": 100},
        "healthcheck": {"test": "ask store"},
    }
    long = {
        "command": ["serve", "--port", "7000", "a b"],
        "environment": {"A": 1, "B": "x=y", "UNSET": None},
        "volumes": [
            {"type": "volume", "source": "data", "target": "/data", "volume": {}},
            {"type": "bind", "source": f"{tmp_path}/conf", "target": "/etc/conf", "read_only": True},
            {"type": "volume", "target": "/cache"},
        ],
        "tmpfs": ["/tmp:size=1m"],
        "extra_hosts": {"far": "198.18.0.9"},
        "depends_on": {"base": {"condition": "service_started", "required": True}},
        "configs": [{"source": "conf"}],
        "ulimits": {"nofile": {"soft": 100, "hard": 100}},
        "healthcheck": {"test": ["CMD-SHELL", "ask store"]},
    }
    configs = {"conf": {"file": f"{tmp_path}/conf"}}
    service = parse(long, configs=configs)
    assert parse(short, configs=configs) == service
    assert service.container.command == ["serve", "--port", "7000", "a b"]
    assert service.container.environment == {"A": "1", "B": "x=y"}
    assert service.container.volumes == {"/data": "data", "/cache": ""}
    assert service.container.copied == {"/etc/conf": tmp_path / "conf", "/conf": tmp_path / "conf"}
    assert service.container.health_command == ["/bin/sh", "-c", "ask store"]


def test_dollar_signs_are_as_the_container_gets_them() -> None:
    service = parse({"environment": {"PASSWORD": "a$$b"}, "command": ["echo", "$$HOME"]})
    assert service.container.environment == {"PASSWORD": "a$b"}
    assert service.container.command == ["echo", "$HOME"]


def test_truth_values_of_yaml_are_texts_of_variables() -> None:
    assert parse({"environment": {"ON": True, "OFF": False}}).container.environment == {"ON": "true", "OFF": "false"}


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("privileged", True, "a run cannot carry it out"),
        ("network_mode", "host", "a run cannot carry it out"),
        ("devices", ["/dev/fuse"], "a run cannot carry it out"),
        ("volumes", ["/var/run/docker.sock:/var/run/docker.sock"], "belongs to this machine"),
        ("volumes", ["/no/such/file:/data:ro"], "does not exist on this machine"),
        (
            "volumes",
            [{"type": "bind", "source": "/no/such/folder", "target": "/data"}],
            "does not exist on this machine",
        ),
        ("volumes", ["outside:/data"], "has a driver of its own"),
        ("volumes", [{"type": "npipe", "source": "x", "target": "/x"}], "not a kind of mount"),
        ("stop_signal", "SIGNOTHING", "not a signal that a run can send"),
        ("configs", ["unset"], "the variable NO_SUCH_VARIABLE, which unset takes, is not set"),
        ("configs", ["empty"], "has neither a file nor a text nor a variable"),
        ("healthcheck", {"test": ["ask", "it"]}, "begins with neither CMD nor CMD-SHELL"),
    ],
)
def test_a_setting_that_a_run_cannot_carry_out_is_rejected_by_name(setting: str, value: Any, reason: str) -> None:
    sections = {
        "volumes": {"outside": {"driver": "nfs"}},
        "configs": {"unset": {"environment": "NO_SUCH_VARIABLE"}, "empty": {}},
    }
    with pytest.raises(ComposeError, match=rf"{setting} of the service store: .*{reason}"):
        parse({setting: value}, **sections)


@pytest.mark.parametrize("setting", ["privileged", "network_mode", "devices", "read_only"])
def test_a_setting_that_is_switched_off_changes_nothing(setting: str) -> None:
    assert parse({setting: None}) == parse({setting: False}) == parse({})


def test_a_health_check_is_the_images_own_unless_the_file_replaces_or_disables_it() -> None:
    for healthcheck in (None, {"interval": "1s"}, {"test": []}):
        assert parse({"healthcheck": healthcheck}).container.health_command is None
    for healthcheck in ({"disable": True}, {"test": "NONE"}, {"test": ["NONE"]}):
        assert parse({"healthcheck": healthcheck}).container.health_command == []


def test_limits_are_those_of_the_service_or_of_its_deployment() -> None:
    limits = {"resources": {"limits": {"cpus": "0.5", "memory": "268435456", "pids": 100}}}
    options = parse({"deploy": limits}).container.options
    assert options == {"nano_cpus": 500_000_000, "mem_limit": "268435456", "pids_limit": 100}
    assert parse({"deploy": limits, "mem_limit": "1g"}).container.options == {**options, "mem_limit": "1g"}
    given = {"cpu_shares": 512, "cpuset": "0,1", "mem_reservation": "64m", "oom_score_adj": -500}
    expected = {"cpu_shares": 512, "cpuset_cpus": "0,1", "mem_reservation": "64m", "oom_score_adj": -500}
    assert parse(given).container.options == expected


def test_a_folder_that_compose_would_make_is_an_empty_volume() -> None:
    long = {"type": "bind", "source": "/no/such/pg data", "target": "/data", "bind": {"create_host_path": True}}
    for entry in ("/no/such/pg data:/data", "/no/such/pg data:/data:rw", long):
        container = parse({"volumes": [entry]}).container
        assert (container.volumes, container.copied) == ({"/data": "no-such-pg-data"}, {})


def test_configs_and_secrets_may_be_texts_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a b")
    configs, secrets = {"conf": {"content": "price: 5$$\n"}}, {"token": {"environment": "TOKEN"}}
    found = parse({"configs": ["conf"], "secrets": ["token"]}, configs=configs, secrets=secrets)
    assert found.container.copied == {"/conf": b"price: 5$\n", "/run/secrets/token": b"a b"}


def test_a_build_may_have_settings_that_change_nothing_in_the_image(tmp_path: Path) -> None:
    settings = {"context": str(tmp_path), "tags": ["a:b"], "pull": True, "network": "host", "cache_to": ["x"]}
    build = parse({"build": settings}).container.build
    assert build is not None
    assert build == parse({"build": str(tmp_path)}).container.build


@pytest.mark.parametrize(
    ("policy", "restarted"),
    [(None, False), ("no", False), (False, False), ("always", True), ("unless-stopped", True), ("on-failure:3", True)],
)
def test_restart_policies(policy: object, restarted: bool) -> None:
    assert parse({"restart": policy}).container.restarted is restarted


def test_services_of_a_profile_start_only_with_it() -> None:
    found = {"services": {"store": {"image": "a"}, "tool": {"image": "b", "profiles": ["debug"]}}}
    assert list(parse_project(FILE, found).services) == ["store"]
    assert list(parse_project(FILE, found, ["debug"]).services) == ["store", "tool"]
    with pytest.raises(ComposeError, match="each service belongs to a profile"):
        parse_project(FILE, {"services": {"tool": found["services"]["tool"]}})


def make_services(edges: dict[str, list[str]]) -> dict[str, Service]:
    return {
        name: Service(name, Container(image="x"), depends_on=[Dependency(needed) for needed in needs])
        for name, needs in edges.items()
    }


@given(st.permutations(range(6)), st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_each_service_comes_after_those_on_which_it_depends(order: list[int], pairs: set[tuple[int, int]]) -> None:
    edges = {f"s{number}": [f"s{low}" for low, high in sorted(pairs) if low < high == number] for number in order}
    placed = sort_by_dependency(FILE, make_services(edges))
    assert sorted(placed) == sorted(edges)
    assert all(placed.index(needed) < placed.index(name) for name, needs in edges.items() for needed in needs)


def test_a_circle_of_dependencies_is_named() -> None:
    with pytest.raises(ComposeError, match="in a circle: a -> b -> a"):
        sort_by_dependency(FILE, make_services({"a": ["b"], "b": ["a"]}))


TEXT = """\
services:
  store1: &store
    image: "store:${TAG:-none}"
    environment: {LEVEL: "${LEVEL}"}
  store2:
    <<: *store
    container_name: second
    networks: {default: {aliases: [other]}}
  tool:
    image: tool
    profiles: [debug]
version: "3.8"
"""


def test_compose_resolves_variables_env_files_and_overrides(tmp_path: Path) -> None:
    try:
        project.find_command()
    except ComposeError:
        pytest.skip(NO_COMMAND)
    (tmp_path / "docker-compose.yml").write_text(TEXT)
    (tmp_path / ".env").write_text("TAG=7\nLEVEL=high$low\n")
    (tmp_path / "docker-compose.override.yml").write_text(
        'version: "3.8"\nservices: {store2: {command: [serve], user: "12"}}\n'
    )
    found = project.read_project(tmp_path / "docker-compose.yml")
    assert list(found.services) == ["store1", "store2"]
    store2 = found.services["store2"].container
    assert (store2.image, store2.command, store2.user) == ("store:7", ["serve"], "12")
    assert store2.names == ["store2", "second", "other"]
    assert store2.environment["LEVEL"].startswith("high")
    assert "tool" in project.read_project(tmp_path / "docker-compose.yml", ["debug"]).services


def test_a_file_that_compose_rejects_is_named_with_its_words(tmp_path: Path) -> None:
    try:
        project.find_command()
    except ComposeError:
        pytest.skip(NO_COMMAND)
    (tmp_path / "docker-compose.yml").write_text("services: {store: {imagine: x}}\n")
    with pytest.raises(ComposeError, match=r"(?s)docker-compose\.yml: .*config` failed: .*imagine"):
        project.read_project(tmp_path / "docker-compose.yml")
    with pytest.raises(ComposeError, match="is not a file"):
        project.read_project(tmp_path / "nothing.yml")


def test_without_a_command_of_compose_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project.shutil, "which", lambda name: None)
    with pytest.raises(ComposeError, match=r"install Docker's Compose plugin .* package docker-compose"):
        project.find_command()


def test_a_file_that_cannot_be_carried_out_is_an_error_of_the_test_that_names_it(tmp_path: Path) -> None:
    system = Compose(tmp_path / "nothing.yml", roles={"store": 7000})
    decorate = experiment(system=system, client=RegisterClient, contract=forbid(*REGISTER_ANOMALIES))
    with pytest.raises(IncompleteError, match=r"nothing\.yml is not a file"):
        decorate(lambda settings: unique_values(["r0"]))


def test_it_runs_on_no_machine_that_a_user_names(tmp_path: Path) -> None:
    class Boxes(Compose):
        _members = {"store": [parse({})]}  # noqa: RUF012 - replaces what is read from a file

    system = Boxes(tmp_path / "docker-compose.yml", roles={"store": 7000})
    cluster = HostCluster(
        system, {"store": 1}, hosts=tmp_path / "hosts.toml", run_id="run", seed=1, state_dir=tmp_path / "state"
    )
    with pytest.raises(DeploymentError, match="consists of containers: test it with --cluster=docker"):
        asyncio.run(cluster.start())


def test_the_clients_container_needs_neither_the_file_nor_a_reader_of_it(tmp_path: Path) -> None:
    """A system is sent there as it was read here."""
    system = Compose(tmp_path / "docker-compose.yml", roles={"store": 7000})
    system.__dict__["_project"] = parse_project(
        FILE, {"services": {"store1": {"image": "a"}, "store2": {"image": "b"}}}
    )
    script = (
        "import pickle, sys\nsys.modules['yaml'] = None\n"
        "system = pickle.loads(sys.stdin.buffer.read())\nprint(system.node_counts, system.port('store'))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(system), capture_output=True, check=False)
    assert done.stdout.decode() == "{'store': 2} 7000\n", done.stderr.decode()
