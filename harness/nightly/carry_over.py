"""Copies the small files of runs, and the records of nights, from one store to another, for later index pages.

A machine that begins every night with an empty store would otherwise consider each failure new. Histories, logs and
pages are not copied, so the copy is small, but its runs cannot be played or judged.

Symbolic links of the source are not followed, because they may lead to files outside the store. Special files are
skipped, because reading them may block forever.
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


def carry(source: Path, target: Path, skipped: Callable[[Path], None] = lambda path: None) -> tuple[int, int]:
    """Copies from ``source`` to ``target``, and returns the numbers of runs and nights. Raises ``OSError``.

    Better copies in ``target`` stay: a run with its history, a longer night. ``skipped`` is called with each skipped
    link and special file.
    """

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

    def is_folder(folder: Path) -> bool:
        if folder.is_symlink():
            skipped(folder)
            return False
        return folder.is_dir()

    runs = [run for run in store.runs(source) if not (target / run.relative_to(source) / "history").exists()]
    for run in runs:
        copy((run / name for name in OF_RUN), target / run.relative_to(source))
        _mark(target / run.relative_to(source))
    nights = 0
    found = sorted((source / store.NIGHTS).iterdir()) if is_folder(source / store.NIGHTS) else []
    for night in filter(is_folder, found):
        place = target / night.relative_to(source)
        # These files are appended to, and get an end, so the longer file is the later version.
        files = [night / name for name in OF_NIGHT if is_file(night / name)]
        longer = [file for file in files if _size(place / file.name) < _size(file)]
        copy(longer, place)
        nights += bool(longer)
    if is_folder(source / FOUND):
        copy(sorted((source / FOUND).glob("*.json")), target / FOUND)
    return len(runs), nights


def _mark(run: Path) -> None:
    """Marks a run as carried, because without its history it would look damaged to other readers."""
    if run.exists():
        (run / store.CARRIED).touch()


def _size(file: Path) -> int:
    """Returns the file's size, or -1 if there is no file."""
    return os.path.getsize(file) if file.is_file() else -1
