"""Result of a fetch of one partition."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.system_under_test.client.errors import STALE_METADATA
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchPartitionResponse
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import TIMESTAMP_TYPE_BIT, Message, RecordError

__all__ = ["RESPONSE_GRACE", "RETRIABLE_ERRORS", "FetchResult", "Message", "get_create_time", "read_messages"]

RESPONSE_GRACE = 2.0
"""Seconds for a response, beyond the requested wait, before the leader is looked up and asked again."""

RETRIABLE_ERRORS = STALE_METADATA | {ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN}
"""Errors after which a read is worth repeating."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Result of one fetch. ``error`` is NONE, or why the broker rejected it (mostly OFFSET_OUT_OF_RANGE)."""

    messages: Sequence[Message]
    high_watermark: int
    """-1 after an error."""
    node: int
    """The broker that responded; -1 if none did."""
    error: ErrorCode = ErrorCode.NONE


def get_create_time(message: Message) -> int | None:
    """Returns a message's create time in milliseconds. None if it has none, or if the broker set the append time."""
    return None if message.attributes & TIMESTAMP_TYPE_BIT else message.timestamp


def read_messages(found: FetchPartitionResponse, offset: int, *, check_crcs: bool) -> tuple[list[Message], str | None]:
    """Returns the complete messages of a response, up to the first damage. They may begin below ``offset``.

    If no message at ``offset`` or above precedes the damage, returns no messages and a description of the damage.
    """
    messages: list[Message] = []
    try:
        for message in message_set.iterate_messages(read_records(found.records), check_crcs=check_crcs):
            messages.append(message)
    except RecordError as damage:
        if not any(message.offset >= offset for message in messages):
            return [], str(damage)
    return messages, None
