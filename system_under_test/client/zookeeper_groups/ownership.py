"""Claims of partitions: ephemeral znodes /consumers/G/owners/T/P that hold the id of the thread that owns it."""

import contextlib
from collections.abc import Mapping, Set

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Delete

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

ANY_VERSION = -1


class Ownership:
    """The claims of one member, whose registration fences every write."""

    def __init__(self, zookeeper: ZooKeeper, group: str, registration: Registration) -> None:
        self._zookeeper = zookeeper
        self._group = group
        self._registration = registration
        self._claimed: dict[Partition, None] = {}
        self._folders: set[str] = set()

    @property
    def claimed(self) -> Set[Partition]:
        """All partitions of which our znode may exist."""
        return self._claimed.keys()

    async def claim(self, wanted: Mapping[Partition, str]) -> int:
        """All of these at once, partition to thread id, at least one; 0 when some former owner has not let go.

        Returns the zxid of the claim. Raises kazoo's errors.
        """
        session = self._registration.session
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await self._make_folder(topic)
        self._claimed |= dict.fromkeys(wanted)
        try:
            await self._registration.fenced(
                session,
                [
                    znodes.create(paths.consumer_owner(self._group, *partition), owner.encode(), ephemeral=True)
                    for partition, owner in wanted.items()
                ],
            )
        except NodeExistsError:
            self._claimed.clear()  # none was made, and what was before had been released
            return 0
        except NoNodeError:
            self._folders.clear()  # a folder may be gone, with its topic
            raise
        stat = await self._zookeeper.exists(paths.consumer_owner(self._group, *next(iter(wanted))))
        return 0 if stat is None or stat.ephemeralOwner != session else stat.czxid

    async def release(self) -> None:
        """Lets go of all that may be ours: also what a claim of unknown outcome has left. Raises kazoo's errors."""
        session = self._registration.session
        for partition in list(self._claimed):
            path = paths.consumer_owner(self._group, *partition)
            stat = await self._zookeeper.exists(path)
            if stat is not None and stat.ephemeralOwner == session:
                with contextlib.suppress(NoNodeError):  # removed by hand, or by the session's end
                    await self._registration.fenced(session, [Delete(path, ANY_VERSION)])
            self._claimed.pop(partition, None)

    def forget(self) -> None:
        """The session is over, with all its claims."""
        self._claimed.clear()

    async def _make_folder(self, topic: str) -> None:
        path = paths.consumer_owner(self._group, topic, 0).rpartition("/")[0]
        if path not in self._folders:
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(path, makepath=True)
            self._folders.add(path)
