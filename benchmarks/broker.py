"""Throughput and latency of the broker, compared with a peer that stores nothing.

Three brokers run in Docker on this machine, driven by confluent-kafka (librdkafka) with messages of 100 bytes. The peer
is librdkafka's own mock cluster with the same client. It lives in the client's process, answers at once and keeps
messages in memory, so it shows the client's own limit. Figures are the best of ``--rounds``; quote the ratios.

    python benchmarks/broker.py [--messages 200000] [--rounds 3] [--json]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from figures import Output, make_parser

SIZE = 100
PARTITIONS = 3
BROKERS = 3
Config = dict[str, str | int | float | bool]
WAIT = 60.0
SYNCHRONOUS = 5_000
"""Number of sequential sends, each awaited."""


@dataclass(frozen=True)
class Figures:
    """Throughput in messages per second, and latency of awaited sends in milliseconds."""

    acks_one: float
    acks_all: float
    one_p50: float
    one_p99: float
    all_p50: float
    all_p99: float
    consumed: float


@contextmanager
def start_cluster() -> Iterator[str]:
    """Yields the bootstrap address of three brokers."""
    command = [sys.executable, "-m", "assay.harness.cli.main", "up", f"--nodes={BROKERS}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit("no cluster came up, see above")
        try:
            yield address
        finally:
            process.terminate()
            process.wait(WAIT)


def measure_sends(config: Config, topic: str, messages: int) -> float:
    """Sends messages as fast as the client can, and waits for all outcomes; returns messages per second."""
    failures: list[KafkaError] = []
    producer = Producer({**config, "linger.ms": 5, "batch.num.messages": 10_000, "queue.buffering.max.messages": 10**6})
    payload = bytes(SIZE)

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    began = time.perf_counter()
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, payload, partition=number % PARTITIONS, callback=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(WAIT) or failures:
        raise SystemExit(f"some messages were not acknowledged: {failures[:1]}")
    return messages / (time.perf_counter() - began)


def measure_latencies(config: Config, topic: str) -> tuple[float, float]:
    """Returns the median and the 99th percentile in milliseconds of sends that are awaited one by one."""
    producer = Producer({**config, "linger.ms": 0})
    times = []
    for number in range(SYNCHRONOUS + 20):
        began = time.perf_counter()
        producer.produce(topic, bytes(SIZE), partition=number % PARTITIONS)
        if producer.flush(WAIT):
            raise SystemExit("a send was not acknowledged")
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[20:]), statistics.quantiles(times[20:], n=100)[98]


def measure_reads(config: Config, topic: str, messages: int) -> float:
    """Returns the messages per second of a consumer that reads all partitions from the beginning."""
    # By default the client pauses for a second whenever it has buffered 100,000 messages, and would measure its pauses.
    ahead = {"queued.min.messages": messages, "queued.max.messages.kbytes": 2 * 1024 * 1024 - 1}
    consumer = Consumer({**config, **ahead, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count, began, end = 0, time.perf_counter(), time.monotonic() + WAIT
    while count < messages and time.monotonic() < end:
        count += sum(message.error() is None for message in consumer.consume(10_000, 0.5))
    seconds = time.perf_counter() - began
    consumer.close()
    if count < messages:
        raise SystemExit(f"only {count} of {messages} messages were read in {WAIT:.0f} s")
    return messages / seconds


def measure(config: Config, name: str, messages: int, make: Callable[[str], None]) -> Figures:
    for kind in ("one", "all", "sync"):
        make(f"{name}-{kind}")
    one: Config = {**config, "acks": "1"}
    everyone: Config = {**config, "acks": "all"}
    speeds = measure_sends(one, f"{name}-one", messages), measure_sends(everyone, f"{name}-all", messages)
    times = *measure_latencies(one, f"{name}-sync"), *measure_latencies(everyone, f"{name}-sync")
    return Figures(*speeds, *times, measure_reads(config, f"{name}-one", messages))


def measure_brokers(address: str, messages: int, rounds: int) -> Figures:
    """Returns the best of several rounds. All clients are closed first, because they would look for stopped brokers."""
    config: Config = {"bootstrap.servers": address}
    admin = AdminClient(config)

    def make(topic: str) -> None:
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, BROKERS)], operation_timeout=WAIT).values():
            future.result(WAIT)

    return pick_best([measure(config, f"round-{number}", messages, make) for number in range(rounds)])


def pick_best(figures: list[Figures]) -> Figures:
    return Figures(
        max(one.acks_one for one in figures),
        max(one.acks_all for one in figures),
        min(one.one_p50 for one in figures),
        min(one.one_p99 for one in figures),
        min(one.all_p50 for one in figures),
        min(one.all_p99 for one in figures),
        max(one.consumed for one in figures),
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    out = Output(options.json)
    rounds = range(options.rounds)
    with start_cluster() as address:
        ours = measure_brokers(address, options.messages, options.rounds)
        # Each mock cluster belongs to one client, and a consumer cannot see another client's messages; reading is left
        # out.
        mock: Config = {"bootstrap.servers": "mock", "test.mock.num.brokers": BROKERS}
        peer = [
            measure_sends({**mock, "acks": acks}, "topic", options.messages) for _ in rounds for acks in ("1", "all")
        ]
        sync, _ = measure_latencies({**mock, "acks": "all"}, "topic")
    count, shape = options.messages, f"{BROKERS} brokers, {PARTITIONS} partitions"
    one, everyone = ours.acks_one / max(peer[0::2]), ours.acks_all / max(peer[1::2])
    out.text(f"{count:,} messages of {SIZE} bytes, {shape}; best of {options.rounds}; shares are of the mock cluster's")
    out.text(f"acks=1                {ours.acks_one:9,.0f} /s  {one:6.1%}")
    out.text(f"acks=all, replicated  {ours.acks_all:9,.0f} /s  {everyone:6.1%}")
    out.text(f"acks=1, one by one    {ours.one_p50:9.2f} ms p50, {ours.one_p99:.2f} ms p99")
    out.text(
        f"acks=all, one by one  {ours.all_p50:9.2f} ms p50, {ours.all_p99:.2f} ms p99; mock cluster {sync:.2f} ms p50"
    )
    out.text(f"one consumer          {ours.consumed:9,.0f} /s")
    out.figures(
        {
            "messages": count,
            "broker": asdict(ours),
            "mock": {"acks_one": max(peer[0::2]), "acks_all": max(peer[1::2]), "p50": sync},
        }
    )


if __name__ == "__main__":
    main()
