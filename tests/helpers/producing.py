"""Sets of messages as a leader takes them from producers."""

from __future__ import annotations

from assay.system_under_test.records.message import Buffer
from assay.system_under_test.records.produced import ValidatedSet, stamp, validate


def validated(data: Buffer) -> ValidatedSet:
    """Validates a message set of any size."""
    return validate(data, 1 << 30)


def as_appended(data: Buffer, base_offset: int, append_time: int | None = None) -> tuple[bytes, int]:
    """As a leader appends it from this offset on, and how many messages it has."""
    produced = validated(data)
    return stamp(produced, base_offset, append_time)[0], produced.count
