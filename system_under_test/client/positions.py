"""Which of its partitions a consumer of a group reads, and where it reads on in each."""

from collections.abc import Collection, Mapping, Sequence

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.coordinated import Position

NO_OFFSET = -1


class Positions:
    """``found``: what the group had committed of each; ``offsets``: what is read next, -1 where nothing says so;
    ``unplaced``: those of which nothing is committed, so that a reset, or the caller, has to say where they begin.
    """

    def __init__(self) -> None:
        self.found: dict[Partition, Position] = {}
        self.offsets: dict[Partition, int] = {}
        self.unplaced: set[Partition] = set()
        self.paused: set[Partition] = set()
        self._turns = 0

    def __getitem__(self, partition: Partition) -> int:
        """Raises ``KeyError`` for one that has none yet."""
        if partition in self.unplaced:
            raise KeyError(partition)
        return self.offsets[partition]

    def placed(self) -> Mapping[Partition, int]:
        return {one: at for one, at in self.offsets.items() if one not in self.unplaced}

    def forget(self) -> None:
        """All but what is paused."""
        self.found, self.offsets, self.unplaced = {}, {}, set()

    def keep(self, partitions: Collection[Partition]) -> None:
        """No others."""
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
        """Where to read, without what is paused. A broker fills its answers in the order of the request, so each poll
        begins with another partition.
        """
        self._turns += 1
        first = self._turns % len(owned) if owned else 0
        return {one: self.offsets[one] for one in (*owned[first:], *owned[:first]) if one not in self.paused}


class Fetching:
    """Reads all of them, from the caller's positions, without regard to what was fetched before (KAFKA-2978)."""

    def wanted(self, positions: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Returns what the next fetch asks for, of the partitions that are owned and not paused."""
        return positions

    def fetched(self, partition: Partition, end: int) -> None:
        """An answer brought the messages before ``end``."""

    def moved(self, partition: Partition) -> None:
        """Its position was set, by the caller or because it was out of range."""

    def entered(self, partitions: Sequence[Partition]) -> None:
        """These are owned now, and read from where the group has committed."""
