"""Claims of partitions: ephemeral znodes /consumers/G/owners/T/P with the id of the owning thread."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Set

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Delete
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

ANY_VERSION = -1


class Ownership:
    """The claims of one member. Its registration fences every write.

    - ``on_gone`` is called with each claim whose znode another process deleted while the session lives.
    - ``on_doubt`` is called when the watches are lost with the connection. The caller must then check the claims by
      :meth:`find_gone`.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        group: str,
        registration: Registration,
        on_gone: Callable[[Partition], None] = lambda partition: None,
        on_doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self._zookeeper = zookeeper
        self._group = group
        self._registration = registration
        self._on_gone = on_gone
        self._on_doubt = on_doubt
        self._claimed: dict[Partition, None] = {}
        self._watches: dict[Partition, Watch] = {}
        """The watches of the claims that exist as far as this member knows."""
        self._folders: set[str] = set()
        """Paths of the topics' parent znodes that exist as far as this member knows."""

    @property
    def claimed(self) -> Set[Partition]:
        """All partitions for which this member's znode may exist."""
        return self._claimed.keys()

    @property
    def in_doubt(self) -> bool:
        """Whether a claim is gone, or may be gone because it is not watched."""
        return not self._claimed.keys() <= self._watches.keys()

    async def claim(self, wanted: Mapping[Partition, str]) -> int:
        """Claims all these partitions (at least one) for their threads, or none. Raises kazoo's errors.

        Returns the zxid of the claim; 0 if a former owner has not released its partitions yet, or if another process
        has deleted a claim already.
        """
        session = self._registration.session
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await self._make_folder(topic)
        self._claimed |= dict.fromkeys(wanted)
        try:
            await self._registration.execute_fenced(
                session,
                [
                    znodes.make_create(paths.consumer_owner(self._group, *partition), owner.encode(), ephemeral=True)
                    for partition, owner in wanted.items()
                ],
            )
        except NodeExistsError:
            self._claimed.clear()  # nothing was claimed, and all earlier claims had been released
            return 0
        except NoNodeError:
            self._folders.clear()  # a folder may have been deleted with its topic
            raise
        stats = await asyncio.gather(*(self._watch(partition, session) for partition in wanted))
        return 0 if None in stats else next(stat.czxid for stat in stats if stat is not None)

    async def find_gone(self) -> list[Partition]:
        """Checks the claims that are not watched; returns those that are gone, and watches all others again.

        Raises kazoo's errors.
        """
        session = self._registration.session
        doubtful = [partition for partition in self._claimed if partition not in self._watches]
        return [partition for partition in doubtful if await self._watch(partition, session) is None]

    async def release(self) -> None:
        """Releases all claims, including those that a claim of unknown outcome may have left. Raises kazoo's errors."""
        session = self._registration.session
        for partition in list(self._claimed):
            self._watches.pop(partition, None)
            path = paths.consumer_owner(self._group, *partition)
            if await self._is_ours(path, session):
                try:
                    await self._registration.execute_fenced(session, [Delete(path, ANY_VERSION)])
                except NoNodeError:
                    if await self._is_ours(path, session):
                        raise  # the registration is gone, and nothing can be released without it
            self._claimed.pop(partition, None)

    def forget(self) -> None:
        """Forgets all claims, because the session is over."""
        self._claimed.clear()
        self._watches.clear()

    async def _is_ours(self, path: str, session: int) -> bool:
        stat = await self._zookeeper.exists(path)
        return stat is not None and stat.ephemeralOwner == session

    async def _watch(self, partition: Partition, session: int) -> ZnodeStat | None:
        """Watches the claim. Returns None if it is gone or belongs to another session."""

        def on_event(event: WatchedEvent) -> None:
            if self._watches.get(partition) is not on_event:
                return  # released meanwhile
            del self._watches[partition]
            if event.type == EventType.DELETED:
                self._on_gone(partition)
            else:
                self._on_doubt()

        self._watches[partition] = on_event
        ours = False
        try:
            stat = await self._zookeeper.exists(paths.consumer_owner(self._group, *partition), on_event)
            ours = stat is not None and stat.ephemeralOwner == session
        finally:  # also after an error, because then no watch was set
            if not ours and self._watches.get(partition) is on_event:
                del self._watches[partition]
        return stat if ours else None

    async def _make_folder(self, topic: str) -> None:
        path = paths.consumer_owner(self._group, topic, 0).rpartition("/")[0]
        if path not in self._folders:
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(path, makepath=True)
            self._folders.add(path)
