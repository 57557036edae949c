"""Logs with a historic defect built in; see ``system_under_test.defects``."""

from __future__ import annotations

from collections.abc import Collection

from system_under_test.log.config import LogConfig
from system_under_test.records.message import ENTRY_HEADER, HEADER_SIZE, MINIMUM_SIZE, Buffer
from system_under_test.records.message_set import Checked


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


def log_config_class(defects: Collection[str]) -> type[LogConfig]:
    """What the replica manager is to build."""
    return SizesOnly if "no-crc-recovery" in defects else LogConfig
