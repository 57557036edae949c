"""Files that a broker process is given are regular files: it waits for no FIFO, and says in one line what is wrong."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from assay.system_under_test.broker import BrokerError, BrokerProcess, run_broker
from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.process import ProcessRuntime


@pytest.mark.parametrize("kind", ["FIFO", "device", "folder", "nothing"])
def test_a_configuration_that_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.json"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    assert asyncio.run(run_broker(ProcessRuntime(None), ["broker", f"--config={path}"])) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"broker: configuration {path}: ")
    assert len(said.splitlines()) == 1
    assert kind not in ("FIFO", "device") or "this is no regular file" in said


def test_a_configuration_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("file")
    assert ProcessRuntime(None).read_file(str(tmp_path / "link")) == b"{}"


def test_a_hold_file_that_is_no_regular_file_ends_the_broker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hold")
    config = BrokerConfig(broker_id=1, host="127.0.0.1", port=9092, zookeeper="127.0.0.1:1",
                          data_dir=str(tmp_path / "data"), hold_file=str(tmp_path / "hold"))  # fmt: skip

    async def ask() -> None:
        broker = BrokerProcess(config, ProcessRuntime(None))
        with pytest.raises(BrokerError, match=r"hold_file .*: this is no regular file"):
            broker._read_stop_events()
        (tmp_path / "hold").unlink()
        assert broker._read_stop_events() == ()

    asyncio.run(ask())


def test_a_fifo_in_the_data_directory_ends_the_broker_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "meta.properties")
    path = tmp_path / "broker.json"
    path.write_bytes(
        msgspec.json.encode(
            {"broker_id": -1, "host": "127.0.0.1", "port": 1, "zookeeper": "127.0.0.1:1",
             "data_dir": str(tmp_path / "data"), "connect_timeout_ms": 100}
        )
    )  # fmt: skip
    assert asyncio.run(run_broker(ProcessRuntime(None), ["broker", f"--config={path}"])) == 1
    said = capsys.readouterr().err
    assert "meta.properties" in said
    assert "a regular file belongs here" in said
    assert "Traceback" not in said


def test_a_path_in_zookeeper_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broker.json"
    path.write_bytes(
        msgspec.json.encode(
            {"broker_id": 1, "host": "127.0.0.1", "port": 1, "zookeeper": "127.0.0.1:1/kafka", "data_dir": "/data"}
        )
    )
    assert asyncio.run(run_broker(ProcessRuntime(None), ["broker", f"--config={path}"])) == 1
    assert "zookeeper '127.0.0.1:1/kafka': a path after the addresses is not supported" in capsys.readouterr().err
