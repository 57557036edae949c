"""Positions of a group consumer: the partitions that it reads, and the next offset of each."""

from collections.abc import Collection, Mapping, Sequence

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.coordinated import Position

NO_OFFSET = -1


class Positions:
    """Positions by partition.

    - ``committed_at_assignment``: the group's committed position
    - ``offsets``: the next offset to read, -1 if unknown
    - ``without_offset``: partitions without a committed offset, whose start must come from a reset or from the caller
    """

    def __init__(self) -> None:
        self.committed_at_assignment: dict[Partition, Position] = {}
        self.offsets: dict[Partition, int] = {}
        self.without_offset: set[Partition] = set()
        self.paused: set[Partition] = set()
        self._turns = 0

    def __getitem__(self, partition: Partition) -> int:
        """Returns the next offset. Raises ``KeyError`` if there is none yet."""
        if partition in self.without_offset:
            raise KeyError(partition)
        return self.offsets[partition]

    def known_offsets(self) -> Mapping[Partition, int]:
        return {one: at for one, at in self.offsets.items() if one not in self.without_offset}

    def forget(self) -> None:
        """Forgets everything except paused partitions."""
        self.committed_at_assignment, self.offsets, self.without_offset = {}, {}, set()

    def retain(self, partitions: Collection[Partition]) -> None:
        """Forgets all other partitions."""
        self.offsets = {one: at for one, at in self.offsets.items() if one in partitions}
        self.without_offset &= set(partitions)
        self.paused &= set(partitions)

    def start_from(self, committed: Mapping[Partition, Position]) -> None:
        self.committed_at_assignment.update(committed)
        for partition, position in committed.items():
            self.offsets[partition] = position.offset
            if position.offset == NO_OFFSET:
                self.without_offset.add(partition)

    def set_offset(self, partition: Partition, offset: int) -> None:
        self.offsets[partition] = offset
        self.without_offset.discard(partition)

    def rotate(self, owned: Sequence[Partition]) -> Mapping[Partition, int]:
        """Returns the offsets to read, without paused partitions.

        Each call begins with another partition, because a broker fills its responses in the order of the request.
        """
        self._turns += 1
        first = self._turns % len(owned) if owned else 0
        return {one: self.offsets[one] for one in (*owned[first:], *owned[:first]) if one not in self.paused}


class FetchPolicy:
    """Fetches all partitions from the caller's positions, regardless of earlier fetches (KAFKA-2978)."""

    def select(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Returns the positions to fetch next, among those of partitions that are owned and not paused."""
        return positions

    def on_fetched(self, partition: Partition, end: int) -> None:
        """Called when a response contained the messages up to the offset before ``end``."""

    def on_moved(self, partition: Partition) -> None:
        """Called when a position was set by the caller, or reset because it was out of range."""

    def on_entered(self, partitions: Sequence[Partition]) -> None:
        """Called with the owned partitions of a new generation. Their positions are the committed ones."""
