"""Throttles of replication (KIP-73): limits the bytes per second copied to replicas that are out of sync.

- The topic names the replicas: ``leader.replication.throttled.replicas`` and
  ``follower.replication.throttled.replicas``, each ``*`` or ``partition:broker,...``.
- The broker's settings in ZooKeeper (/config/brokers/N) give the rate: ``leader.replication.throttled.rate`` and
  ``follower.replication.throttled.rate``.

As in 0.10.2, a rate is the average of the last ten seconds. While it is above the limit, a throttled replica gets no
records. A replica in sync is exempt, because a delay would make it leave the in-sync set; its bytes still count.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

_log = logging.getLogger("assay.replication")

WINDOW_SECONDS = 10
UNLIMITED = 2**63 - 1
ALL = "*"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class Throttle:
    """The throttle of one side. ``limit`` is in bytes per second."""

    def __init__(self) -> None:
        self.limit = UNLIMITED
        self._now = asyncio.get_running_loop().time
        self._copied: deque[tuple[int, int]] = deque()
        """Pairs of a second (loop time) and the bytes copied in it, oldest first."""

    def record(self, size: int) -> None:
        second = int(self._now())
        if self._copied and self._copied[-1][0] == second:
            size += self._copied.pop()[1]
        self._copied.append((second, size))

    @property
    def exceeded(self) -> bool:
        """Whether the average rate of the last ten seconds is above the limit."""
        oldest = int(self._now()) - WINDOW_SECONDS
        while self._copied and self._copied[0][0] <= oldest:
            self._copied.popleft()
        return sum(size for _, size in self._copied) > self.limit * WINDOW_SECONDS


class Throttles:
    """A broker's throttles, as leader and as follower."""

    def __init__(self) -> None:
        self.leader, self.follower = Throttle(), Throttle()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Applies the broker's settings in ZooKeeper; an invalid rate is logged and sets no limit."""
        for name, throttle in ((LEADER_RATE, self.leader), (FOLLOWER_RATE, self.follower)):
            text = settings.get(name, str(UNLIMITED))
            usable = text.isascii() and text.isdigit() and int(text) <= UNLIMITED
            if not usable:
                _log.error("broker setting %s=%r is ignored: it must be a number of bytes per second", name, text)
            throttle.limit = int(text) if usable else UNLIMITED


def lists_replica(replicas: str, partition: int, broker: int) -> bool:
    """Returns whether the setting ``replicas`` contains a partition's replica on this broker."""
    return bool(replicas) and (
        replicas.strip() == ALL or f"{partition}:{broker}" in [word.strip() for word in replicas.split(",")]
    )
