"""Throttles of replication (KIP-73): what is copied to replicas that are out of sync may be limited in bytes a second.

Which replicas that concerns a topic says, for leaders (``leader.replication.throttled.replicas``) and followers
(``follower.replication.throttled.replicas``): ``*``, or ``partition:broker,...``. How much, a broker: in its settings
in ZooKeeper (/config/brokers/N), ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate``. As
in 0.10.2 a rate is that of the last ten seconds; beyond it a throttled replica gets nothing until it is low enough. One
that is in sync is not held up, else it would leave the in-sync set for it, but what it copies counts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

_log = logging.getLogger("assay.replication")

SECONDS = 10
UNLIMITED = 2**63 - 1
ALL = "*"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


class Throttle:
    """Of one side. ``limit`` in bytes a second."""

    def __init__(self) -> None:
        self.limit = UNLIMITED
        self._now = asyncio.get_running_loop().time
        self._copied: deque[tuple[int, int]] = deque()
        """Second, bytes."""

    def record(self, size: int) -> None:
        second = int(self._now())
        if self._copied and self._copied[-1][0] == second:
            size += self._copied.pop()[1]
        self._copied.append((second, size))

    @property
    def exceeded(self) -> bool:
        oldest = int(self._now()) - SECONDS
        while self._copied and self._copied[0][0] <= oldest:
            self._copied.popleft()
        return sum(size for _, size in self._copied) > self.limit * SECONDS


class Throttles:
    """A broker's, as leader and as follower."""

    def __init__(self) -> None:
        self.leader, self.follower = Throttle(), Throttle()

    def configure(self, settings: Mapping[str, str]) -> None:
        """What the broker has in ZooKeeper; what makes no sense is one line in the log and limits nothing."""
        for name, throttle in ((LEADER_RATE, self.leader), (FOLLOWER_RATE, self.follower)):
            text = settings.get(name, str(UNLIMITED))
            usable = text.isascii() and text.isdigit() and int(text) <= UNLIMITED
            if not usable:
                _log.error("broker setting %s=%r: it is a number of bytes a second; it is ignored", name, text)
            throttle.limit = int(text) if usable else UNLIMITED


def named(replicas: str, partition: int, broker: int) -> bool:
    """Is a partition's replica on this broker among these?"""
    return bool(replicas) and (
        replicas.strip() == ALL or f"{partition}:{broker}" in [word.strip() for word in replicas.split(",")]
    )
