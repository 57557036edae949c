"""Positions of a group consumer: which partitions it reads, and the next offset of each."""

from collections.abc import Collection, Mapping, Sequence

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.coordinated import Position

NO_OFFSET = -1


class Positions:
    """Positions by partition.

    - ``found``: the group's committed position
    - ``offsets``: the next offset to read, -1 if unknown
    - ``unplaced``: partitions without a committed offset, which need a start from a reset or from the caller
    """

    def __init__(self) -> None:
        self.found: dict[Partition, Position] = {}
        self.offsets: dict[Partition, int] = {}
        self.unplaced: set[Partition] = set()
        self.paused: set[Partition] = set()
        self._turns = 0

    def __getitem__(self, partition: Partition) -> int:
        """Returns the next offset. Raises ``KeyError`` if there is none yet."""
        if partition in self.unplaced:
            raise KeyError(partition)
        return self.offsets[partition]

    def placed(self) -> Mapping[Partition, int]:
        return {one: at for one, at in self.offsets.items() if one not in self.unplaced}

    def forget(self) -> None:
        """Forgets everything except paused partitions."""
        self.found, self.offsets, self.unplaced = {}, {}, set()

    def keep(self, partitions: Collection[Partition]) -> None:
        """Forgets all other partitions."""
        self.offsets = {one: at for one, at in self.offsets.items() if one in partitions}
        self.unplaced &= set(partitions)
        self.paused &= set(partitions)

    def start_from(self, committed: Mapping[Partition, Position]) -> None:
        self.found.update(committed)
        for partition, position in committed.items():
            self.offsets[partition] = position.offset
            if position.offset == NO_OFFSET:
                self.unplaced.add(partition)

    def place(self, partition: Partition, offset: int) -> None:
        self.offsets[partition] = offset
        self.unplaced.discard(partition)

    def in_turn(self, owned: Sequence[Partition]) -> Mapping[Partition, int]:
        """Returns the offsets to read, without paused partitions, and begins with another partition each time.

        A broker fills its responses in the order of the request.
        """
        self._turns += 1
        first = self._turns % len(owned) if owned else 0
        return {one: self.offsets[one] for one in (*owned[first:], *owned[:first]) if one not in self.paused}


class FetchPolicy:
    """Fetches all partitions from the caller's positions, regardless of earlier fetches (KAFKA-2978)."""

    def wanted(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Returns what to fetch next, of the partitions that are owned and not paused."""
        return positions

    def fetched(self, partition: Partition, end: int) -> None:
        """Called when a response brought the messages before ``end``."""

    def moved(self, partition: Partition) -> None:
        """Called when a position was set by the caller, or reset because it was out of range."""

    def entered(self, partitions: Sequence[Partition]) -> None:
        """Called with the partitions that are now owned, whose positions are the committed ones."""
