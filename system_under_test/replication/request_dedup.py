"""Which of a controller's numbered requests is news.

A request of which a connection was given up, and which was sent again on another, may arrive once more after those that
came later: a late copy. What it says of the cluster was true before them.
"""

from assay.system_under_test.protocol import internal

Numbered = internal.LeaderAndIsrRequest | internal.StopReplicaRequest | internal.UpdateMetadataRequest


class News:
    """Remembers the newest request that was admitted: its controller's epoch, and its serial in that term."""

    def __init__(self) -> None:
        self._newest = (-1, 0)

    def admit(self, request: Numbered) -> bool:
        """False for a late copy. Requests without a serial are always admitted, and leave no trace."""
        if not request.serial:
            return True
        place = request.controller_epoch, request.serial
        if place < self._newest:
            return False
        self._newest = place
        return True
