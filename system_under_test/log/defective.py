"""Logs with a historic defect built in; see ``assay.system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.index import MAXIMUM, OffsetIndex
from assay.system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE, MINIMUM_SIZE, Buffer
from assay.system_under_test.records.message_set import Checked
from assay.system_under_test.runtime import Storage


class SizesOnly(LogConfig):
    """Follows the sizes of the entries and believes what stands between them: no CRC, no offset is looked at."""

    def check(self, data: Buffer, next_offset: int) -> Checked:
        position = count = 0
        while len(data) - position >= HEADER_SIZE:
            _, size = ENTRY_HEADER.unpack_from(data, position)
            if size < MINIMUM_SIZE or position + HEADER_SIZE + size > len(data):
                break
            position += HEADER_SIZE + size
            count += 1
        return Checked(position, next_offset + count, count, None)


class TrustedIndex(OffsetIndex):
    """Keeps what it once held: no cut of the segment shortens it, and no scan makes it anew."""

    def truncate(self, position: int) -> None:
        """The entries beyond stay, and speak of records that are gone."""

    def replace(self, entries: list[tuple[int, int]]) -> None:
        self.load(MAXIMUM)
        for entry in entries:
            self.append(*entry)

    def append(self, offset: int, position: int) -> None:
        if position > self.last_position and offset > self.offset_at(position):
            super().append(offset, position)


class IndexTrusted(LogConfig):
    """The index is what tells where a record is, also after a truncation; nobody looks whether it is there."""

    def open_index(self, storage: Storage, path: str, base_offset: int) -> OffsetIndex:
        return TrustedIndex(storage.open(path), base_offset)


_CLASSES: Mapping[str, type[LogConfig]] = MappingProxyType(
    {"no-crc-recovery": SizesOnly, "index-trusted": IndexTrusted}
)


def log_config_class(defects: Collection[str]) -> type[LogConfig]:
    """What the replica manager is to build."""
    for name, defective in _CLASSES.items():
        if name in defects:
            return defective
    return LogConfig
