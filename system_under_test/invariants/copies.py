"""The current records of a replica on a simulated disk, read incrementally.

A log file grows, or is truncated, replaced by compaction, or removed. The simulated disk tells growth from all other
changes. So the known records of a file stay valid while the file only grows.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from zlib import crc32

from assay.system_under_test.log.checkpoints import HIGH_WATERMARKS, CheckpointError, parse_lines
from assay.system_under_test.log.epochs import EPOCHS
from assay.system_under_test.log.files import LOG_SUFFIX
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import (
    CODEC_MASK,
    CRC_START,
    ENTRY_PREFIX,
    HEADER_SIZE,
    CorruptMessage,
    encode,
)

T = TypeVar("T")

_HIGHEST: Final = 2**63 - 1
"""Above all offsets and epochs."""


class RecordTable(Protocol[T]):
    """Data of records by offset."""

    def __setitem__(self, offset: int, record: T) -> None: ...

    def between(self, low: int, high: int) -> dict[int, T]:
        """Returns the records from ``low`` to before ``high``."""


class RecordDict(dict[int, T]):
    """Records as objects."""

    def between(self, low: int, high: int) -> dict[int, T]:
        """Returns the records from ``low`` to before ``high``."""
        if high - low < len(self):  # the usual case: few records are new
            return {offset: self[offset] for offset in range(low, high) if offset in self}
        return {offset: one for offset, one in self.items() if low <= offset < high}


class CrcTable:
    """The CRCs of records in 12 bytes each, because a long run has many. Offsets that do not rise are in a dict."""

    __slots__ = ("_crcs", "_offsets", "_unordered")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._crcs = array("I")
        self._unordered: dict[int, int] = {}

    def __setitem__(self, offset: int, crc: int) -> None:
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._crcs.append(crc)
        else:
            self._unordered[offset] = crc

    def find(self, offset: int) -> int | None:
        """Returns the CRC of a record, or None if there is no record at this offset."""
        if offset in self._unordered:
            return self._unordered[offset]
        index = bisect_left(self._offsets, offset)
        return self._crcs[index] if index < len(self._offsets) and self._offsets[index] == offset else None

    def find_difference(self, other: "CrcTable") -> int | None:
        """Returns the first offset at which two tables differ; None if they are equal.

        A binary search compares whole arrays, because tables of hours are long and mostly equal.
        """
        low, high = 0, min(len(self._offsets), len(other._offsets))
        while low < high:
            middle = (low + high + 1) // 2
            same = self._offsets[low:middle] == other._offsets[low:middle]
            if same and self._crcs[low:middle] == other._crcs[low:middle]:
                low = middle
            else:
                high = middle - 1
        found = [table._offsets[low] for table in (self, other) if low < len(table._offsets)]
        if self._unordered != other._unordered:
            found += [*self._unordered, *other._unordered]
        return min(found, default=None)

    def between(self, low: int, high: int) -> dict[int, int]:
        """Returns the CRCs of the records from ``low`` to before ``high``."""
        first, last = bisect_left(self._offsets, low), bisect_left(self._offsets, high)
        found = dict(zip(self._offsets[first:last], self._crcs[first:last], strict=True))
        found.update((offset, crc) for offset, crc in self._unordered.items() if low <= offset < high)
        return found


@dataclass
class SegmentFile(Generic[T]):
    """A log file: data of the records in its first ``size`` bytes, by offset."""

    version: object
    """Identifies the file's content. Every change except growth changes the version."""
    inode: object
    """A reference that keeps ``version``, an object id, from being reused."""
    records: RecordTable[T]
    size: int = 0
    broken: bool = False
    """Whether the next bytes are not a record, so that nothing after them is read."""


class ReplicaLog(Generic[T]):
    """A replica's log as of the last :meth:`refresh`.

    ``parse_new`` parses the new whole records of a file. ``make_table`` returns an empty table for a file's records.
    """

    def __init__(
        self,
        disk: Any,
        folder: str,
        parse_new: Callable[[SegmentFile[T], bytes], None],
        make_table: Callable[[], RecordTable[T]],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._parse_new = parse_new
        self._make_table = make_table
        self._files: dict[int, SegmentFile[T]] = {}
        self._names: list[str] = []
        self._empty: list[int] = []
        """Files ignored while they are empty: a failed roll may have left one, and the file before was continued."""
        self.rewrites = 0
        """Number of truncations, compactions and the like. Growth and removals of the oldest files do not count."""
        self._rewritten_from: list[int] = []
        """By rewrite: the first offset whose record may have changed."""

    def refresh(self) -> None:
        """Reads new data. The log ends at the first invalid bytes."""
        names = [name for name in self._disk.names(self._folder) if name.endswith(LOG_SUFFIX)]
        same = names == self._names and not any(map(self._has_data, self._empty))
        if same and self._files and self._read_growth(max(self._files)):
            return  # only compaction may have changed earlier files, and the records that it leaves are unchanged
        self._names = names
        found = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in names)
        bases = list(filter(self._has_data, found)) or found[:1]
        self._empty = [base for base in found if base not in bases]
        gone = self._files.keys() - set(bases)
        if inner := [base for base in gone if not bases or base > bases[0]]:
            self._count_rewrite(min(inner))
        for base in gone:
            del self._files[base]
        for base in bases:
            self._read(base)

    def _read(self, base: int) -> None:
        if base in self._files and self._read_growth(base):
            return
        former, changed = self._files.get(base), any(other >= base for other in self._files)
        state = self._disk.state(self._path(base))
        self._files[base] = SegmentFile(state.version, state.inode, self._make_table())
        self._read_growth(base)
        if changed:
            self._count_rewrite(base if former is None else self._find_difference(base, former, self._files[base]))

    def _find_difference(self, base: int, former: SegmentFile[T], current: SegmentFile[T]) -> int:
        """Returns the first offset whose record differs between two states of the file that begins at ``base``."""
        return base

    def _count_rewrite(self, first: int) -> None:
        self.rewrites += 1
        self._rewritten_from.append(first)

    def find_unchanged(self, rewrites: int, end: int) -> int:
        """Returns the end of the part below ``end`` that is unchanged since :attr:`rewrites` was ``rewrites``."""
        return min((end, *self._rewritten_from[rewrites:]))

    def _read_growth(self, base: int) -> bool:
        """Reads data added to the file; returns False if the file has changed in any other way."""
        known, path = self._files[base], self._path(base)
        state = self._disk.state(path)
        if known.version != state.version or state.size < known.size:
            return False
        if state.size > known.size and not known.broken:
            self._parse_new(known, self._disk.tail(path, known.size))
        return True

    def _has_data(self, base: int) -> bool:
        return bool(self._disk.state(self._path(base)).size)

    def _path(self, base: int) -> str:
        return f"{self._folder}/{base:020}{LOG_SUFFIX}"

    @property
    def start(self) -> int:
        """The offset at which the first file begins; 0 if there is none."""
        return min(self._files, default=0)

    def between(self, first: int, end: int) -> dict[int, T]:
        """Returns the known data of the records from ``first`` to before ``end``, in order."""
        found: dict[int, T] = {}
        bases = sorted(self._files)
        for base, following in zip(bases, [*bases[1:], end], strict=False):
            found |= self._files[base].records.between(max(first, base), min(end, max(following, base)))
        return found


class ReplicaCopy(ReplicaLog[int]):
    """A replica's log with the CRC of each record, and its epoch history."""

    def __init__(self, disk: Any, folder: str) -> None:
        super().__init__(disk, folder, _read_crcs, CrcTable)
        self._epochs = _CheckpointFile(
            disk, f"{folder}/{EPOCHS}", lambda rows: sorted((int(start), int(epoch)) for epoch, start in rows)
        )
        self._history: list[tuple[int, int]] = []
        """Start offsets with their epochs, in order."""

    def refresh(self) -> None:
        """Reads new records, and the epoch history."""
        known, former = self.rewrites, self._history
        super().refresh()
        self._history = self._epochs.read() or []
        if self.rewrites > known:
            self._rewritten_from[-1] = min(self._rewritten_from[-1], _find_changed_epoch(former, self._history))

    def _find_difference(self, base: int, former: SegmentFile[int], current: SegmentFile[int]) -> int:
        assert isinstance(former.records, CrcTable)
        assert isinstance(current.records, CrcTable)
        found = former.records.find_difference(current.records)
        return _HIGHEST if found is None else max(base, found)

    def epoch(self, offset: int) -> int | None:
        """Returns the leader epoch of a record by the replica's own history."""
        number = bisect_right(self._history, (offset, _HIGHEST))
        return self._history[number - 1][1] if number else None


def _find_changed_epoch(former: Sequence[tuple[int, int]], current: Sequence[tuple[int, int]]) -> int:
    """Returns the first offset whose epoch may have changed. Epochs that were only added change no known record."""
    number = next((number for number, (old, new) in enumerate(zip(former, current, strict=False)) if old != new), None)
    if number is None:
        return former[len(current)][0] if len(current) < len(former) else _HIGHEST
    return min(former[number][0], current[number][0])


def _read_crcs(file: SegmentFile[int], data: bytes) -> None:
    unpack, position, length = ENTRY_PREFIX.unpack_from, 0, len(data)
    while length - position >= ENTRY_PREFIX.size:
        offset, size, crc, magic, attributes = unpack(data, position)
        end = position + HEADER_SIZE + size
        if size <= 0 or magic not in (0, 1):
            file.broken = True
            break
        if end > length:
            break
        if attributes & CODEC_MASK:
            try:
                for inner, crc_of_inner in list(_read_inner_crcs(data[position:end])):
                    file.records[inner] = crc_of_inner
            except (CorruptMessage, ValueError):
                file.broken = True
                break
        else:
            file.records[offset] = crc
        position = end
    file.size += position


def _read_inner_crcs(entry: bytes) -> Iterator[tuple[int, int]]:
    """Yields the CRCs of a compressed set's records as if uncompressed, because compaction rebuilds compressed sets."""
    for message in message_set.iterate_messages(entry):
        plain = encode(message._replace(attributes=message.attributes & ~CODEC_MASK))
        yield message.offset, crc32(memoryview(plain)[CRC_START:])


class HighWatermarks:
    """The high watermarks in a broker's checkpoint."""

    def __init__(self, disk: Any, data: str) -> None:
        self._checkpoint = _CheckpointFile(
            disk, f"{data}/{HIGH_WATERMARKS}", lambda rows: {f"{topic}-{index}": int(at) for topic, index, at in rows}
        )

    def find(self, key: str) -> int:
        """Returns a partition's high watermark; 0 if none is stored, or the file is invalid."""
        return (self._checkpoint.read() or {}).get(key, 0)


class _CheckpointFile(Generic[T]):
    """The parsed content of a checkpoint file, which is read again when it changes."""

    def __init__(self, disk: Any, path: str, convert: Callable[[list[list[str]]], T]) -> None:
        self._disk, self._path, self._convert = disk, path, convert
        self._known: tuple[object, object, T | None] = (None, None, None)
        """The ``version`` and ``inode`` (see ``SegmentFile``) of the last read, and its content."""

    def read(self) -> T | None:
        """Returns the converted rows; None if the file is missing or invalid."""
        try:
            state = self._disk.state(self._path)
            if state.version != self._known[0]:
                found = self._convert(parse_lines(self._path, self._disk.read(self._path)))
                self._known = state.version, state.inode, found
        except (FileNotFoundError, CheckpointError, ValueError):
            return None
        return self._known[2]
