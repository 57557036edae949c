"""Files and folders of a simulated disk, each with a visible and a durable state.

- A file's durable content is a :class:`DurableContent`: a prefix that it shares with the visible content, and a tail of
  its own (bytes that were truncated after the fsync). So appends and fsyncs copy nothing, at any file size.
- Preallocated space reads as zeros, and becomes content when the file is opened again.
- The namespace keeps one journal of name changes that are not yet durable. A folder's fsync commits the changes in this
  folder, and the changes that they depend on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter
from random import Random

BLOCK = 512
"""Bytes that a device writes atomically."""
OUT_OF_ORDER = 0.5
"""Probability that a power loss finds unsynced blocks written out of order."""
MISSING = 0.3
"""Share of these blocks that are then missing, and read as zeros."""


@dataclass(slots=True, eq=False)
class DurableContent:
    """Content of a file when its fsync ``number`` began.

    It consists of the first ``size`` bytes of the visible content, then ``tail``, then zeros up to ``reserved``.
    """

    size: int
    tail: bytes
    number: int
    reserved: int = 0

    def before_cut(self, content: bytearray, size: int) -> None:
        """Saves the bytes that are about to be removed by a truncation to ``size``."""
        if size < self.size:
            self.tail = bytes(content[size : self.size]) + self.tail
            self.size = size


class Inode:
    """A file."""

    __slots__ = ("_fsyncs", "_running_fsyncs", "content", "cuts", "durable", "holds_lock", "reserved")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = DurableContent(len(content), b"", 0)
        self.cuts = 0
        """How often the file was truncated or overwritten."""
        self.reserved = 0
        """Size of the file with its preallocated space; 0 without such space."""
        self.holds_lock: Callable[[], bool] | None = None
        """Whether the process that locked the file last still has the lock; None if no process locked it."""
        self._fsyncs = 0
        """Number of fsyncs that were begun."""
        self._running_fsyncs: list[DurableContent] = []
        """For each fsync that has begun and not ended: the content that it makes durable."""

    @property
    def size(self) -> int:
        """Size that a process finds when it opens the file."""
        return max(self.reserved, len(self.content))

    @property
    def whole(self) -> bytes:
        """The content, and zeros up to the size."""
        return bytes(self.content).ljust(self.reserved, b"\0")

    def fill_reserved_space(self) -> None:
        """Turns the preallocated space into content."""
        self.content += bytes(self.size - len(self.content))
        self.reserved = 0

    def write(self, position: int, data: bytes) -> None:
        """Writes ``data`` at ``position``. A gap behind the end of the content becomes zeros.

        A process appends at what it believes to be the end of the file. A second process may have written beyond that
        position.
        """
        content = self.content
        if position == len(content):
            content += data
            return
        if position < len(content):
            self._before_cut(position)
            self.cuts += 1
        else:
            content += bytes(position - len(content))
        content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        self.cuts += 1
        self.reserved = 0
        self._before_cut(size)
        del self.content[size:]

    def _before_cut(self, size: int) -> None:
        """Saves durable bytes. Must be called before the content from ``size`` on is truncated or replaced."""
        self.durable.before_cut(self.content, size)
        for saved in self._running_fsyncs:
            saved.before_cut(self.content, size)

    def begin_fsync(self) -> DurableContent:
        """Begins an fsync. Returns the content that it makes durable, even if the file changes until its end."""
        self._fsyncs += 1
        begun = DurableContent(len(self.content), b"", self._fsyncs, self.reserved)
        self._running_fsyncs.append(begun)
        return begun

    def abandon_fsync(self, begun: DurableContent) -> None:
        self._running_fsyncs.remove(begun)

    def finish_fsync(self, begun: DurableContent) -> None:
        """Finishes an fsync. Changes nothing if a later fsync has finished already."""
        self._running_fsyncs.remove(begun)
        if begun.number > self.durable.number:
            self.durable = begun

    def fsync(self) -> None:
        self.finish_fsync(self.begin_fsync())

    def after_power_loss(self, random: Random) -> Inode:
        """Returns what a power loss leaves of the file, as a file that is completely durable."""
        if self.holds_lock is not None:
            return Inode()  # no process reads what a lock file had before, so no random number is drawn for it
        durable = self.durable
        size = durable.reserved
        if size != self.reserved:  # the size with preallocated space has changed since the fsync
            size = random.choice((size, self.reserved))
        if durable.tail and random.random() < 0.5:
            survived = bytes(self.content[: durable.size]) + durable.tail  # the truncation is undone
        else:
            survived = self._tear(random)
        return Inode(survived.ljust(size, b"\0"))

    def _tear(self, random: Random) -> bytes:
        """Returns the content up to a random byte behind the durable part. Some unsynced blocks may be missing."""
        survived = self.content[: random.randint(self.durable.size, len(self.content))]
        unsynced_blocks = range(-(-self.durable.size // BLOCK) * BLOCK, len(survived) - BLOCK, BLOCK)
        if unsynced_blocks and random.random() < OUT_OF_ORDER:
            for begin in unsynced_blocks:
                if random.random() < MISSING:
                    survived[begin : begin + BLOCK] = bytes(BLOCK)
        return bytes(survived)


class Folder:
    """A folder: its visible names (``entries``) and its durable names."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}


Node = Inode | Folder


class NameChange:
    """Changes of names by one operation: ``(folder, name, new node)``, with None for a removed name."""

    __slots__ = ("edits", "folders", "number")

    def __init__(self, number: int, edits: list[tuple[Folder, str, Node | None]]) -> None:
        self.number = number
        self._set(edits)

    def _set(self, edits: list[tuple[Folder, str, Node | None]]) -> None:
        self.edits = edits
        self.folders = list(dict.fromkeys(folder for folder, _, _ in edits))

    def apply(self) -> None:
        for folder, name, node in self.edits:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node

    def forget(self, folder: Folder, name: str) -> None:
        """Drops the change of one name, because the name became durable in another way."""
        if folder in self.folders:
            self._set([edit for edit in self.edits if edit[0] is not folder or edit[1] != name])


class FileTree:
    """The tree from the disk's root. Errors equal those of the operating system's calls of the same names."""

    def __init__(self, root: Folder | None = None) -> None:
        self._root = root or Folder()
        self._pending: list[NameChange] = []
        self._changes = 0

    def find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in _split_path(path):
            if type(node) is not Folder:
                return None
            node = node.entries.get(part)
        return node

    def folder(self, path: str) -> Folder:
        node = self.find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if not isinstance(node, Folder):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def file(self, path: str, *, create: bool = False) -> Inode:
        node = self.find(path)
        if isinstance(node, Folder):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _os_error(errno.ENOENT, path)
            node = Inode()
            folder, name = self._find_parent(path)
            self._apply_edits((folder, name, node))
        return node

    def mkdir(self, path: str) -> None:
        """Creates a folder with its parents."""
        folder = self._root
        for part in _split_path(path):
            node = folder.entries.get(part)
            if node is None:
                node = Folder()
                self._apply_edits((folder, part, node))
            if not isinstance(node, Folder):
                raise _os_error(errno.ENOTDIR, path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        replaced = self.find(target)
        if replaced is node:
            return
        if isinstance(replaced, Folder) and not isinstance(node, Folder):
            raise _os_error(errno.EISDIR, target)
        if isinstance(replaced, Inode) and isinstance(node, Folder):
            raise _os_error(errno.ENOTDIR, target)
        if isinstance(replaced, Folder) and replaced.entries:
            raise _os_error(errno.ENOTEMPTY, target)
        self._apply_edits((*self._find_parent(source), None), (*self._find_parent(target), node))

    def remove(self, path: str) -> None:
        """Removes a file or folder. A folder is removed file by file, from the inside, as on a real disk."""
        node = self.find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            for name in sorted(node.entries):
                self.remove(f"{path}/{name}")
        self._apply_edits((*self._find_parent(path), None))

    def is_durable(self, path: str) -> bool:
        """Returns whether the path is durable: its name and the names of its parents, with their current nodes."""
        folder = self._root
        for part in _split_path(path):
            node = folder.entries.get(part)
            if node is None or folder.durable.get(part) is not node:
                return False
            if isinstance(node, Folder):
                folder = node
        return True

    def files(self) -> list[str]:
        return sorted(_walk(self._root, ""))

    def matching(self, pattern: str) -> dict[str, Inode]:
        """Returns the files that match a shell pattern, sorted by path. A wildcard does not match a slash."""
        found: list[tuple[str, Node]] = [("", self._root)]
        for part in _split_path(pattern):
            found = [
                (f"{path}/{name}", node)
                for path, folder in found
                if isinstance(folder, Folder)
                for name, node in folder.entries.items()
                if fnmatchcase(name, part)
            ]
        return {path: node for path, node in sorted(found, key=itemgetter(0)) if isinstance(node, Inode)}

    def count_changes(self) -> int:
        """Returns the number of changes of names so far; see :meth:`commit`."""
        return self._changes

    def commit(self, folder: Folder, count: int) -> None:
        """Makes the changes in ``folder`` durable that are among the first ``count`` changes of the tree, and the
        earlier changes that they depend on.
        """
        folders = {folder}
        committed: list[NameChange] = []
        for change in reversed(self._pending):
            if change.number <= count and not folders.isdisjoint(change.folders):
                committed.append(change)
                folders.update(change.folders)
        if not committed:
            return
        for change in reversed(committed):
            change.apply()
        self._pending = [change for change in self._pending if change not in committed]

    def make_names_durable(self, path: str) -> None:
        """Makes the current names of ``path`` and its parents durable, and nothing else."""
        folder = self._root
        for part in _split_path(path):
            node = folder.entries.get(part)
            for change in self._pending:
                change.forget(folder, part)
            if node is None:
                folder.durable.pop(part, None)
            else:
                folder.durable[part] = node
            if not isinstance(node, Folder):
                return
            folder = node

    def after_power_loss(self, random: Random) -> FileTree:
        """Returns the device's state as a new tree that is completely durable."""
        for change in _select_survivors(self._pending, random):
            change.apply()
        return FileTree(_copy_durable(self._root, random))

    def _find_parent(self, path: str) -> tuple[Folder, str]:
        """Returns the folder that has, or would have, the path, and the name in it."""
        parts = _split_path(path)
        if not parts:
            raise _os_error(errno.EBUSY, path)
        return self.folder("/".join(parts[:-1])), parts[-1]

    def _apply_edits(self, *edits: tuple[Folder, str, Node | None]) -> None:
        for folder, name, node in edits:
            if node is None:
                del folder.entries[name]
            else:
                folder.entries[name] = node
        self._changes += 1
        self._pending.append(NameChange(self._changes, list(edits)))


def _select_survivors(pending: list[NameChange], random: Random) -> list[NameChange]:
    """Returns a random prefix of each folder's changes. A change in two folders must be in both prefixes."""
    totals: dict[Folder, int] = {}
    for change in pending:
        for folder in change.folders:
            totals[folder] = totals.get(folder, 0) + 1
    remaining = {folder: random.randint(0, total) for folder, total in totals.items()}
    survivors = []
    for change in pending:
        if all(remaining[folder] > 0 for folder in change.folders):
            survivors.append(change)
            for folder in change.folders:
                remaining[folder] -= 1
        else:
            remaining.update(dict.fromkeys(change.folders, 0))
    return survivors


def _copy_durable(folder: Folder, random: Random) -> Folder:
    tree = Folder()
    for name in sorted(folder.durable):
        node = folder.durable[name]
        survivor = node.after_power_loss(random) if isinstance(node, Inode) else _copy_durable(node, random)
        tree.entries[name] = tree.durable[name] = survivor
    return tree


@lru_cache(maxsize=10_000)
def _split_path(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _walk(folder: Folder, prefix: str) -> list[str]:
    paths = []
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            paths += _walk(node, f"{prefix}{name}/")
        else:
            paths.append(prefix + name)
    return paths


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
