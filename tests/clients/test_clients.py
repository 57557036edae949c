"""Unmodified clients of others do with three brokers what they do with Kafka's, and go on through the death of a
leader without losing anything that was acknowledged to them.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from helpers.nightly import some_by_day
from helpers.other_clients import CLIENTS

pytestmark = [pytest.mark.docker, pytest.mark.clients]

NUMBERS = itertools.count()
CODECS = ["none", "gzip", "snappy", "lz4"]
LOAD_SECONDS = 10.0


@pytest.fixture
def topic(client: Any, live: Any) -> str:
    name = f"topic-{next(NUMBERS)}"
    client.create(topic=name, partitions=3, replication=3, config={"min.insync.replicas": "2"})
    wait_for(lambda: live.known_everywhere(name, 3), "every broker knows the topic and its leaders")
    assert name in client.topics()
    assert client.leader(topic=name, partition=2) > 0
    return name


def wait_for(condition: Any, what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def test_the_brokers_and_topics_are_reported(client: Any, topic: str) -> None:
    assert client.brokers() == [1, 2, 3]
    assert topic in client.topics()


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_acknowledged_is_read_from_both_ends_and_by_offset(client: Any, topic: str, codec: str) -> None:
    values = [f"{codec}-{number}-" + "x" * 50 for number in range(100)]
    offsets = client.produce(topic=topic, partition=1, values=values, codec=codec)
    assert offsets == list(range(100))
    stored = [list(pair) for pair in zip(offsets, values, strict=True)]
    assert client.ends(topic=topic, partition=1) == [0, 100]
    assert client.read(topic=topic, partition=1, start="beginning", count=100) == stored
    assert client.read(topic=topic, partition=1, start=37, count=20) == stored[37:57]
    assert client.read(topic=topic, partition=1, start="end", count=5) == stored[-5:]
    assert client.ends(topic=topic, partition=0) == [0, 0], "the other partitions got nothing"


def test_an_offset_is_found_by_its_time(client: Any, topic: str) -> None:
    client.produce(topic=topic, partition=0, values=["early"], codec="none")
    time.sleep(0.3)
    between = int(time.time() * 1000)
    time.sleep(0.3)
    client.produce(topic=topic, partition=0, values=["late", "later"], codec="gzip")
    assert client.offset_at(topic=topic, partition=0, milliseconds=between - 60_000) == 0
    assert client.offset_at(topic=topic, partition=0, milliseconds=between) == 1
    assert client.offset_at(topic=topic, partition=0, milliseconds=between + 60_000) == -1


def test_a_deleted_topic_is_gone(client: Any, topic: str) -> None:
    client.produce(topic=topic, partition=0, values=["v"], codec="none")
    client.delete(topic=topic)
    wait_for(lambda: topic not in client.topics(), "it is reported no more")


@pytest.mark.parametrize("kind", some_by_day(CLIENTS, ["kafka-python-3"]), indirect=True)
def test_nothing_is_lost_when_a_leader_is_killed(client: Any, live: Any, topic: str) -> None:
    leader = client.leader(topic=topic, partition=0)
    client.begin("produce_for", topic=topic, partition=0, seconds=LOAD_SECONDS)
    time.sleep(3)
    live.do("kill", leader)
    try:
        acknowledged = client.end()
    finally:
        live.do("start", leader)
    assert len(acknowledged) > 100
    assert int(acknowledged[-1]) > len(acknowledged) // 2
    end = client.ends(topic=topic, partition=0)[1]
    read = client.read(topic=topic, partition=0, start="beginning", count=end)
    assert [offset for offset, _ in read] == list(range(end))
    assert not set(acknowledged) - {value for _, value in read}
    wait_for(lambda: client.brokers() == [1, 2, 3], "the broker is back")
