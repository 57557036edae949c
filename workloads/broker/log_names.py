"""Converts the client library's topics, partitions, nodes and errors to the names in the history."""

from typing import Any, Final

from assay.harness.core.operation import Completion, Outcome
from assay.system_under_test.client.errors import Certainty, ClientError, SendUnknown
from assay.system_under_test.client.membership import CommitFailed
from assay.system_under_test.protocol.errors import ErrorCode

INCARNATION_MARK: Final = "#"
"""Separates a topic's name from the number of its incarnation, if that is above 1. Topic names never contain it."""


def split_key(key: str) -> tuple[str, int]:
    """Splits ``orders-3`` or ``orders#2-3`` into the brokers' topic name and the partition."""
    topic, _, partition = key.rpartition("-")
    return strip_incarnation(topic), int(partition)


def strip_incarnation(key: str) -> str:
    """Returns ``orders`` for ``orders#2``."""
    return key.partition(INCARNATION_MARK)[0]


def format_incarnation(topic: str, number: int) -> str:
    """Returns the key of a topic's incarnation, counted from 1: ``orders``, ``orders#2``."""
    return topic if number == 1 else f"{topic}{INCARNATION_MARK}{number}"


def format_node(broker: int) -> str:
    """Returns the node's name. A broker's id is the number of its node."""
    return f"n{broker}"


def describe_error(error: ClientError) -> str:
    """Returns a text: the error's short name, which never changes, and the details."""
    name = format_error(error.error) if error.error is not None else type(error).__name__
    return f"{name}: {error}"


def to_outcome(certainty: Certainty) -> Outcome:
    """Returns the outcome of an unconfirmed operation: ``fail``, or ``info`` if it may still happen."""
    return Outcome.FAIL if certainty is Certainty.NOT_DONE else Outcome.INFO


def to_failure(error: ClientError, result: Any = None) -> Completion:
    """Returns the completion of an operation that raised ``error``: ``info`` if it may still happen, else ``fail``."""
    outcome = Outcome.INFO if isinstance(error, SendUnknown) else Outcome.FAIL
    if isinstance(error, CommitFailed):
        outcome = to_outcome(error.outcome)
    return Completion(outcome, result, error=describe_error(error))


def format_error(error: ErrorCode) -> str:
    return error.name.lower().replace("_", "-")
