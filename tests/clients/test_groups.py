"""Unmodified foreign clients share the partitions of a topic as a group.

Every message is read, whether a member or a coordinator dies. Committed offsets stay committed, and generations rise.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest

from helpers.nightly import some_by_day
from helpers.other_clients import CLIENTS

pytestmark = [pytest.mark.docker, pytest.mark.clients]

NUMBERS = itertools.count()
PARTITIONS = 4
PATIENCE = 60.0


def wait_for(condition: Any, what: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def coordinator(bootstrap: str, group: str) -> int:
    async def ask() -> int:
        host, _, port = bootstrap.split(",")[0].partition(":")
        connection = await Connection.open(host, int(port), 5.0)
        try:
            return (await connection.call(GroupCoordinatorRequest(group_id=group), 0, 5.0)).coordinator_id
        finally:
            await connection.close()

    return asyncio.run(ask())


@pytest.fixture
def members(kind: Any) -> Iterator[Any]:
    """Starts clients; each ends with the test."""
    with ExitStack() as stack:

        def start() -> Any:
            driver = kind.start()
            stack.callback(driver.close)
            return driver

        yield start


@pytest.fixture(scope="module")
def sender(live: Any) -> Iterator[Any]:
    """Yields a client for what is not tried here."""
    driver = live.driver("confluent")
    yield driver
    driver.close()


@pytest.mark.parametrize("kind", some_by_day(CLIENTS, ["confluent-kafka"]), indirect=True)
def test_a_group_reads_everything_and_remembers_it(members: Any, sender: Any, live: Any) -> None:
    number = next(NUMBERS)
    topic, group = f"shared-{number}", f"group-{number}"
    sender.create(topic=topic, partitions=PARTITIONS, replication=3, config={"min.insync.replicas": "2"})
    wait_for(lambda: live.known_everywhere(topic, PARTITIONS), "every broker knows the topic and its leaders")
    sent: list[str] = []

    def send(word: str) -> None:
        for partition in range(PARTITIONS):
            values = [f"{word}-{partition}-{index}" for index in range(25)]
            sender.produce(topic=topic, partition=partition, values=values, codec="none")
            sent.extend(values)

    one, two, three = (members() for _ in range(3))
    one.enter(topic=topic, group=group)
    two.enter(topic=topic, group=group)

    def shared(*readers: Any) -> bool:
        found = [reader.assigned() for reader in readers]
        return all(found) and sorted(itertools.chain(*found)) == list(range(PARTITIONS))

    wait_for(lambda: shared(one, two), "two members share the partitions")
    send("both")
    wait_for(lambda: {*one.received(), *two.received()} == set(sent), "two members have read everything")
    three.enter(topic=topic, group=group)
    wait_for(lambda: shared(one, two, three), "three members share the partitions")
    read_by_one = set(one.received())
    one.kill()
    send("one-killed")
    wait_for(lambda: shared(two, three), "the others take over")
    wait_for(
        lambda: read_by_one | {*two.received(), *three.received()} == set(sent), "nothing of the dead one's is left"
    )
    dead = coordinator(live.bootstrap, group)
    live.do("kill", dead)
    try:
        send("coordinator-killed")
        wait_for(
            lambda: read_by_one | {*two.received(), *three.received()} == set(sent),
            "they go on without the coordinator",
        )
    finally:
        live.do("start", dead)
    two.leave()
    three.leave()
    wait_for(lambda: sender.brokers() == [1, 2, 3], "the broker is back")
    last = members()
    before = list(sent)
    send("last")
    last.enter(topic=topic, group=group)
    wait_for(lambda: set(last.received()) >= set(sent) - set(before), "the one that comes next reads on")
    assert not set(last.received()) & set(before), "what was committed is not read again"
    last.leave()
    generations = sorted(
        (event["time"], event["epoch"]) for event in live.events("group-generation") if event.get("key") == group
    )
    numbers = [epoch for _, epoch in generations]
    assert len(numbers) >= 5, numbers
    assert len(set(numbers)) == len(numbers), "no generation is given twice"
    assert numbers == sorted(numbers), "they rise"
