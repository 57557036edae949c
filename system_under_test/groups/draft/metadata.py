"""What ZooKeeper holds of one group of the draft, and the only way to write it.

A group is one znode: generation, consumers with their topics, and assignment change together or not at all, always at
the version at which they were read or written last. A coordinator begins its term by writing each of its groups once,
under its own epoch, so that a former coordinator which does not know yet that it is one meets another version.

Epochs begin again when the offsets topic was deleted and made again, so a term is compared by the topic first.

Versions begin again when a group is forgotten and made again. So each creation of a group also raises the version of
the folder, and a write is valid only while no group has been created since its version was known to be its own.

Where the outcome of a write is not known it is tried again at the same version: whichever of the two arrives first
counts, and both say the same.
"""

import asyncio
from typing import Any, Final

import msgspec
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import CheckVersion, Delete, SetData

from assay.system_under_test.assignors import ASSIGNORS
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import Versioned

ABSENT: Final = -1
"""The version of a znode that is not there yet."""
ANY_VERSION: Final = -1
LARGEST: Final = 900_000
"""Bytes; ZooKeeper takes a little more in one request, and closes the connection of a client that sends too much."""
BACK_OFF: Final = 0.1
"""Seconds before ZooKeeper is asked again."""


class Displaced(Exception):
    """Another broker has written the group: the former coordinator is none any more."""


class TooLarge(Exception):
    """The group does not fit into a znode."""


class StoredConsumer(msgspec.Struct, frozen=True):
    topics: list[str]
    session_timeout_ms: int


class GroupMetadata(msgspec.Struct, frozen=True):
    """``epoch`` is the coordinator's: that of its term as leader of the group's partition of the offsets topic.

    ``partitions``: how many each topic had when the assignment was made; ``assignment``: by consumer, then topic.
    """

    epoch: int
    generation: int
    strategy: str
    consumers: dict[str, StoredConsumer]
    partitions: dict[str, int]
    assignment: dict[str, dict[str, list[int]]]
    version: int = 1
    topic: int = 0
    """The offsets topic (czxid) whose leader epoch it is; 0 where that was not written down."""

    @property
    def term(self) -> tuple[int, int]:
        """Terms of coordinators are in this order."""
        return self.topic, self.epoch


class MetadataStore:
    """For one coordinator in one term: ``epoch`` is its leader epoch in the offsets topic with the czxid ``topic``."""

    def __init__(self, zookeeper: ZooKeeper, epoch: int, topic: int = 0) -> None:
        self.epoch = epoch
        self._topic = topic
        self._zookeeper = zookeeper
        self._as_of: dict[str, int] = {}
        """The folder's version as of which each group is at the version that is known."""

    async def names(self) -> list[str]:
        """All groups of the draft, of all coordinators, as of now or later."""
        while True:
            try:
                await self._zookeeper.sync(paths.DRAFT_GROUPS)
                return await self._zookeeper.get_children(paths.DRAFT_GROUPS)
            except NoNodeError:
                return []
            except KazooException:
                await asyncio.sleep(BACK_OFF)

    async def claim(self, group: str) -> Versioned[GroupMetadata] | None:
        """The group, which no coordinator of an earlier term can write any more; None where there is none.

        Raises :class:`Displaced` when one of a later term was there before, and ``ZnodeError``.
        """
        path = paths.draft_group(group)
        while True:
            as_of = await self._folder()
            found = await self._read(path)
            if found is None:
                return None
            data, version = found
            known = znodes.decode(GroupMetadata, path, data)
            if known.strategy not in ASSIGNORS:
                raise znodes.ZnodeError(f"znode {path}: unknown strategy {known.strategy!r}")
            if known.term > (self._topic, self.epoch):
                raise Displaced(f"group {group} is coordinated in epoch {known.epoch}, not {self.epoch}")
            mine = msgspec.structs.replace(known, epoch=self.epoch, topic=self._topic)
            self._as_of[group] = as_of
            try:
                return Versioned(mine, await self.write(group, mine, version))
            except Displaced:
                continue  # by one that is to be displaced, or has displaced us: the next read shows which

    async def write(self, group: str, metadata: GroupMetadata, version: int) -> int:
        """Returns the new version. Raises :class:`Displaced` and :class:`TooLarge`; waits for ZooKeeper."""
        path = paths.draft_group(group)
        data = znodes.encode(msgspec.structs.replace(metadata, topic=self._topic))
        if len(data) > LARGEST:
            raise TooLarge(f"group {group} has {len(data)} bytes; {LARGEST} is the limit")
        while True:
            try:
                if version == ABSENT:
                    _, folder = await self._zookeeper.multi(
                        [znodes.create(path, data), SetData(paths.DRAFT_GROUPS, b"", ANY_VERSION)]
                    )
                    self._as_of[group] = folder.version
                    return 0
                fence = await self._unmade(group, version)
                _, stat = await self._zookeeper.multi([fence, SetData(path, data, version)])
                return int(stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                self._as_of.pop(group, None)
                found = await self._read(path)
                if found is not None and found[0] == data and found[1] == version + 1:
                    return found[1]  # an earlier try of ours came through
                await self._unmade(group, version)
            except KazooException:
                await asyncio.sleep(BACK_OFF)

    async def delete(self, group: str, version: int) -> None:
        """Nothing where it was never written. Raises :class:`Displaced`; waits for ZooKeeper."""
        while version != ABSENT:
            try:
                fence = await self._unmade(group, version)
                await self._zookeeper.multi([fence, Delete(paths.draft_group(group), version)])
                break
            except NoNodeError:
                break
            except BadVersionError:
                self._as_of.pop(group, None)
            except KazooException:
                await asyncio.sleep(BACK_OFF)
        self._as_of.pop(group, None)

    async def _unmade(self, group: str, version: int) -> Any:
        """What a write of the group at this version has to check as well: that none was created since it was seen
        there. Raises :class:`Displaced` when it is not at that version, or another's.
        """
        if group not in self._as_of:
            path, as_of = paths.draft_group(group), await self._folder()
            found = await self._read(path)
            if found is None or found[1] != version or not self._is_mine(path, found[0]):
                raise Displaced(f"group {group} is not at version {version} any more")
            self._as_of[group] = as_of
        return CheckVersion(paths.DRAFT_GROUPS, self._as_of[group])

    def _is_mine(self, path: str, data: bytes) -> bool:
        try:
            return znodes.decode(GroupMetadata, path, data).term == (self._topic, self.epoch)
        except znodes.ZnodeError:
            return False

    async def _folder(self) -> int:
        """Its version; every broker makes sure at its start that it is there."""
        found = await self._read(paths.DRAFT_GROUPS)
        return ABSENT if found is None else found[1]

    async def _read(self, path: str) -> tuple[bytes, int] | None:
        while True:
            try:
                data, stat = await self._zookeeper.get(path)
                return data, stat.version
            except NoNodeError:
                return None
            except KazooException:
                await asyncio.sleep(BACK_OFF)
