"""The data set: ``night=2026-11-21/<run>.parquet``, one file per run, partitioned as Hive, Spark and DuckDB know it.

A file is written under a hidden name and renamed in, so that a reader sees a run as it was before or as
it is now. A run's name does not depend on where it was added from: added again, it takes the place of what was there.

Thousands of small files are slow to read, so they are packed: ``night=2026-11-21/packed.parquet`` holds the runs of a
night. A file of one run counts before a packed one that has the same run. Who writes holds the data set alone; who
reads keeps others from packing meanwhile.
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
from assay.harness.core.files import SpecialFileError, create_temporary, open_lock
from assay.harness.nightly.rows import SCHEMAS, RunRow, to_current_columns, to_table
from assay.harness.nightly.run_row import make_row, to_start
from assay.harness.run import store
from assay.harness.run.limits import DATA_SET_LOCK

PARTITION: Final = "night="
LOCK: Final = ".lock"
PACKED: Final = "packed.parquet"
MANY: Final = 1_000
"""Files of one run each, above which adding packs them."""


class DataSetError(Exception):
    """A store or a data set is not what it was given as; the message says which, and what to do."""


def add_stores(
    stores: Sequence[Path],
    into: Path,
    night: date | None,
    added: Callable[[RunRow], None],
    left_out: Callable[[Path], None] = lambda run: None,
) -> int:
    """Every run of these stores, ``added`` is called with each once it is there; returns how many.

    Runs that were carried from another store were added from there, with what only their histories say; ``left_out``
    is called with each.
    ``night``: of all of them; None: the day, in UTC, on which each began. Raises :class:`DataSetError` before anything
    is written.
    """
    found = [_find_runs(path, left_out) for path in stores]
    _require_own_folder(into)
    into.mkdir(parents=True, exist_ok=True)
    with lock_dataset(into, alone=True):
        for folder in [folder for folders in found for folder in folders]:
            run = make_row(folder)
            store_run(into, night or to_start(run).date(), run)
            added(run)
        if len(list_unpacked_runs(into)) > MANY:
            pack(into)
    return sum(map(len, found))


@contextmanager
def lock_dataset(dataset: Path, *, alone: bool) -> Iterator[None]:
    """Waits until no one else writes; ``alone``: and no one reads. A data set that is read-only is never written."""
    path = dataset / LOCK
    try:
        lock = open_lock(path)
    except SpecialFileError:
        raise
    except OSError:
        if alone:
            raise
        yield
        return
    try:
        try:
            wait_for_lock(lock, path, DATA_SET_LOCK, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        except LockHeldError as error:
            raise DataSetError(str(error)) from error
        yield
    finally:
        os.close(lock)


def list_unpacked_runs(dataset: Path) -> list[str]:
    """The runs that have a file of their own."""
    return [part.stem for part in _find_parts(dataset, "*") if part.name != PACKED]


def pack(dataset: Path) -> None:
    """Joins the files of the runs of each night to one file. The caller must hold the data set alone.

    An interruption loses nothing: the files of single runs count until they are removed, and they are removed last.
    """
    newer = set(list_unpacked_runs(dataset))
    nights: dict[Path, list[Path]] = defaultdict(list)
    for part in list_parts(dataset):
        nights[part.parent].append(part)
    for place, files in nights.items():
        if [file.name for file in files] == [PACKED] and newer.isdisjoint(_read_run_names(files[0])):
            continue
        kept = pa.concat_tables([_read_current(file, newer) for file in files])
        if len(kept):
            _write(kept, place / PACKED)
        else:
            (place / PACKED).unlink(missing_ok=True)
    for run in newer:
        for part in _find_parts(dataset, glob.escape(run)):
            part.unlink()
    for place in nights:
        with suppress(OSError):
            place.rmdir()


def _read_run_names(part: Path) -> list[str]:
    return list(pq.ParquetFile(part).read(["run"]).column("run").to_pylist())


def _read_current(part: Path, newer: set[str]) -> pa.Table:
    """With the columns of today; of a packed one without what has a file of its own."""
    try:
        found = to_current_columns(pq.ParquetFile(part).read())
    except (pa.ArrowException, OSError) as error:
        raise _make_damage_error(part, "its content is damaged") from error
    if part.name != PACKED:
        return found
    return found.filter(pa.array([run not in newer for run in found.column("run").to_pylist()], pa.bool_()))


def list_parts(dataset: Path) -> list[Path]:
    """Every run's file. Raises :class:`DataSetError` when there is none, or one has not the columns of a run."""
    found = sorted(_find_parts(dataset, "*"))
    if not found:
        raise DataSetError(f"{dataset} holds no runs; `assay nights add STORE --into={dataset}` adds some")
    for part in found:
        try:
            columns = pq.read_schema(part)
        except (pa.ArrowException, OSError) as error:
            raise _make_damage_error(part, "it is not a Parquet file") from error
        if not any(columns.equals(schema) for schema in SCHEMAS):
            raise _make_damage_error(part, "it has other columns than a run")
    return found


def read_runs(dataset: Path) -> list[pa.Table]:
    """Returns the rows of each file, each run once, with a column ``night``. Raises :class:`DataSetError`."""
    with lock_dataset(dataset, alone=False):
        parts = list_parts(dataset)
        newer = {part.stem for part in parts if part.name != PACKED}
        found = [(part.parent.name.removeprefix(PARTITION), _read_current(part, newer)) for part in parts]
    # A night is the name of a folder, which may be anything: as a value it never becomes part of a statement.
    return [runs.append_column("night", pa.repeat(night, len(runs))) for night, runs in found]


def _make_damage_error(part: Path, why: str) -> DataSetError:
    return DataSetError(f"{part}: {why}; delete it, and add its run again")


def _find_runs(path: Path, left_out: Callable[[Path], None]) -> list[Path]:
    folders = store.list_runs(path)
    if not folders:
        raise DataSetError(f"{path} is no store with runs in it: give the folder that has <test>/<time>/ in it")
    for folder in folders:
        if store.is_carried(folder):
            left_out(folder)
    return [folder for folder in folders if not store.is_carried(folder)]


def _require_own_folder(into: Path) -> None:
    """A data set is never begun among other things."""
    if not into.exists():
        return
    if not into.is_dir() or ({one.name for one in into.iterdir()} - {LOCK} and not any(into.glob(f"{PARTITION}*"))):
        raise DataSetError(f"{into} holds something else; give a new folder, or one that `assay nights add` has made")


def store_run(into: Path, night: date, run: RunRow) -> None:
    place = into / f"{PARTITION}{night.isoformat()}"
    place.mkdir(parents=True, exist_ok=True)
    part = place / f"{run.run}.parquet"
    for other in _find_parts(into, glob.escape(run.run)):
        if other != part:
            # It belonged to another night until now. Moving it first keeps exactly one copy at any moment.
            os.replace(other, part)
            with suppress(OSError):
                other.parent.rmdir()
    _write(to_table(run), part)


def _write(content: pa.Table, part: Path) -> None:
    temporary = create_temporary(part)
    pq.write_table(content, temporary)
    os.replace(temporary, part)


def _find_parts(dataset: Path, name: str) -> Iterator[Path]:
    """Yields the files whose name without its ending fits the pattern ``name``."""
    return (path for path in dataset.glob(f"{PARTITION}*/{name}.parquet") if not path.name.startswith("."))
