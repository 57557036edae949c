"""From one store to another what the page of a morning is made of: each run's small files, and the records of nights.

A machine that begins with an empty store every night would else take each failure for a new one. Histories, logs and
pages stay where they are, so what is carried is small, and no run is played or judged from it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from assay.harness.core.files import write_atomically
from assay.harness.nightly.night_record import CELLS, SHRUNK
from assay.harness.nightly.store_index import FOUND
from assay.harness.run import store
from assay.reports.figures import FIGURES

OF_RUN: Final = ("run.json", "settings.json", "verdict.json", "schedule.json", FIGURES)
OF_NIGHT: Final = ("night.json", CELLS, SHRUNK)


class SameStoreError(Exception):
    """Runs cannot be carried from a store to itself: they would be marked as runs without a history."""


def carry(source: Path, target: Path) -> tuple[int, int]:
    """How many runs and nights were copied. Raises ``OSError``, and :class:`SameStoreError` before anything is written.

    What ``target`` knows more of stays: a run with its history, a longer night.
    """
    here, there = source.resolve(), target.resolve()
    if here == there:
        raise SameStoreError(f"{source} and {target} are the same folder; give another one")
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise SameStoreError(f"of {source} and {target} one lies in the other; give a folder outside of it")
    for run in store.runs(source):
        if (place := target / run.relative_to(source)).exists() and place.samefile(run):
            raise SameStoreError(f"{run} and {place} are the same folder, by a symbolic link; remove the link")
    known = [run for run in store.runs(source) if not (target / run.relative_to(source) / "history").exists()]
    # A link may lead to any folder of the machine, whose files are carried only if it is a run.
    runs = [run for run in known if not _is_linked(run) or store.read_run(run) is not None]
    for run in runs:
        _copy((run / name for name in OF_RUN), target / run.relative_to(source))
        _mark(target / run.relative_to(source))
    nights = 0
    for night in sorted((source / store.NIGHTS).glob("*/")):
        place = target / night.relative_to(source)
        # What is appended to, and gets an end, is longer the more it knows.
        longer = [night / name for name in OF_NIGHT if _size(place / name) < _size(night / name)]
        _copy(longer, place)
        nights += bool(longer)
    _copy((source / FOUND).glob("*.json"), target / FOUND)
    return len(runs), nights


def _is_linked(run: Path) -> bool:
    return run.is_symlink() or run.parent.is_symlink()


def _copy(files: Iterable[Path], into: Path) -> None:
    for file in files:
        if file.is_file() and not file.is_symlink():
            into.mkdir(parents=True, exist_ok=True)
            write_atomically(into / file.name, file.read_bytes())


def _mark(run: Path) -> None:
    """Without its history it looks damaged to those who want more than a page."""
    if run.exists():
        (run / store.CARRIED).touch()


def _size(file: Path) -> int:
    """-1 where there is none."""
    return os.path.getsize(file) if file.is_file() else -1
