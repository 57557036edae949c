"""Settings of producers and group members. Times are in seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from assay.system_under_test.client.partitioner import Partitioner, hash_partitioner
from assay.system_under_test.client.serializer import Serializer, as_bytes

DEFAULT_FETCH_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a :class:`~assay.system_under_test.client.producer.Producer` of ``producer.type=sync``."""

    acks: int = -1
    """-1, 1 or 0. With 0 no broker responds, and a result only means that the messages were written to a socket."""
    timeout: float = 5.0
    """Time limit from ``send`` to its outcome."""
    retries: int = 10
    """Limit on retries of definite failures within that time."""
    retry_back_off: float = 0.05
    """Back-off before each retry."""
    repeat_unknown: bool = False
    """Whether a try of unknown outcome is repeated as well, ``request_timeout`` after it was sent."""
    request_timeout: float = math.inf
    """Time limit of one try; after that, the try's outcome is unknown."""
    linger: float = 0.0
    """Time for which a message waits for further messages of its batch."""
    batch_size: int = 16_384
    """Size limit in bytes of a message set. A single larger ``send`` is a set of its own."""
    codec: int = 0
    """Codec of message sets: 1 gzip, 2 snappy, 3 lz4; 0 for none."""
    message_format: int = 1
    """0, whose messages have no timestamps, or 1."""
    key_serializer: Serializer = as_bytes
    value_serializer: Serializer = as_bytes
    partitioner: Partitioner = hash_partitioner
    """Called with the serialized key."""
    client_id: str = "assay-producer"


@dataclass(frozen=True, kw_only=True)
class AsyncProducerConfig(ProducerConfig):
    """Settings of a :class:`~assay.system_under_test.client.producer.Producer` with a queue (``producer.type=async``).

    ``timeout`` counts from the moment when a message is accepted.
    """

    timeout: float = 30.0
    retries: int = 1_000
    linger: float = 0.005
    """Time for which the first message of a batch waits for further messages."""
    queue_size: int = 10_000
    """Limit on accepted messages without an outcome."""
    enqueue_timeout: float | None = None
    """Time for which ``send`` waits for room before it drops its message; 0 for no wait, None for no limit."""
    batch_count: int = 200
    """Messages that are taken out of the queue at once."""

    def without_queue(self) -> ProducerConfig:
        """Returns the same settings for ``producer.type=sync``."""
        return ProducerConfig(**{one.name: getattr(self, one.name) for one in fields(ProducerConfig)})

    def __post_init__(self) -> None:
        if self.queue_size < 1 or self.batch_count < 1:
            raise ValueError("a queue and a batch need room for one message at least")


@dataclass(frozen=True, kw_only=True)
class MemberConfig:
    """Settings of a :class:`~assay.system_under_test.client.membership.Membership`."""

    assignors: Sequence[str] = ("range",)
    session_timeout: float = 6.0
    rebalance_timeout: float = 10.0
    """Time for which the group waits for this member to join again."""
    timeout: float = 5.0
    """Time limit of each call to a broker. A join may take longer, because it waits for the group's rebalance."""
    retention: float | None = None
    """Time for which commits are kept while the group has no members; None for the brokers' setting."""
    metadata_age: float = 5.0
    """Interval at which the group's leader reads the topics again (``metadata.max.age.ms``, 5 minutes in Kafka)."""
    client_id: str = "assay-member"
    abort_on_timeout: bool = False
    """Whether a timeout or a cancellation ends the connection and discards unsent data, so that the request cannot
    arrive later. Needed for commits outside a generation, because a late one would not be rejected."""
    repeat_unknown: bool = False
    """Whether a commit of unknown outcome is repeated within ``timeout``. Safe for offsets that only this client
    commits, because both tries have the same content."""


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(MemberConfig):
    """Settings of a :class:`~assay.system_under_test.client.group_consumer.GroupConsumer`."""

    reset: str = "earliest"
    """``earliest``, ``latest`` or ``none``. With ``none``, a poll without a valid position raises ``ReadFailed``, until
    ``seek`` sets one."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """Bytes that one fetch requests of each partition."""


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Settings of a member of a draft group (``draft_membership``)."""

    reset: str = "earliest"
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """``reset`` and ``fetch_bytes`` are as in :class:`ConsumerConfig`."""
    strategy: str = "range"
    session_timeout: float = 6.0
    frequency: int = 4
    """Heartbeats per session."""
    join_timeout: float = 20.0
    """Time for which a join may wait for the other members."""
    timeout: float = 5.0
    """Time limit of each call to a broker."""
    client_id: str = "assay-draft"
