"""Writer of a history during the run, in bounded memory.

1. Rows are buffered.
2. Some thousand rows at a time are converted for Arrow, and written as a row group of an unfinished part, outside the
   data set's folder. No single conversion blocks the event loop for long. Without an event loop, converted rows are
   collected for larger row groups, because readers keep some 25 kB of metadata for each row group.
3. After ``seal_seconds``, at ``part_rows`` and at close the part is sealed: renamed into the folder. A reader never
   sees a partial file, and a killed harness loses only the rows since the last seal.
4. At each seal, a manifest lists the files that readers may read during the run (``live_manifest``).
5. If rows cannot be converted, all other rows are sealed at once, and the history can never be marked as complete. An
   operation with an effect of the kind ``UNRECORDED`` stands for the lost rows, so that no check blames the system for
   their absence.

Effects are sealed before their operations. Data survives the death of the process, not of the machine: nothing is
fsynced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.core.history.data_sets import (
    CLOSED,
    ORIGIN_KEY,
    ORIGIN_OTHER,
    ORIGIN_RUN,
    REPORTED_DATA_SETS,
    UNRECORDED,
    HistoryError,
    LostRowsError,
)
from assay.harness.core.history.digest import HistoryDigest, hash_footer
from assay.harness.core.history.live_manifest import UNFINISHED, LiveManifestWriter, ReadUnfinished, get_part_path
from assay.harness.core.history.rows import COLUMNS, EffectRow, History, OpRow, to_op_row
from assay.harness.core.history.schema import SCHEMAS, load_conversion, to_batch
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.printable import count_noun, join_some, represent

TEXT_COLUMNS = {
    name: [field.name for field in schema if pa.types.is_string(field.type)] for name, schema in SCHEMAS.items()
}
"""By data set, the columns that are written with a dictionary."""


GROUP_ROWS: Final = 122_880
"""Rows in a row group if no event loop waits for the writer. A row group of DuckDB's own tables has as many."""


_PLACEHOLDER: Final = Completed(-1, -1, "", Operation("lost-rows"), Completion(Outcome.INFO), -1, None)
"""The operation that stands for all lost rows. No operation of a run has its number, its process or its call."""


class _LostRow(NamedTuple):
    """A row that cannot be converted. ``name`` is its name in messages."""

    name: str
    error: Exception


def _name_row(data_set: str, row: Any) -> str:
    return f"{data_set} of operation {represent(row[0].index)}" if data_set in ("ops", "effects") else data_set


class PartWriter:
    """Writes the part files of a data set. The first part is empty.

    ``group_rows``: minimum number of rows in a row group, except in a part's last one.
    """

    def __init__(self, folder: Path, name: str, origin: bytes, group_rows: int = 1) -> None:
        self._history = folder
        self._schema = SCHEMAS[name].with_metadata({**SCHEMAS[name].metadata, ORIGIN_KEY: origin})
        self._unfinished_path = folder / UNFINISHED / f"{name}.parquet"
        self._name = name
        self._group_rows = group_rows
        self._group: list[pa.RecordBatch] = []
        """Converted rows that are not yet written."""
        self._file: pq.ParquetWriter | None = None
        self._sink: pa.OSFile | None = None
        self.sealed = 0
        """Number of sealed parts."""
        self.pending: list[Any] = []
        """Rows that are not converted yet."""
        self.unsealed_rows = 0
        """Number of converted rows in no sealed part."""
        self.total_rows = 0
        (folder / name).mkdir(parents=True)
        self._open()
        self.seal()

    def convert(self, *digests: HistoryDigest) -> list[_LostRow]:
        """Moves the pending rows into the unfinished part. Returns the rows that cannot be converted."""
        rows, self.pending = self.pending, []
        lost: list[_LostRow] = []
        self._convert(rows, lost, digests)
        return lost

    def _convert(self, rows: Sequence[Any], lost: list[_LostRow], digests: Sequence[HistoryDigest]) -> None:
        """Converts the rows at once if possible, otherwise by halves."""
        if not rows:
            return
        try:
            batch = to_batch(SCHEMAS[self._name], COLUMNS[self._name](rows))
        except Exception as error:  # noqa: BLE001 - a row may have any values, and the others must be kept
            if len(rows) == 1:
                lost.append(_LostRow(_name_row(self._name, rows[0]), error))
                return
            middle = len(rows) // 2
            self._convert(rows[:middle], lost, digests)
            self._convert(rows[middle:], lost, digests)
            return
        self.write(batch, *digests)

    def write(self, batch: pa.RecordBatch, *digests: HistoryDigest) -> None:
        """Adds a batch with the schema's columns to the unfinished part."""
        for digest in digests:
            digest.update(self._name, batch)
        self._group.append(batch)
        self.unsealed_rows += batch.num_rows
        self.total_rows += batch.num_rows
        if sum(one.num_rows for one in self._group) >= self._group_rows:
            self._write_group()

    def _write_group(self) -> None:
        file = self._file or self._open()
        batches, self._group = self._group, []
        file.write_table(pa.Table.from_batches(batches))

    def seal(self) -> None:
        """Makes the converted rows visible as a part."""
        if self._group:
            self._write_group()
        if self._file is None:
            return
        self._file.close()
        self._file = None
        assert self._sink is not None
        self._sink.close()
        os.replace(self._unfinished_path, get_part_path(self._history, self._name, self.sealed))
        self.sealed += 1
        self.unsealed_rows = 0

    def abandon(self) -> None:
        """Closes the unfinished part, even if a full disk rejects its last bytes."""
        file, self._file = self._file, None
        for one in (file, self._sink):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.close()

    def _open(self) -> pq.ParquetWriter:
        sink = self._sink = pa.OSFile(str(self._unfinished_path), "wb")
        try:
            self._file = pq.ParquetWriter(
                sink, self._schema, compression="zstd", use_dictionary=TEXT_COLUMNS[self._name]
            )
        except OSError:
            self.abandon()
            raise
        return self._file


class HistoryWriter(History):
    """The history of one run. Not for use from several threads.

    ``folder`` must be empty. ``of_run``: every file states that a run wrote it, so even a copy of one file shows this.
    With ``loop``, a timer of the loop seals parts even if no rows come in; without it, only new rows lead to a seal.
    Methods raise ``HistoryError`` or ``OSError``. If the timer's seal fails, the next method call raises the error.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        of_run: bool = False,
        batch_rows: int = 4096,
        part_rows: int = 1_000_000,
        seal_seconds: float = 5.0,
    ) -> None:
        self._folder = Path(folder)
        self._loop = loop
        self._batch_rows = batch_rows
        self._part_rows = part_rows
        self._seal_seconds = seal_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._closed = False
        self._digest = HistoryDigest()
        self._reported_digest = HistoryDigest(names=REPORTED_DATA_SETS)
        if self._folder.exists() and any(self._folder.iterdir()):
            raise HistoryError(f"{self._folder} is not empty: a history is never written over; take a new folder")
        if loop is not None:
            load_conversion()  # otherwise the first seal would do it, and stop the loop and its operations meanwhile
        (self._folder / UNFINISHED).mkdir(parents=True)
        self._manifest = LiveManifestWriter(self._folder)
        self._read_unfinished: ReadUnfinished | None = None
        origin = ORIGIN_RUN if of_run else ORIGIN_OTHER
        group_rows = GROUP_ROWS if loop is None else 1
        self._parts = {name: PartWriter(self._folder, name, origin, group_rows) for name in COLUMNS}
        self._effects, self._ops = self._parts["effects"], self._parts["ops"]

    def completed(self, completed: Completed, effects: Sequence[Effect] = ()) -> None:
        row: OpRow = to_op_row(completed)
        self._ops.pending.append(row)
        if effects:
            pending: list[EffectRow] = self._effects.pending
            for sub, effect in enumerate(effects):
                pending.append((completed, sub, effect))
            if len(pending) >= self._batch_rows:
                self._convert_if_full(self._effects)
        if self._timer is None or len(self._ops.pending) >= self._batch_rows or self._error is not None:
            self._convert_if_full(self._ops)

    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        part = self._parts[name]
        part.pending.append(row)
        self._convert_if_full(part)

    def batch(self, name: str, rows: pa.RecordBatch) -> None:
        """Adds rows of the data set ``name`` as a batch with exactly its schema."""
        self._raise_if_unusable()
        if not rows.schema.equals(SCHEMAS[name]):
            raise HistoryError(f"a batch for {name} has other columns than its schema: {rows.schema.names}")
        part = self._parts[name]
        self._convert(part)
        try:
            part.write(rows, self._digest, self._reported_digest)
        except Exception as error:
            self._error = error
            raise
        if part.unsealed_rows >= self._part_rows:
            self._seal()

    def show_unfinished(self, unfinished: ReadUnfinished) -> None:
        self._read_unfinished = unfinished

    def flush(self) -> None:
        """Seals all rows so far, so that any reader sees them."""
        self._raise_if_unusable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seal()

    def digest(self) -> str:
        """Returns the hash of the rows of ops, effects and faults written so far; see the module ``digest``."""
        if not self._closed:
            self._raise_if_unusable()
            for part in self._parts.values():
                self._convert(part)
        return self._digest.hexdigest()

    def close(self) -> None:
        """Seals all rows and marks the history as complete. Idempotent."""
        if self._closed:
            return
        self.flush()
        rows = {name: part.total_rows for name, part in self._parts.items()}
        closed = {
            "digest": self._digest.hexdigest(),
            "reported": self._reported_digest.hexdigest(),
            "rows": {name: rows[name] for name in SCHEMAS},
            "footers": {
                f"{name}/{path.name}": hash_footer(path)
                for name in SCHEMAS
                for path in sorted((self._folder / name).glob("*.parquet"))
            },
        }
        unfinished = self._folder / UNFINISHED / CLOSED
        unfinished.write_bytes(msgspec.json.encode(closed))
        os.replace(unfinished, self._folder / CLOSED)
        shutil.rmtree(self._folder / UNFINISHED)
        self._closed = True

    def abandon(self) -> None:
        """Closes the files and leaves them as a killed run would: neither sealed nor marked as complete. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for part in self._parts.values():
            part.abandon()
        self._closed = True

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Marks the history as complete; if an exception passes, only seals the rows."""
        if kind is None:
            self.close()
            return
        if not self._closed and self._error is None:
            self.flush()
        self.abandon()

    def _convert_if_full(self, part: PartWriter) -> None:
        self._raise_if_unusable()
        if len(part.pending) >= self._batch_rows:
            self._convert(part)
            if part.unsealed_rows >= self._part_rows:
                self._seal()
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._seal_seconds, self._seal_on_timer)

    def _seal_on_timer(self) -> None:
        self._timer = None
        with contextlib.suppress(Exception):  # stored, and raised by the next call
            self._seal()

    def _seal(self) -> None:
        for part in self._parts.values():
            self._convert(part)
            try:
                part.seal()
            except Exception as error:
                self._error = error
                raise
        if self._read_unfinished is not None:
            self._write_manifest(self._read_unfinished)

    def _write_manifest(self, unfinished: ReadUnfinished) -> None:
        """Writes the manifest for concurrent readers. A failure does not harm the history itself."""
        with contextlib.suppress(HistoryError, OSError, pa.ArrowException):
            self._manifest.write({name: part.sealed for name, part in self._parts.items()}, unfinished())

    def _convert(self, part: PartWriter) -> None:
        try:
            lost = part.convert(self._digest, self._reported_digest)
            if lost:
                raise self._save_others(lost)
        except Exception as error:
            self._error = error  # rows are lost, so this history can never be marked as complete
            raise

    def _save_others(self, lost: list[_LostRow]) -> LostRowsError:
        """Seals all rows that can be stored, with a placeholder for the others. Returns the error that names them."""
        for part in self._parts.values():
            lost += part.convert()
        self._effects.pending.append((_PLACEHOLDER, 0, Effect(UNRECORDED, "")))
        self._ops.pending.append(to_op_row(_PLACEHOLDER))
        for part in (self._effects, self._ops):
            part.convert()
        for part in self._parts.values():
            part.seal()
        names = list(dict.fromkeys(one.name for one in lost))
        return LostRowsError(
            f"{lost[0].error}; {count_noun(len(lost), 'row')} cannot be stored ({join_some(names, 10)}), and all other "
            "rows so far are kept; correct the code that makes such values"
        )

    def _raise_if_unusable(self) -> None:
        if self._error is not None:
            raise HistoryError(f"writing the history in {self._folder} failed earlier: {self._error}") from self._error
        if self._closed:
            raise HistoryError(f"the history in {self._folder} is closed")
