"""The store of runs: ``store/<test id made filename-safe>/<UTC time>/``, and the content of such a folder.

A run's folder is created at its start and never touched by another run. ``run.json`` has the status ``running`` from
the first moment. A folder with this status whose owner is dead was left behind by a crash.

``store/latest`` and ``store/<test>/latest`` are symbolic links, replaced by a rename: a reader sees the old run or the
new one. Small files are also written next to their place and renamed.

A run that only a search needs keeps its output in memory (``InMemoryOutput``).
"""

import asyncio
import hashlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from assay.cluster.operating_system import has_mount_point
from assay.cluster.owner import Owner, find_owner, is_other_machine, parse_owner
from assay.harness.core.files import (
    OutsideLinkError,
    SpecialFileError,
    read_file,
    read_json_if_valid,
    require_regular_below,
    write_atomically,
)
from assay.harness.core.history import FORMAT, History
from assay.harness.core.history.in_memory import HistoryInMemory
from assay.harness.core.printable import join_some, to_encodable
from assay.harness.core.timestamps import Origin, is_possible_time
from assay.harness.run.full_disk import DiskReserve, is_full

SCHEMA_VERSION: Final = FORMAT
LATEST: Final = "latest"
NIGHTS: Final = "nights"
"""The folder of a store that has the records of its nights (``assay.harness.nightly.night_record``)."""
CARRIED: Final = "carried"
"""A file that marks a run's folder with only its small files copied (``assay carry``)."""
NAME_LIMIT: Final = 120
"""Maximum number of characters of a test's folder."""
SCHEDULE_LIMIT: Final = 200
"""Maximum number of characters of a shrunk schedule's file name."""
RUN_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z(-\d+)?")
"""The name of a run's folder."""
RUN_FILES: Final = ("run.json", "verdict.json", "history")
"""Every run has at least one of these files."""
SEARCH_DEPTH: Final = 4
"""How many levels below a store runs in a wrong place are searched. A run in its place is two levels below."""
NIGHT_FOLDERS: Final = frozenset({"logs", "shrinking", "shrunk"})
"""Folders of a night's record. ``shrinking`` has stores whose runs do not count."""
WRONG_PLACE: Final = "it is a run, but not at STORE/TEST/RUN: move it there"
WRONG_NAME: Final = f"it is a run, but {LATEST} is the name of a link: rename it, so that it is at STORE/TEST/RUN"
"""These are reasons for which a run is overlooked."""
DELETED_PREFIX: Final = ".assay-deleted-"
DELETED_NAME: Final = re.compile(rf"{re.escape(DELETED_PREFIX)}[0-9a-f]{{16}}-.+", re.DOTALL)
"""The name of a folder that ``gc`` is deleting. Such a folder is never a run, and files in it may be missing."""
FOREIGN: Final = "no run.json of ours is at {}"
LINK: Final = "it is a symbolic link"
NESTED: Final = "there are other runs in it"
MOUNTED: Final = "something is mounted in it"
OTHERS: Final = "it has files that are not the run's"
"""These are reasons for which ``gc`` keeps a folder."""
OWN_NAMES: Final = frozenset(
    {
        "run.json", "settings.json", "schedule.json", "verdict.json", "figures.json", "resources.json",
        "sensitivity.json", "shrinking.json", "replayed.json", "report.html", "history", ".history", "logs", ".reserve",
        CARRIED,
    }
)  # fmt: skip
"""Names that this program gives to the content of a run's folder. Files of the system are in ``logs``."""
TEMPORARY_NAME: Final = re.compile(r"\..+\.[0-9a-f]{16}", re.DOTALL)
"""The name of a file that is being written (``harness.core.files``)."""
MOST_NAMED: Final = 3
RESERVE: Final = 64 << 10
"""Bytes that a run reserves on its disk."""
RUNNING: Final = "running"
FINISHED: Final = "finished"
INTERRUPTED: Final = "interrupted"
ERROR: Final = "error"
"""``RUNNING`` to ``ERROR`` are the values of ``RunInfo.status``."""
ABORTED: Final = "the run was aborted"
"""The problem of a run that ended before it began: pytest skipped its test, or ended."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``run.json``. ``started`` and ``ended`` are ISO 8601 in UTC."""

    test: str
    status: str
    started: str
    owner: str
    """See ``assay.cluster.owner``. A process id alone would not be unique."""
    parent: str = ""
    """Parent process of the owner; empty if unknown. A worker of pytest-xdist makes runs for its parent."""
    machine: str = ""
    """The machine that the owner runs on (:func:`assay.cluster.owner.read_machine`); empty if unknown. Several machines
    may share a store."""
    seed: int
    cluster: str
    nemesis: str
    command: str
    """The command that repeats the run."""
    schema_version: int = SCHEMA_VERSION
    ended: str | None = None
    verdict: str | None = None
    digest: str | None = None
    """Hash of the canonical rows of the history: equal for two simulated runs of one seed."""
    origin: Origin | None = None
    """Time 0 of the history by the run's clock and by the wall clock, to align the nodes' text logs."""
    notes: tuple[str, ...] = ()
    """Reasons against a pass that are not in the history: unexpected exceptions in clients, an interrupt."""
    remarks: tuple[str, ...] = ()
    """Mistakes of a client that do not affect the verdict, such as one that ignores cancellation."""
    stood_still: float = 0.0
    """Seconds for which the machine paused the tester: see ``harness.run.observers.StallMeter``."""
    history_removed: int = 0
    """Bytes of the history if it was removed after the run had passed (``--keep-history=failures``), else 0."""
    problem: str | None = None
    """Why the run did not end regularly, if so."""
    in_use: bool = False
    """Whether its process still needs the files: from the start until the run is judged and its report is written."""

    def is_active(self) -> bool:
        """Returns whether the run is in progress. A run that may be on another machine is active until it ends."""
        if self.status != RUNNING:
            return False
        return self._may_have_process()

    def may_be_in_use(self) -> bool:
        """Returns whether its process still needs the files: to run, to judge, or to write the report.

        A run that may be on another machine counts as in use until that machine marks it as no longer in use.
        """
        return self.claims_use() and self._may_have_process()

    def claims_use(self) -> bool:
        """Returns whether ``run.json`` says that the run is in use. Its process may have died since."""
        return self.in_use or self.status == RUNNING

    def awaits_verdict(self) -> bool:
        """Returns whether the run is in progress, or has ended and its process may still judge it."""
        return self.status != ERROR and self.verdict is None and self.may_be_in_use()

    def is_made_by(self, process: str) -> bool:
        """Returns whether this process, given as the text of its owner, made the run itself or by a child process."""
        return bool(process) and process in (self.owner, self.parent)

    def is_elsewhere(self) -> bool:
        """Returns whether the run may be on another machine. Only that machine can tell whether its process lives."""
        process = self._parse_owner()
        return bool(is_other_machine(self.machine)) if process is None else process.may_be_elsewhere(self.machine)

    def describe_process(self) -> str:
        """Returns the id of the run's process, and its machine if that may be another one."""
        process = self._parse_owner()
        name = "an unknown process" if process is None else f"process {process.pid}"
        if not self.is_elsewhere():
            return f"{name} of this machine"
        return f"{name} of machine {self.machine}" if self.machine else f"{name} of an unknown machine"

    def _may_have_process(self) -> bool:
        process = self._parse_owner()
        return self.is_elsewhere() or (process is not None and process.alive())

    def _parse_owner(self) -> Owner | None:
        """Returns the owner; None if ``run.json`` names no process, so that another program must have written it."""
        try:
            return parse_owner(self.owner)
        except ValueError:
            return None


@dataclass(frozen=True)
class RunFolder:
    """A run on disk; ``root`` is the store that it belongs to."""

    root: Path
    path: Path

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        """Opens the history of the run. With a loop, its clock decides when parts are sealed during the run.

        A reader sees the rows of sealed parts only (``harness/core/history/live_manifest.py``).
        """
        from assay.harness.core.history import HistoryWriter  # loads Arrow

        return HistoryWriter(self.history, loop=loop, of_run=True)  # of_run: its files say that a run wrote them

    @property
    def reserve(self) -> DiskReserve:
        """Reserved space for ``run.json`` in case the disk gets full. It is released when the run has ended."""
        return DiskReserve(self.path / ".reserve")

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file. If the disk is full, its space is taken from the reserve, or from the earlier file."""
        path = self.path / name
        try:
            write_atomically(path, data)
        except OSError as error:
            if not is_full(error):
                raise
            if self.reserve.release():
                write_atomically(path, data)
            elif path.exists():
                overwrite(path, data)
            else:
                raise

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, msgspec.json.format(encode_json(value), indent=2) + b"\n")

    def write_run(self, info: RunInfo) -> None:
        self.write_json("run.json", info)

    def remove_history(self) -> None:
        """Removes the history. It is renamed first, so that no reader finds only a part of it."""
        removed = self.path / f".{self.history.name}"
        self.history.rename(removed)
        shutil.rmtree(removed)

    def publish(self) -> list[Path]:
        """Makes this run the latest of its test and of the store.

        Returns the files and folders that it did not replace, because they are no links to runs. A copy of a store may
        have folders instead of links.
        """
        links = (self.path.parent / LATEST, self.root / LATEST)
        kept = [link for link in links if not _may_be_replaced(link)]
        for link in links:
            if link not in kept:
                swap_link(link, self.path)
        return kept


def _may_be_replaced(link: Path) -> bool:
    """Returns whether nothing is there, or a link to a run, which may be deleted by now."""
    if not link.is_symlink():
        return not link.exists()
    return bool(RUN_NAME.fullmatch(Path(os.readlink(link)).name))


def read_owner(pid: int) -> str:
    """Returns the text of a process's owner, for :meth:`RunInfo.is_made_by`; empty if there is no such process."""
    return str(find_owner(pid) or "")


def encode_json(value: Any) -> bytes:
    """Encodes JSON with sorted keys; paths become text, and lone surrogates are escaped."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain, order="sorted")
    except UnicodeEncodeError:
        return msgspec.json.encode(_escape_surrogates(msgspec.to_builtins(value, enc_hook=_to_plain)), order="sorted")


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return to_encodable(value)
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(one) for key, one in value.items()}
    return [_escape_surrogates(one) for one in value] if isinstance(value, list | tuple) else value


def _to_plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    return repr(value)


def to_safe_name(test_id: str) -> str:
    """Returns a file name for a pytest node id: readable, at most 120 characters, deterministic.

    If more than the usual separators had to be replaced or cut, eight digits of a hash keep names distinct.
    """
    name = test_id.replace(".py::", "::").replace("::", "-").replace("/", "-").replace("[", "-").removesuffix("]")
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name).lstrip(".-")
    if safe != name or len(safe) > NAME_LIMIT or safe.lower() in (LATEST, NIGHTS) or not safe:
        safe = f"{safe[: NAME_LIMIT - 9] or 'run'}-{_hash_test(test_id)}"
    return safe


def _hash_test(test_id: str) -> str:
    return hashlib.sha256(test_id.encode()).hexdigest()[:8]


def create_run_folder(root: Path, test_id: str, now: datetime) -> RunFolder:
    """Creates a new, empty folder; ``now`` must have a time zone."""
    parent = _create_test_folder(root, test_id)
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"
    number = 1
    while True:
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            continue
        for folder in ("history", "logs"):
            (path / folder).mkdir()
        created = RunFolder(root, path)
        created.reserve.allocate(RESERVE)
        return created


def _create_test_folder(root: Path, test_id: str) -> Path:
    """Creates the folder of a test, unless it exists.

    If the file system ignores case, and another test has a folder of that name in another case, a hash is added.
    """
    folder = root / to_safe_name(test_id)
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name not in os.listdir(root):
        folder = root / f"{folder.name}-{_hash_test(test_id)}"
        folder.mkdir(exist_ok=True)
    return folder


def read_run(path: Path) -> RunInfo | None:
    """Reads ``run.json``; None if it is not readable, because the folder is no run or its run died at the start.

    Raises ``SpecialFileError`` for a FIFO or a similar file anywhere in the folder, on which a reader would hang.
    """
    if (path / "run.json").exists():  # other folders may be large, and are not scanned
        require_regular_below(path)
    return read_info(path)


def read_info(path: Path) -> RunInfo | None:
    """Reads ``run.json`` like :func:`read_run`, but does not search the folder for special files."""
    return read_json_if_valid(path / "run.json", RunInfo)


def overwrite(path: Path, data: bytes) -> None:
    """Overwrites a file within its existing space. A concurrent reader may see a partial file."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def swap_link(link: Path, target: Path) -> None:
    """Points ``link`` at ``target``, relative, in one step; a reader never finds it missing."""
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
    temporary.symlink_to(os.path.relpath(target, link.parent), target_is_directory=True)
    os.replace(temporary, link)


def list_runs(root: Path) -> list[Path]:
    """Returns the run folders of a store, by test, the oldest run of a test first. Symbolic links are followed.

    - ``nights`` is no test, and ``latest`` is no run, even if it is a folder (see :func:`find_overlooked`).
    - A link to a run or a test that is listed anyway is left out.
    - A broken link is included, because a run is missing there.
    """
    if not root.is_dir():
        return []
    tests = _remove_duplicates((test for test in _list_folders(root, links=True) if test.name != NIGHTS), root)
    return _remove_duplicates((run for test in tests for run in _list_runs_of_test(test)), root)


def list_runs_below(path: Path) -> list[Path]:
    """Returns the runs of a store, or of the folder of one test in it; empty for a run, a history and any other folder.

    A folder that looks like a run without its ``run.json`` is included, so that it is not overlooked.
    """
    if not may_have_runs(path):
        return []
    folders = dict.fromkeys((*list_runs(path), *_list_folders(path, links=True)))
    return _remove_duplicates(filter(looks_like_run, folders), path)


def may_have_runs(path: Path) -> bool:
    """Returns whether this may be a store or the folder of a test: a folder that is neither a run nor a history."""
    return path.is_dir() and not (path / "ops").is_dir() and not looks_like_run(path)


def find_overlooked(path: Path, runs: Iterable[Path]) -> list[tuple[Path, str]]:
    """Returns the runs below a store or the folder of a test that are not among ``runs``, with reason and remedy.

    The search follows no links, and leaves out folders that cannot be read. It also leaves out a folder ``latest`` that
    is the copy of a listed run, because a copy of a store may have folders instead of links.
    """
    listed = {path, *runs}
    found = sorted(run for run in _search_runs(path, 0) if run not in listed)
    linked = {follow_links(run) for run in listed if run.is_symlink() or run.parent.is_symlink()} if found else set()
    return [
        (run, WRONG_NAME if run.name == LATEST else WRONG_PLACE)
        for run in found
        if follow_links(run) not in linked
        and not (run.name == LATEST and any(_have_same_info(run, one) for one in listed))
    ]


def _search_runs(folder: Path, depth: int) -> Iterator[Path]:
    """Yields the folders with files of a run, from this folder on. The files of a run are not searched."""
    try:
        with os.scandir(folder) as entries:
            names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return
    skipped: frozenset[str] = NIGHT_FOLDERS if folder.parent.name == NIGHTS else frozenset()
    if not names.keys().isdisjoint(RUN_FILES):
        yield folder
        skipped = OWN_NAMES
    for name, is_folder in names.items() if depth < SEARCH_DEPTH else ():
        if is_folder and name not in skipped and not DELETED_NAME.fullmatch(name):
            yield from _search_runs(folder / name, depth + 1)


def _have_same_info(run: Path, other: Path) -> bool:
    """Returns whether two folders have an equal ``run.json``. Only files of equal size are read."""
    files = [one / "run.json" for one in (run, other)]
    try:
        return files[0].stat().st_size == files[1].stat().st_size and read_file(files[0]) == read_file(files[1])
    except OSError:
        return False


def looks_like_run(folder: Path) -> bool:
    """Returns whether this is a run, complete or not: it has a file of a run or a run's name, or is a broken link.

    A folder that ``gc`` is deleting is no run.
    """
    if _is_being_deleted(folder):
        return False
    if not folder.exists():
        return folder.is_symlink()
    return bool(RUN_NAME.fullmatch(folder.name)) or any((folder / name).exists() for name in RUN_FILES)


def is_carried(run: Path) -> bool:
    """Returns whether a run has only its small files, because it was carried from another store."""
    return (run / CARRIED).exists() and not (run / "history").exists()


def has_removed_history(run: Path) -> bool:
    """Returns whether the history of a run was removed when it had passed."""
    info = None if (run / "history").exists() else read_info(run)
    return info is not None and info.history_removed > 0


def schedule_name(run: str, anomalies: Iterable[str]) -> str:
    """Returns the file name for the shrunk schedule of a run, with safe characters only and of limited length.

    If characters had to be replaced or cut, digits of a hash keep names distinct.
    """
    name = f"{run}-{'+'.join(sorted(anomalies))}"
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name).lstrip(".-")
    if safe != name or len(safe) > SCHEDULE_LIMIT:
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
        safe = f"{safe[: SCHEDULE_LIMIT - 17]}-{digest}"
    return f"{safe}.json"


def choose_schedule_path(folder: Path, name: str, schedule: bytes) -> Path:
    """Returns the path for a schedule. If a file of other content has the name, the new one gets a number.

    Someone may have edited the schedule of an earlier shrinking.
    """
    stem = name.removesuffix(".json")
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{stem}-{number}.json")
        if not os.path.lexists(path) or (path.is_file() and not path.is_symlink() and path.read_bytes() == schedule):
            return path
    raise AssertionError("some number is free")


def _list_runs_of_test(test: Path) -> list[Path]:
    """Returns the runs of a test. A link in place of a test may lead to one run, or nowhere."""
    return [test] if test.is_symlink() and looks_like_run(test) else _list_folders(test, links=True)


def _list_folders(path: Path, *, links: bool) -> list[Path]:
    """Returns the folders in ``path``, sorted, except ``latest`` and those that ``gc`` is deleting.

    ``links``: also returns links to folders and broken links. Hidden links are left out, because a store makes them
    itself for a moment.
    """

    def is_included(entry: Path) -> bool:
        if not entry.is_symlink():
            return entry.is_dir()
        return links and not entry.name.startswith(".") and (entry.is_dir() or not entry.exists())

    return sorted(
        entry
        for entry in path.iterdir()
        if entry.name != LATEST and not _is_being_deleted(entry) and is_included(entry)
    )


def _remove_duplicates(folders: Iterable[Path], root: Path) -> list[Path]:
    """Keeps one path to each folder, if possible one without links. Drops links to folders that contain ``root``."""
    paths = list(folders)
    linked = {path for path in paths if path.is_symlink() or path.parent.is_symlink()}
    if not linked:
        return paths
    kept: dict[Path, Path] = {}
    for path in sorted(paths, key=linked.__contains__):
        kept.setdefault(follow_links(path), path)
    store = follow_links(root)
    return [path for path in paths if kept[target := follow_links(path)] == path and not store.is_relative_to(target)]


def follow_links(path: Path) -> Path:
    """Resolves a path like ``Path.resolve``, but returns a path for a loop of links instead of raising an error."""
    return Path(os.path.realpath(path))


def find_collectable(root: Path, *, keep: int, older_than: timedelta | None, now: datetime) -> list[Path]:
    """Returns what ``gc`` would delete: all but the ``keep`` newest runs of each test, if older than ``older_than``.

    It never includes folders that are no runs of ours, runs with a special file in them, runs in use, and runs that a
    ``latest`` link points at. A run with an impossible time is not included, and does not count as one of the newest.
    """
    latest = {follow_links(link) for link in (root / LATEST, *root.glob(f"*/{LATEST}")) if link.is_symlink()}
    collectable: list[Path] = []
    for test in _list_folders(root, links=False) if root.is_dir() else []:
        folders = [] if test.name == NIGHTS else filter(is_own_run, _list_folders(test, links=False))
        runs = [run for run in folders if not _explain_impossible_time(run, now)]
        collectable += [
            run
            for run in runs[: max(0, len(runs) - keep)]
            if run.resolve() not in latest
            and not is_in_use(run)
            and _is_old(run, older_than, now)
            and not find_foreign_content(run)
        ]
    return collectable


def is_own_run(folder: Path) -> bool:
    """Returns whether a folder may be deleted as a run: it is no link, and has a readable ``run.json`` of ours."""
    if folder.is_symlink() or not (folder / "run.json").is_file():
        return False
    if find_special_file(folder) is not None:
        return False
    info = read_info(folder)
    return info is not None and _parse_started(info) is not None


def find_special_file(folder: Path) -> SpecialFileError | None:
    """Returns the error for a FIFO or a similar file in the folder of a run. Such a run cannot be read."""
    try:
        read_run(folder)
    except SpecialFileError as error:
        return error
    return None


def find_special_files(root: Path) -> list[SpecialFileError]:
    """Returns one error for each run of a store that has special files."""
    return [error for run in list_runs(root) if (error := find_special_file(run)) is not None]


def find_foreign_content(run: Path) -> str:
    """Returns why a run's folder contains more than this run, or an empty string.

    It may contain other runs, for example in a store that was created there, a mount point, or files of the user.
    """
    if any("run.json" in names for place, _, names in os.walk(run) if Path(place) != run):
        return NESTED
    if has_mount_point(run.resolve()):
        return MOUNTED
    names: list[str] = []
    with suppress(FileNotFoundError):  # another gc has deleted it meanwhile
        names = os.listdir(run)
    others = sorted(name for name in names if name not in OWN_NAMES and not TEMPORARY_NAME.fullmatch(name))
    return f"{OTHERS}: {join_some(others, MOST_NAMED)}" if others else ""


def list_kept_by_gc(root: Path, now: datetime) -> list[tuple[Path, str]]:
    """Returns the folders at STORE/TEST/RUN that ``gc`` never deletes, with the reasons.

    - runs in a wrong place of the store, at any depth that is searched
    - folders that are no runs of ours; if a test folder has no run, it is listed in place of its content
    - symbolic links
    - runs that contain other runs, a mount point, or files of the user
    - runs with an impossible time
    - runs that may be in use on another machine

    For runs with special files see :func:`find_special_files`.
    """
    kept: list[tuple[Path, str]] = []
    for test in _list_folders(root, links=True):
        if test.is_symlink():
            kept.append((test, LINK))
        elif test.name != NIGHTS and (folders := _list_folders(test, links=True)):
            reasons = [(folder, reason) for folder in folders if (reason := _explain_kept(folder, now))]
            foreign = len(reasons) == len(folders) and all(reason == FOREIGN for _, reason in reasons)
            kept += [(test, FOREIGN)] if foreign else reasons
    overlooked = dict(find_overlooked(root, list_runs(root)))
    kept = [(path, reason.replace("{}", str(path))) for path, reason in kept if path not in overlooked]
    return sorted([*kept, *overlooked.items()])


def _explain_kept(folder: Path, now: datetime) -> str:
    if folder.is_symlink():
        return LINK
    if find_special_file(folder) is not None:
        return ""
    if not is_own_run(folder):
        return FOREIGN
    return find_foreign_content(folder) or _explain_elsewhere(folder) or _explain_impossible_time(folder, now)


def _explain_impossible_time(run: Path, now: datetime) -> str:
    """Returns an explanation if a run cannot have begun when it says, else an empty string.

    The time in the folder's name counts, too, because runs are sorted by it.
    """
    info = read_info(run)
    started = None if info is None else _parse_started(info)
    times = [time for time in (started, _parse_run_name(run.name)) if time is not None]
    wrong = [time for time in times if not is_possible_time(time, now)]
    if not wrong:
        return ""
    when = f"in the future ({max(wrong).isoformat(timespec='seconds')})"
    if max(wrong) < now:
        when = f"at {min(wrong).isoformat(timespec='seconds')}, so its clock was wrong"
    remedy = "delete this folder by hand, or set the clock of this machine if that one is wrong"
    return f"it starts {when}: {remedy}"


def _parse_run_name(name: str) -> datetime | None:
    """Returns the time in a run folder's name; None if there is none."""
    if not RUN_NAME.fullmatch(name):
        return None
    try:
        return datetime.strptime(name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _explain_elsewhere(run: Path) -> str:
    info = read_info(run)
    if info is None or is_carried(run) or not (info.claims_use() and info.is_elsewhere()):
        return ""
    doing = "go on" if info.status == RUNNING else "be judged"
    return f"it may {doing}, in {info.describe_process()}; if it does not, delete this folder by hand"


def _parse_started(info: RunInfo) -> datetime | None:
    """Returns when the run began; None unless ``run.json`` has a time with a time zone."""
    try:
        started = datetime.fromisoformat(info.started)
    except ValueError:
        return None
    return started if started.tzinfo is not None else None


def is_active(run: Path) -> bool:
    """Returns whether the run is in progress; see :meth:`RunInfo.is_active`."""
    info = read_info(run)
    return info is not None and info.is_active()


def is_in_use(run: Path) -> bool:
    """Returns whether a process may still need the files of a run; see :meth:`RunInfo.may_be_in_use`.

    No process needs a carried copy.
    """
    info = read_info(run)
    return info is not None and info.may_be_in_use() and not is_carried(run)


def _is_old(run: Path, older_than: timedelta | None, now: datetime) -> bool:
    if older_than is None:
        return True
    info = read_info(run)
    started = None if info is None else _parse_started(info)
    return started is not None and now - started > older_than


def delete_runs(paths: Iterable[Path]) -> None:
    """Deletes runs. Folders that are no runs of ours, or that are in use by now, are left alone.

    Each run is renamed first, so a reader finds a whole run or none. If the deletion is interrupted,
    :func:`find_partly_deleted` finds the remaining files.
    """
    for path in paths:
        if is_own_run(path) and not is_in_use(path) and not find_foreign_content(path) and not path.parent.is_symlink():
            renamed = path.with_name(f"{DELETED_PREFIX}{secrets.token_hex(8)}-{path.name[:40]}")
            path.rename(renamed)
            _delete_tree(renamed)


def find_partly_deleted(root: Path) -> list[Path]:
    """Returns the runs of a store whose deletion was interrupted. Their folders may have only some of their files."""
    tests = [test for test in _list_folders(root, links=False) if test.name != NIGHTS] if root.is_dir() else []
    folders = (folder for test in tests for folder in sorted(test.iterdir()) if _is_being_deleted(folder))
    return [folder for folder in folders if _may_be_deleted(folder)]


def _may_be_deleted(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not find_foreign_content(folder)


def finish_deletions(root: Path) -> None:
    """Finishes interrupted deletions."""
    for folder in find_partly_deleted(root):
        _delete_tree(folder)


def _is_being_deleted(folder: Path) -> bool:
    return bool(DELETED_NAME.fullmatch(folder.name))


def _delete_tree(folder: Path) -> None:
    """Deletes a folder. Another ``gc`` may delete it at the same time."""
    while folder.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def resolve_history(path: Path) -> Path:
    """Returns the history folder of a run folder, a history folder or a ``latest`` link.

    Raises ``FileNotFoundError`` that names what was looked for, and ``SpecialFileError``.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    for folder in (path, path / "history"):
        if (folder / "ops").is_dir() or list(folder.glob("ops*.parquet")):
            if folder is not path and folder.is_symlink() and not folder.resolve().is_relative_to(path.resolve()):
                raise OutsideLinkError(folder, path)
            require_regular_below(folder)
            return folder.resolve()
    if has_removed_history(path):
        remaining = "verdict and page remain" if (path / "report.html").exists() else "verdict remains"
        raise RemovedHistoryError(
            f"{path}: its history was removed when the run had passed (--keep-history=failures); its {remaining}, and "
            f"`assay replay {path}` repeats it"
        )
    raise FileNotFoundError(f"{path} is neither a run nor a history folder: there is no ops/ in it, nor history/ops/")


class RemovedHistoryError(FileNotFoundError):
    """A run that passed has no history, because its session was to remove it. The run is complete."""


class RunOutput(Protocol):
    """Receives the output of one run."""

    @property
    def logs(self) -> Path | None:
        """The folder for the nodes' text logs; None if they are not kept."""

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        """Opens the run's empty history. ``loop``: its clock decides when rows are sealed during the run."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, replacing an earlier one of this name."""


@dataclass
class InMemoryOutput:
    """Keeps everything in memory; ``files`` is indexed by name."""

    history: HistoryInMemory = field(default_factory=HistoryInMemory)
    files: dict[str, bytes] = field(default_factory=dict)
    logs: Path | None = None

    def open_history(self, loop: asyncio.AbstractEventLoop | None) -> History:
        return self.history

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data
