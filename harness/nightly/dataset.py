"""Files of the nightly data set: ``night=2026-11-21/<run>.parquet``, one per run, in Hive's partitioning.

Each such file is called a *part* of the data set.

A file is written under a hidden name and then renamed, so a reader sees either the old or the new row of a run. The
name of a run does not depend on its store, so a run that is added again replaces its row.

Thousands of small files are slow to read, so they are packed: ``night=2026-11-21/packed.parquet`` holds the runs of a
night. If a run has a file of its own, that file takes precedence over the packed one. Writers lock the data set
exclusively. Readers share a lock, so that the files are not packed while they read.
"""

import fcntl
import glob
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from assay.cluster.file_lock import LockHeldError, wait_for_lock
from assay.harness.core.files import SpecialFileError, open_lock, replace_atomically, require_regular
from assay.harness.nightly.dataset_schema import SCHEMAS, RunRow, to_current_columns, to_table
from assay.harness.nightly.run_row import make_row, to_start
from assay.harness.run import store
from assay.harness.run.limits import DATA_SET_LOCK

PARTITION: Final = "night="
LOCK: Final = ".lock"
PACKED: Final = "packed.parquet"
MAX_UNPACKED: Final = 1_000
"""Maximum number of files of one run each; with more, adding runs packs them."""


class DataSetError(Exception):
    """A given folder is no store, or no data set. The message names the folder and the remedy."""


def add_stores(
    stores: Sequence[Path],
    into: Path,
    night: date | None,
    on_added: Callable[[RunRow], None],
    on_skipped: Callable[[Path], None] = lambda run: None,
) -> int:
    """Adds every run of these stores, and returns their number. ``on_added`` is called with each.

    Runs that were carried from another store are left out, because their histories are in that store; ``on_skipped`` is
    called with each. ``night``: the night of all runs; None: the UTC day on which each began. Raises
    :class:`DataSetError` before anything is written.
    """
    found = [folder for path in stores for folder in _find_runs(path, on_skipped)]
    _require_own_folder(into)
    into.mkdir(parents=True, exist_ok=True)
    with lock_dataset(into, exclusive=True):
        for folder in found:
            run = make_row(folder)
            store_run(into, night or to_start(run).date(), run)
            on_added(run)
        if len(list_unpacked_runs(into)) > MAX_UNPACKED:
            pack(into)
    return len(found)


@contextmanager
def lock_dataset(dataset: Path, *, exclusive: bool) -> Iterator[None]:
    """Locks a data set for reading, or with ``exclusive`` for writing. A data set on a read-only disk is not locked."""
    path = dataset / LOCK
    try:
        lock = open_lock(path)
    except SpecialFileError:
        raise
    except OSError:
        if exclusive:
            raise
        yield
        return
    try:
        try:
            wait_for_lock(lock, path, DATA_SET_LOCK, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        except LockHeldError as error:
            raise DataSetError(str(error)) from error
        yield
    finally:
        os.close(lock)


def list_unpacked_runs(dataset: Path) -> list[str]:
    """Returns the runs that have a file of their own."""
    return [part.stem for part in _find_parts(dataset, "*") if part.name != PACKED]


def pack(dataset: Path) -> None:
    """Joins the files of each night to one file. The caller must hold the ``exclusive`` lock.

    Raises :class:`DataSetError` before anything is removed. An interruption loses nothing: files of single runs take
    precedence until they are removed, and they are removed last.
    """
    unpacked = set(list_unpacked_runs(dataset))
    nights: dict[Path, list[Path]] = defaultdict(list)
    seen: dict[str, Path] = {}
    for part in list_parts(dataset):
        nights[part.parent].append(part)
    for folder, files in nights.items():
        if [file.name for file in files] == [PACKED] and unpacked.isdisjoint(_read_run_names(files[0])):
            continue
        tables = [_read_current(file, unpacked) for file in files]
        for file, table in zip(files, tables, strict=True):
            _require_once(file, table, seen)
        rows = pa.concat_tables(tables)
        if len(rows):
            _write(rows, folder / PACKED)
        else:
            (folder / PACKED).unlink(missing_ok=True)
    for run in unpacked:
        for part in _find_parts(dataset, glob.escape(run)):
            part.unlink()
    for folder in nights:
        with suppress(OSError):
            folder.rmdir()


def _read_run_names(part: Path) -> list[str]:
    return list(pq.ParquetFile(part).read(["run"]).column("run").to_pylist())


def _read_current(part: Path, unpacked: set[str]) -> pa.Table:
    """Reads the rows of a file with the current columns. Rows of ``unpacked`` runs in a packed file are left out."""
    try:
        rows = to_current_columns(pq.ParquetFile(part).read())
    except (pa.ArrowException, OSError) as error:
        raise _make_damage_error(part, "its content is damaged") from error
    if part.name != PACKED:
        return rows
    return rows.filter(pa.array([run not in unpacked for run in rows.column("run").to_pylist()], pa.bool_()))


def _require_once(part: Path, rows: pa.Table, seen: dict[str, Path]) -> None:
    """Raises :class:`DataSetError` for a run that is in ``seen``, and adds the others with their file.

    Such a run would count twice in all tables, and packing would remove the copy that someone made.
    """
    for run in rows.column("run").to_pylist():
        if run in seen:
            raise DataSetError(
                f"{part}: its run {run} is also in {seen[run]}, and would count twice: move the copy out of the data "
                "set"
            )
        seen[run] = part


def list_parts(dataset: Path) -> list[Path]:
    """Lists the files. Raises :class:`DataSetError` if there is none, or if one has other columns than a run.

    Raises :class:`SpecialFileError` for a FIFO or a similar file.
    """
    parts = sorted(_find_parts(dataset, "*"))
    if not parts:
        raise DataSetError(f"{dataset} holds no runs; `assay nights add STORE --into={dataset}` adds some")
    for part in parts:
        require_regular(part)
        try:
            columns = pq.read_schema(part)
        except (pa.ArrowException, OSError) as error:
            raise _make_damage_error(part, "it is not a Parquet file") from error
        if not any(columns.equals(schema) for schema in SCHEMAS):
            raise _make_damage_error(part, "it has other columns than a run")
    return parts


def read_runs(dataset: Path) -> list[pa.Table]:
    """Returns the rows of each file, each run once, with a column ``night``. Raises :class:`DataSetError`."""
    with lock_dataset(dataset, exclusive=False):
        parts = list_parts(dataset)
        unpacked = {part.stem for part in parts if part.name != PACKED}
        seen: dict[str, Path] = {}
        tables = []
        for part in parts:
            rows = _read_current(part, unpacked)
            _require_once(part, rows, seen)
            tables.append((part.parent.name.removeprefix(PARTITION), rows))
    # The name of a night's folder may be any text, so it is a value and never part of an SQL statement.
    return [rows.append_column("night", pa.repeat(night, len(rows))) for night, rows in tables]


def _make_damage_error(part: Path, why: str) -> DataSetError:
    return DataSetError(f"{part}: {why}; delete it, and add its run again")


def _find_runs(path: Path, on_skipped: Callable[[Path], None]) -> list[Path]:
    folders = store.list_runs(path)
    if not folders:
        raise DataSetError(f"{path} is no store with runs in it: give the folder that has <test>/<time>/ in it")
    for folder in folders:
        if store.is_carried(folder):
            on_skipped(folder)
    return [folder for folder in folders if not store.is_carried(folder)]


def _require_own_folder(into: Path) -> None:
    """Raises :class:`DataSetError` for a folder with files but without a data set, and for copied or linked runs."""
    if not into.exists():
        return
    if not into.is_dir() or ({one.name for one in into.iterdir()} - {LOCK} and not any(into.glob(f"{PARTITION}*"))):
        raise DataSetError(f"{into} holds something else; give a new folder, or one that `assay nights add` has made")
    _require_own_files(into)


def _require_own_files(dataset: Path) -> None:
    """Raises :class:`DataSetError` for files of runs that must not be moved to another night.

    A second file of a run is a copy that someone made. A file behind a link belongs to another data set.
    """
    seen: dict[str, Path] = {}
    for part in sorted(_find_parts(dataset, "*")):
        if part.name == PACKED:
            continue
        if part.parent.is_symlink():
            raise DataSetError(f"{part.parent} is a symbolic link to files of runs: put the folder itself there")
        if seen.setdefault(part.name, part) != part:
            raise DataSetError(f"{part}: its run is also in {seen[part.name]}: move the copy out of the data set")


def store_run(into: Path, night: date, run: RunRow) -> None:
    """Writes the row of a run, and removes the one that it had under another night."""
    folder = into / f"{PARTITION}{night.isoformat()}"
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{run.run}.parquet"
    for other in _find_parts(into, glob.escape(run.run)):
        if other != part:
            # The run belonged to another night. Its file is moved first, so that there is always exactly one.
            os.replace(other, part)
            with suppress(OSError):
                other.parent.rmdir()
    _write(to_table(run), part)


def _write(rows: pa.Table, part: Path) -> None:
    str(part).encode()  # raises UnicodeEncodeError: Arrow cannot read such a path
    with replace_atomically(part) as file:
        pq.write_table(rows, file)


def _find_parts(dataset: Path, name: str) -> Iterator[Path]:
    """Yields the files whose name without its ending matches the pattern ``name``."""
    return (path for path in dataset.glob(f"{PARTITION}*/{name}.parquet") if not path.name.startswith("."))
