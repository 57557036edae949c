"""Errors of the client, and the outcome that each one means: certainly not done, or unknown.

The tables list the codes that a broker returns only if it rejected the request *before* acting on it. All other codes,
including future ones, mean an unknown outcome. A wrong "not done" makes a check report a false violation. A wrong
"unknown" only weakens a check.
"""

import enum
from collections.abc import Collection

from assay.system_under_test.protocol.errors import ErrorCode

E = ErrorCode


class Certainty(enum.StrEnum):
    """Outcome of one request, from a broker's response or its absence."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


class ClientError(Exception):
    """Base class of the client library's errors. ``error`` is the broker's code, if one was returned."""

    def __init__(self, message: str, *, error: ErrorCode | None = None, node: int | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.node = node
        """The broker that was contacted last, if any."""


class SendFailed(ClientError):
    """The messages were certainly not appended, neither by this try nor by an earlier one."""


class SendUnknown(ClientError):
    """The messages may have been appended, or may be appended later."""


class ReadFailed(ClientError):
    """A read got no useful response in time. Reads change nothing, so its outcome does not matter."""


class DamagedAnswer(ReadFailed):
    """A broker returned invalid messages. This should never happen, because brokers check messages from disk."""


PRODUCE_NOT_DONE = frozenset(
    {
        E.CORRUPT_MESSAGE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_FETCH_SIZE,
        E.LEADER_NOT_AVAILABLE,
        E.MESSAGE_TOO_LARGE,
        E.INVALID_TOPIC,
        E.RECORD_LIST_TOO_LARGE,
        E.NOT_ENOUGH_REPLICAS,
        E.INVALID_REQUIRED_ACKS,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.INVALID_TIMESTAMP,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""NOT_LEADER_FOR_PARTITION and NOT_ENOUGH_REPLICAS_AFTER_APPEND are not listed, because they may follow an append.
Neither are REQUEST_TIMED_OUT and UNKNOWN."""

PRODUCE_WORTH_REPEATING = frozenset(
    {E.CORRUPT_MESSAGE, E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS}
)
"""Definite failures that may go away (``RetriableException`` in 0.10.2)."""

OFFSET_COMMIT_NOT_DONE = frozenset(
    {
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.OFFSET_METADATA_TOO_LARGE,
        E.GROUP_LOAD_IN_PROGRESS,
        E.ILLEGAL_GENERATION,
        E.INVALID_GROUP_ID,
        E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS,
        E.INVALID_COMMIT_OFFSET_SIZE,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
    }
)
"""REQUEST_TIMED_OUT, GROUP_COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR_FOR_GROUP and UNKNOWN are not listed, because the
coordinator maps failed appends to them."""

OFFSET_COMMIT_WORTH_REPEATING = frozenset({E.GROUP_LOAD_IN_PROGRESS})
"""Errors that go away: the coordinator accepts the commit once it has loaded its groups."""

TOPIC_CHANGE_NOT_DONE = frozenset(
    {
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_TOPIC,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TOPIC_ALREADY_EXISTS,
        E.INVALID_PARTITIONS,
        E.INVALID_REPLICATION_FACTOR,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_CONFIG,
        E.NOT_CONTROLLER,
        E.INVALID_REQUEST,
        E.POLICY_VIOLATION,
    }
)
"""For changes of topics and partitions. REQUEST_TIMED_OUT is not listed, because the change continues after it."""

ELECTION_NOT_DONE = TOPIC_CHANGE_NOT_DONE | {E.LEADER_NOT_AVAILABLE}
"""For elections: LEADER_NOT_AVAILABLE means that the preferred leader is not in sync."""

STALE_METADATA = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_FOR_PARTITION})
"""Errors after which the leader must be looked up again."""


def classify_error(error: ErrorCode, not_done: Collection[ErrorCode]) -> Certainty:
    """Returns the outcome that ``error`` means for a request whose definite rejections are ``not_done``."""
    if error is ErrorCode.NONE:
        return Certainty.DONE
    return Certainty.NOT_DONE if error in not_done else Certainty.UNKNOWN
