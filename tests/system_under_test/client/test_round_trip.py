"""Each kind of consumer gets the messages that a producer sends, in any codec and format."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.config import AsyncProducerConfig, ConsumerConfig
from assay.system_under_test.client.group_consumer import GroupConsumer
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.deployment import Broker
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP, LZ4, SNAPPY
from assay.system_under_test.records.message import CODEC_MASK, ENTRY_PREFIX

from helpers.consumers import Consumer
from helpers.sim_brokers import DATA, brokers, simulate, until

Pair = tuple[bytes | None, bytes | None]


def pairs() -> list[Pair]:
    """Nothing, empty, all bytes, what can be packed and what cannot; more than fits into one block of any codec."""
    random = Random(5)
    odd: list[Pair] = [
        (None, None),
        (b"", b""),
        (b"k", None),
        (None, bytes(range(256))),
        (bytes(70_000), bytes(200_000)),
    ]
    return odd + [(b"%d" % number, random.randbytes(number * 400)) for number in range(80)]


def stored(node: SimNode) -> set[tuple[int, int]]:
    """Format and codec of the entries on a broker's disk."""
    data = node.disk.read(f"{DATA}/orders-0/{0:020d}.log")
    entries = [ENTRY_PREFIX.unpack_from(data, position) for position, _, _ in message_set.scan(data)]
    return {(entry[3], entry[4] & CODEC_MASK) for entry in entries}


@pytest.mark.slow
@pytest.mark.parametrize("message_format", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4], ids=["none", "gzip", "snappy", "lz4"])
def test_every_consumer_gets_what_was_sent(codec: int, message_format: int) -> None:
    async def check() -> None:
        kept = "0.10.2" if message_format else "0.9.0"
        async with brokers(Broker(partitions=1).with_setting("message.format.version", kept)) as cluster:
            runtime, sent = cluster.cluster.harness_runtime(), pairs()
            half = len(sent) // 2
            producer = cluster.producer_with(codec=codec, message_format=message_format)
            await producer.send("orders", 0, sent[:half])
            config = AsyncProducerConfig(codec=codec, message_format=message_format)
            queued = Producer(cluster.bootstrap, config, runtime=runtime)
            await asyncio.gather(*await queued.send_list([("orders", key, value) for key, value in sent[half:]]))
            await queued.close()
            assert all(stored(node) == {(message_format, codec)} for node in cluster.nodes)

            simple: list[Pair] = []
            while len(simple) < len(sent):
                fetched = await cluster.consumer.fetch("orders", 0, len(simple), max_bytes=1000)
                several = await cluster.consumer.multi_fetch({("orders", 0): len(simple)})
                assert [m.offset for m in fetched.messages] == [
                    *range(len(simple), len(simple) + len(fetched.messages))
                ]
                assert all((m.timestamp is None) is (message_format == 0) for m in fetched.messages)
                assert several["orders", 0].messages[0] == fetched.messages[0]
                simple += [(message.key, message.value) for message in fetched.messages]
            assert simple == sent

            member = GroupConsumer(
                cluster.bootstrap, "g", ["orders"], ConsumerConfig(reset="earliest"), runtime=runtime
            )
            polled: list[Pair] = []
            while len(polled) < len(sent):
                polled += [(record.key, record.value) for record in await member.poll(1.0)]
            await member.close()
            assert polled == sent

            old = Consumer(cluster, "c1")
            await old.start()
            await until(lambda: len(old.received) >= len(sent), "all is read")
            assert [value for *_, value in old.received] == [value for _, value in sent]
            await old.shutdown()

    simulate(check)
