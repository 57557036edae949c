"""kafka-python, versions 2 and 3."""

from __future__ import annotations

import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError, KafkaConnectionError, RebalanceInProgressError

WAIT = 20.0
LONGER_THAN_A_JOIN = 5000  # milliseconds


class Client:
    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap.split(",")
        self._admin = KafkaAdminClient(bootstrap_servers=self._servers)
        self._member: Member | None = None

    def enter(self, topic: str, group: str) -> None:
        self._member = Member(self._servers, topic, group)

    def received(self) -> list[str]:
        assert self._member is not None
        self._member.check()
        return list(self._member.values)

    def assigned(self) -> list[int]:
        assert self._member is not None
        self._member.check()
        return list(self._member.partitions)

    def leave(self) -> None:
        assert self._member is not None
        self._member.leave()

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=self._servers, group_id=None, enable_auto_commit=False)

    def brokers(self) -> list[int]:
        """None while the one that it asks is just starting: it asks no other."""
        try:
            described = self._admin.describe_cluster()["brokers"]
        except KafkaConnectionError:
            return []
        return sorted(broker["broker_id" if "broker_id" in broker else "node_id"] for broker in described)

    def topics(self) -> list[str]:
        return sorted(self._admin.list_topics())

    def leader(self, topic: str, partition: int) -> int:
        described = self._admin.describe_topics([topic])[0]["partitions"]
        return next(
            found.get("leader", found.get("leader_id"))
            for found in described
            if found.get("partition", found.get("partition_index")) == partition
        )

    def create(self, topic: str, partitions: int, replication: int, config: dict[str, str]) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, replication, topic_configs=config)])

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def produce(self, topic: str, partition: int, values: list[str], codec: str) -> list[int]:
        compression = None if codec == "none" else codec
        producer = KafkaProducer(
            bootstrap_servers=self._servers, acks="all", compression_type=compression, linger_ms=20
        )
        sent = [producer.send(topic, value=value.encode(), partition=partition) for value in values]
        producer.flush(WAIT)
        offsets = [future.get(WAIT).offset for future in sent]
        producer.close()
        return offsets

    def produce_for(self, topic: str, partition: int, seconds: float) -> list[str]:
        producer = KafkaProducer(
            bootstrap_servers=self._servers, acks="all", linger_ms=5, retries=1000, metadata_max_age_ms=1000
        )
        end, sent = time.monotonic() + seconds, []
        while time.monotonic() < end:
            sent.append((str(len(sent)), producer.send(topic, value=str(len(sent)).encode(), partition=partition)))
            time.sleep(0.005)
        producer.flush(60)
        acknowledged = [value for value, future in sent if future.succeeded()]
        producer.close()
        return acknowledged

    def read(self, topic: str, partition: int, start: int | str, count: int) -> list[tuple[int, str]]:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            if start == "beginning":
                consumer.seek_to_beginning(where)
            elif start == "end":
                consumer.seek(where, max(0, consumer.end_offsets([where])[where] - count))
            else:
                consumer.seek(where, int(start))
            found: list[tuple[int, str]] = []
            end = time.monotonic() + WAIT
            while len(found) < count and time.monotonic() < end:
                for messages in consumer.poll(500).values():
                    found += [(message.offset, message.value.decode()) for message in messages]
            return found[:count]
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, milliseconds: int) -> int:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: milliseconds})[where]
            return -1 if found is None else found.offset
        finally:
            consumer.close()


class Member(ConsumerRebalanceListener):
    """Only its own thread touches the consumer.

    A poll lasts longer than a join. If a poll ends between the answers to JoinGroup and to SyncGroup, version 3.0.12
    never takes the assignment. The join's task has said by then that no join is needed, so the next poll does not
    wait for it. Such a member sends no heartbeat, is expired by the coordinator, and never finds out.
    """

    def __init__(self, servers: list[str], topic: str, group: str) -> None:
        self.values: list[str] = []
        self.partitions: list[int] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=1000,
        )
        self._consumer.subscribe([topic], listener=self)
        self._going = True
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def check(self) -> None:
        """Raises what has ended its thread, if anything has: it would never own anything, for no reason that shows."""
        if self._failure is not None:
            raise self._failure

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.partitions = []

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.partitions = sorted(found.partition for found in assigned)

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._failure = error
            raise

    def _read(self) -> None:
        committed = True
        while self._going or not committed:
            for messages in self._consumer.poll(LONGER_THAN_A_JOIN).values():
                self.values += [message.value.decode() for message in messages]
            committed = self._commit()
        self._consumer.close()

    def _commit(self) -> bool:
        """In the midst of a rebalance it is refused; the next poll joins again."""
        try:
            self._consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            return False
        return True

    def leave(self) -> None:
        self._going = False
        self._thread.join()
