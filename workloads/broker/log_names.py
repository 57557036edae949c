"""How the history names what the client library names: topics, partitions, nodes, errors."""

from typing import Final

from assay.harness.core.operation import Outcome
from assay.system_under_test.client.errors import Certainty, ClientError
from assay.system_under_test.protocol.errors import ErrorCode

LIFE: Final = "#"
"""Between a topic's name and the number of its life, from the second on: no topic's name has it."""


def split(key: str) -> tuple[str, int]:
    """``orders-3``, or ``orders#2-3``: the topic as brokers know it, and the partition."""
    topic, _, partition = key.rpartition("-")
    return topic_name(topic), int(partition)


def topic_name(key: str) -> str:
    """``orders`` for ``orders#2``."""
    return key.partition(LIFE)[0]


def life(topic: str, number: int) -> str:
    """The key of a topic's life, counted from 1: ``orders``, ``orders#2``."""
    return topic if number == 1 else f"{topic}{LIFE}{number}"


def node_name(broker: int) -> str:
    """Broker ids are the nodes' numbers."""
    return f"n{broker}"


def described(error: ClientError) -> str:
    """A short stable name, then what happened."""
    name = error_name(error.error) if error.error is not None else type(error).__name__
    return f"{name}: {error}"


def not_done(known: Certainty) -> Outcome:
    """Of what was not seen to be done: it failed, or may yet be done."""
    return Outcome.FAIL if known is Certainty.NOT_DONE else Outcome.INFO


def error_name(error: ErrorCode) -> str:
    return error.name.lower().replace("_", "-")
