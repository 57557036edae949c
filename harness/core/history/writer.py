"""Writes a history while the run goes on, in bounded memory.

Rows are buffered, converted some thousand at a time into a row group of a part file outside the data set's folder,
and the part is renamed in when it is sealed: after ``seal_seconds``, at ``part_rows``, and at close. So a reader never
sees half a file, a harness that is killed loses what came since the last seal and no more, and no single conversion
holds the event loop up for long. Effects are sealed before the operations that they belong to.

Durability is against the death of the process, not of the machine: nothing is fsynced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.core.history.columns import EffectRow, OpRow, effects_batch, op_row, ops_batch, plain_batch, to_json
from assay.harness.core.history.digest import HistoryDigest
from assay.harness.core.history.schema import CLOSED, EVENTS, FAULTS, LOOKS, NODE_LISTS, REPLICAS, SCHEMAS, HistoryError
from assay.harness.core.operation import Completed, Effect

TEXT_COLUMNS = {
    name: [field.name for field in schema if pa.types.is_string(field.type)] for name, schema in SCHEMAS.items()
}


class PartWriter:
    """One data set: a folder of part files, the first of them empty."""

    def __init__(self, folder: Path, name: str, batch: Callable[[Sequence[Any]], pa.RecordBatch]) -> None:
        self._folder = folder / name
        self._unfinished = folder / ".unfinished" / f"{name}.parquet"
        self._name = name
        self._columns = frozenset(SCHEMAS[name].names)
        self._required = frozenset(field.name for field in SCHEMAS[name] if not field.nullable)
        self._batch = batch
        self._file: pq.ParquetWriter | None = None
        self._sealed = 0
        self.pending: list[Any] = []
        self.unsealed_rows = 0
        self.total_rows = 0
        self._folder.mkdir(parents=True)
        self._open()
        self.seal()

    def add(self, columns: Mapping[str, Any]) -> None:
        """One row, by names of columns; ``HistoryError`` if it has too many or too few."""
        if not self._required <= columns.keys() <= self._columns:
            unknown = ", ".join(sorted(columns.keys() - self._columns))
            missing = ", ".join(sorted(self._required - columns.keys()))
            wrong = f"has no column {unknown}" if unknown else f"must have a value for {missing} in every row"
            raise HistoryError(f"{self._name} {wrong}; it has {', '.join(SCHEMAS[self._name].names)}")
        self.pending.append(tuple(map(columns.get, SCHEMAS[self._name].names)))

    def convert(self, digest: HistoryDigest) -> None:
        """Moves the pending rows into the unfinished part."""
        if not self.pending:
            return
        rows, self.pending = self.pending, []
        self.write(self._batch(rows), digest)

    def write(self, batch: pa.RecordBatch, digest: HistoryDigest) -> None:
        """Adds a batch with the schema's columns to the unfinished part."""
        digest.update(self._name, batch)
        file = self._file or self._open()
        file.write_batch(batch)
        self.unsealed_rows += batch.num_rows
        self.total_rows += batch.num_rows

    def seal(self) -> None:
        """Makes what has been converted visible as a part."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        os.replace(self._unfinished, self._folder / f"part-{self._sealed:06d}.parquet")
        self._sealed += 1
        self.unsealed_rows = 0

    def abandon(self) -> None:
        """Lets go of the unfinished part."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> pq.ParquetWriter:
        self._file = pq.ParquetWriter(
            self._unfinished, SCHEMAS[self._name], compression="zstd", use_dictionary=TEXT_COLUMNS[self._name]
        )
        return self._file


def _listed(value: Any) -> Any:
    """A list of nodes' numbers as text."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class HistoryWriter:
    """The history of one run. Not for use from several threads.

    ``folder`` must hold no history yet. With ``loop`` parts are sealed by its clock even when nothing happens;
    without, only as rows come in. Raises ``HistoryError`` or ``OSError``; one that arises in the background is raised
    by the next call.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
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
        if self._folder.exists() and any(self._folder.iterdir()):
            raise HistoryError(f"{self._folder} is not empty: a history is never written over; take a new folder")
        (self._folder / ".unfinished").mkdir(parents=True)
        self._effects = PartWriter(self._folder, "effects", effects_batch)
        self._ops = PartWriter(self._folder, "ops", ops_batch)
        self._faults = PartWriter(self._folder, "faults", plain_batch(FAULTS))
        self._events = PartWriter(self._folder, "events", plain_batch(EVENTS))
        self._replicas = PartWriter(self._folder, "replicas", plain_batch(REPLICAS))
        self._looks = PartWriter(self._folder, "looks", plain_batch(LOOKS))
        self._parts = {
            "effects": self._effects,
            "ops": self._ops,
            "faults": self._faults,
            "events": self._events,
            "replicas": self._replicas,
            "looks": self._looks,
        }

    @property
    def folder(self) -> Path:
        return self._folder

    def completed(self, completed: Completed, effects: Sequence[Effect] = ()) -> None:
        """One operation that has ended, with its effects in their order inside it."""
        row: OpRow = op_row(completed)
        if effects:
            pending: list[EffectRow] = self._effects.pending
            for sub, effect in enumerate(effects):
                pending.append((completed, sub, effect))
            if len(pending) >= self._batch_rows:
                self._added(self._effects)
        self._ops.pending.append(row)
        if self._timer is None or len(self._ops.pending) >= self._batch_rows or self._error is not None:
            self._added(self._ops)

    def fault(self, *, targets: Sequence[str], detail: Any = None, **columns: Any) -> None:
        """One step of a fault: ``phase`` is intended, injected, healed, recovered or failed; ``time`` a stamp.

        ``columns``: those of ``FAULTS``, as for each of the following methods those of its data set: null where it may
        be and is not given. Each raises ``HistoryError`` for a column that there is not, or that must be there.
        """
        about = to_json({} if detail is None else detail, f"detail of fault {columns.get('fault')}")
        self._add(self._faults, {**columns, "targets": to_json(list(targets), "targets"), "detail": about})

    def event(self, *, detail: Any = None, **columns: Any) -> None:
        """One line of a node's event log; ``seq`` is its order on that node and incarnation. Columns that name nodes
        may be lists of numbers.
        """
        about = to_json({} if detail is None else detail, f"detail of event {columns.get('event')}")
        lists: dict[str, Any] = {name: _listed(columns.get(name)) for name in NODE_LISTS}
        self._add(self._events, {**columns, **lists, "detail": about})

    def replica(self, **columns: Any) -> None:
        """One record as found on a node's disk after the run, or the end of its log."""
        self._add(self._replicas, columns)

    def look(self, **columns: Any) -> None:
        """One thing seen in a look at the system at rest."""
        self._add(self._looks, columns)

    def batch(self, name: str, rows: pa.RecordBatch) -> None:
        """Rows of the data set ``name`` that were made column by column, with exactly its schema."""
        self._raise_if_unusable()
        if not rows.schema.equals(SCHEMAS[name]):
            raise HistoryError(f"a batch for {name} has other columns than its schema: {rows.schema.names}")
        part = self._parts[name]
        self._convert(part)
        try:
            part.write(rows, self._digest)
        except (OSError, pa.ArrowException) as error:
            self._error = error
            raise
        if part.unsealed_rows >= self._part_rows:
            self._seal()

    def flush(self) -> None:
        """Seals all rows so far: from now on any reader sees them."""
        self._raise_if_unusable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seal()

    def digest(self) -> str:
        """The hash of the canonical rows of ops, effects and faults written so far; see ``digest``."""
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
        closed = {"digest": self._digest.hexdigest(), "rows": {name: rows[name] for name in SCHEMAS}}
        unfinished = self._folder / ".unfinished" / CLOSED
        unfinished.write_bytes(msgspec.json.encode(closed))
        os.replace(unfinished, self._folder / CLOSED)
        shutil.rmtree(self._folder / ".unfinished")
        self._closed = True

    def abandon(self) -> None:
        """Lets go without sealing or marking: what a killed run leaves behind. Idempotent."""
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
        """Marks the history as complete unless an exception passes: then rows are sealed, but it stays unmarked."""
        if kind is None:
            self.close()
            return
        if not self._closed and self._error is None:
            self.flush()
        self.abandon()

    def _add(self, part: PartWriter, columns: Mapping[str, Any]) -> None:
        part.add(columns)
        self._added(part)

    def _added(self, part: PartWriter) -> None:
        self._raise_if_unusable()
        if len(part.pending) >= self._batch_rows:
            self._convert(part)
            if part.unsealed_rows >= self._part_rows:
                self._seal()
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._seal_seconds, self._seal_in_time)

    def _seal_in_time(self) -> None:
        self._timer = None
        with contextlib.suppress(HistoryError, OSError, pa.ArrowException):  # kept, for the next call to raise
            self._seal()

    def _seal(self) -> None:
        for part in self._parts.values():
            self._convert(part)
            try:
                part.seal()
            except (OSError, pa.ArrowException) as error:
                self._error = error
                raise

    def _convert(self, part: PartWriter) -> None:
        try:
            part.convert(self._digest)
        except (HistoryError, OSError, pa.ArrowException) as error:
            self._error = error  # rows are lost: this history can never be marked as complete
            raise

    def _raise_if_unusable(self) -> None:
        if self._error is not None:
            raise HistoryError(f"writing the history in {self._folder} failed earlier: {self._error}") from self._error
        if self._closed:
            raise HistoryError(f"the history in {self._folder} is closed")
