"""Copies the small files of runs, and the records of nights, from one store to another, for later index pages.

A machine that begins every night with an empty store would otherwise consider each failure new. Histories, logs and
pages are not copied, so the copy is small, but its runs cannot be played or judged.

No symbolic link of the source is followed unless it leads to a run, because it may lead to files that are no part of
the store. Special files are left out, too, because a reader may wait for them for ever.
"""

import os
from collections.abc import Callable, Iterable
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


def carry(source: Path, target: Path, skipped: Callable[[Path], None] = lambda path: None) -> tuple[int, int]:
    """Returns the numbers of copied runs and nights.

    A run with its history and a longer night stay in ``target``. ``skipped`` is called with each link and each special
    file that was left out. A link to a run is followed. Raises ``OSError``, and :class:`SameStoreError` before anything
    is written.
    """
    here, there = source.resolve(), target.resolve()
    if here == there:
        raise SameStoreError(f"{source} and {target} are the same folder; give another one")
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise SameStoreError(f"of {source} and {target} one lies in the other; give a folder outside of it")
    for run in store.list_runs(source):
        if (place := target / run.relative_to(source)).exists() and place.samefile(run):
            raise SameStoreError(f"{run} and {place} are the same folder, by a symbolic link; remove the link")

    def copy(files: Iterable[Path], into: Path) -> None:
        for file in files:
            if not is_file(file):
                continue
            into.mkdir(parents=True, exist_ok=True)
            write_atomically(into / file.name, file.read_bytes())

    def is_file(file: Path) -> bool:
        if file.is_symlink() or (file.exists() and not file.is_file() and not file.is_dir()):
            skipped(file)
            return False
        return file.is_file()

    def is_link_elsewhere(run: Path) -> bool:
        """A link may lead to any folder of the machine, so it is followed only if a run is there."""
        linked = run.is_symlink() or run.parent.is_symlink()
        if linked and store.read_info(run) is None:
            skipped(run)
            return True
        return False

    def is_folder(folder: Path) -> bool:
        if folder.is_symlink():
            skipped(folder)
            return False
        return folder.is_dir()

    known = [run for run in store.list_runs(source) if not (target / run.relative_to(source) / "history").exists()]
    runs = [run for run in known if not is_link_elsewhere(run)]
    for run in runs:
        copy((run / name for name in OF_RUN), target / run.relative_to(source))
        _mark_as_carried(target / run.relative_to(source))
    nights = 0
    found = sorted((source / store.NIGHTS).iterdir()) if is_folder(source / store.NIGHTS) else []
    for night in filter(is_folder, found):
        place = target / night.relative_to(source)
        # These files are appended to, and get an end, so the longer file is the later version.
        files = [night / name for name in OF_NIGHT if is_file(night / name)]
        longer = [file for file in files if _file_size(place / file.name) < _file_size(file)]
        copy(longer, place)
        nights += bool(longer)
    if is_folder(source / FOUND):
        copy(sorted((source / FOUND).glob("*.json")), target / FOUND)
    return len(runs), nights


def _mark_as_carried(run: Path) -> None:
    """Marks a run as carried, because without its history it would look damaged to other readers."""
    if run.exists():
        (run / store.CARRIED).touch()


def _file_size(file: Path) -> int:
    """Returns the file's size, or -1 if there is no file."""
    return os.path.getsize(file) if file.is_file() else -1
