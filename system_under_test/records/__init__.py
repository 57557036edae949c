"""Record formats: one message (``message``) and a sequence of them (``message_set``)."""

from system_under_test.records.message import (
    CorruptMessage,
    Message,
    MessageTooLarge,
    RecordError,
    UnsupportedCompression,
)
from system_under_test.records.message_set import Summary

__all__ = ["CorruptMessage", "Message", "MessageTooLarge", "RecordError", "Summary", "UnsupportedCompression"]
