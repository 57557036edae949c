"""A data directory has one process at a time, and belongs to one broker of one cluster.

A broker that is refused changes nothing in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.system_under_test.log.directory import CLEAN_MARKER, LOCK
from assay.system_under_test.zookeeper import paths

from helpers.sim_brokers import DATA, Brokers, brokers, simulate, until

CLOSED_PORT = 1
"""Nothing listens there: a broker that has its directory waits for ZooKeeper."""


def contents(cluster: Brokers, number: int = 0) -> dict[str, str]:
    return dict(cluster.nodes[number].disk.snapshot(DATA).sums)


async def refused(cluster: Brokers, number: int = 0) -> None:
    node = cluster.nodes[number]
    await node.start()
    await until(lambda: node.exit_code is not None, "it gives up")
    assert node.exit_code == 1


def said(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_directory_of_another_cluster_is_refused_by_both_names_and_left_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            node = cluster.nodes[0]
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await node.terminate()
            own = node.disk.read(f"{DATA}/meta.properties")
            other = own.replace(b"cluster.id=", b"cluster.id=other-")
            node.disk.write(f"{DATA}/meta.properties", other)
            assert node.disk.read(f"{DATA}/{CLEAN_MARKER}")
            before = contents(cluster)
            await refused(cluster)
            after = contents(cluster)
            del before[f"{DATA}/{LOCK}"], after[f"{DATA}/{LOCK}"]  # it names the last process that had it
            assert after == before
            name = own.decode().split("cluster.id=")[1].strip()
            line = said(capsys)
            assert f"data_dir /{DATA} belongs to cluster other-{name}, but ZooKeeper at " in line
            assert f"is that of cluster {name};" in line
            assert "docs/broker/running_the_broker.md" in line
            node.disk.write(f"{DATA}/meta.properties", own)  # the way back: the directory and ZooKeeper agree again
            before_start = len(cluster.events(node, "registered"))
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) > before_start, "it is back")
            assert [value for _, value in cluster.stored(node, "orders-0")] == [b"x"]

    simulate(check)


def test_after_zookeeper_got_another_id_and_its_old_one_back_the_cluster_serves_what_it_had(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            for node in cluster.nodes:
                await node.terminate()
            zookeeper = cluster.cluster.harness_runtime().zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(10.0)
            backup, _ = await zookeeper.get(paths.CLUSTER_ID)
            await zookeeper.set(paths.CLUSTER_ID, json.dumps({"version": "1", "id": "new"}).encode())
            for number in range(3):
                await refused(cluster, number)
                assert "is that of cluster new;" in said(capsys)
            await zookeeper.set(paths.CLUSTER_ID, backup)
            for node in cluster.nodes:
                await node.start()
            await cluster.producer.send("orders", 0, [(None, b"y")])
            leader = await cluster.leader()
            assert [value for _, value in cluster.stored(leader, "orders-0")] == [b"x", b"y"]
            await zookeeper.close()

    simulate(check)


def test_a_broker_of_an_old_cluster_makes_nothing_in_a_zookeeper_that_has_lost_its_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An id that it made there would refuse it, and would name a cluster that no one knows."""

    async def check() -> None:
        async with brokers() as cluster:
            for node in cluster.nodes:
                await node.terminate()
            zookeeper = cluster.cluster.harness_runtime().zookeeper(f"{cluster.zookeepers[0].address}:2181", 3.0)
            await zookeeper.connect(10.0)
            await zookeeper.delete(paths.CLUSTER_ID)
            await zookeeper.delete(paths.CONSUMERS)
            before = contents(cluster)
            await refused(cluster)
            after = contents(cluster)
            del before[f"{DATA}/{LOCK}"], after[f"{DATA}/{LOCK}"]
            assert after == before
            assert f"has no {paths.CLUSTER_ID};" in said(capsys)
            assert await zookeeper.exists(paths.CLUSTER_ID) is None
            assert await zookeeper.exists(paths.CONSUMERS) is None
            await zookeeper.close()

    simulate(check)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_others_have_under_the_name_of_a_partitions_folder_does_not_prevent_the_start(kind: str) -> None:
    """It stays as it is. A partition of that name is only made if a folder is there."""

    async def check() -> None:
        async with brokers() as cluster:
            await cluster.producer.send("orders", 0, [(None, b"x")])
            path = f"{DATA}/notes-1" if kind == "file" else f"{DATA}/notes-1/me.jpg"
            for node in cluster.nodes:
                await node.terminate()
                node.disk.write(path, b"mine")
            for node in cluster.nodes:
                await node.start()
            await cluster.producer.send("orders", 0, [(None, b"y")])
            for node in cluster.nodes:
                assert node.disk.read(path) == b"mine"
                assert not [name for name in node.disk.files() if "notes-1/0" in name]

    simulate(check)


# -- real processes ------------------------------------------------------------------------------------------------


@contextmanager
def process(folder: Path, *arguments: str, **settings: object) -> Iterator[subprocess.Popen[str]]:
    """A broker of this folder, which waits for ZooKeeper once it has its directory."""
    config = {"zookeeper": f"127.0.0.1:{CLOSED_PORT}", "host": "127.0.0.1", "data_dir": str(folder / "data")} | settings
    (folder / "broker.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "assay.system_under_test", "broker", "--config", str(folder / "broker.json")]
    command += arguments
    made = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield made
    finally:
        made.kill()
        made.communicate()


def wait_until_locked(folder: Path, by: subprocess.Popen[str]) -> None:
    """Returns once the process has noted that it has the directory."""
    lock = folder / "data" / LOCK
    while not (lock.exists() and lock.read_text() == f"{by.pid}\n"):
        assert by.poll() is None, "it ended"
        os.sched_yield()


def rest(made: subprocess.Popen[str]) -> str:
    _, error = made.communicate(timeout=60)
    assert made.returncode == 1
    return error.strip().splitlines()[-1]


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("broker_id", [-1, pytest.param(1, marks=pytest.mark.long), 2])
def test_a_second_process_ends_before_it_reads_anything_of_the_directory(
    tmp_path: Path, broker_id: int, stopped: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("no id\n")  # who reads this stops for that
    with process(tmp_path, broker_id=1) as first:
        wait_until_locked(tmp_path, first)
        if stopped:
            first.send_signal(signal.SIGSTOP)
            os.waitpid(first.pid, os.WUNTRACED)
        before = {path.name: (path.read_bytes(), path.stat().st_ctime_ns) for path in data.iterdir()}
        with process(tmp_path, broker_id=broker_id) as second:
            line = rest(second)
        assert line.startswith(
            f"broker: data_dir {data} is in use: process {first.pid} holds the lock of {data}/.lock;"
        )
        assert {path.name: (path.read_bytes(), path.stat().st_ctime_ns) for path in data.iterdir()} == before
        assert first.poll() is None


@pytest.mark.parametrize("place", ["data/events", "data/events/1.jsonl", "events/1.jsonl"])
def test_a_second_process_makes_no_event_log(tmp_path: Path, place: str) -> None:
    with process(tmp_path, broker_id=1) as first:
        wait_until_locked(tmp_path, first)
        before = sorted(tmp_path.rglob("*"))
        with process(tmp_path, "--event-log", str(tmp_path / place), broker_id=1) as second:
            assert "is in use" in rest(second)
        assert sorted(tmp_path.rglob("*")) == before


def test_the_first_process_makes_its_event_log(tmp_path: Path) -> None:
    events = tmp_path / "events" / "1.jsonl"
    with process(tmp_path, "--event-log", str(events), broker_id=1) as first:
        while not events.exists():
            assert first.poll() is None, "it ended"
            os.sched_yield()
        assert (tmp_path / "data" / LOCK).read_text() == f"{first.pid}\n"


def test_a_killed_process_leaves_the_directory_to_the_next(tmp_path: Path) -> None:
    with process(tmp_path, broker_id=1) as first:
        wait_until_locked(tmp_path, first)
    with process(tmp_path, broker_id=1) as second:
        wait_until_locked(tmp_path, second)


def test_a_directory_that_cannot_be_locked_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data" / LOCK).mkdir(parents=True)
    with process(tmp_path, broker_id=1) as made:
        assert f"the data in {tmp_path / 'data'} cannot be locked: " in rest(made)


def test_with_the_defect_a_second_process_gets_the_directory_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("no id\n")
    with process(tmp_path, broker_id=1) as first:
        wait_until_locked(tmp_path, first)
        with process(tmp_path, defects=["no-directory-lock"]) as second:
            assert "no usable broker.id" in rest(second)


STOPPED_TWICE = """
import asyncio, sys
from assay.system_under_test.process import run_process

async def entry():
    print("runs", flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("stops", flush=True)
        await asyncio.sleep(0.5)
        print("flushed", flush=True)
        return 0
    return 1

sys.exit(run_process(entry()))
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_interrupt_a_clean_stop(first: signal.Signals, second: signal.Signals) -> None:
    made = subprocess.Popen([sys.executable, "-c", STOPPED_TWICE], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    for line, number in (("runs\n", first), ("stops\n", second)):
        assert made.stdout.readline() == line
        made.send_signal(number)
    made.send_signal(second)
    assert made.stdout.readline() == "flushed\n"
    while made.poll() is None:  # also while the interpreter ends
        made.send_signal(second)
    made.communicate()
    assert made.returncode == 0
