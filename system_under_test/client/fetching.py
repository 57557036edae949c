"""Which of its partitions a consumer reads."""

from __future__ import annotations

from collections.abc import Sequence

from system_under_test.client.assignors import Partition


class Fetching:
    """All of them, whatever became of former fetches: an answer that was not used is asked for again (KAFKA-2978)."""

    def wanted(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        """What the next fetch asks for, of those that are owned and not paused."""
        return partitions

    def discarded(self, partitions: Sequence[Partition]) -> None:
        """The answer came when the generation was over, and nothing of it was used."""

    def entered(self, partitions: Sequence[Partition]) -> None:
        """This is what is owned now."""
