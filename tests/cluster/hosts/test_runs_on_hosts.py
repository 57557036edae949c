"""A whole session on machines that the harness has not made: its verdict, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cluster.doctor import engine_available

from helpers.layout import ROOT
from helpers.own_hosts import OwnHosts, own_hosts

pytestmark = [pytest.mark.docker, pytest.mark.slow]

TRACES = """
ls -d /opt/assay /run/assay /var/log/assay /var/lib/zookeeper-assay /etc/zookeeper-assay 2>/dev/null
iptables -S | grep ASSAY
pgrep -f [Q]uorumPeerMain
true
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnHosts]:
    if not engine_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    with own_hosts(tmp_path_factory.mktemp("hosts"), ["server"] * 3) as found:
        yield found


def session(hosts: OwnHosts, folder: Path, *options: str) -> subprocess.Popen[str]:
    arguments = ["workloads/test_zookeeper.py", "--cluster=ssh", f"--hosts={hosts.file}", f"--store={folder / 'store'}"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "--rate=50", "--seed=5", *options],
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        text=True,
    )


def traces(hosts: OwnHosts) -> list[str]:
    return [hosts.run(number, TRACES) for number in range(len(hosts.names))]


def test_a_run_passes_and_says_where_it_was(hosts: OwnHosts, tmp_path: Path) -> None:
    running = session(hosts, tmp_path, "--nemesis=kill,partition", "--nemesis-interval=6", "--time-limit=8")
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    (found,) = (tmp_path / "store").glob("*/2*/settings.json")
    described = json.loads(found.read_text())["cluster"]
    assert all(address in described["hosts"] for address in hosts.addresses)
    assert traces(hosts) == ["", "", ""]


def test_what_a_killed_session_leaves_heal_takes_away(hosts: OwnHosts, tmp_path: Path) -> None:
    running = session(hosts, tmp_path, "--nemesis=stop", "--time-limit=60")
    begun = time.monotonic()
    while not all("QuorumPeerMain" in hosts.run(number, "ps ax") for number in range(3)):
        assert time.monotonic() < begun + 60
        time.sleep(0.5)
    time.sleep(4)  # the first fault comes after two seconds
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=30)
    assert all(traces(hosts))
    healed = subprocess.run(
        [sys.executable, "-m", "assay.harness.cli.main", "heal"],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert healed.returncode == 0, healed.stderr
    assert traces(hosts) == ["", "", ""]
