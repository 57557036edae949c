"""ZooKeeper's data tree: znodes, versions, and atomic transactions.

The tree has no clock, no sessions and no connections. A transaction returns its results and its events, in order; the
ensemble manages watches. Stat fields are those of ZooKeeper 3.8. A sequence number is the count of creations below the
parent, and ``cversion`` counts creations and deletions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.protocol.states import EventType, ZnodeStat

Event = tuple[str, str]
"""Type (``kazoo.protocol.states.EventType``) and path."""


@dataclass(frozen=True)
class Create:
    """Creates a znode. ``owner``: the session of an ephemeral znode; 0 for a persistent znode."""

    path: str
    data: bytes
    owner: int = 0
    sequence: bool = False


@dataclass(frozen=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True)
class SetData:
    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True)
class CheckVersion:
    path: str
    version: int


Change = Create | Delete | SetData | CheckVersion


class TransactionError(Exception):
    """The operation at ``index`` failed with ``error``; nothing was changed."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


@dataclass
class Znode:
    data: bytes
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    version: int = 0
    creations: int = 0
    pzxid: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> ZnodeStat:
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=2 * self.creations - len(self.children),
            aversion=0,
            ephemeralOwner=self.owner,
            dataLength=len(self.data),
            numChildren=len(self.children),
            pzxid=self.pzxid,
        )


def check_path(path: str) -> None:
    """Raises ``BadArgumentsError`` for paths that ZooKeeper's PathUtils rejects."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise BadArgumentsError(f"invalid path {path!r}")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise BadArgumentsError(f"invalid path {path!r}")


def split_path(path: str) -> tuple[str, str]:
    """Returns the parent's path and the name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


class Tree:
    """The replicated state. ``zxid``: number of the last transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0)}

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Returns the data and the stat. Raises ``NoNodeError``."""
        node = self._node(path)
        return node.data, node.stat()

    def exists(self, path: str) -> ZnodeStat | None:
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        """Returns the names, sorted. Raises ``NoNodeError``."""
        return sorted(self._node(path).children)

    def transact(self, changes: Sequence[Change], now: int) -> tuple[list[Any], list[Event]]:
        """Applies all changes under one new zxid, at ``now`` ms since 1970. Raises ``TransactionError``."""
        undo: list[Callable[[], object]] = []
        results: list[Any] = []
        events: list[Event] = []
        self.zxid += 1
        for index, change in enumerate(changes):
            try:
                results.append(self._apply(change, now, undo, events))
            except (
                BadArgumentsError, BadVersionError, NoChildrenForEphemeralsError, NoNodeError, NodeExistsError,
                NotEmptyError,
            ) as error:  # fmt: skip
                for step in reversed(undo):
                    step()
                self.zxid -= 1
                raise TransactionError(index, error) from error
        return results, events

    def _node(self, path: str) -> Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _apply(self, change: Change, now: int, undo: list[Callable[[], object]], events: list[Event]) -> Any:
        match change:
            case Create():
                return self._create(change, now, undo, events)
            case Delete():
                return self._delete(change, undo, events)
            case SetData():
                return self._set(change, now, undo, events)
            case CheckVersion():
                self._require_version(change.path, change.version)
                return None

    def _require_version(self, path: str, version: int) -> Znode:
        node = self._node(path)
        if version not in (-1, node.version):
            raise BadVersionError(f"{path} is at version {node.version}, not {version}")
        return node

    def _create(self, change: Create, now: int, undo: list[Callable[[], object]], events: list[Event]) -> str:
        # The name of a sequence node may be empty before its number is appended.
        check_path(change.path + "0" if change.sequence else change.path)
        parent_path, name = split_path(change.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(change.path)
        if change.sequence:
            name = f"{name}{parent.creations:010d}"
        path = f"/{name}" if parent_path == "/" else f"{parent_path}/{name}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path)
        old_pzxid = parent.pzxid
        self._nodes[path] = Znode(change.data, self.zxid, self.zxid, now, now, change.owner, pzxid=self.zxid)
        parent.children[name] = None
        parent.creations += 1
        parent.pzxid = self.zxid

        def revert() -> None:
            del self._nodes[path], parent.children[name]
            parent.creations -= 1
            parent.pzxid = old_pzxid

        undo.append(revert)
        events += [(EventType.CREATED, path), (EventType.CHILD, parent_path)]
        return path

    def _delete(self, change: Delete, undo: list[Callable[[], object]], events: list[Event]) -> None:
        path = change.path
        node = self._require_version(path, change.version)
        if path == "/":
            raise BadArgumentsError("the root cannot be deleted")
        if node.children:
            raise NotEmptyError(path)
        parent_path, name = split_path(path)
        parent = self._nodes[parent_path]
        old_pzxid = parent.pzxid
        del self._nodes[path], parent.children[name]
        parent.pzxid = self.zxid

        def revert() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            parent.pzxid = old_pzxid

        undo.append(revert)
        events += [(EventType.DELETED, path), (EventType.CHILD, parent_path)]

    def _set(self, change: SetData, now: int, undo: list[Callable[[], object]], events: list[Event]) -> ZnodeStat:
        node = self._require_version(change.path, change.version)
        old = node.data, node.version, node.mzxid, node.mtime

        def revert() -> None:
            node.data, node.version, node.mzxid, node.mtime = old

        undo.append(revert)
        node.data, node.version, node.mzxid, node.mtime = change.data, node.version + 1, self.zxid, now
        events.append((EventType.CHANGED, change.path))
        return node.stat()
