"""librdkafka by way of confluent-kafka."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT = 20.0


class Client:
    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1000}
        self._admin = AdminClient(self._common)
        self._member: Member | None = None

    def enter(self, topic: str, group: str) -> None:
        """Becomes a member of the group and reads on, committing as it goes, until it leaves."""
        self._member = Member(self._common, topic, group)

    def received(self) -> list[str]:
        assert self._member is not None
        return list(self._member.values)

    def assigned(self) -> list[int]:
        assert self._member is not None
        return list(self._member.partitions)

    def leave(self) -> None:
        assert self._member is not None
        self._member.leave()

    def brokers(self) -> list[int]:
        return sorted(self._admin.list_topics(timeout=WAIT).brokers)

    def topics(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=WAIT).topics)

    def leader(self, topic: str, partition: int) -> int:
        return self._admin.list_topics(timeout=WAIT).topics[topic].partitions[partition].leader

    def create(self, topic: str, partitions: int, replication: int, config: dict[str, str]) -> None:
        wanted = NewTopic(topic, partitions, replication, config=config)
        for future in self._admin.create_topics([wanted], operation_timeout=WAIT).values():
            future.result(WAIT)

    def delete(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic], operation_timeout=WAIT).values():
            future.result(WAIT)

    def produce(self, topic: str, partition: int, values: list[str], codec: str) -> list[int]:
        """Offsets, in the order of the values; all acknowledged by all in-sync replicas."""
        offsets: dict[str, int] = {}
        producer = Producer(self._common | {"acks": "all", "compression.type": codec, "linger.ms": 20})
        for value in values:
            producer.produce(topic, value=value.encode(), partition=partition, callback=_noting(offsets))
        assert producer.flush(WAIT) == 0
        return [offsets[value] for value in values]

    def produce_for(self, topic: str, partition: int, seconds: float) -> list[str]:
        """Returns what was acknowledged of what was sent, one after the other, for so long."""
        offsets: dict[str, int] = {}
        producer = Producer(self._common | {"acks": "all", "linger.ms": 5, "message.timeout.ms": 30_000})
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            producer.produce(topic, value=str(number).encode(), partition=partition, callback=_noting(offsets))
            producer.poll(0.005)
            number += 1
        producer.flush(60)
        return list(offsets)

    def read(self, topic: str, partition: int, start: int | str, count: int) -> list[tuple[int, str]]:
        """``start``: an offset, ``beginning``, or ``end``, which means the last ``count``."""
        consumer = Consumer(self._common | {"group.id": "reader", "enable.auto.commit": False})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT)
            offset = {"beginning": OFFSET_BEGINNING, "end": max(low, high - count)}.get(str(start), start)
            consumer.assign([TopicPartition(topic, partition, int(offset))])
            found: list[tuple[int, str]] = []
            end = time.monotonic() + WAIT
            while len(found) < count and time.monotonic() < end:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    found.append((message.offset(), message.value().decode()))
            return found
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = Consumer(self._common | {"group.id": "reader", "enable.auto.commit": False})
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT)
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, milliseconds: int) -> int:
        """-1 when nothing is that young."""
        consumer = Consumer(self._common | {"group.id": "reader", "enable.auto.commit": False})
        try:
            wanted = TopicPartition(topic, partition, milliseconds)
            return consumer.offsets_for_times([wanted], timeout=WAIT)[0].offset
        finally:
            consumer.close()


class Member:
    """Only its own thread touches the consumer: asked from another one, it may never answer."""

    def __init__(self, common: dict[str, object], topic: str, group: str) -> None:
        settings = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        }
        self.values: list[str] = []
        self.partitions: list[int] = []
        self._consumer = Consumer(common | settings)
        self._consumer.subscribe([topic])
        self._going = True
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while self._going:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.values.append(message.value().decode())
                self._consumer.commit(message, asynchronous=False)
            self.partitions = sorted(found.partition for found in self._consumer.assignment())
        self._consumer.close()

    def leave(self) -> None:
        self._going = False
        self._thread.join()


def _noting(offsets: dict[str, int]):  # type: ignore[no-untyped-def]
    def delivered(error, message):  # type: ignore[no-untyped-def]
        if error is None:
            offsets[message.value().decode()] = message.offset()

    return delivered
