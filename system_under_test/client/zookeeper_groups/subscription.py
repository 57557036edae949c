"""What a consumer of the old design wants: topics by name, or those whose names a filter lets through."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from assay.system_under_test.zookeeper.znodes import ConsumerRegistration, ZnodeError

INTERNAL_TOPIC = "__consumer_offsets"
"""Filters leave it out, as ``exclude.internal.topics`` does by default."""


class StreamSubscription(Protocol):
    """``registered`` is what others read of it in /consumers/G/ids/C."""

    @property
    def streams(self) -> int:
        """How many threads there are in all."""

    def threads(self, topics: Iterable[str]) -> dict[str, int]:
        """Of the topics that exist, those that are wanted, with how many threads."""

    def registered(self, timestamp_ms: int) -> ConsumerRegistration: ...


@dataclass(frozen=True)
class Static:
    """So many threads for each topic, which belong to it alone; a topic need not exist yet."""

    topics: Mapping[str, int]

    def __post_init__(self) -> None:
        if not self.topics or any(count < 1 for count in self.topics.values()):
            raise ValueError(f"a subscription names at least one topic, each with a thread or more: {self.topics}")

    @property
    def streams(self) -> int:
        return sum(self.topics.values())

    def threads(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def registered(self, timestamp_ms: int) -> ConsumerRegistration:
        return ConsumerRegistration(dict(self.topics), "static", str(timestamp_ms))


@dataclass(frozen=True)
class Filter:
    """So many threads for all topics whose whole names match ``expression``; all others, with ``exclude``.

    Kafka writes alternatives with commas, too.
    """

    expression: str
    streams: int
    exclude: bool = False

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise ValueError(f"a filter needs a thread or more, not {self.streams}")
        try:
            re.compile(self._alternatives)
        except re.error as error:
            raise ValueError(f"{self.expression!r} is no regular expression: {error}") from None

    @property
    def _alternatives(self) -> str:
        return self.expression.strip().replace(",", "|").replace(" ", "").strip("\"'")

    def lets_through(self, topic: str) -> bool:
        matches = re.fullmatch(self._alternatives, topic) is not None
        return matches != self.exclude and topic != INTERNAL_TOPIC

    def threads(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.streams for topic in topics if self.lets_through(topic)}

    def registered(self, timestamp_ms: int) -> ConsumerRegistration:
        pattern: Literal["white_list", "black_list"] = "black_list" if self.exclude else "white_list"
        return ConsumerRegistration({self.expression: self.streams}, pattern, str(timestamp_ms))


def subscription_of(path: str, found: ConsumerRegistration) -> StreamSubscription:
    """What another member wants. Raises ``ZnodeError`` when it makes no sense."""
    try:
        if found.pattern == "static":
            return Static(found.subscription)
        (expression, streams), *more = found.subscription.items()
        if more:
            raise ValueError("a filter has one expression")
        return Filter(expression, streams, found.pattern == "black_list")
    except ValueError as error:
        raise ZnodeError(f"znode {path}: {error}") from error
