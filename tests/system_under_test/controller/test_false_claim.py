"""A /controller that no session holds is removed, whatever it says, and an election follows; a claim never is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Delete

from assay.system_under_test.controller.term import claim, remove_false_claim
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.adapter import KazooZooKeeper

from helpers.broker_process import running_broker
from helpers.broker_process import until as within
from helpers.sim_brokers import Brokers, brokers, call, simulate, until, zookeeper_of

pytestmark = pytest.mark.slow

NONSENSE = {
    "no JSON": b"}nonsense{",
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
    "a broker that there is not": b'{"version":1,"brokerid":77,"timestamp":"0"}',
    "a number that no broker can have": b"99999999999999999999",
    "a live broker, but no session of its": b'{"version":1,"brokerid":1,"timestamp":"0"}',
}


async def overwrite(zookeeper: ZooKeeper, data: bytes) -> None:
    """A persistent znode takes the claim's place, if there is one."""
    with contextlib.suppress(NoNodeError):
        await zookeeper.delete(paths.CONTROLLER)
    await zookeeper.create(paths.CONTROLLER, data)


async def elected(zookeeper: ZooKeeper) -> bool:
    try:
        data, stat = await zookeeper.get(paths.CONTROLLER)
    except NoNodeError:
        return False
    return stat.ephemeralOwner != 0 and znodes.parse_controller_id(data) > 0


def terms(cluster: Brokers) -> list[int]:
    return sorted(e["controller_epoch"] for node in cluster.nodes for e in cluster.events(node, "became-controller"))


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_over_the_claim_is_overcome_and_named_in_the_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            await zookeeper.multi([Delete(paths.CONTROLLER, -1), znodes.make_create(paths.CONTROLLER, NONSENSE[name])])
            await until(lambda: elected(zookeeper), "a claim that a session holds")
            await until(lambda: len(terms(cluster)) == 2, "a second term")
            assert terms(cluster) == [1, 2]
            controller = await cluster.controller()
            for node in cluster.nodes:
                answer = await call(node, MetadataRequest(topics=None), 1)
                assert answer.controller_id == controller.index
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await zookeeper.close()

    with caplog.at_level(logging.ERROR, logger="assay.controller"):
        simulate(check)
    (line, *_) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"znode /controller holds {NONSENSE[name]!r} and is persistent" in line
    assert "deleteall /controller" in line


def test_brokers_that_start_under_nonsense_elect_one_of_them() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            for node in cluster.nodes:
                await node.kill()
            await asyncio.sleep(10)
            await overwrite(zookeeper, b"}nonsense{")
            for node in cluster.nodes:
                await node.start()
            await until(lambda: elected(zookeeper), "a claim that a session holds")
            assert terms(cluster) == [1, 2]
            await cluster.producer.send("orders", 0, [(None, b"x")])
            await zookeeper.close()

    simulate(check)


def test_nonsense_with_children_stays_until_it_is_removed_by_hand() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            child = f"{paths.CONTROLLER}/child"
            await zookeeper.multi(
                [Delete(paths.CONTROLLER, -1), znodes.make_create(paths.CONTROLLER, b"?"), znodes.make_create(child)]
            )
            await asyncio.sleep(5)
            assert not await elected(zookeeper)
            await zookeeper.delete(child)
            await until(lambda: elected(zookeeper), "a claim that a session holds")
            await zookeeper.close()

    simulate(check)


class Between:
    """A client of ZooKeeper to which something happens right after its first read of /controller."""

    def __init__(self, inner: ZooKeeper, happens: Callable[[], Any]) -> None:
        self._inner = inner
        self._happens: Callable[[], Any] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, path: str) -> Any:
        found = await self._inner.get(path)
        if path == paths.CONTROLLER and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()
        return found


def test_a_claim_that_was_made_since_it_was_read_is_not_removed() -> None:
    """It has the version that the nonsense had."""

    async def check() -> None:
        async with brokers() as cluster:
            for node in cluster.nodes:
                await node.kill()
            await asyncio.sleep(10)
            slow, quick = await zookeeper_of(cluster), await zookeeper_of(cluster)
            await overwrite(slow, b"}nonsense{")

            async def faster() -> None:
                await remove_false_claim(quick)
                assert await claim(quick, 2, "0") is not None

            await remove_false_claim(Between(slow, faster))  # type: ignore[arg-type]
            data, stat = await slow.get(paths.CONTROLLER)
            assert (znodes.parse_controller_id(data), stat.version, stat.ephemeralOwner) == (2, 0, quick.session_id)
            await remove_false_claim(slow)
            assert (await slow.get(paths.CONTROLLER))[1] == stat
            await slow.close()
            await quick.close()

    simulate(check)


def test_a_real_broker_overcomes_nonsense_on_a_real_zookeeper(tmp_path: Path) -> None:
    with running_broker(tmp_path) as running:

        async def check() -> None:
            zookeeper = KazooZooKeeper(running.zookeeper, 3.0)
            await zookeeper.connect(10)
            try:
                for data in NONSENSE.values():
                    epoch = int((await zookeeper.get(paths.CONTROLLER_EPOCH))[0])
                    await zookeeper.multi([Delete(paths.CONTROLLER, -1), znodes.make_create(paths.CONTROLLER, data)])
                    await within(lambda: elected(zookeeper), f"a controller after {data!r}", 20)
                    assert int((await zookeeper.get(paths.CONTROLLER_EPOCH))[0]) == epoch + 1
            finally:
                await zookeeper.close()

        asyncio.run(check())
        assert running.lines("znode /controller holds", "is persistent") == len(NONSENSE)
