"""The log workload through librdkafka, for any broker that speaks Kafka's protocol.

Each send has one record. librdkafka does not say whether a failed send may have been appended, so the outcome of a
failed send is unknown. A record may occur twice in the log, because librdkafka resends when the leader changes, even
without retries (https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md).
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from assay import Completed, Completion, Effect, Endpoint, Generator, Operation, Outcome
from assay.workloads.broker import log_operations
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import EARLIEST, End, Send

SECONDS: Final = 3.0
"""Timeout of a request, and of a send before its outcome counts as unknown."""
POLL_SECONDS: Final = 0.1
CONSUME_SECONDS: Final = 0.01
REPORT_SECONDS: Final = 0.1
"""Seconds of one wait for a delivery report."""
MAX_RECORDS: Final = 500
"""Maximum number of records of one poll."""


def traffic(keys: Sequence[str], *, seconds: float) -> Generator:
    """Yields sends, polls and a few reads of log ends on all partitions, and then a drain within ``seconds``."""
    return log_operations.traffic(keys, most_values=1) | drain(keys, seconds=seconds)


class KafkaLog:
    """Client with one producer and one consumer. The consumer has no group, and the client keeps the positions."""

    blocking = True
    only_first_node = False
    """Whether all clients use the first node, because the nodes do not form a cluster."""

    def __init__(self) -> None:
        self._assignments = itertools.count(1)
        self._positions: dict[str, tuple[int, int]] = {}
        """Maps a partition to the next offset and the number of the assignment."""
        self._assigned: tuple[str, int] | None = None
        """The partition that librdkafka reads, and the offset that it returns next."""

    def open(self, endpoint: Endpoint, runtime: object) -> None:
        brokers = sorted(endpoint.all)[:1] if self.only_first_node else endpoint.all
        common = {"bootstrap.servers": ",".join(brokers), "socket.timeout.ms": int(SECONDS * 1000)}
        common |= {"topic.metadata.refresh.interval.ms": 1000, "log_level": 0}
        self._producer = Producer(
            common | {"acks": "all", "retries": 0, "linger.ms": 0, "message.timeout.ms": int(SECONDS * 1000)}
        )
        self._consumer = Consumer(
            common | {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
        )

    def close(self) -> None:
        self._consumer.close()
        self._producer.purge()

    def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None
        try:
            if operation.f == Send.f:
                return self._send(operation.key, operation.argument)
            if operation.f == End.f:
                low, high = self._read_ends(operation.key)
                return Completion(Outcome.OK, {"offset": high, "start": low})
            return self._poll(operation.key, operation.argument)
        except KafkaException as error:
            return Completion(Outcome.FAIL, error=_format_error(error.args[0]))

    def _send(self, key: str, values: Sequence[int]) -> Completion:
        done: list[tuple[KafkaError | None, Message]] = []
        place = _to_topic_partition(key)
        self._producer.produce(
            place.topic, str(values[0]).encode(), partition=place.partition, on_delivery=lambda *args: done.append(args)
        )
        for _ in range(int(2 * SECONDS / REPORT_SECONDS)):
            if not done:
                self._producer.poll(REPORT_SECONDS)
        if not done:
            return Completion(Outcome.INFO, error="no delivery report")
        ((error, message),) = done
        return (
            Completion(Outcome.INFO, error=_format_error(error))
            if error
            else Completion(Outcome.OK, {"offset": message.offset()})
        )

    def _read_ends(self, key: str) -> tuple[int, int]:
        """Returns the first offset of the log, and the one after its last record."""
        found: tuple[int, int] = self._consumer.get_watermark_offsets(_to_topic_partition(key), timeout=SECONDS)
        return found

    def _poll(self, key: str, argument: dict[str, Any]) -> Completion:
        sought = argument.get("seek", False) or key not in self._positions
        start = None
        if sought:
            self._positions.pop(key, None)
            low, high = self._read_ends(key)
            start = low if argument["start"] == EARLIEST else None
            self._positions[key] = high if start is None else low, next(self._assignments)
        begin, assignment = self._positions[key]
        if self._assigned != (key, begin):
            self._consumer.assign([_to_topic_partition(key, begin)])
        self._assigned = None  # unknown until the records have arrived
        records: list[list[int]] = []
        first = self._consumer.poll(POLL_SECONDS)  # further records are then buffered already
        more = [] if first is None else self._consumer.consume(MAX_RECORDS, CONSUME_SECONDS)
        for message in [] if first is None else [first, *more]:
            if message.error() is not None:
                del self._positions[key]
                raise KafkaException(message.error())
            records.append([message.offset() or 0, int(message.value() or b""), message.timestamp()[1]])
        end = records[-1][0] + 1 if records else begin
        self._positions[key] = end, assignment
        self._assigned = key, end
        result = {"begin": begin, "records": records, "end": end, "assignment": assignment}
        result |= {"sought": True} if sought else {}
        return Completion(Outcome.OK, result | ({} if start is None else {"start": start}))

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return log_operations.effects(completed)


def _to_topic_partition(key: str, offset: int = 0) -> TopicPartition:
    topic, _, partition = key.rpartition("-")
    return TopicPartition(topic, int(partition), offset)


def _format_error(error: KafkaError) -> str:
    return str(error.name()).lower().replace("_", "-")
