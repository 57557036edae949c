"""Under nonsense in /controller_epoch no one becomes controller and no one stops; mended, elections go on above it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from assay.system_under_test.controller.term import claim, read_epoch, remove_false_claim
from assay.system_under_test.protocol.control import StopReplicaRequest
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.registrar import Registrar
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.adapter import KazooZooKeeper

from helpers.broker_process import running_broker
from helpers.broker_process import until as within
from helpers.sim_brokers import Brokers, brokers, call, simulate, until, zookeeper_of

pytestmark = pytest.mark.slow

NONSENSE = {
    "no number": b"}nonsense{",
    "nothing": b"",
    "negative": b"-7",
    "a fraction": b"1.5",
    "a line": b"12\n",
    "no text": b"\xff\xfe\x00",
    "more than a request can say": b"2147483647",
    "thousands of digits": b"9" * 5_000,
}


def terms(cluster: Brokers) -> list[int]:
    return [e["controller_epoch"] for node in cluster.nodes for e in cluster.events(node, "became-controller")]


async def unclaimed(zookeeper: ZooKeeper) -> bool:
    return await zookeeper.exists(paths.CONTROLLER) is None


async def claimed(zookeeper: ZooKeeper) -> bool:
    return not await unclaimed(zookeeper)


@pytest.mark.parametrize("name", NONSENSE)
def test_no_one_is_elected_until_it_is_mended_and_all_go_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            lives = [node.alive_since for node in cluster.nodes]
            await zookeeper.set(paths.CONTROLLER_EPOCH, NONSENSE[name])
            await zookeeper.delete(paths.CONTROLLER)
            for _ in range(20):
                await asyncio.sleep(0.5)
                assert await unclaimed(zookeeper)
            assert (await zookeeper.get(paths.CONTROLLER_EPOCH))[0] == NONSENSE[name]
            await cluster.producer.send("orders", 0, [(None, b"x")])
            for node in cluster.nodes:
                assert (await call(node, MetadataRequest(topics=None), 1)).controller_id == -1
                stop = StopReplicaRequest(controller_id=1, controller_epoch=9, delete_partitions=False, partitions=[])
                assert (await call(node, stop)).error_code == ErrorCode.UNKNOWN
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"41")
            await until(lambda: claimed(zookeeper), "a controller")
            await until(lambda: sorted(terms(cluster)) == [1, 42], "a term above the epoch that was set")
            assert [node.alive_since for node in cluster.nodes] == lives
            await zookeeper.close()

    with caplog.at_level(logging.ERROR, logger="assay.controller"):
        simulate(check)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 3, "one of each broker"
    assert all(f"znode /controller_epoch holds {NONSENSE[name][:120]!r}" in line for line in lines)
    assert all("set /controller_epoch N" in line for line in lines)


def test_nonsense_in_place_of_nonsense_is_no_more() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"?")
            await zookeeper.delete(paths.CONTROLLER)
            for data in (b"??", b"", b"-1"):
                await asyncio.sleep(1)
                await zookeeper.set(paths.CONTROLLER_EPOCH, data)
            await asyncio.sleep(1)
            assert await unclaimed(zookeeper)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"7")
            await until(lambda: sorted(terms(cluster)) == [1, 8], "a term above the epoch that was set")
            await zookeeper.close()

    simulate(check)


def test_the_present_controller_writes_nothing_more_and_gives_up_its_claim(caplog: pytest.LogCaptureFixture) -> None:
    """It looks twice, once for its own claim's end, and says once what is wrong."""

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"nonsense")
            before = await zookeeper.get("/brokers/topics/orders/partitions/0/state")
            await (await cluster.leader()).kill()
            await until(lambda: unclaimed(zookeeper), "the controller resigns")
            await asyncio.sleep(5)
            assert await zookeeper.get("/brokers/topics/orders/partitions/0/state") == before
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"1")
            await until(lambda: sorted(terms(cluster)) == [1, 2], "a second term")
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await zookeeper.close()

    with caplog.at_level(logging.ERROR, logger="assay.controller"):
        simulate(check)
    assert sum("/controller_epoch" in record.getMessage() for record in caplog.records) == 2, "one of each that lives"


def test_a_broker_that_starts_or_gets_a_new_session_waits_and_does_not_die(caplog: pytest.LogCaptureFixture) -> None:
    """Without an epoch it would obey a controller that was replaced."""

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            starts, sleeps, third = cluster.nodes
            await starts.kill()
            await asyncio.sleep(10)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"nonsense")
            await starts.start()
            since = starts.alive_since
            for _ in range(2):  # the second session ends while the broker waits in it
                await sleeps.stop()
                await asyncio.sleep(10)
                await sleeps.resume()
                await asyncio.sleep(3)
            assert len(cluster.events(starts, "registered")) == 1
            assert len(cluster.events(sleeps, "registered")) == 1
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"30")
            await until(lambda: len(cluster.events(starts, "registered")) == 2, "it has joined")
            await until(lambda: len(cluster.events(sleeps, "registered")) > 1, "it has joined again")
            await zookeeper.delete(paths.CONTROLLER)
            await until(lambda: max(terms(cluster)) > 30, "a term above the epoch that was set")
            assert starts.alive_since == since
            for node in (starts, sleeps, third):
                await call(node, MetadataRequest(topics=None), 1)
            await zookeeper.close()

    with caplog.at_level(logging.ERROR, logger="assay.broker"):
        simulate(check)
    lines = [record.getMessage() for record in caplog.records if record.name == "assay.broker"]
    assert 2 <= len(lines) <= 3, "each says it once"
    assert all("znode /controller_epoch holds b'nonsense'" in line for line in lines)


@pytest.mark.parametrize(("later", "stands"), [(5, True), (6, False)])
def test_a_broker_that_lost_its_session_while_it_waited_does_not_stand_for_election(later: int, stands: bool) -> None:
    zookeeper: Any = SimpleNamespace(session_id=5)
    unused: Any = None
    stood: list[bool] = []
    registrar = Registrar(unused, unused, zookeeper, unused, unused, unused, unused, lambda: stood.append(True))

    async def register() -> None:
        zookeeper.session_id = later

    registrar.register = register  # type: ignore[method-assign]
    asyncio.run(registrar._register_again())
    assert stood == [True] * stands


def test_a_false_claim_is_removed_under_a_false_epoch_too() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            for node in cluster.nodes:
                await node.kill()
            await asyncio.sleep(10)
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"?")
            await zookeeper.create(paths.CONTROLLER, b"?")
            await remove_false_claim(zookeeper)
            with pytest.raises(NoNodeError):
                await zookeeper.get(paths.CONTROLLER)
            with pytest.raises(znodes.ZnodeError, match="/controller_epoch"):
                await claim(zookeeper, 1, "0")
            with pytest.raises(znodes.ZnodeError, match="/controller_epoch"):
                await read_epoch(zookeeper)
            await zookeeper.close()

    simulate(check)


def test_the_last_epoch_that_a_request_can_say_is_an_epoch() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.set(paths.CONTROLLER_EPOCH, b"2147483646")
            await zookeeper.delete(paths.CONTROLLER)
            await until(lambda: sorted(terms(cluster)) == [1, 2**31 - 1], "the last term there can be")
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await zookeeper.close()

    simulate(check)


def test_a_real_broker_waits_on_a_real_zookeeper(tmp_path: Path) -> None:
    with running_broker(tmp_path) as running:

        async def check() -> None:
            zookeeper = KazooZooKeeper(running.zookeeper, 3.0)
            await zookeeper.connect(10)
            try:
                for number, data in enumerate((b"nonsense", b"-7", b""), 1):
                    await zookeeper.set(paths.CONTROLLER_EPOCH, data)
                    await zookeeper.delete(paths.CONTROLLER)

                    async def said(number: int = number) -> bool:
                        return running.lines("znode /controller_epoch holds", "set /controller_epoch N") == number

                    await within(said, f"what is wrong with {data!r}", 20)
                    assert await unclaimed(zookeeper)
                    await zookeeper.set(paths.CONTROLLER_EPOCH, str(number * 10).encode())
                    await within(lambda: claimed(zookeeper), f"a controller after {data!r}", 20)
                    assert await read_epoch(zookeeper) == number * 10 + 1
            finally:
                await zookeeper.close()

        asyncio.run(check())
