"""Storage of the offsets of groups that ZooKeeper coordinates: in ZooKeeper, in the offsets topic, or in both.

Both storages are used during a migration from one to the other. A live group migrates in two rolling steps, in either
direction, without losing an offset:

1. Restart each member in turn with the new storage and dual commit. A commit succeeds only if it is in both storages. A
   member that acquires a partition takes the greater of the two offsets, and writes it to both storages before it reads
   messages. So idle partitions also get their offsets in both.
2. When all members use dual commit and each partition has an owner, restart each member in turn without dual commit.

Kafka 0.10.2 has dual commit only for the migration to the offsets topic, and then writes only changed offsets to
ZooKeeper.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import SetData

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.membership import CommitFailed, Membership, Position
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

NO_OFFSET = -1
ANY_VERSION = -1
TRIES = 3
"""Maximum number of tries of a commit to ZooKeeper if its znodes are created or deleted meanwhile."""


class OffsetStore(ABC):
    @abstractmethod
    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commits offsets. Raises ``CommitFailed``, whose ``outcome`` is that of the whole commit."""

    @abstractmethod
    async def fetch(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Returns the last committed offsets; ``NO_OFFSET`` if there is none. Raises ``ReadFailed``."""

    async def take_over(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Fetches offsets for a new owner. Later fetches return the same or greater offsets.

        Raises ``ReadFailed`` and ``CommitFailed``.
        """
        return await self.fetch(partitions)


class ZooKeeperOffsets(OffsetStore):
    """Offsets as text in /consumers/G/offsets/T/P. A commit is one transaction, which fails if the session is over."""

    def __init__(self, zookeeper: ZooKeeper, group: str, registration: Registration) -> None:
        self._zookeeper = zookeeper
        self._group = group
        self._registration = registration
        self._known: set[str] = set()  # paths of existing znodes

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        session = self._registration.session
        what = f"group {self._group}: offsets to ZooKeeper"
        undone = dict.fromkeys(offsets, Certainty.NOT_DONE)
        may_be_sent = False
        try:
            for _ in range(TRIES):
                changes = [await self._make_write(partition, offset) for partition, offset in offsets.items()]
                # If the session is no longer current, `execute_fenced` sends nothing.
                may_be_sent = self._registration.is_current(session)
                try:
                    await self._registration.execute_fenced(session, changes)
                    self._known.update(change.path for change in changes)
                    return
                except (NoNodeError, NodeExistsError) as error:
                    may_be_sent = False
                    self._known.clear()
                    if not await self._registration.exists(session):
                        raise CommitFailed(
                            f"{what}: the member is not registered", Certainty.NOT_DONE, undone
                        ) from error
        except KazooException as error:
            known = Certainty.UNKNOWN if may_be_sent else Certainty.NOT_DONE
            each = dict.fromkeys(offsets, known)
            raise CommitFailed(f"{what}: {type(error).__name__}: {error}", known, each) from error
        raise CommitFailed(f"{what}: the znodes were created and deleted meanwhile", Certainty.NOT_DONE, undone)

    async def fetch(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {partition: await self._read(partition) for partition in partitions}

    async def _make_write(self, partition: Partition, offset: int) -> Any:
        path, data = paths.consumer_offset(self._group, *partition), str(offset).encode()
        if path in self._known or await self._zookeeper.exists(path) is not None:
            return SetData(path, data, ANY_VERSION)
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(path.rpartition("/")[0], makepath=True)
        return znodes.make_create(path, data)

    async def _read(self, partition: Partition) -> int:
        path = paths.consumer_offset(self._group, *partition)
        try:
            await self._zookeeper.sync(path)
            data, _ = await self._zookeeper.get(path)
            return int(data)
        except NoNodeError:
            return NO_OFFSET
        except (KazooException, ValueError) as error:
            raise ReadFailed(f"znode {path}: {type(error).__name__}: {error}") from error


class TopicOffsets(OffsetStore):
    """Offsets in the offsets topic, committed by a client that joins no group.

    Nothing fences such a commit, so a commit that was given up must not arrive later. So ``committer``, a
    ``Membership`` that never joins, must use ``abort_on_timeout``.
    """

    def __init__(self, committer: Membership) -> None:
        self._committer = committer

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        await self._committer.commit({partition: Position(offset) for partition, offset in offsets.items()})

    async def fetch(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        found = await self._committer.committed(list(partitions))
        return {partition: position.offset for partition, position in found.items()}


class DualOffsets(OffsetStore):
    """Offsets in both storages.

    ZooKeeper is written first, because that write is fenced: if the session is over, it fails, and the topic is not
    written.
    """

    def __init__(self, zookeeper: ZooKeeperOffsets, topic: TopicOffsets) -> None:
        self._zookeeper = zookeeper
        self._topic = topic

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        await self._zookeeper.commit(offsets)
        try:
            await self._topic.commit(offsets)
        except CommitFailed as error:
            what = f"{error}; in ZooKeeper it is done"
            each = dict.fromkeys(offsets, Certainty.UNKNOWN)
            raise CommitFailed(what, Certainty.UNKNOWN, each, error=error.error, node=error.node) from error

    async def fetch(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        znodes, records = await self._zookeeper.fetch(partitions), await self._topic.fetch(partitions)
        return {partition: max(znodes[partition], records[partition]) for partition in partitions}

    async def take_over(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Fetches the greater offsets, and writes them to both storages, because one of them may lack some."""
        found = await self.fetch(partitions)
        known = {partition: offset for partition, offset in found.items() if offset != NO_OFFSET}
        if known:
            await self.commit(known)
        return found
