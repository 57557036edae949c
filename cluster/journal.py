"""Undo journal: how to revert each change to machines, written before the change is made.

There is one file per run with JSON lines. Each line is fsynced before the change is made. An ``undo`` entry says how to
undo the change, and a ``done`` entry that it has been undone. Replay (``cluster/leftovers.py``) goes backwards over the
entries that are not done. Every action may be repeated, so a crash at any point, even during replay, is harmless.
"""

import os
import pwd
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from assay.cluster import owner
from assay.cluster.docker_endpoint import Endpoint
from assay.cluster.regular_files import FILE_TYPES
from assay.cluster.ssh.ssh_address import SshAddress

JOURNALS = "journals"


class RemoveContainer(msgspec.Struct, frozen=True, tag="remove-container"):
    name: str


class RemoveNetwork(msgspec.Struct, frozen=True, tag="remove-network"):
    name: str


class RemoveVolume(msgspec.Struct, frozen=True, tag="remove-volume"):
    name: str


class RunInContainer(msgspec.Struct, frozen=True, tag="run-in-container"):
    """Runs a command that undoes a fault in a container. Not needed once the container is gone."""

    container: str
    argv: tuple[str, ...]


class Unpause(msgspec.Struct, frozen=True, tag="unpause"):
    """Unpauses a frozen container. Not needed once the container is gone."""

    container: str


class RunOnHost(msgspec.Struct, frozen=True, tag="run-on-host"):
    """Runs a command that undoes a change on a user's machine. ``what``: a description; default: the command."""

    host: SshAddress
    argv: tuple[str, ...]
    what: str = ""


class RemoveFile(msgspec.Struct, frozen=True, tag="remove-file"):
    """Removes a file on the harness's own machine."""

    path: str


class RemoveDisk(msgspec.Struct, frozen=True, tag="remove-disk"):
    """Removes the image of a node's disk and its loop device. Only earlier versions write it."""

    image: str


Action = RemoveContainer | RemoveNetwork | RemoveVolume | RunInContainer | RunOnHost | Unpause | RemoveFile | RemoveDisk


class EngineRecord(msgspec.Struct, frozen=True):
    """The Docker engine on which a change was made.

    - ``id``: its own id. Engines before Docker 23 that share ``/etc/docker`` have one id
    - ``folder``: its data root, so that engines with one id are told apart
    - ``endpoint``: where it answered
    """

    id: str
    folder: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.id or 'without an id'} with its data in {self.folder or 'an unknown folder'}"

    def is_same_as(self, other: "EngineRecord") -> bool:
        """Returns whether both are the same engine. An engine without an id is known by its address alone."""
        known = self.id or self.endpoint.host == other.endpoint.host
        return bool(known) and (self.id, self.folder) == (other.id, other.folder)


class JournalHeader(msgspec.Struct, frozen=True, tag="journal"):
    """The first line. ``machine``: see :func:`assay.cluster.owner.read_machine`."""

    owner: str
    run_id: str
    machine: str = ""


class UndoEntry(msgspec.Struct, frozen=True, tag="undo", omit_defaults=True):
    """``engine``: where the change must be undone; None for machines without an engine, and in earlier versions."""

    entry: int
    action: Action
    engine: EngineRecord | None = None


class DoneEntry(msgspec.Struct, frozen=True, tag="done"):
    entry: int


class KeptMarker(msgspec.Struct, frozen=True, tag="kept"):
    """Marks a cluster that the user wants to look at. Later sessions leave it alone, and ``assay heal`` removes it."""


_LINE_DECODER = msgspec.json.Decoder(JournalHeader | UndoEntry | DoneEntry | KeptMarker)


class JournalError(Exception):
    """A journal cannot be read. The message names the file."""


class UndoJournal:
    """The journal of a running run. Thread-safe."""

    def __init__(
        self, state: Path, run_id: str, writer: owner.Owner | None = None, engine: EngineRecord | None = None
    ) -> None:
        """``engine``: the Docker engine on which all changes of the run are made."""
        writer = writer or owner.current_owner()
        self._engine = engine
        folder = state / JOURNALS
        state.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        self.path = folder / f"{writer}.{run_id}.jsonl"
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._next = 1
        self._closed = False
        self._write(JournalHeader(str(writer), run_id, owner.read_machine()))
        _fsync_folder(folder)

    def append(self, action: Action) -> int:
        """Writes an action durably. Returns its number for :meth:`mark_done`.

        It must be called *before* the change that ``action`` undoes.
        """
        with self._lock:
            entry = self._next
            self._next += 1
            self._write(UndoEntry(entry, action, self._engine))
            return entry

    def mark_done(self, entry: int) -> None:
        """Notes that the change of this entry has been undone."""
        with self._lock:
            self._write(DoneEntry(entry))

    def keep(self) -> None:
        """Makes later sessions leave this run's cluster alone. ``assay heal`` removes it once its owner is gone."""
        with self._lock:
            self._write(KeptMarker())

    def close(self, *, finished: bool) -> None:
        """Closes the journal. ``finished``: all changes are undone, so the file is deleted. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._file)
            if finished:
                self.path.unlink(missing_ok=True)

    def _write(self, line: JournalHeader | UndoEntry | DoneEntry | KeptMarker) -> None:
        if self._closed:
            raise JournalError(f"{self.path} is closed: the run is over and must do nothing more to its nodes")
        rest, end = msgspec.json.encode(line) + b"\n", os.fstat(self._file).st_size
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            # Removes a partly written line. Otherwise it would be joined with the next line.
            os.ftruncate(self._file, end)
            raise


@dataclass(frozen=True)
class StoredJournal:
    """A journal as read from disk: the actions not yet undone, the latest first."""

    path: Path
    owner: owner.Owner
    run_id: str
    actions: Sequence[tuple[int, Action]]
    kept: bool = False
    """Whether the user wants to look at the cluster: see :class:`KeptMarker`."""
    machine: str = ""
    engines: Mapping[int, EngineRecord] = field(default_factory=dict)
    """The engine of each action that was made on a known one, by the action's number."""

    def may_be_of_other_machine(self) -> bool:
        """Returns whether another machine that shares this folder may own the journal. Such an owner may be alive."""
        return self.owner.may_be_elsewhere(self.machine)


def state_folder() -> Path:
    """Returns this user's folder for journals and locks: ``$XDG_STATE_HOME/assay``, else ``~/.local/state/assay``.

    A relative path, also as ``HOME``, is ignored, as the XDG specification demands. Otherwise the commands of a journal
    in the current folder, which may come from elsewhere, would be executed.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "assay"
    home = Path.home()
    if not home.is_absolute():
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    return home / ".local" / "state" / "assay"


def read_journal(path: Path) -> StoredJournal:
    """Returns a journal. Raises :class:`JournalError`.

    A last line that a crash cut short is ignored, because its action was not begun.
    """
    *lines, _cut = _read_regular(path).split(b"\n")
    header: JournalHeader | None = None
    actions: dict[int, Action] = {}
    engines: dict[int, EngineRecord] = {}
    kept = False
    for number, text in enumerate(lines, 1):
        try:
            line = _LINE_DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"{path}:{number}: not a line of an undo journal: {error}") from error
        if isinstance(line, JournalHeader):
            header = line
        elif isinstance(line, UndoEntry):
            actions[line.entry] = line.action
            if line.engine is not None:
                engines[line.entry] = _recall_engine(line.engine)
        elif isinstance(line, DoneEntry):
            actions.pop(line.entry, None)
        else:
            kept = True
    if header is None:
        # Without the first line nothing was done. The file name still has the owner.
        return StoredJournal(path, owner.parse_owner(".".join(path.name.split(".")[:4])), "?", ())
    return StoredJournal(
        path,
        owner.parse_owner(header.owner),
        header.run_id,
        tuple(reversed(actions.items())),
        kept,
        header.machine,
        engines,
    )


def _recall_engine(engine: EngineRecord) -> EngineRecord:
    """Returns an engine without the setting that chose it then. This process may have another setting, or none."""
    endpoint = engine.endpoint
    origin = f"context {endpoint.context}, as chosen at that time" if endpoint.context else ""
    return msgspec.structs.replace(engine, endpoint=replace(endpoint, origin=origin))


def _read_regular(path: Path) -> bytes:
    """Reads a file. Raises :class:`JournalError` unless it is a regular file that only this user or root can write.

    A reader of a FIFO or a device would wait for ever, and a symbolic link may lead to any file. The commands of a
    journal that another user wrote must not be run.
    """
    if not stat.S_ISREG(mode := path.lstat().st_mode):
        raise JournalError(f"{path} is {FILE_TYPES.get(stat.S_IFMT(mode), 'no file')}, not a regular file: remove it")
    # The file may have been replaced since. O_NONBLOCK and O_NOFOLLOW make that harmless.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise JournalError(f"{path} is no longer a regular file: remove it")
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise JournalError(f"{path} may be written by other users, so the harness does not act on it: remove it")
        return file.read()


def read_journals(state: Path) -> tuple[list[StoredJournal], list[str]]:
    """Returns every journal, in the order of their names, and the errors of journals that cannot be read."""
    found: list[StoredJournal] = []
    broken: list[str] = []
    for path in sorted((state / JOURNALS).glob("*.jsonl"), key=lambda path: path.name):
        try:
            found.append(read_journal(path))
        except FileNotFoundError:
            continue  # its run has just ended
        except (JournalError, ValueError, OSError) as error:
            broken.append(f"{path}: left alone: {error}")
    return found, broken


def describe_outstanding(state: Path, process: owner.Owner) -> list[str]:
    """Describes the changes of a process that are not undone. Omits faults in a container that is listed itself."""
    found, _ = read_journals(state)
    return name_changes([action for journal in found if journal.owner == process for _, action in journal.actions])


def name_changes(actions: Sequence[Action]) -> list[str]:
    """Names the changes that actions would undo. Omits faults in a container that is listed itself."""
    containers = {action.name for action in actions if isinstance(action, RemoveContainer)}
    return [
        name_object(action)
        if isinstance(action, RemoveContainer | RemoveNetwork | RemoveVolume | RemoveFile | RemoveDisk)
        else f"not undone: {describe(action)}"
        for action in actions
        if not (isinstance(action, RunInContainer | Unpause) and action.container in containers)
    ]


def name_object(action: Action) -> str:
    """Names the object that an action removes."""
    return describe(action).removesuffix(" removed")


def describe(action: Action) -> str:
    match action:
        case RemoveContainer(name):
            return f"container {name} removed"
        case RemoveNetwork(name):
            return f"network {name} removed"
        case RemoveVolume(name):
            return f"volume {name} removed"
        case RunInContainer(container, argv):
            return f"{container}: {shorten_command(argv)}"
        case RunOnHost(host, argv, what):
            return f"{host}: {what or shorten_command(argv)}"
        case Unpause(container):
            return f"{container} unpaused"
        case RemoveFile(path):
            return f"file {path} removed"
        case RemoveDisk(image):
            return f"disk {image} removed"


def shorten_command(argv: Sequence[str]) -> str:
    """Returns the first 60 characters of a command, as one line."""
    return " ".join(" ".join(argv).split())[:60]


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
