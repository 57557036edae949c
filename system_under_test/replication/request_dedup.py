"""Deduplication of the controller's numbered requests.

The controller may give up a connection and send a request again on another connection. The first copy may then arrive
after newer requests. Its content is outdated, so it must be ignored.
"""

from assay.system_under_test.protocol import internal

NumberedRequest = internal.LeaderAndIsrRequest | internal.StopReplicaRequest | internal.UpdateMetadataRequest


class RequestDeduplicator:
    """Remembers the newest admitted request: its controller epoch, and its serial number within that epoch."""

    def __init__(self) -> None:
        self._newest = (-1, 0)

    def admit(self, request: NumberedRequest) -> bool:
        """Returns False for a late duplicate. Requests without a serial are always admitted, and are not remembered."""
        if not request.serial:
            return True
        position = request.controller_epoch, request.serial
        if position < self._newest:
            return False
        self._newest = position
        return True
