"""Copies the small files of runs, and the records of nights, from one store to another, for later index pages.

A machine that begins every night with an empty store would otherwise consider each failure new. Histories, logs and
pages are not copied. So the copy is small, but its runs cannot be repeated or judged.

A symbolic link in the source is followed only if it leads to a run, because it may lead to files that are no part of
the store. Special files are left out, too, because reading one may never end.

The files of a night are copied together or not at all, because two nights can have one name, for example those of two
jobs on one day. Then the night in the target is kept, and the other night is reported. A night may have several parts
(``assay nightly --split``). A part of an older night of the same name is reported, too, because it could be mistaken
for a part of the newer one.

The target may contain other files. Nothing is written through a symbolic link in it, or into a folder that is no run or
night of Assay. A shrunk schedule with other content is never overwritten.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from assay.harness.core.files import HugeFileError, read_file, read_json_if_valid, write_atomically
from assay.harness.nightly.night_record import CELLS, MEASUREMENTS, SHRUNK, Night, find_strays, read_nights, to_utc
from assay.harness.nightly.store_index import SHRUNK_SCHEDULES
from assay.harness.run import store
from assay.reports.figures import FIGURES

COPIED_RUN_FILES: Final = ("run.json", "settings.json", "verdict.json", "schedule.json", FIGURES)
NIGHT: Final = "night.json"
COPIED_NIGHT_FILES: Final = (NIGHT, CELLS, SHRUNK, MEASUREMENTS)
"""The record of a night, without the output of its attempts."""


class SameStoreError(Exception):
    """Runs cannot be carried from a store to itself: they would be marked as runs without a history."""


@dataclass
class _Target:
    """The store that files are copied to. ``refused`` gets one line for each obstacle."""

    root: Path
    refused: Callable[[str], None]
    reported: set[str] = field(default_factory=set)

    def accepts(self, folder: Path, is_ours: Callable[[Path], bool]) -> bool:
        """Returns whether files may be written into a folder.

        Each part of its path must be a real folder or missing. A folder that is not empty must also be ours.
        """
        for part in (*reversed([one for one in folder.parents if one.is_relative_to(self.root)][:-1]), folder):
            if part.is_symlink():
                return self._refuse(f"{part} is a symbolic link; put a folder there, or remove the link")
            if part.exists() and not part.is_dir():
                return self._refuse(f"{part} is no folder; move it away")
        if folder.exists() and not is_ours(folder) and any(folder.iterdir()):
            return self._refuse(f"{folder} was made by others; move it away")
        return True

    def copy(self, files: Iterable[Path], folder: Path, *, replace: bool = True) -> None:
        """Copies files into an accepted folder. Without ``replace``, an existing file with other content stays."""
        for file in files:
            place = folder / file.name
            try:
                data = read_file(file)
            except HugeFileError as error:
                self._refuse(f"{error}; it is not carried")
                continue
            if not self._accepts_file(place):
                continue
            if not replace and place.exists():
                if place.stat().st_size != len(data) or place.read_bytes() != data:
                    self._refuse(f"{place} differs from {file} and stays; rename or remove one of the two")
                continue
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(place, data)

    def accepts_run(self, place: Path, run: Path) -> bool:
        """Returns whether ``place`` has no run, or this run in the same state or an earlier one."""
        existing, new = store.read_info(place), store.read_info(run)
        if existing is None:
            return True
        if new is None:
            return self._refuse(f"{run / 'run.json'} cannot be read, so {place} stays; remove {run}")
        if _identify(existing) != _identify(new):
            return self._refuse(f"{place} is another run than {run} and stays; rename one of the two folders")
        if None not in (existing.verdict, new.verdict) and existing.verdict != new.verdict:
            return self._refuse(
                f"{place} has the verdict {existing.verdict} and stays, although {run} has {new.verdict}; remove the "
                "wrong one of the two"
            )
        return _get_progress(existing) <= _get_progress(new)

    def copy_night(self, night: Path, is_file: Callable[[Path], bool], strays: Mapping[str, str]) -> bool:
        """Copies the record of a night, unless the target has this or a later state. Returns whether it was copied.

        ``strays``: the parts of an older night that has the name of a newer one, each with the reason.
        """
        place = self.root / night.parent.name / night.name
        files = [night / name for name in COPIED_NIGHT_FILES if is_file(night / name)]
        if night / NIGHT not in files or not self.accepts(place, _is_our_night):
            return False
        if not all([self._accepts_file(place / name) for name in COPIED_NIGHT_FILES]):
            return False
        existing_files = filter(_is_regular, (place / name for name in COPIED_NIGHT_FILES))
        new, existing = _read_night(files), _read_night(existing_files)
        if existing.is_other(new):
            return self._refuse(
                f"{place} is the record of another night than {night} and stays; remove one of the two, and give each "
                "night a name of its own by --night"
            )
        if not new.is_later(existing):
            return False
        if night.name in strays:
            return self._refuse(f"{night}, because {strays[night.name]}")
        if not new.continues(existing):
            return self._refuse(f"{place} and {night} continue one night differently; remove one of the two")
        self.copy(files, place)
        return True

    def mark_as_carried(self, run: Path) -> None:
        """Marks a run as carried, because without its history it would look damaged to other readers.

        The mark is written first. If the copy is interrupted, the next ``carry`` recognises the folder by it.
        """
        if self._accepts_file(run / store.CARRIED):
            run.mkdir(parents=True, exist_ok=True)
            (run / store.CARRIED).touch()

    def _accepts_file(self, place: Path) -> bool:
        if os.path.lexists(place) and not _is_regular(place):
            return self._refuse(f"{place} is no regular file; remove it")
        return True

    def _refuse(self, obstacle: str) -> bool:
        if obstacle not in self.reported:
            self.reported.add(obstacle)
            self.refused(obstacle)
        return False


def carry(
    source: Path,
    target: Path,
    skipped: Callable[[Path], None] = lambda path: None,
    refused: Callable[[str], None] = lambda obstacle: None,
    unjudged: Callable[[Path], None] = lambda run: None,
) -> tuple[int, int]:
    """Copies the small files of a store, and returns the numbers of copied runs and nights.

    These are not replaced in ``target``: a run with its history, a later record of the same night, and the record of
    another night of the same name. A run in a later state, or with another verdict, stays as well. A part of an older
    night of the same name is not copied.

    - ``skipped`` is called with each link and each special file that is left out.
    - ``refused`` is called with each obstacle and its remedy.
    - ``unjudged`` is called with each run that is left out because a process of this machine still plays or judges it.
      Its copy would have no verdict.

    Raises ``OSError``, and :class:`SameStoreError` before anything is written.
    """
    real_source, real_target = source.resolve(), target.resolve()
    if real_source == real_target:
        raise SameStoreError(f"{source} and {target} are the same folder; give another one")
    if real_source.is_relative_to(real_target) or real_target.is_relative_to(real_source):
        raise SameStoreError(f"one of {source} and {target} lies in the other; give a folder outside of it")
    for run in store.list_runs(source):
        if (place := target / run.relative_to(source)).exists() and place.samefile(run):
            raise SameStoreError(f"{run} and {place} are the same folder, by a symbolic link; remove the link")

    def is_file(file: Path) -> bool:
        if file.is_symlink() or (file.exists() and not file.is_file() and not file.is_dir()):
            skipped(file)
            return False
        return file.is_file()

    def is_link_elsewhere(run: Path) -> bool:
        """Returns whether a run is a link to a folder that is no run, which may be any folder of the machine."""
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

    def is_unjudged(run: Path) -> bool:
        info = None if store.is_carried(run) else store.read_info(run)
        if info is None or info.is_elsewhere() or not info.awaits_verdict():  # elsewhere: of another machine
            return False
        unjudged(run)
        return True

    into, runs, nights = _Target(target, refused), 0, 0  # the numbers of copied runs and nights
    for run in store.list_runs(source):
        place = target / run.relative_to(source)
        if _is_complete(place) or is_link_elsewhere(run) or is_unjudged(run):
            continue
        files = [run / name for name in COPIED_RUN_FILES if is_file(run / name)]
        if not into.accepts(place, _is_our_run) or not into.accepts_run(place, run):
            continue
        if files:
            into.mark_as_carried(place)
            into.copy(files, place)
        runs += 1
    nights_found = sorted((source / store.NIGHTS).iterdir()) if is_folder(source / store.NIGHTS) else []
    strays = _find_strays(source, target) if nights_found else {}
    for night in filter(is_folder, nights_found):
        nights += into.copy_night(night, is_file, strays)
    if is_folder(source / SHRUNK_SCHEDULES) and into.accepts(target / SHRUNK_SCHEDULES, lambda folder: True):
        into.copy(
            filter(is_file, sorted((source / SHRUNK_SCHEDULES).glob("*.json"))),
            target / SHRUNK_SCHEDULES,
            replace=False,
        )
    return runs, nights


def _find_strays(source: Path, target: Path) -> dict[str, str]:
    """Returns the parts in either store that do not belong to the newest night of their name, with the reasons.

    If both stores have a part, the state of the source counts.
    """
    nights: dict[str, dict[str, Night]] = {}
    for root in (target, source):
        for folder, night in read_nights(root):
            if not folder.path.is_symlink():
                nights.setdefault(night.name, {})[night.folder_name] = night
    strays: dict[str, str] = {}
    for parts in nights.values():
        strays |= find_strays(sorted(parts.values(), key=lambda part: (to_utc(part.started), part.folder_name)))
    return strays


def _is_complete(run: Path) -> bool:
    """Returns whether a run has its history, or is the original of a run whose history was removed after its pass."""
    return (run / "history").exists() or (store.has_removed_history(run) and not store.is_carried(run))


def _identify(run: store.RunInfo) -> tuple[object, ...]:
    """Returns what is equal in all copies of a run's ``run.json``, and differs between runs."""
    return (run.test, run.owner, run.seed, run.started)


def _get_progress(run: store.RunInfo) -> tuple[bool, bool]:
    """Returns how far a run was when its ``run.json`` was written: a later state is greater."""
    return run.status != store.RUNNING, run.verdict is not None


def _is_our_run(folder: Path) -> bool:
    """Returns whether a folder is a run that was carried before, or that was made in this store."""
    run = folder / "run.json"
    return _is_regular(folder / store.CARRIED) or (_is_regular(run) and store.read_info(folder) is not None)


def _is_our_night(folder: Path) -> bool:
    return _is_regular(folder / NIGHT)


@dataclass(frozen=True)
class _NightState:
    """A night as its files record it. ``night``: None if ``night.json`` is missing or damaged."""

    night: Night | None
    cells: bytes
    shrunk: bytes

    def is_other(self, one: "_NightState") -> bool:
        """Returns whether this is known to be another night."""
        if self.night is None:
            return False
        return one.night is None or (one.night.started, one.night.host) != (self.night.started, self.night.host)

    def continues(self, one: "_NightState") -> bool:
        """Returns whether this is the same state or a later one, because lines are only appended."""
        return self.cells.startswith(one.cells) and self.shrunk.startswith(one.shrunk)

    def is_later(self, one: "_NightState") -> bool:
        """Returns whether this state has lines that the other lacks, or the same lines and a later end of the night."""
        if not one.continues(self):
            return True
        return self.continues(one) and self._end() > one._end()

    def _end(self) -> tuple[bool, str]:
        """Returns the end of the night by ``night.json``, in a form that is greater for a later state."""
        return (False, "") if self.night is None else (True, self.night.ended or "")


def _read_night(files: Iterable[Path]) -> _NightState:
    found = {file.name: file for file in files}
    cells, shrunk = (read_file(found[name]) if name in found else b"" for name in (CELLS, SHRUNK))
    return _NightState(read_json_if_valid(found[NIGHT], Night) if NIGHT in found else None, cells, shrunk)


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
