"""Which of its partitions a consumer of a group reads, and from where."""

from collections.abc import Mapping, Sequence

from assay.system_under_test.client.assignors import Partition


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
