"""Settings by the names of the first clients: all of them, in every form of a properties file, and clear mistakes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.callbacks import Callbacks, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig, ProducerConfig
from assay.system_under_test.client.partitioner import hash_partitioner
from assay.system_under_test.client.properties import (
    PropertiesError,
    parse,
    read_connector_config,
    read_producer_settings,
)
from assay.system_under_test.client.serializer import as_bytes, as_json, as_text
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig

BROKERS = {"metadata.broker.list": "n1:9092, n2:9092"}
GROUP = BROKERS | {"zookeeper.connect": "zk1:2181,zk2:2181"}


class Loud(Callbacks):
    """To be named in a file."""


async def doubled(envelopes: Any) -> Any:
    return [*envelopes, *envelopes]


def written(properties: dict[str, str]) -> str:
    """As Java's ``Properties.store`` writes it."""

    def escaped(text: str, also: str) -> str:
        plain = "".join("\\" + one if one in also + "\\#!=:" else one for one in text)
        for character, letter in {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}.items():
            plain = plain.replace(character, "\\" + letter)
        space = "\\ " if plain.startswith(" ") and not also else ""
        plain = space + plain[1:] if space else plain
        return "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in plain)

    return "".join(f"{escaped(name, ' ')}={escaped(value, '')}\n" for name, value in properties.items())


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_what_java_writes_is_read(properties: dict[str, str]) -> None:
    assert parse("#a comment\n" + written(properties), "file") == properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1\r\nb:2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        ("  # no\n ! no\n\na", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=x,\\\n    y,\\\n    # z", {"a": "x,y,# z"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\ b\\==\\u0041\\t\\q", {"a b=": "A\tq"}),
        ("a=1\\", {"a": "1"}),
        ("\u00a0a\x0b=1\u2028", {"\u00a0a\x0b": "1\u2028"}),
    ],
)
def test_each_form_of_a_line(text: str, found: dict[str, str]) -> None:
    assert parse(text, "file") == found


@given(st.text(max_size=60))
def test_any_text_is_read_or_rejected(text: str) -> None:
    with contextlib.suppress(PropertiesError):
        assert all(isinstance(part, str) for pair in parse(text, "file").items() for part in pair)


def test_a_name_that_is_there_twice_is_a_mistake() -> None:
    with pytest.raises(PropertiesError, match="file, line 3: a is set twice"):
        parse("a=1\nb=2\na=3", "file")


def test_a_synchronous_producer() -> None:
    made = read_producer_settings(BROKERS)
    assert made.bootstrap == ("n1:9092", "n2:9092")
    assert made.config == ProducerConfig()
    made = read_producer_settings(
        BROKERS
        | {
            "producer.type": "sync",
            "request.required.acks": "1",
            "request.timeout.ms": "1500",
            "compression.codec": "snappy",
            "message.send.max.retries": "3",
            "retry.backoff.ms": "100",
            "client.id": "me",
            "serializer.class": "kafka.serializer.StringEncoder",
            "partitioner.class": "kafka.producer.DefaultPartitioner",
        }
    )
    assert made.config == ProducerConfig(
        acks=1,
        timeout=1.5,
        codec=2,
        retries=3,
        retry_back_off=0.1,
        client_id="me",
        key_serializer=as_text,
        value_serializer=as_text,
        partitioner=hash_partitioner,
    )


@pytest.mark.parametrize("old", [False, True], ids=["0.8", "0.7"])
def test_an_asynchronous_producer(old: bool) -> None:
    names = {
        "queue.buffering.max.ms": ("queue.time", "20"),
        "queue.buffering.max.messages": ("queue.size", "50"),
        "queue.enqueue.timeout.ms": ("queue.enqueueTimeout.ms", "-1"),
        "batch.num.messages": ("batch.size", "7"),
    }
    made = read_producer_settings(
        {"broker.list" if old else "metadata.broker.list": "n1:9092", "producer.type": "async"}
        | {(before if old else now): value for now, (before, value) in names.items()}
        | {
            "event.handler": f"{__name__}:doubled",
            "callback.handler": f"{__name__}:Loud",
            "serializer.class": "assay.system_under_test.client.serializer:as_json",
            "key.serializer.class": "kafka.serializer.DefaultEncoder",
        }
    )
    assert made.config == AsyncProducerConfig(
        timeout=30.02,
        linger=0.02,
        queue_size=50,
        enqueue_timeout=None,
        batch_count=7,
        key_serializer=as_bytes,
        value_serializer=as_json,
    )
    assert made.handler is not pass_on
    assert type(made.callbacks).__name__ == "Loud"


def test_the_time_in_the_queue_is_no_part_of_the_time_of_a_request() -> None:
    lingering = BROKERS | {"producer.type": "async", "queue.buffering.max.ms": "5000"}
    made = read_producer_settings(lingering | {"request.timeout.ms": "1500"}).config
    assert isinstance(made, AsyncProducerConfig)
    assert (made.linger, made.timeout) == (5.0, 6.5)
    assert read_producer_settings(BROKERS | {"request.timeout.ms": "1500"}).config.timeout == 1.5


@pytest.mark.parametrize(
    ("said", "dual"),
    [
        ({}, False),
        ({"offsets.storage": "zookeeper"}, False),
        ({"offsets.storage": "kafka"}, True),
        ({"offsets.storage": "kafka", "dual.commit.enabled": "false"}, False),
    ],
)
def test_offsets_in_the_topic_are_committed_to_zookeeper_too_unless_it_is_said(
    said: dict[str, str], dual: bool
) -> None:
    assert read_connector_config(GROUP | said).dual_commit is dual


def test_a_consumer_of_the_old_design() -> None:
    assert read_connector_config(GROUP) == ConnectorConfig(
        zookeeper="zk1:2181,zk2:2181", bootstrap=("n1:9092", "n2:9092")
    )
    made = read_connector_config(
        GROUP
        | {
            "group.id": "g",
            "consumer.id": "c",
            "zookeeper.session.timeout.ms": "400",
            "zookeeper.connection.timeout.ms": "900",
            "zookeeper.sync.time.ms": "200",
            "offsets.storage": "kafka",
            "dual.commit.enabled": "true",
            "auto.commit.enable": "false",
            "auto.commit.interval.ms": "100",
            "auto.offset.reset": "smallest",
            "socket.timeout.ms": "30000",
            "fetch.message.max.bytes": "4096",
        }
    )
    assert made == ConnectorConfig(
        zookeeper="zk1:2181,zk2:2181",
        bootstrap=("n1:9092", "n2:9092"),
        group="g",
        consumer_id="c",
        session_timeout=0.4,
        connection_timeout=0.9,
        back_off=0.2,
        offsets_storage="kafka",
        dual_commit=True,
        auto_commit=False,
        auto_commit_interval=0.1,
        reset="smallest",
        timeout=30.0,
        fetch_bytes=4096,
    )


@pytest.mark.parametrize(
    "text",
    [
        """
        # Zookeeper connection string
        zookeeper.connect=zk1:2181,zk2:2181
        # timeout in ms for connecting to zookeeper
        zookeeper.connection.timeout.ms=6000
        #consumer group id
        group.id=g
        #consumer timeout
        #consumer.timeout.ms=5000
        """,
        "zk.connect=zk1:2181,zk2:2181\nzk.connectiontimeout.ms=6000\ngroupid=g\n",
    ],
    ids=["0.8", "0.7"],
)
def test_a_consumers_file_needs_no_brokers(text: str) -> None:
    """As Kafka's own has none: they are those in ZooKeeper."""
    made = read_connector_config(parse(text, "consumer.properties"))
    assert made == ConnectorConfig(zookeeper="zk1:2181,zk2:2181", bootstrap=(), group="g")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "metadata.broker.list is missing"),
        (BROKERS | {"producer.type": "both"}, "producer.type is sync or async, not 'both'"),
        (BROKERS | {"queue.time": "5"}, "queue.time is for producer.type=async"),
        (BROKERS | {"request.required.ack": "1"}, "request.required.acks is known"),
        (BROKERS | {"acks": "1", "request.required.acks": "1"}, "two names of one setting"),
        (BROKERS | {"acks": "2"}, "acks=2: it is one of -1 all 0 1"),
        (BROKERS | {"compression.codec": "zip"}, "none gzip snappy lz4"),
        (BROKERS | {"request.timeout.ms": "1.5"}, "a whole number"),
        ({"metadata.broker.list": "n1"}, "host:port"),
        ({"metadata.broker.list": ""}, "host:port"),
        (BROKERS | {"client.id": ""}, "must not be empty"),
        (
            BROKERS | {"serializer.class": "StringEncoder"},
            "expected package.module:name, or one of kafka.serializer",
        ),
        (BROKERS | {"serializer.class": "no.such:thing"}, "serializer.class=no.such:thing"),
        (BROKERS | {"serializer.class": "math:thing"}, "serializer.class=math:thing"),
        (BROKERS | {"producer.type": "async", "queue.size": "0"}, "need room for one message"),
    ],
)
def test_a_producers_mistake_is_one_clear_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(PropertiesError, match=r"^producer\.properties: ") as raised:
        read_producer_settings(given, "producer.properties")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (BROKERS, "zookeeper.connect is missing"),
        (GROUP | {"offsets.storage": "disk"}, "zookeeper or kafka"),
        (GROUP | {"auto.offset.reset": "earliest"}, "smallest or largest"),
        (GROUP | {"dual.commit.enabled": "yes"}, "true false"),
        (GROUP | {"dual.commit": "true"}, "dual.commit.enabled is known"),
    ],
)
def test_a_consumers_mistake_is_one_clear_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(PropertiesError, match=r"^consumer\.properties: ") as raised:
        read_connector_config(given, "consumer.properties")
    assert said in str(raised.value)
