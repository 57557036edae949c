"""Being a member: an ephemeral znode under /consumers/G/ids, which also fences everything that a member writes.

Everything that a member has in ZooKeeper belongs to one session, and goes with it at one moment, its registration as
well. So a write that checks, in the same transaction, that the registration is there can do nothing once the session is
over: no claim of others is taken away, and no offset rewound, by a member that was away for too long.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import CheckVersion, Delete
from kazoo.protocol.states import KazooState, WatchedEvent

from assay.system_under_test.client.zookeeper_groups.subscription import StreamSubscription
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import encode

FIRST_VERSION = 0
"""A registration is never changed."""


class Registration:
    """The registration of one member. ``session`` is the one under which it is registered, 0 while it is not.

    ``on_change`` is called when the znode was deleted or overwritten, or may have been; then :meth:`ensure` looks.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        group: str,
        consumer_id: str,
        on_change: Callable[[WatchedEvent], None] = lambda event: None,
    ) -> None:
        self._zookeeper = zookeeper
        self._path = paths.consumer(group, consumer_id)
        self._on_change = on_change
        self._watched = False
        self.session = 0

    async def ensure(self, subscription: StreamSubscription, timestamp_ms: int) -> None:
        """Registers under the present session, if it is not. Raises kazoo's errors.

        Someone may have deleted or overwritten the znode while the session lives: then it is made again. The claims of
        the session are not touched by that, and still keep the others out.

        ``NodeExistsError``: another session holds this id, our own former one mostly; it goes when that is over.
        """
        session = self._zookeeper.session_id
        if session and self.session == session and self._watched:
            return
        if not session:
            raise SessionExpiredError(f"{self._path}: no session to register under")
        creation = znodes.create(self._path, encode(subscription.registered(timestamp_ms)), ephemeral=True)
        if self.session != session:
            await self._create(creation.data)
        while (stat := await self._zookeeper.exists(self._path, self._changed)) is None:
            await self._create(creation.data)
        if stat.ephemeralOwner != session:
            raise NodeExistsError(f"{self._path} is held by session {stat.ephemeralOwner:#x}")
        if stat.version != FIRST_VERSION:  # overwritten: the others may have read that, and no fence holds
            await self._zookeeper.multi([Delete(self._path, stat.version), creation])
            await self._zookeeper.exists(self._path, self._changed)
        self.session, self._watched = session, True

    async def _create(self, data: bytes) -> None:
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(self._path, data, ephemeral=True, makepath=True)

    def _changed(self, event: WatchedEvent) -> None:
        self._watched = False
        self._on_change(event)

    async def fenced(self, session: int, operations: Sequence[Any]) -> None:
        """All of these or none, if the member is registered under ``session``. Raises kazoo's errors.

        A ``NoNodeError`` may be the fence's: see :meth:`stands`.
        """
        if not self.lasts(session):
            raise SessionExpiredError(f"{self._path}: session {session:#x} is over")
        await self._zookeeper.multi([CheckVersion(self._path, FIRST_VERSION), *operations])

    def lasts(self, session: int) -> bool:
        """Whether it is registered under that session, as far as it knows: else :meth:`fenced` sends nothing."""
        return bool(session) and session == self.session and session == self._zookeeper.session_id

    async def stands(self, session: int) -> bool:
        """Whether the registration is there, and that session's."""
        try:
            stat = await self._zookeeper.exists(self._path)
        except NoNodeError:
            return False
        return stat is not None and stat.ephemeralOwner == session


LOOK_EVERY = 0.05
"""Seconds between two looks at a session that is not there, or just over."""


class ConsumerSession:
    """Calls ``on_over`` when the session is over or may be.

    ZooKeeper reports that only to a client that it reaches: then its claims are ``forgotten`` as well. A client that
    has had no answer for the session's timeout concludes it by itself, and does not know whether they are still there.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        registration: Registration,
        on_over: Callable[[], None],
        forgotten: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._registration = registration
        self._on_over = on_over
        self._forgotten = forgotten
        zookeeper.add_listener(self._changed)

    @property
    def alive(self) -> bool:
        """Is every claim certainly still valid at this moment? To be asked again after every ``await``."""
        session = self._registration.session
        now = asyncio.get_running_loop().time()
        return bool(session) and session == self._zookeeper.session_id and now < self._zookeeper.alive_until

    async def watch(self) -> None:
        """Runs for ever; calls ``on_over`` when the session no longer certainly lives."""
        loop = asyncio.get_running_loop()
        while True:
            if self._registration.session and not self.alive:
                self._on_over()
            await asyncio.sleep(max(self._zookeeper.alive_until - loop.time(), LOOK_EVERY))

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registration.session = 0
            self._forgotten()
            self._on_over()
