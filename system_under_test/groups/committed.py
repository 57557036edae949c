"""The offsets that one group has committed, and the commits whose outcome is still open."""

from collections import Counter
from collections.abc import Sequence

from assay.system_under_test.groups.records import OffsetRecord, OffsetValue


class CommittedOffsets:
    """``values`` are known to fetches, by topic and partition."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], OffsetValue] = {}
        self._pending: Counter[tuple[str, int]] = Counter()

    def __bool__(self) -> bool:
        """Is anything committed, or may anything be soon?"""
        return bool(self.values) or any(self._pending.values())

    def begin(self, records: Sequence[OffsetRecord]) -> None:
        """They are appended; :meth:`settle` follows for the same records, however late."""
        self._pending.update((record.topic, record.partition) for record in records)

    def settle(self, records: Sequence[OffsetRecord], *, committed: bool) -> None:
        for record in records:
            self._pending[record.topic, record.partition] -= 1
            if committed:
                self.put(record)

    def put(self, record: OffsetRecord) -> None:
        key = record.topic, record.partition
        if record.value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = record.value

    def expired(self, now: int) -> list[tuple[str, int]]:
        """Those whose time is over, and for which no commit is open. ``now`` in milliseconds since the epoch."""
        return [key for key, value in self.values.items() if value.expire_timestamp <= now and not self._pending[key]]
