"""Record formats: one message (``message``), several compressed into one (``wrapper``, ``compression``), and a sequence
of either (``message_set``)."""

from assay.system_under_test.records.message import (
    CorruptMessage,
    InvalidTimestamp,
    Message,
    MessageTooLarge,
    RecordError,
)
from assay.system_under_test.records.message_set import Summary

__all__ = ["CorruptMessage", "InvalidTimestamp", "Message", "MessageTooLarge", "RecordError", "Summary"]
