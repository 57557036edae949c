"""Whole sessions on machines that the harness has not made: verdicts, what is left when one is killed, and a cluster
that runs already.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.cluster import leftovers
from assay.cluster.deploy import start_system
from assay.cluster.doctor import docker_available
from assay.cluster.hosts.cluster import HostCluster
from assay.workloads.test_zookeeper import Ensemble

from helpers.layout import ROOT
from helpers.own_hosts import OwnHosts, own_hosts

pytestmark = [pytest.mark.docker, pytest.mark.slow]

TRACES = """
ls -d /opt/assay /var/lib/assay-claim /run/assay/* /var/log/assay/* /var/lib/zookeeper/* 2>/dev/null
iptables -S | grep ASSAY
pgrep -f [Q]uorumPeerMain
true
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnHosts]:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    with own_hosts(tmp_path_factory.mktemp("hosts"), ["server"] * 3) as found:
        yield found


def session(hosts: OwnHosts, folder: Path, *options: str, cluster: str = "ssh") -> subprocess.Popen[str]:
    where = hosts.file if cluster == "ssh" else f"compose:{hosts.project}"
    arguments = [f"--cluster={cluster}", f"--hosts={where}", f"--store={folder / 'store'}", "--rate=50", "--seed=5"]
    test = "workloads/test_zookeeper.py"
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test, *arguments, *options],
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        text=True,
    )


STATES = "ps ax -o stat=,args= | grep '[Q]uorumPeerMain' | cut -c1"
"""Prints the states of the servers' processes. ``T`` means stopped."""


def until(holds: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() < begun + 90
        time.sleep(0.2)


def traces(hosts: OwnHosts) -> list[str]:
    return [hosts.run(number, TRACES) for number in range(len(hosts.names))]


def test_a_run_passes_and_says_where_it_was(hosts: OwnHosts, tmp_path: Path) -> None:
    running = session(hosts, tmp_path, "--nemesis=kill", "--nemesis-interval=12", "--time-limit=16")
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    (found,) = (tmp_path / "store").glob("*/2*/settings.json")
    described = json.loads(found.read_text())["cluster"]
    assert all(address in described["hosts"] for address in hosts.addresses)
    assert traces(hosts) == ["", "", ""]


def test_what_a_killed_session_leaves_heal_takes_away(hosts: OwnHosts, tmp_path: Path) -> None:
    running = session(hosts, tmp_path, "--nemesis=stop", "--time-limit=60")
    until(lambda: any("T" in hosts.run(number, STATES) for number in range(3)))
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=30)
    assert all(traces(hosts))
    heal(tmp_path)
    assert traces(hosts) == ["", "", ""]


@pytest.mark.long
def test_a_cluster_that_runs_already_is_used_and_left_running(hosts: OwnHosts, tmp_path: Path) -> None:
    async def start() -> None:
        """With nothing in it: what an earlier run has left would be held against it."""
        cluster = HostCluster(
            Ensemble(), {"server": 3}, hosts=hosts.file, run_id="kept", seed=1, state_dir=tmp_path / "state/assay"
        )
        await cluster.start()
        await start_system(Ensemble(), cluster, 60, lambda _: None)
        await cluster.keep()

    asyncio.run(start())
    attached = session(hosts, tmp_path, "--time-limit=3", cluster="attach")
    said, _ = attached.communicate(timeout=120)
    assert attached.returncode == 0, said
    assert "data that it already holds counts as data of this run" in said
    assert all("QuorumPeerMain" in hosts.run(number, "ps ax") for number in range(3))
    assert leftovers.heal(state=tmp_path / "state/assay").failed == []
    assert traces(hosts) == ["", "", ""]


def heal(folder: Path) -> None:
    healed = subprocess.run(
        [sys.executable, "-m", "assay.harness.cli.main", "heal"],
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert healed.returncode == 0, healed.stderr
