"""Subscriptions of consumers of the old design: topics by name, or all topics that match a filter."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from assay.system_under_test.zookeeper.znodes import ConsumerRegistration, ZnodeError

INTERNAL_TOPIC = "__consumer_offsets"
"""Filters never match this topic, as with the default of ``exclude.internal.topics``."""


class StreamSubscription(Protocol):
    """A subscription. ``to_registration`` returns the content of /consumers/G/ids/C, which other members read."""

    @property
    def streams(self) -> int:
        """The total number of streams. In the assignment, each stream is a thread with its own id."""

    def count_streams(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of streams of each subscribed topic among ``topics``, which are all existing ones."""

    def to_registration(self, timestamp_ms: int) -> ConsumerRegistration: ...


@dataclass(frozen=True)
class StaticSubscription:
    """A subscription by name: a number of streams for each topic. A topic need not exist yet."""

    topics: Mapping[str, int]

    def __post_init__(self) -> None:
        if not self.topics or any(count < 1 for count in self.topics.values()):
            raise ValueError(f"a subscription needs at least one topic, each with at least one stream: {self.topics}")

    @property
    def streams(self) -> int:
        return sum(self.topics.values())

    def count_streams(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def to_registration(self, timestamp_ms: int) -> ConsumerRegistration:
        return ConsumerRegistration(dict(self.topics), "static", str(timestamp_ms))


@dataclass(frozen=True)
class TopicFilter:
    """A subscription to all topics whose full names match ``expression``, or with ``exclude`` do not match it.

    As in Kafka, commas in the expression separate alternatives.
    """

    expression: str
    streams: int
    exclude: bool = False

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise ValueError(f"a filter needs at least one stream, not {self.streams}")
        try:
            re.compile(self._pattern)
        except re.error as error:
            raise ValueError(f"{self.expression!r} is not a regular expression: {error}") from None

    @property
    def _pattern(self) -> str:
        return self.expression.strip().replace(",", "|").replace(" ", "").strip("\"'")

    def matches(self, topic: str) -> bool:
        matches = re.fullmatch(self._pattern, topic) is not None
        return matches != self.exclude and topic != INTERNAL_TOPIC

    def count_streams(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.streams for topic in topics if self.matches(topic)}

    def to_registration(self, timestamp_ms: int) -> ConsumerRegistration:
        pattern: Literal["white_list", "black_list"] = "black_list" if self.exclude else "white_list"
        return ConsumerRegistration({self.expression: self.streams}, pattern, str(timestamp_ms))


def to_subscription(path: str, found: ConsumerRegistration) -> StreamSubscription:
    """Returns another member's subscription. Raises ``ZnodeError`` if it is invalid."""
    try:
        if found.pattern == "static":
            return StaticSubscription(found.subscription)
        (expression, streams), *more = found.subscription.items()
        if more:
            raise ValueError("a filter has one expression")
        return TopicFilter(expression, streams, found.pattern == "black_list")
    except ValueError as error:
        raise ZnodeError(f"znode {path}: {error}") from error
