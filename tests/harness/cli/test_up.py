"""``assay up``: a cluster that others can use, until it is asked to stop, and nothing of it afterwards."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import docker
import pytest

from assay.cluster import owner
from assay.cluster.docker.engine import OWNER_LABEL
from assay.cluster.doctor import docker_available
from assay.harness.cli.main import main
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse

from helpers.nightly import by_night

PATIENCE = 120


async def metadata(address: str, topics: list[str]) -> MetadataResponse:
    host, _, port = address.partition(":")
    connection = await Connection.open(host, int(port), 5.0)
    try:
        return await connection.call(MetadataRequest(topics=topics), 2, 5.0)
    finally:
        await connection.close()


async def metadata_of_all(address: str, topics: list[str], brokers: int) -> MetadataResponse:
    """Once so many brokers are there: on a machine that is short of time one may be slow to answer, or lose its
    session and come back.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            answer = await metadata(address, topics)
        except (CallError, OSError):
            if time.monotonic() > deadline:
                raise
        else:
            if len(answer.brokers) == brokers or time.monotonic() > deadline:
                return answer
        await asyncio.sleep(0.1)


def containers(mine: owner.Owner) -> int:
    """How many that process has; the engine may have others, also of the same command."""
    client = docker.from_env()
    try:
        return len(client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={mine}"}))
    finally:
        client.close()


@pytest.mark.docker
@pytest.mark.parametrize("number", [by_night(signal.SIGINT), signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_stop_and_leaves_nothing(number: signal.Signals) -> None:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    command = [sys.executable, "-m", "assay.harness.cli.main", "up", "--nodes=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            mine = owner.find_owner(process.pid)
            assert mine is not None
            addresses = process.stdout.readline().strip().split(",")
            assert len(addresses) == 2, process.communicate(timeout=PATIENCE)
            assert containers(mine) in (3, 4), "one more where this machine does not reach the nodes"
            answer = asyncio.run(metadata_of_all(addresses[0], ["asked-for"], 2))
            assert len(answer.brokers) == 2
            assert [topic.topic for topic in answer.topics] == ["asked-for"]
        finally:  # it would go on for ever
            process.send_signal(number)
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert f"brokers at {','.join(addresses)}" in said
    assert "Traceback" not in said
    assert containers(mine) == 0


def test_an_unknown_defect_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    if not docker_available():
        pytest.skip("it says first that there is no Docker engine")
    assert main(["up", "--defect=none-such"]) == 64
    assert "isr-of-one" in capsys.readouterr().err
