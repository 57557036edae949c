"""Registration of a member: an ephemeral znode under /consumers/G/ids, which also fences all writes of the member.

All znodes of a member belong to one session, and ZooKeeper deletes them when the session is over. Each write checks in
the same transaction that the registration exists, so it fails when the session is over. So a member that was paused for
too long can neither delete other members' claims nor rewind offsets.
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
"""The version of a registration's znode, which its member never changes."""


class Registration:
    """Registration of one member under ``session``, which is 0 while it is not registered.

    ``on_change`` is called when the znode was, or may have been, deleted or overwritten. The caller must then call
    :meth:`ensure`.
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
        """Registers under the current session if necessary. Raises kazoo's errors.

        If another process has deleted or overwritten the znode, it is created again. The claims of the session stay
        valid, and still exclude other members.

        ``NodeExistsError`` means that another session holds this id, usually the member's own former one. Its znode
        disappears when that session is over.
        """
        session = self._zookeeper.session_id
        if session and self.session == session and self._watched:
            return
        if not session:
            raise SessionExpiredError(f"{self._path}: no session to register under")
        creation = znodes.make_create(self._path, encode(subscription.to_registration(timestamp_ms)), ephemeral=True)
        if self.session != session:
            await self._create(creation.data)
        while (stat := await self._zookeeper.exists(self._path, self._changed)) is None:
            await self._create(creation.data)
        if stat.ephemeralOwner != session:
            raise NodeExistsError(f"{self._path} is held by session {stat.ephemeralOwner:#x}")
        if stat.version != FIRST_VERSION:  # overwritten: other members may have read it, and every fenced write fails
            await self._zookeeper.multi([Delete(self._path, stat.version), creation])
            await self._zookeeper.exists(self._path, self._changed)
        self.session, self._watched = session, True

    async def _create(self, data: bytes) -> None:
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(self._path, data, ephemeral=True, makepath=True)

    def _changed(self, event: WatchedEvent) -> None:
        self._watched = False
        self._on_change(event)

    async def execute_fenced(self, session: int, operations: Sequence[Any]) -> None:
        """Executes all operations or none, if the member is registered under ``session``. Raises kazoo's errors.

        A ``NoNodeError`` may come from the fence: see :meth:`exists`.
        """
        if not self.is_current(session):
            raise SessionExpiredError(f"{self._path}: session {session:#x} is over")
        await self._zookeeper.multi([CheckVersion(self._path, FIRST_VERSION), *operations])

    def is_current(self, session: int) -> bool:
        """Returns whether the member is registered under this session, as far as this process knows."""
        return bool(session) and session == self.session and session == self._zookeeper.session_id

    async def exists(self, session: int) -> bool:
        """Returns whether the registration exists in ZooKeeper and belongs to this session."""
        try:
            stat = await self._zookeeper.exists(self._path)
        except NoNodeError:
            return False
        return stat is not None and stat.ephemeralOwner == session


CHECK_INTERVAL = 0.05
"""Seconds between checks while there is no session or it has just ended."""


class ConsumerSession:
    """The session of one member.

    - ``on_over`` is called when the session is over, or may be over because ZooKeeper has been silent for the session
      timeout. In the second case the claims may still exist.
    - ``on_end`` is called before ``on_over`` if ZooKeeper has reported the end. The claims are then deleted.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        registration: Registration,
        on_over: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._registration = registration
        self._on_over = on_over
        self._on_end = on_end
        zookeeper.add_listener(self._changed)

    @property
    def alive(self) -> bool:
        """Whether the session certainly lives, so that its claims are valid. Must be checked after every ``await``."""
        session = self._registration.session
        now = asyncio.get_running_loop().time()
        return bool(session) and session == self._zookeeper.session_id and now < self._zookeeper.alive_until

    async def watch(self) -> None:
        """Runs forever; calls ``on_over`` when the session may be over."""
        loop = asyncio.get_running_loop()
        while True:
            if self._registration.session and not self.alive:
                self._on_over()
            await asyncio.sleep(max(self._zookeeper.alive_until - loop.time(), CHECK_INTERVAL))

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registration.session = 0
            self._on_end()
            self._on_over()
