"""The data set: ``night=2026-11-21/<run>.parquet``, one file per run, partitioned as Hive, Spark and DuckDB know it.

A file is written under a hidden name and renamed in, so that a reader sees a run as it was before or as
it is now. A run's name does not depend on where it was added from: added again, it takes the place of what was there.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.nights.record import began, record
from assay.harness.nights.rows import SCHEMAS, Run, table
from assay.harness.run import store

PARTITION: Final = "night="


class DataSetError(Exception):
    """A store or a data set is not what it was given as; the message says which, and what to do."""


def add(stores: Sequence[Path], into: Path, night: date | None, added: Callable[[Run], None]) -> int:
    """Every run of these stores, ``added`` is called with each once it is there; returns how many.

    ``night``: of all of them; None: the day, in UTC, on which each began. Raises :class:`DataSetError` before anything
    is written.
    """
    found = [_runs(path) for path in stores]
    _ours(into)
    for folder in [folder for folders in found for folder in folders]:
        run = record(folder)
        keep(into, night or began(run).date(), run)
        added(run)
    return sum(map(len, found))


def parts(dataset: Path) -> list[Path]:
    """Every run's file. Raises :class:`DataSetError` when there is none, or one has not the columns of a run."""
    found = sorted(_parts(dataset, "*"))
    if not found:
        raise DataSetError(f"{dataset} holds no runs; `assay nights add STORE --into={dataset}` adds some")
    for part in found:
        try:
            columns = pq.read_schema(part)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(part, "it is not a Parquet file") from error
        if not any(columns.equals(schema) for schema in SCHEMAS):
            raise _damaged(part, "it has other columns than a run")
    return found


def readable(dataset: Path) -> None:
    """Raises :class:`DataSetError` naming the file whose content is damaged, if there is one."""
    for part in parts(dataset):
        try:
            pq.ParquetFile(part).read()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(part, "its content is damaged") from error


def _damaged(part: Path, why: str) -> DataSetError:
    return DataSetError(f"{part}: {why}; delete it, and add its run again")


def _runs(path: Path) -> list[Path]:
    folders = store.runs(path)
    if not folders:
        raise DataSetError(f"{path} is no store with runs in it: give the folder that has <test>/<time>/ in it")
    return folders


def _ours(into: Path) -> None:
    """A data set is never begun among other things."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())) and not any(into.glob(f"{PARTITION}*")):
        raise DataSetError(f"{into} holds something else; give a new folder, or one that `assay nights add` has made")


def keep(into: Path, night: date, run: Run) -> None:
    place = into / f"{PARTITION}{night.isoformat()}"
    place.mkdir(parents=True, exist_ok=True)
    part = place / f"{run.run}.parquet"
    for other in _parts(into, run.run):
        if other != part:
            # Of another night until now: moved first, so that it is never there twice, nor not at all.
            os.replace(other, part)
            with suppress(OSError):
                other.parent.rmdir()
    temporary = place / f".{part.name}.{os.getpid()}"
    pq.write_table(table(run), temporary)
    os.replace(temporary, part)


def _parts(dataset: Path, name: str) -> Iterator[Path]:
    return (path for path in dataset.glob(f"{PARTITION}*/{name}.parquet") if not path.name.startswith("."))
