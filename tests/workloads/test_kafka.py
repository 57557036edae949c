"""The log workload through librdkafka: what becomes of records, positions and errors; on a producer and consumer made
up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.workloads.systems.kafka_log import KafkaLog

KEY = "orders-1"
GONE = KafkaError(KafkaError._TRANSPORT)


@dataclass
class Record:
    place: int
    payload: bytes
    trouble: KafkaError | None = None

    def offset(self) -> int:
        return self.place

    def value(self) -> bytes:
        return self.payload

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self.place

    def error(self) -> KafkaError | None:
        return self.trouble


@dataclass
class Broker:
    """A partition, as both a producer and a consumer of it. ``trouble`` is what is answered from then on."""

    log: list[bytes] = field(default_factory=list)
    trouble: KafkaError | None = None
    silent: bool = False
    start: int = 0
    assigned: list[tuple[str, int, int]] = field(default_factory=list)
    _at: int = 0
    _reports: list[Callable[[], None]] = field(default_factory=list)

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[..., None]) -> None:
        assert (topic, partition) == ("orders", 1)
        if self.silent:
            return
        self.log.append(value)
        place = len(self.log) - 1
        self._reports.append(lambda: on_delivery(self.trouble, Record(place, value)))

    def assign(self, places: Sequence[TopicPartition]) -> None:
        (place,) = places
        self.assigned.append((place.topic, place.partition, place.offset))
        self._at = place.offset

    def get_watermark_offsets(self, place: TopicPartition, *, timeout: float) -> tuple[int, int]:
        if self.trouble:
            raise KafkaException(self.trouble)
        return self.start, len(self.log)

    def poll(self, seconds: float) -> Record | None:
        for report in self._reports:
            report()
        self._reports.clear()
        if self.trouble:
            return Record(0, b"", self.trouble)
        if self._at >= len(self.log):
            return None
        self._at += 1
        return Record(self._at - 1, self.log[self._at - 1])

    def consume(self, most: int, seconds: float) -> list[Record]:
        found = [Record(place, self.log[place]) for place in range(self._at, len(self.log))]
        self._at = len(self.log)
        return found


def client(broker: Broker) -> KafkaLog:
    made: Any = KafkaLog()
    made._producer = made._consumer = broker
    found: KafkaLog = made
    return found


def poll(log: KafkaLog, **argument: Any) -> Completion:
    return log.invoke(Operation("poll", KEY, {"start": "earliest", **argument}))


def effects(operation: Operation, completion: Completion) -> list[Effect]:
    ret = None if completion.outcome is Outcome.INFO else 2
    return list(KafkaLog.effects(Completed(0, 0, "w0", operation, completion, 1, ret, None)))


def test_what_is_sent_is_read_where_the_acknowledgement_says() -> None:
    broker = Broker()
    log = client(broker)
    operation = Operation("send", KEY, [7])
    sent = log.invoke(operation)
    assert sent == Completion(Outcome.OK, {"offset": 0})
    (append,) = effects(operation, sent)
    assert (append.kind, append.position, append.value) == ("append", 0, 7)
    assert poll(log).result == {
        "begin": 0, "records": [[0, 7, 1000]], "end": 1, "assignment": 1, "sought": True, "start": 0,
    }  # fmt: skip


def test_a_send_that_failed_may_have_been_appended() -> None:
    assert client(Broker(trouble=GONE)).invoke(Operation("send", KEY, [7])).outcome is Outcome.INFO


def test_a_send_of_which_nothing_was_heard_may_have_been_appended(monkeypatch: Any) -> None:
    monkeypatch.setattr("assay.workloads.systems.kafka_log.SECONDS", 0.2)
    assert client(Broker(silent=True)).invoke(Operation("send", KEY, [7])).outcome is Outcome.INFO


def test_a_poll_goes_on_where_the_last_one_ended_without_being_assigned_again() -> None:
    broker = Broker([b"1", b"2"])
    log = client(broker)
    first = poll(log)
    broker.log.append(b"3")
    second = poll(log)
    assert [one[1] for one in first.result["records"]] == [1, 2]
    assert second.result == {"begin": 2, "records": [[2, 3, 1002]], "end": 3, "assignment": 1}
    assert broker.assigned == [("orders", 1, 0)]


def test_a_poll_at_the_end_says_that_there_was_nothing() -> None:
    log = client(Broker([b"1"]))
    assert poll(log, start="latest").result == {
        "begin": 1, "records": [], "end": 1, "assignment": 1, "sought": True,
    }  # fmt: skip


def test_a_reader_that_seeks_begins_a_new_assignment() -> None:
    broker = Broker([b"1"])
    log = client(broker)
    poll(log)
    again = poll(log, seek=True)
    assert (again.result["begin"], again.result["assignment"]) == (0, 2)
    assert broker.assigned == [("orders", 1, 0)] * 2


def test_after_an_error_the_position_is_asked_for_again() -> None:
    broker = Broker([b"1"])
    log = client(broker)
    poll(log)
    broker.trouble = GONE
    failed = poll(log)
    assert failed.outcome is Outcome.FAIL
    assert failed.error == "-transport"
    broker.trouble = None
    assert poll(log).result["sought"]


def test_the_end_is_what_the_broker_says() -> None:
    operation = Operation("end", KEY)
    found = client(Broker([b"1", b"2"], start=1)).invoke(operation)
    assert found == Completion(Outcome.OK, {"offset": 2, "start": 1})
    assert {(one.kind, one.position) for one in effects(operation, found)} == {("end", 2), ("start", 1)}
