"""Claims of partitions: ephemeral znodes /consumers/G/owners/T/P that hold the id of the thread that owns it."""

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
    """The claims of one member, whose registration fences every write.

    ``on_gone`` is called with each claim whose znode was deleted by someone else while the session lives; ``on_doubt``
    when claims are no longer watched, because the connection was lost: then :meth:`find_gone` looks at them.
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
        """The claims that exist, as far as this member knows."""
        self._folders: set[str] = set()

    @property
    def claimed(self) -> Set[Partition]:
        """All partitions of which our znode may exist."""
        return self._claimed.keys()

    @property
    def in_doubt(self) -> bool:
        """Whether a claim is gone, or is not watched and may be gone."""
        return not self._claimed.keys() <= self._watches.keys()

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
        stats = await asyncio.gather(*(self._watch(partition, session) for partition in wanted))
        return 0 if None in stats else next(stat.czxid for stat in stats if stat is not None)

    async def find_gone(self) -> list[Partition]:
        """The claims whose znodes are gone, of those that are not watched; the others are watched from now on.

        Raises kazoo's errors.
        """
        session = self._registration.session
        doubtful = [partition for partition in self._claimed if partition not in self._watches]
        return [partition for partition in doubtful if await self._watch(partition, session) is None]

    async def release(self) -> None:
        """Lets go of all that may be ours: also what a claim of unknown outcome has left. Raises kazoo's errors."""
        session = self._registration.session
        for partition in list(self._claimed):
            self._watches.pop(partition, None)
            path = paths.consumer_owner(self._group, *partition)
            if await self._is_ours(path, session):
                try:
                    await self._registration.fenced(session, [Delete(path, ANY_VERSION)])
                except NoNodeError:
                    if await self._is_ours(path, session):
                        raise  # the registration is gone, and nothing can be released before there is another
            self._claimed.pop(partition, None)

    def forget(self) -> None:
        """The session is over, with all its claims."""
        self._claimed.clear()
        self._watches.clear()

    async def _is_ours(self, path: str, session: int) -> bool:
        stat = await self._zookeeper.exists(path)
        return stat is not None and stat.ephemeralOwner == session

    async def _watch(self, partition: Partition, session: int) -> ZnodeStat | None:
        """Has the claim watched; returns None when it is gone, or another's."""

        def fired(event: WatchedEvent) -> None:
            if self._watches.get(partition) is not fired:
                return  # released by now
            del self._watches[partition]
            if event.type == EventType.DELETED:
                self._on_gone(partition)
            else:
                self._on_doubt()

        self._watches[partition] = fired
        ours = False
        try:
            stat = await self._zookeeper.exists(paths.consumer_owner(self._group, *partition), fired)
            ours = stat is not None and stat.ephemeralOwner == session
        finally:  # also after an error, because then no watch was set
            if not ours and self._watches.get(partition) is fired:
                del self._watches[partition]
        return stat if ours else None

    async def _make_folder(self, topic: str) -> None:
        path = paths.consumer_owner(self._group, topic, 0).rpartition("/")[0]
        if path not in self._folders:
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(path, makepath=True)
            self._folders.add(path)
