"""The settings of producers and of members of a group; times in seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from assay.system_under_test.client.partitioner import Partitioner, hash_partitioner
from assay.system_under_test.client.serializer import Serializer, as_bytes

DEFAULT_FETCH_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """For a :class:`~assay.system_under_test.client.producer.Producer` without a queue (``producer.type=sync``)."""

    acks: int = -1
    """-1, 1 or 0; with 0 no broker answers, and a result says no more than that the messages were written to a
    socket."""
    timeout: float = 5.0
    """From ``send`` to its outcome."""
    retries: int = 10
    """How often a definite failure is tried again within that time."""
    retry_back_off: float = 0.05
    """Before each further try."""
    repeat_unknown: bool = False
    """A try whose outcome is unknown is repeated as well, ``request_timeout`` after it was sent."""
    request_timeout: float = math.inf
    linger: float = 0.0
    """How long a message waits for others to be sent with it."""
    batch_size: int = 16_384
    """Bytes of a message set to which no further ``send`` is added."""
    codec: int = 0
    """By which message sets are compressed: 1 gzip, 2 snappy, 3 lz4; 0: not at all."""
    message_format: int = 1
    """0, whose messages have no timestamps, or 1."""
    key_serializer: Serializer = as_bytes
    value_serializer: Serializer = as_bytes
    partitioner: Partitioner = hash_partitioner
    """Gets the serialized key."""
    client_id: str = "assay-producer"


@dataclass(frozen=True, kw_only=True)
class AsyncProducerConfig(ProducerConfig):
    """For a :class:`~assay.system_under_test.client.producer.Producer` with a queue (``producer.type=async``).
    ``timeout`` counts from the moment when a message is accepted.
    """

    timeout: float = 30.0
    retries: int = 1_000
    linger: float = 0.005
    """How long the first message of a batch waits for others."""
    queue_size: int = 10_000
    """How many accepted messages may be without outcome."""
    enqueue_timeout: float | None = None
    """How long ``send`` waits for room before it drops its message (0: not at all; None: as long as it takes)."""
    batch_count: int = 200
    """Messages that are taken out of the queue at once."""

    def without_queue(self) -> ProducerConfig:
        """Returns the same settings for ``producer.type=sync``."""
        return ProducerConfig(**{one.name: getattr(self, one.name) for one in fields(ProducerConfig)})

    def __post_init__(self) -> None:
        if self.queue_size < 1 or self.batch_count < 1:
            raise ValueError("a queue, and a batch, need room for one message at least")


@dataclass(frozen=True, kw_only=True)
class MemberConfig:
    """For a :class:`~assay.system_under_test.client.membership.Membership`."""

    assignors: Sequence[str] = ("range",)
    session_timeout: float = 6.0
    rebalance_timeout: float = 10.0
    """How long the group waits for this member to join again."""
    timeout: float = 5.0
    """For each call to the brokers; a join waits for the others for as long as their group may, if that is longer."""
    retention: float | None = None
    """How long its commits are kept while the group has no members; None: as the brokers say."""
    metadata_age: float = 5.0
    """After this time the member that leads looks at the topics again (``metadata.max.age.ms``, there 5 minutes)."""
    client_id: str = "assay-member"
    takes_back: bool = False
    """Is what was given up without an answer not to arrive any more? For commits that no generation fences."""
    repeat_unknown: bool = False
    """Is a commit whose outcome is unknown sent again within ``timeout``? For offsets that this client alone commits:
    if the first try counts after all, it says the same."""


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(MemberConfig):
    """For a :class:`~assay.system_under_test.client.group_consumer.GroupConsumer`."""

    reset: str = "earliest"
    """``earliest``, ``latest``, or ``none``: then a poll without a position, or with one that is no longer in the log,
    raises ``ReadFailed`` until there is one by ``seek``."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """What one fetch asks for of each partition."""


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """For a member of a group of the draft."""

    reset: str = "earliest"
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """Both as in :class:`ConsumerConfig`."""
    strategy: str = "range"
    session_timeout: float = 6.0
    frequency: int = 4
    """Heartbeats in a session."""
    join_timeout: float = 20.0
    """How long a join may wait for the other members."""
    timeout: float = 5.0
    """For each call to the brokers."""
    client_id: str = "assay-draft"
