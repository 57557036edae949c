"""Whether a consumer is still a member: whether its ZooKeeper session, with all its claims, may be over."""

import asyncio
from collections.abc import Callable

from kazoo.protocol.states import KazooState

from assay.system_under_test.client.zookeeper_groups.registration import Registration
from assay.system_under_test.runtime import ZooKeeper

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
