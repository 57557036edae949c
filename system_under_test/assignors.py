"""Assignors: which member of a group gets which partitions, as Kafka's assignors of these names.

A group's leading member runs them. In groups of the earlier draft of the protocol, the coordinator does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

Partition = tuple[str, int]
Assignor = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], dict[str, list[Partition]]]
"""Maps each member's topics and each topic's number of partitions to each member's partitions."""


def group_by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Groups partition numbers by topic, in their order."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Assigns each member a contiguous range of each topic. Members are sorted by id; the first get one more."""
    assignment: dict[str, list[Partition]] = {member: [] for member in subscriptions}
    for topic in sorted(partitions):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        share, remainder = divmod(partitions[topic], len(members))
        start = 0
        for rank, member in enumerate(members):
            count = share + (rank < remainder)
            assignment[member] += [(topic, index) for index in range(start, start + count)]
            start += count
    return assignment


def assign_round_robin(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Assigns all partitions of all topics to the members in turn, in the order of their ids."""
    assignment: dict[str, list[Partition]] = {member: [] for member in subscriptions}
    members = sorted(subscriptions)
    turn = 0
    for topic in sorted(partitions):
        for index in range(partitions[topic]):
            for _ in members:
                member = members[turn % len(members)]
                turn += 1
                if topic in subscriptions[member]:
                    assignment[member].append((topic, index))
                    break
    return assignment


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_range, "roundrobin": assign_round_robin}
