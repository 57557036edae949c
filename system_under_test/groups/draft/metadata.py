"""Stored metadata of one draft group in ZooKeeper, and the only way to write it.

Rules that keep a former coordinator from writing:

1. A group is one znode. Generation, consumers, topics and assignment change together. Each write is conditional on the
   version that the coordinator last read or wrote.
2. A coordinator begins its term by writing each of its groups once, under its own epoch. A former coordinator then
   finds another version.
3. When the offsets topic is deleted and created again, its leader epochs restart. So terms are compared by the topic's
   czxid first.
4. When a group is deleted and created again, its version restarts. So each creation of a group also raises the version
   of the parent znode. A write is valid only if no group was created since the coordinator last confirmed the group's
   version.
5. A write of unknown outcome is repeated at the same version. Only one of the two writes can take effect, and both have
   the same content.
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
"""The version of a znode that does not exist yet."""
ANY_VERSION: Final = -1
MAX_BYTES: Final = 900_000
"""Maximum size of a group. ZooKeeper accepts slightly more per request, and disconnects a client that exceeds it."""
BACK_OFF: Final = 0.1
"""Seconds before ZooKeeper is asked again."""


class CoordinatorDisplaced(Exception):
    """Raised if another broker has written the group: this coordinator has been replaced."""


class GroupTooLarge(Exception):
    """Raised if the group does not fit into a znode."""


class StoredConsumer(msgspec.Struct, frozen=True):
    topics: list[str]
    session_timeout_ms: int


class GroupMetadata(msgspec.Struct, frozen=True):
    """Content of a group's znode.

    - ``epoch``: the coordinator's leader epoch in the group's partition of the offsets topic
    - ``partitions``: each topic's number of partitions when the assignment was made
    - ``assignment``: partitions by consumer, then topic
    """

    epoch: int
    generation: int
    strategy: str
    consumers: dict[str, StoredConsumer]
    partitions: dict[str, int]
    assignment: dict[str, dict[str, list[int]]]
    version: int = 1
    topic: int = 0
    """The czxid of the offsets topic to which ``epoch`` belongs; 0 if it was not recorded."""

    @property
    def term(self) -> tuple[int, int]:
        """The key that orders the terms of coordinators."""
        return self.topic, self.epoch


class MetadataStore:
    """Storage of groups in a coordinator's term: leader epoch ``epoch`` of the offsets topic with ``topic_czxid``."""

    def __init__(self, zookeeper: ZooKeeper, epoch: int, topic_czxid: int = 0) -> None:
        self.epoch = epoch
        self._topic_czxid = topic_czxid
        self._zookeeper = zookeeper
        self._folder_versions: dict[str, int] = {}
        """For each group, the parent's version at which the group's version was last confirmed (rule 4)."""

    async def list_groups(self) -> list[str]:
        """Returns all groups of the draft, of all coordinators. Retries until ZooKeeper answers."""
        while True:
            try:
                await self._zookeeper.sync(paths.DRAFT_GROUPS)
                return await self._zookeeper.get_children(paths.DRAFT_GROUPS)
            except NoNodeError:
                return []
            except KazooException:
                await asyncio.sleep(BACK_OFF)

    async def claim(self, group: str) -> Versioned[GroupMetadata] | None:
        """Claims the group, so that coordinators of earlier terms cannot write it. Returns None if it does not exist.

        Raises ``ZnodeError``, and :class:`CoordinatorDisplaced` if a later term has claimed the group.
        """
        path = paths.draft_group(group)
        while True:
            folder_version = await self._read_folder_version()
            found = await self._read(path)
            if found is None:
                return None
            data, version = found
            known = znodes.decode(GroupMetadata, path, data)
            if known.strategy not in ASSIGNORS:
                raise znodes.ZnodeError(f"znode {path}: unknown strategy {known.strategy!r}")
            if known.term > (self._topic_czxid, self.epoch):
                raise CoordinatorDisplaced(f"group {group} is coordinated in epoch {known.epoch}, not {self.epoch}")
            mine = msgspec.structs.replace(known, epoch=self.epoch, topic=self._topic_czxid)
            self._folder_versions[group] = folder_version
            try:
                return Versioned(mine, await self.write(group, mine, version))
            except CoordinatorDisplaced:
                continue  # another coordinator wrote meanwhile; the next read shows which term is later

    async def write(self, group: str, metadata: GroupMetadata, version: int) -> int:
        """Writes the group and returns its new version. Raises ``CoordinatorDisplaced`` and ``GroupTooLarge``."""
        path = paths.draft_group(group)
        data = znodes.encode(msgspec.structs.replace(metadata, topic=self._topic_czxid))
        if len(data) > MAX_BYTES:
            raise GroupTooLarge(f"group {group} has {len(data)} bytes; {MAX_BYTES} is the limit")
        while True:
            try:
                if version == ABSENT:
                    _, folder = await self._zookeeper.multi(
                        [znodes.make_create(path, data), SetData(paths.DRAFT_GROUPS, b"", ANY_VERSION)]
                    )
                    self._folder_versions[group] = folder.version
                    return 0
                fence = await self._make_fence(group, version)
                _, stat = await self._zookeeper.multi([fence, SetData(path, data, version)])
                return int(stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                self._folder_versions.pop(group, None)
                found = await self._read(path)
                if found is not None and found[0] == data and found[1] == version + 1:
                    return found[1]  # an earlier attempt of this call took effect
                await self._make_fence(group, version)
            except KazooException:
                await asyncio.sleep(BACK_OFF)

    async def delete(self, group: str, version: int) -> None:
        """Deletes the group's znode, if it was ever written. Retries until ZooKeeper answers.

        Raises ``CoordinatorDisplaced``.
        """
        while version != ABSENT:
            try:
                fence = await self._make_fence(group, version)
                await self._zookeeper.multi([fence, Delete(paths.draft_group(group), version)])
                break
            except NoNodeError:
                break
            except BadVersionError:
                self._folder_versions.pop(group, None)
            except KazooException:
                await asyncio.sleep(BACK_OFF)
        self._folder_versions.pop(group, None)

    async def _make_fence(self, group: str, version: int) -> Any:
        """Returns an operation that fails its transaction if a group was created after this version was confirmed.

        Raises ``CoordinatorDisplaced`` if the group is not at ``version`` or belongs to another coordinator.
        """
        if group not in self._folder_versions:
            path, folder_version = paths.draft_group(group), await self._read_folder_version()
            found = await self._read(path)
            if found is None or found[1] != version or not self._is_mine(path, found[0]):
                raise CoordinatorDisplaced(f"group {group} is not at version {version} any more")
            self._folder_versions[group] = folder_version
        return CheckVersion(paths.DRAFT_GROUPS, self._folder_versions[group])

    def _is_mine(self, path: str, data: bytes) -> bool:
        try:
            return znodes.decode(GroupMetadata, path, data).term == (self._topic_czxid, self.epoch)
        except znodes.ZnodeError:
            return False

    async def _read_folder_version(self) -> int:
        """Returns the version of the parent znode, which every broker creates at its start."""
        found = await self._read(paths.DRAFT_GROUPS)
        return ABSENT if found is None else found[1]

    async def _read(self, path: str) -> tuple[bytes, int] | None:
        """Returns a znode's data and version; None if it does not exist. Retries until ZooKeeper answers."""
        while True:
            try:
                data, stat = await self._zookeeper.get(path)
                return data, stat.version
            except NoNodeError:
                return None
            except KazooException:
                await asyncio.sleep(BACK_OFF)
