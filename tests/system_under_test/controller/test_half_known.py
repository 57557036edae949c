"""A controller that has read a part of what there is, or has been replaced, decides nothing by it."""

from __future__ import annotations

import asyncio

import pytest

from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.topics import DeleteTopicsRequest
from assay.system_under_test.zookeeper import paths

from helpers.lost_requests import Requests
from helpers.sim_brokers import brokers, call, simulate, until, zookeeper_of


def test_a_controller_that_has_not_read_its_topics_says_of_none_that_it_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is lost while a new controller reads; meanwhile clients ask."""
    topics = Requests(monkeypatch, "get_children", paths.TOPICS)

    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            topics.lose(after=0.5)
            await zookeeper.delete(paths.CONTROLLER)
            await until(lambda: bool(topics.lost), "a new controller reads")
            request = DeleteTopicsRequest(topics=["orders"], timeout_ms=2000)
            answers = await asyncio.gather(*(call(node, request) for node in cluster.nodes))
            codes = [answer.topics[0].error_code for answer in answers]
            assert set(codes) <= {E.NOT_CONTROLLER, E.NONE}
            assert (E.NONE in codes) == (await zookeeper.exists(paths.topic("orders")) is None)
            await zookeeper.close()

    simulate(check)
