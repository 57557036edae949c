"""On an engine whose network this machine cannot reach, clients and network calls run in a container."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.types import Mount

from assay.cluster.docker import DockerCluster, image
from assay.cluster.docker import cluster as cluster_module
from assay.cluster.docker.engine_machine import find_engine_machine
from assay.cluster.journal import read_journals
from assay.harness.core.history import HistoryReader
from assay.harness.core.timestamps import NANOSECONDS

from helpers.echo_system import Echo
from helpers.live_cluster import run_of_its_own, started
from helpers.second_engine import SecondEngine, run_docker, second_engine

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[3]
SUCCEEDED = "1 passed"
AHEAD = 5000
"""Seconds by which the monotonic clock of the engine is ahead, as on another machine."""
CLOCKS = r"engine [+-]0\.\d{3} s \(within \d\.\d{3} s\)"


@pytest.fixture(scope="module")
def far_engine(engine_needed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """An engine whose containers this machine cannot reach. It has the node image."""
    reference = image.ensure_node_image(lambda line: None)
    with second_engine(tmp_path_factory.mktemp("far") / "e", ahead=AHEAD) as engine:
        saved = subprocess.run(["docker", "save", image.image_reference()], capture_output=True, check=True).stdout
        engine.docker("load", stdin=saved)
        assert engine.docker("image", "inspect", "--format={{.Id}}", image.image_reference()).strip() == reference
        yield engine


@pytest.mark.parametrize(
    ("fault", "interval", "seconds"),
    [("partition", 12, 16), pytest.param("power-loss", 14, 18, marks=pytest.mark.long)],
)
def test_a_workload_under_a_fault_passes_on_an_engine_that_cannot_be_reached(
    far_engine: SecondEngine, tmp_path: Path, fault: str, interval: int, seconds: int
) -> None:
    command = [
        sys.executable, "-m", "pytest", str(ROOT / "workloads/test_log.py"), "--cluster=docker",
        f"--time-limit={seconds}", f"--nemesis={fault}", f"--nemesis-interval={interval}", "--seed=3",
        "--reports=never", f"--store={tmp_path}/store", "-q", "-p", "no:cacheprovider",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "DOCKER_HOST": far_engine.host}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert SUCCEEDED in done.stdout, done.stdout + done.stderr
    assert far_engine.docker("ps", "--all", "--quiet") == "", "the clients' container is removed, too"
    assert "assay-" not in far_engine.docker("network", "ls", "--format={{.Name}}")
    assert far_engine.docker("volume", "ls", "--quiet") == "", "the images of disks are removed, too"
    (run,) = (tmp_path / "store").glob("*/2*")
    verdict = json.JSONDecoder().raw_decode((run / "verdict.json").read_text())[0]
    assert verdict["effects"] > 0
    assert json.loads((run / "run.json").read_text())["verdict"] == "pass"
    cluster = json.loads((run / "settings.json").read_text())["cluster"]
    assert "in a container, assay-" in cluster["clients"]
    assert all(re.fullmatch(CLOCKS, cluster[key]) for key in ("clocks", "clocks at the end")), cluster
    times = [row["time"] for row in HistoryReader(run / "history").table("events").to_pylist()]
    assert min(times) / NANOSECONDS > -200
    assert 0 < max(times) / NANOSECONDS < 200, "the events have the times of the clock here"
    assert "clients" not in run_docker({}, "ps", "--all", "--format={{.Names}}")


@pytest.mark.parametrize("shares", [True, False])
def test_the_container_shares_a_socket_with_the_harness_if_the_engine_can(
    engine_needed: None, echo: Echo, state: Path, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    if not find_engine_machine().is_here:
        pytest.skip("the engine runs on another machine")
    if not shares:  # as if the engine had another file system
        monkeypatch.setattr(
            cluster_module, "Mount", lambda target, source, type: Mount(target, f"{source}-missing", type=type)
        )
    run_id = run_of_its_own(f"test-socket-{shares}".lower())
    cluster = DockerCluster(
        echo, {"broker": 1}, run_id=run_id, seed=1, state_dir=state, clients="container", slow_disks=False
    )
    with started(cluster, state) as live:
        assert live.worker is not None
        assert (live.worker._socket is not None) is shares
        assert live.run(cluster._system.find(cluster, "nothing")) is None, "the process in the container answers"
    assert not list(state.glob("*.socket"))
    assert read_journals(state) == ([], [])


def test_up_prints_the_addresses_of_the_network_and_commands_that_reach_them(far_engine: SecondEngine) -> None:
    """The printed commands name the engine, so they work in a terminal with other variables."""
    environment = {**os.environ, "DOCKER_HOST": far_engine.host}
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.harness.cli.main", "up", "--nodes=1"], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        said = ""
        while "open a shell there" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        found = re.search(r"addresses of the nodes' network: (\S+):(\d+)\n", said)
        assert found is not None, said
        connect = f"import socket; socket.create_connection(({found[1]!r}, {found[2]})); print('there')"
        client, shell = re.search(r"engine has: (.*)", said), re.search(r"with Python: (.*)", said)
        assert client is not None
        assert shell is not None
        commands = [
            client[1].replace(" -it", "").replace("IMAGE", f"--entrypoint=python3 {image.image_reference()}"),
            shell[1].replace(" -it", "").removesuffix("sh") + "COMMAND",
        ]
        for command, program in zip(commands, ("-c", "python3 -c"), strict=True):
            argv = command.replace("COMMAND", f'{program} "$CONNECT"')
            variables = {"PATH": os.environ["PATH"], "CONNECT": connect}
            done = subprocess.run(["sh", "-c", argv], env=variables, capture_output=True, text=True, check=False)
            assert done.stdout.strip() == "there", done.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
