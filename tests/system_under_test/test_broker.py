"""A broker's start: each way in which it cannot come up gives one clear line and a non-zero exit."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from assay.cluster.node import DiskChange
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.disk import SimFile
from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.broker import run_broker
from assay.system_under_test.controller.changes import ChangeHandlers
from assay.system_under_test.deployment import CONFIG_FILE, Broker
from assay.system_under_test.disk_inspection import DATA
from assay.system_under_test.log.directory import CLEAN_MARKER, LOCK
from assay.system_under_test.process import ProcessRuntime
from assay.system_under_test.registrar import Registrar
from assay.system_under_test.replication.replicas import Replicas
from assay.system_under_test.runtime import IrregularFileError

from helpers.sim_brokers import brokers, simulate, until

LOCK_FILE = f"{DATA}/.lock"
"""It names the last process that used the directory."""


def start(config: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "broker.json"
    file.write_text(config)
    return subprocess.run(
        [sys.executable, "-m", "assay.system_under_test", "broker", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


GOOD: dict[str, Any] = {"broker_id": 1, "zookeeper": "127.0.0.1:1", "host": "127.0.0.1", "connect_timeout_ms": 1000}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "broker.json"),
        (json.dumps(GOOD | {"prot": 9092}), "prot"),
        (json.dumps(GOOD | {"broker_id": "one"}), "broker_id"),
        (json.dumps(GOOD | {"broker_id": -2}), "broker_id is -2"),
        (json.dumps(GOOD | {"broker_id": 1001}), "broker_id is 1001"),
        (json.dumps(GOOD | {"reserved_broker_max_id": -1}), "reserved_broker_max_id"),
        (json.dumps(GOOD | {"port": 70000}), "port is 70000"),
        (json.dumps(GOOD | {"zookeeper": "h:x"}), "zookeeper 'h:x': "),
        (json.dumps(GOOD | {"zookeeper": "a:1,,b:1"}), "zookeeper 'a:1,,b:1': bad hostname; give host:port,host:port"),
        (json.dumps(GOOD | {"zookeeper": "fd00::11:2181"}), "with brackets around an IPv6 address"),
        (json.dumps(GOOD | {"data_dir": "/"}), "data_dir is '/'"),
        (json.dumps(GOOD | {"data_dir": ""}), "data_dir is ''"),
        (json.dumps(GOOD | {"data_dir": "data"}), "data_dir is 'data'; it must be the absolute path of a folder"),
        (json.dumps(GOOD | {"data_dir": "/srv/../data"}), "data_dir is '/srv/../data'"),
        (json.dumps(GOOD | {"max_connections_per_ip": 0}), "max_connections_per_ip is 0"),
        (json.dumps(GOOD | {"socket_request_max_bytes": 2**31}), "socket_request_max_bytes is 2147483648"),
        (json.dumps(GOOD | {"queued_max_request_bytes": 0}), "queued_max_request_bytes is 0"),
        (json.dumps(GOOD | {"connections_max_idle_ms": -1}), "connections_max_idle_ms is -1"),
        (json.dumps(GOOD | {"defects": ["ack-before-lunch"]}), "ack-before-lunch"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(
    config: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.json"
    file.write_text(config)
    assert asyncio.run(run_broker(ProcessRuntime(None), ["broker", "--config", str(file)])) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_an_unreachable_zookeeper_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refused
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        done = start(json.dumps(GOOD | {"zookeeper": where, "data_dir": str(tmp_path / "data")}), tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.strip().splitlines() if line.startswith("broker:")]
    assert len(lines) == 1
    assert where in lines[0]
    assert "Traceback" not in done.stderr


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assay.system_under_test", "broker", "--config", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "none.json" in done.stderr


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (".", "Is a directory"),
        ("broker.json/events", "File exists"),
        ("pipe", "this is a pipe, whose slow reader would stop the broker; give a file"),
    ],
)
def test_an_event_log_that_cannot_be_written_is_one_clear_line(tmp_path: Path, place: str, reason: str) -> None:
    config = tmp_path / "broker.json"
    config.write_text(json.dumps(GOOD | {"data_dir": str(tmp_path / "data")}))
    events = str(tmp_path / place)
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "assay.system_under_test", "broker", "--config", str(config)]
    done = subprocess.run([*command, "--event-log", events], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"broker: event log {events}: {reason}"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == [LOCK]


@dataclass(frozen=True)
class Twins(Broker):
    """Two brokers of one id."""

    def files(self, node: Any, cluster: Any) -> Mapping[str, bytes]:
        config = json.loads(super().files(node, cluster)[CONFIG_FILE])
        return {CONFIG_FILE: json.dumps(config | {"broker_id": 1}).encode()}


def test_a_taken_id_is_one_clear_line_and_the_holder_stays(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        cluster = SimCluster(Twins(), {"zookeeper": 1, "broker": 2}, 1)
        zookeeper, first, second = cluster.nodes
        await zookeeper.start()
        await first.start()
        await until(lambda: any('"registered"' in line for line in first.log._lines), "the first is up")
        began = asyncio.get_running_loop().time()
        await second.start()
        await until(lambda: second.exit_code is not None, "the second gives up")
        assert second.exit_code == 1
        waited = asyncio.get_running_loop().time() - began
        assert 4.9 <= waited <= 6.0, "session timeout + 2 s: its own former life would be gone by then"
        assert first.exit_code is None
        assert not cluster.crashes
        await cluster.close()

    loop = SimLoop(1)
    loop.run_until_complete(check())
    loop.close()
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "broker id 1 is taken by" in said[0]


def test_a_data_directory_of_another_broker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1, replication=1)) as cluster:
            node = cluster.nodes[2]
            await node.terminate()
            config = json.loads(await node.read_file(CONFIG_FILE))
            await node.write_file(CONFIG_FILE, json.dumps(config | {"broker_id": 9}).encode())
            before = node.disk.snapshot(DATA)
            await node.start()
            await until(lambda: node.exit_code is not None, "it gives up")
            assert node.exit_code == 1
            after = node.disk.snapshot(DATA)
            files = [
                {name: data for name, data in one.files.items() if f"/{name}" != LOCK_FILE} for one in (before, after)
            ]
            assert files[0] == files[1], "nothing of the other's is touched"

    simulate(check)
    assert "belongs to broker 3, not 9" in capsys.readouterr().err


def test_a_broker_that_ends_by_itself_says_why_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = await cluster.controller()

            async def broken(*_: object) -> None:
                raise KeyError("brief")

            monkeypatch.setattr(ChangeHandlers, "handle", broken)
            await next(one for one in cluster.nodes if one is not node).kill()
            await until(lambda: node.exit_code is not None, "it has stopped", 10)
            assert node.exit_code == 1

    simulate(check)
    assert "stops: KeyError('brief')" in caplog.text
    assert "in broken" in caplog.text, "with the place in the code"


def test_a_restart_within_the_old_session_waits_for_its_end_and_comes_up() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            await node.kill()
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 2, "registered again", 5)
            first, second = cluster.events(node, "registered")
            assert second["zxid"] > first["zxid"]
            assert second["incarnation"] != first["incarnation"]

    simulate(check)


def test_a_clean_stop_leaves_its_marker_and_the_next_start_says_so() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await node.terminate()
            await until(lambda: node.exit_code is not None, "it has stopped")
            assert node.exit_code == 0
            assert any(path.endswith(".kafka_cleanshutdown") for path in node.disk.files())
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 2, "it is back")
            first, second = cluster.events(node, "registered")
            assert second["detail"]["clean_since"] == first["zxid"]
            assert cluster.events(node, "recovered")[-1]["detail"]["clean"] is True
            await node.kill()
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 3, "it is back again")
            assert cluster.events(node, "registered")[-1]["detail"]["clean_since"] is None

    simulate(check)


def test_a_stop_whose_flush_failed_is_not_a_clean_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next fsync may succeed and have written nothing."""

    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            real, failures = Replicas.flush, [OSError(errno.EIO, "the device fails")]

            async def flush(self: Replicas) -> None:
                if failures:
                    raise failures.pop()
                await real(self)

            monkeypatch.setattr(Replicas, "flush", flush)
            await node.terminate()
            await until(lambda: node.exit_code is not None, "it has stopped")
            assert node.exit_code == 1
            assert not cluster.cluster.crashes
            assert not any(path.endswith(CLEAN_MARKER) for path in node.disk.files())

    simulate(check)
    assert "broker 1 could not stop cleanly: [Errno 5] the device fails" in capsys.readouterr().err


@pytest.mark.parametrize("change", [DiskChange.WRITE, DiskChange.FSYNC, DiskChange.NAME])
def test_a_broker_whose_disk_fails_ends_with_one_line_and_its_session_ends_with_it(
    change: DiskChange, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that it closes keeps it from closing the rest."""

    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            await node.break_disk((change,), 0, 1000)
            await asyncio.gather(
                *(cluster.producer.send("orders", 0, [(None, b"x")]) for _ in range(3)), return_exceptions=True
            )
            await until(lambda: node.exit_code is not None, "it has stopped", 10)
            others = cluster.nodes[1:]
            await until(lambda: any(cluster.events(one, "became-leader") for one in others), "others lead", 0.5)
            assert node.exit_code == 1
            assert not cluster.cluster.crashes

    simulate(check)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("broker: broker 1 ")
    assert "Input/output error" in said[0]


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("terminated", [True, False])
def test_a_broker_whose_directory_is_moved_ends_with_one_line_and_has_all_records_once_it_is_back(
    terminated: bool, replaced: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1, replication=1, min_insync=1)) as cluster:
            node = await cluster.leader()
            await cluster.producer.send("orders", 0, [(None, b"x")])
            storage = node.disk.storage()
            storage.rename(DATA, "moved")
            if replaced:
                storage.mkdir(DATA)
            if terminated:
                await node.terminate()
            await until(lambda: node.exit_code is not None, "it has stopped", 10)
            assert node.exit_code == 1
            assert not cluster.cluster.crashes
            assert storage.listdir(DATA) == []
            assert not storage.exists(f"moved/{CLEAN_MARKER}")
            if replaced:
                storage.remove(DATA)
            storage.rename("moved", DATA)
            await node.start()
            await cluster.producer.send("orders", 0, [(None, b"y")])
            assert [value for _, value in cluster.stored(node, "orders-0")] == [b"x", b"y"]

    simulate(check)
    line = f"data_dir {DATA} was moved, or {LOCK_FILE} was replaced, while the broker ran; move it back and start"
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert line in said
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EIO, "a bad sector"), "OSError(5, 'a bad sector')"),
        (IrregularFileError(errno.ELOOP, "a link", "/data/14.log"), "IrregularFileError(40, 'a link'): /data/14.log"),
    ],
)
def test_a_leader_whose_log_takes_no_append_ends_so_that_others_lead_though_it_may_write_all_else(
    error: OSError, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stayed the leader, and took nothing."""

    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = await cluster.leader()
            await cluster.producer.send("orders", 0, [(None, b"x")])
            (path,) = (one for one in node.disk.files() if "/orders-0/" in one and one.endswith(".log"))
            spoiled, append = node.disk._tree.file(path), SimFile.append

            def rejected(self: SimFile, data: bytes) -> None:
                if self._inode is spoiled:
                    raise error
                append(self, data)

            monkeypatch.setattr(SimFile, "append", rejected)
            sending = cluster.producer_with(timeout=10.0, request_timeout=1.0, repeat_unknown=True)
            assert (await sending.send("orders", 0, [(None, b"y")])).node > 0
            assert node.exit_code == 1
            assert await cluster.leader() is not node
            assert not cluster.cluster.crashes

    simulate(check)
    assert capsys.readouterr().err.strip() == f"broker: broker 1 stopped: {line}"


def test_a_broker_whose_disk_fails_as_it_starts_names_the_disk(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            await node.kill()
            await node.break_disk((DiskChange.WRITE,), 0, 1000)
            await node.start()
            await until(lambda: node.exit_code is not None, "it gives up", 10)
            assert node.exit_code == 1
            assert not cluster.cluster.crashes
            await node.break_disk(())
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 2, "it is back", 10)

    simulate(check)
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said == f"broker: the data in {DATA}: [Errno 5] Input/output error"


def test_a_start_that_fails_says_why_also_when_its_logs_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            node = cluster.nodes[0]
            await node.kill()

            async def register(self: Registrar) -> None:
                await node.break_disk((DiskChange.FSYNC,), 0, 1000)
                raise OSError(errno.ENOSPC, "the first problem")

            monkeypatch.setattr(Registrar, "register", register)
            await node.start()
            await until(lambda: node.exit_code is not None, "it gives up", 10)
            assert node.exit_code == 1
            assert (await node.read_disk_errors()).errors > 0

    simulate(check)
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said == f"broker: the data in {DATA}: [Errno {errno.ENOSPC}] the first problem"


@pytest.mark.parametrize(
    ("replicas", "moves", "aside"),
    [
        ([2], None, True),
        ([2], b'{"version": 1, "partitions": []}', True),
        ([2], b'{"version": 1, "partitions": [{"topic": "orders", "partition": 1, "replicas": [2]}]}', True),
        ([2], b'{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2]}]}', False),
        ([2], b"no JSON", False),
        ([2, 1], None, False),
    ],
)
def test_a_partition_that_is_on_others_is_set_aside_unless_its_move_is_under_way(
    replicas: list[int], moves: bytes | None, aside: bool
) -> None:
    """A broker that deletes what it is asked to has none, unless an older copy of its disk was put back."""

    class Znodes:
        async def get(self, path: str, watch: Any = None) -> tuple[bytes, Any]:
            assert path == "/admin/reassign_partitions"
            if moves is None:
                raise NoNodeError
            return moves, None

    registrar: Any = SimpleNamespace(zookeeper=Znodes(), config=SimpleNamespace(broker_id=1))
    assigned = json.dumps({"version": 1, "partitions": {"0": replicas, "1": [1]}}).encode()
    assert asyncio.run(Registrar._is_elsewhere(registrar, "orders", 0, assigned)) is aside
    assert asyncio.run(Registrar._is_elsewhere(registrar, "orders", 7, assigned)) is False, "no one says where it is"
    assert asyncio.run(Registrar._is_elsewhere(registrar, "orders", 0, b"no JSON")) is False


@pytest.mark.parametrize(
    ("folder", "note", "cluster_id", "aside"),
    [
        ("gone-0", b"4711\n", None, True),
        ("orders-0", b"4711\n", None, True),
        ("orders-1", None, None, False),
        ("gone-0", b"4711\n", "", False),
        ("gone-0", b"no number\n", None, False),
        ("gone-0", b"", None, False),
    ],
)
def test_logs_that_only_an_older_copy_of_the_disk_can_have_are_set_aside(
    folder: str, note: bytes | None, cluster_id: str | None, aside: bool
) -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            node = cluster.nodes[0]
            await cluster.producer.send("orders", 1, [(None, b"x")])
            await node.terminate()
            await until(lambda: node.exit_code is not None, "it has stopped")
            if note:
                node.disk.write(f"{DATA}/{folder}/topic-incarnation", note)
            elif note is not None:
                node.disk.write(f"{DATA}/{folder}/{0:020d}.log", b"")
            if cluster_id is not None:
                node.disk.write(f"{DATA}/meta.properties", b"broker.id=1\n")  # it names none
            await node.start()
            await until(lambda: len(cluster.events(node, "registered")) == 2, "it is back")
            names = node.disk.names(DATA)
            assert (f"{folder}.0.stray" in names) is aside
            assert folder in names or aside
            assert node.disk.tail(f"{DATA}/orders-1/{0:020d}.log", 0), "what is a replica of this broker stays"

    simulate(check)
