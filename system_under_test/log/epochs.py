"""The epoch history of a partition: which leader epoch began at which offset (``leader-epoch-checkpoint``).

Messages of formats 0 and 1 do not carry the epoch. So replicas find the offset at which they diverge by this history
alone (KIP-101). KIP-279 defines a leader's answer about an epoch that it never had.

An entry says that the messages from its offset up to the next entry's offset were appended in its epoch. Epochs rise
strictly. Offsets never fall, and an epoch in which nothing was appended keeps its entry (KAFKA-7415).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from assay.system_under_test.log.checkpoints import CheckpointError, format_lines, parse_lines
from assay.system_under_test.runtime import Storage
from assay.system_under_test.storage.atomic import LogStateFile, write_atomic

EPOCHS = "leader-epoch-checkpoint"
UNKNOWN = -1


class EpochStart(NamedTuple):
    """An epoch, and the log's end when it began, which is the offset of its first message, if it has any."""

    epoch: int
    start_offset: int


class EpochHistory(LogStateFile):
    """The epoch history of one partition. Changes are in memory only until :meth:`flush` returns."""

    def __init__(self, storage: Storage, directory: str, entries: Iterable[EpochStart] = ()) -> None:
        super().__init__(storage, f"{directory}/{EPOCHS}")
        self._entries = _require_ascending(self._path, entries)
        self._durable: tuple[EpochStart, ...] | None = None

    @classmethod
    async def load(cls, storage: Storage, directory: str) -> EpochHistory:
        """Loads the history from a partition's directory, empty if it has none. Raises ``CheckpointError``."""
        path = f"{directory}/{EPOCHS}"
        if not storage.exists(path):
            return cls(storage, directory)
        entries = []
        for number, words in enumerate(parse_lines(path, storage.read_bytes(path)), 3):
            try:
                epoch, offset = words
                entries.append(EpochStart(int(epoch), int(offset)))
            except ValueError as error:
                raise CheckpointError(f"{path}: line {number} is not 'epoch offset': {words}") from error
        try:
            return cls(storage, directory, entries)
        except ValueError as error:
            raise CheckpointError(f"{path}: out of order; the log has no usable history") from error

    def entries(self) -> tuple[EpochStart, ...]:
        """Returns the entries, ascending."""
        return self._entries

    def latest(self) -> int:
        """Returns the last epoch; -1 if there is none."""
        return self._entries[-1].epoch if self._entries else UNKNOWN

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Adds the entry that ``epoch`` begins at ``start_offset``; returns False if it is the latest epoch already.

        Raises ``ValueError`` for an epoch or an offset below the last entry's: truncate first.
        """
        if epoch == self.latest() and epoch != UNKNOWN:
            return False
        self._entries = _require_ascending(self._path, (*self._entries, EpochStart(epoch, start_offset)))
        return True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Returns ``(e, end)``: the largest known epoch that is <= ``epoch``, and the offset after its last message.

        - The last epoch ends at ``log_end``.
        - If all known epochs are larger, the result is ``(-1, start of the first entry)``.
        - Without a history, or for epoch -1, the result is ``(-1, -1)``: nothing is known.
        """
        if not self._entries or epoch == UNKNOWN:
            return UNKNOWN, UNKNOWN
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        found = self._entries[following - 1].epoch if following else UNKNOWN
        return found, self._entries[following].start_offset if following < len(self._entries) else log_end

    def truncate_from_end(self, offset: int) -> None:
        """Removes the entries that begin at ``offset`` or beyond."""
        self._entries = tuple(entry for entry in self._entries if entry.start_offset < offset)

    def truncate_from_start(self, offset: int) -> None:
        """Removes the entries of epochs that have no message at ``offset`` or beyond.

        The epoch of ``offset`` now begins at ``offset`` (Kafka's ``clearAndFlushEarliest``).
        """
        kept = tuple(entry for entry in self._entries if entry.start_offset >= offset)
        gone = self._entries[: len(self._entries) - len(kept)]
        if gone and (not kept or kept[0].start_offset > offset):
            kept = (EpochStart(gone[-1].epoch, offset), *kept)
        self._entries = kept

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replaces the whole history. Raises ``ValueError`` if the entries are not in order."""
        self._entries = _require_ascending(self._path, (EpochStart(*entry) for entry in entries))

    async def flush(self) -> None:
        """Returns once the entries as of the call, or later ones, are durable."""
        async with self._writing:
            entries = self._entries
            if entries != self._durable and not self._closed:
                rows = (f"{epoch} {offset}" for epoch, offset in entries)
                await write_atomic(self._storage, self._path, format_lines(rows))
                self._durable = entries


def _require_ascending(path: str, entries: Iterable[EpochStart]) -> tuple[EpochStart, ...]:
    ordered = tuple(entries)
    previous = EpochStart(UNKNOWN, 0)
    for entry in ordered:
        if entry.epoch <= previous.epoch or entry.start_offset < previous.start_offset:
            raise ValueError(f"{path}: epoch {entry.epoch} at {entry.start_offset} cannot follow {previous}")
        previous = entry
    return ordered
