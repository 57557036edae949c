"""The error that a request to a partition raises."""

from assay.system_under_test.protocol.errors import ErrorCode


class PartitionError(Exception):
    """A request cannot be served by this broker; carries Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code
