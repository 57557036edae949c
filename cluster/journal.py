"""The undo journal: how to take back what a run does to machines, written down before it is done.

One file per run, JSON lines, each fsynced before the deed: an ``undo`` entry says how, a ``done`` entry that it has
been undone. Replay (``cluster/leftovers.py``) goes backwards over what is not done, and every action may be repeated,
so a crash at any point, replay included, costs nothing.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from assay.cluster import owner
from assay.cluster.ssh.ssh_address import Reach

JOURNALS = "journals"


class RemoveContainer(msgspec.Struct, frozen=True, tag="remove-container"):
    name: str


class RemoveNetwork(msgspec.Struct, frozen=True, tag="remove-network"):
    name: str


class RunInContainer(msgspec.Struct, frozen=True, tag="run-in-container"):
    """Undoes a fault inside a node; void once the container is gone."""

    container: str
    argv: tuple[str, ...]


class Unpause(msgspec.Struct, frozen=True, tag="unpause"):
    """A container that was frozen; void once it is gone."""

    container: str


class RunOnHost(msgspec.Struct, frozen=True, tag="run-on-host"):
    """Undoes something on a machine of the user's own. ``what``: in words, if it is more than its command."""

    host: Reach
    argv: tuple[str, ...]
    what: str = ""


class RemoveFile(msgspec.Struct, frozen=True, tag="remove-file"):
    """On the harness's own machine."""

    path: str


class RemoveDisk(msgspec.Struct, frozen=True, tag="remove-disk"):
    """The image of a node's disk, and its loop device; after the container that has it."""

    image: str


Action = RemoveContainer | RemoveNetwork | RunInContainer | RunOnHost | Unpause | RemoveFile | RemoveDisk


class Header(msgspec.Struct, frozen=True, tag="journal"):
    """The first line. ``machine``: as of :func:`assay.cluster.owner.machine`."""

    owner: str
    run_id: str
    machine: str = ""


class Undo(msgspec.Struct, frozen=True, tag="undo"):
    entry: int
    action: Action


class Done(msgspec.Struct, frozen=True, tag="done"):
    entry: int


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """The user wants to look at the cluster: a later session's sweep leaves it, ``assay heal`` does not."""


_LINE = msgspec.json.Decoder(Header | Undo | Done | Kept)


class JournalError(Exception):
    """A journal cannot be read; the message names the file."""


class Journal:
    """The journal of a run that goes on. Thread-safe."""

    def __init__(self, state: Path, run_id: str, mine: owner.Owner | None = None) -> None:
        mine = mine or owner.current()
        folder = state / JOURNALS
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{mine}.{run_id}.jsonl"
        self._lock = threading.Lock()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._next = 1
        self._closed = False
        self._write(Header(str(mine), run_id, owner.machine()))
        _fsync_folder(folder)

    def append(self, action: Action) -> int:
        """Durable when it returns: call it *before* what ``action`` undoes. The number is for :meth:`done`."""
        with self._lock:
            entry = self._next
            self._next += 1
            self._write(Undo(entry, action))
            return entry

    def done(self, entry: int) -> None:
        with self._lock:
            self._write(Done(entry))

    def keep(self) -> None:
        """From now on :func:`sweep` passes this run by; :func:`heal` removes it once its owner is gone."""
        with self._lock:
            self._write(Kept())

    def close(self, *, finished: bool) -> None:
        """``finished``: all is undone, the file goes. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._file)
            if finished:
                self.path.unlink(missing_ok=True)

    def _write(self, line: Header | Undo | Done | Kept) -> None:
        if self._closed:
            raise JournalError(f"{self.path} is closed: the run is over and must do nothing more to its nodes")
        rest, end = msgspec.json.encode(line) + b"\n", os.fstat(self._file).st_size
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)  # the next line would follow half of this one, and none could be read
            raise


@dataclass(frozen=True)
class Pending:
    """A journal as read back: what is still to be undone, the latest deed first."""

    path: Path
    owner: owner.Owner
    run_id: str
    actions: Sequence[tuple[int, Action]]
    kept: bool = False
    machine: str = ""

    def elsewhere(self) -> bool:
        """Another machine's, which shares this folder: whether its owner lives cannot be known from here."""
        here = owner.machine()
        return bool(here and self.machine) and here != self.machine


def state_folder() -> Path:
    """Where this user's journals and locks are: ``$XDG_STATE_HOME/assay``, else ``~/.local/state/assay``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "assay"


def read(path: Path) -> Pending:
    """A last line cut short by a crash counts as unwritten: its deed was not begun. Raises :class:`JournalError`."""
    *lines, _cut = path.read_bytes().split(b"\n")
    header: Header | None = None
    actions: dict[int, Action] = {}
    kept = False
    for number, text in enumerate(lines, 1):
        try:
            line = _LINE.decode(text)
        except msgspec.DecodeError as error:
            raise JournalError(f"{path}:{number}: not a line of an undo journal: {error}") from error
        if isinstance(line, Header):
            header = line
        elif isinstance(line, Undo):
            actions[line.entry] = line.action
        elif isinstance(line, Done):
            actions.pop(line.entry, None)
        else:
            kept = True
    if header is None:
        # Not even the first line was written, hence nothing was done; the name still says whose it is.
        return Pending(path, owner.parse(".".join(path.name.split(".")[:4])), "?", ())
    return Pending(
        path, owner.parse(header.owner), header.run_id, tuple(reversed(actions.items())), kept, header.machine
    )


def pending(state: Path) -> tuple[list[Pending], list[str]]:
    """Every journal there is, by name; and what is wrong with those that cannot be read."""
    found: list[Pending] = []
    broken: list[str] = []
    for path in sorted((state / JOURNALS).glob("*.jsonl"), key=lambda path: path.name):
        try:
            found.append(read(path))
        except FileNotFoundError:
            continue  # that run has just ended
        except (JournalError, ValueError) as error:
            broken.append(f"{path}: left alone: {error}")
    return found, broken


def outstanding(state: Path, mine: owner.Owner) -> list[str]:
    """Describes what a process has made and not taken away. A fault inside a container that is listed goes with it."""
    found, _ = pending(state)
    actions = [action for journal in found if journal.owner == mine for _, action in journal.actions]
    gone = {action.name for action in actions if isinstance(action, RemoveContainer)}
    lines = []
    for action in actions:
        match action:
            case RemoveContainer(name):
                lines.append(f"container {name}")
            case RemoveNetwork(name):
                lines.append(f"network {name}")
            case RemoveFile(path):
                lines.append(f"file {path}")
            case RemoveDisk(image):
                lines.append(f"disk {image}")
            case RunInContainer(container) | Unpause(container) if container in gone:
                pass
            case _:
                lines.append(f"not undone: {describe(action)}")
    return lines


def describe(action: Action) -> str:
    match action:
        case RemoveContainer(name):
            return f"container {name} removed"
        case RemoveNetwork(name):
            return f"network {name} removed"
        case RunInContainer(container, argv):
            return f"{container}: {' '.join(' '.join(argv).split())[:60]}"
        case RunOnHost(host, argv, what):
            return f"{host}: {what or ' '.join(' '.join(argv).split())[:60]}"
        case Unpause(container):
            return f"{container} unpaused"
        case RemoveFile(path):
            return f"{path} removed"
        case RemoveDisk(image):
            return f"disk {image} removed"


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
