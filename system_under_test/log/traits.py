"""Traits of a log: the functions that a historic defect replaces (``assay.system_under_test.defects``)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from assay.system_under_test.log import directory
from assay.system_under_test.log.index import MAX_RELATIVE, OffsetIndex
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE, MINIMUM_SIZE, NO_TIMESTAMP, Buffer
from assay.system_under_test.records.message_set import CheckResult, SetTimes
from assay.system_under_test.runtime import File, Storage


class CheckBytes(Protocol):
    """Checks bytes from a disk, which should begin at ``next_offset``, and returns how many of them are valid.

    ``gaps``: whether offsets may be missing. ``highest``: the greatest valid offset.
    """

    def __call__(self, data: Buffer, next_offset: int, *, gaps: bool, highest: int) -> CheckResult: ...


@dataclass(frozen=True)
class LogTraits:
    """The functions that lock a directory, check bytes from disk, and make an index."""

    check: CheckBytes = message_set.check
    index: Callable[[File, int], OffsetIndex] = OffsetIndex
    """Makes an index from its file and its segment's base offset; the caller must still load or rebuild the index."""
    lock: Callable[[Storage, str], None] = directory.lock
    """Locks the log directory for this process."""


CORRECT = LogTraits()


def select_log_traits(defects: Collection[str]) -> LogTraits:
    """Returns the traits of a build with these defects."""
    if "no-crc-recovery" in defects:
        return LogTraits(check=follow_sizes)
    if "index-trusted" in defects:
        return LogTraits(index=TrustedIndex)
    if "no-directory-lock" in defects:
        return LogTraits(lock=leave_unlocked)
    return CORRECT


def leave_unlocked(storage: Storage, root: str) -> None:
    """Locks nothing, so any number of processes can use the directory."""


def follow_sizes(data: Buffer, next_offset: int, *, gaps: bool, highest: int) -> CheckResult:
    """Follows the entries' size fields, and checks no CRC and no offset."""
    position = count = 0
    while len(data) - position >= HEADER_SIZE:
        _, size = ENTRY_HEADER.unpack_from(data, position)
        if size < MINIMUM_SIZE or position + HEADER_SIZE + size > len(data):
            break
        position += HEADER_SIZE + size
        count += 1
    good = data[:position]
    first = message_set.read_first_offset(good) if count else next_offset
    found = list(message_set.iterate_timestamps(good))
    newest, offset, _ = max(found, key=itemgetter(0), default=(NO_TIMESTAMP, -1, 0))
    times = SetTimes(newest, offset, any(timestamp < 0 for timestamp, _, _ in found))
    return CheckResult(position, first, next_offset + count, count, times, None)


class TrustedIndex(OffsetIndex):
    """An index that keeps all its entries: no truncation of the segment and no scan removes any."""

    def truncate(self, position: int) -> None:
        """Keeps the entries beyond ``position``, which then point at removed records."""

    def replace(self, entries: list[tuple[int, int]]) -> None:
        self.load(MAX_RELATIVE)
        for entry in entries:
            self.append(*entry)

    def append(self, offset: int, position: int) -> None:
        if position > self.last_position and offset > self.offset_at(position):
            super().append(offset, position)
