"""Who is controller: the claim on /controller, the epoch, and writes that only its holder can make.

The claim and the epoch's rise are one multi(). Every later write of that controller goes in a multi() that checks the
version of /controller_epoch which its own election returned, so a controller that was replaced while it slept can
write nothing any more (KAFKA-6082).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, SetData

from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import watched

NO_CONTROLLER = -1


class Replaced(Exception):
    """There is a newer controller; the holder of this term must do nothing more under it."""


@dataclass(frozen=True)
class Term:
    """One controller's term. ``epoch_version`` is the znode version of /controller_epoch that its election returned."""

    epoch: int
    epoch_version: int
    session_id: int


async def holder(zookeeper: ZooKeeper, watch: Watch) -> tuple[int, int, int] | None:
    """(broker id, owning session, znode version) of the present claim, None when there is none; watched either way."""
    found = await watched(zookeeper, paths.CONTROLLER, watch)
    if found is None:
        return None
    data, stat = found
    return znodes.controller_id(data), stat.ephemeralOwner, stat.version


async def known_epoch(zookeeper: ZooKeeper) -> int:
    """The highest controller epoch there ever was; 0 before the first."""
    try:
        data, _ = await zookeeper.get(paths.CONTROLLER_EPOCH)
    except exceptions.NoNodeError:
        return 0
    return int(data)


async def claim(zookeeper: ZooKeeper, broker_id: int, timestamp: str) -> Term | None:
    """Tries to become controller; None when another was faster, which is normal."""
    with contextlib.suppress(exceptions.NodeExistsError):
        await zookeeper.create(paths.CONTROLLER_EPOCH, b"0", makepath=True)
    data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    epoch = int(data) + 1
    session = zookeeper.session_id
    operations = [
        znodes.create(paths.CONTROLLER, znodes.encode(znodes.ControllerClaim(broker_id, timestamp)), ephemeral=True),
        SetData(paths.CONTROLLER_EPOCH, str(epoch).encode(), stat.version),
    ]
    try:
        results = await zookeeper.multi(operations)
    except (exceptions.NodeExistsError, exceptions.BadVersionError):
        return None
    except (exceptions.ConnectionLoss, exceptions.OperationTimeoutError, exceptions.SessionExpiredError):
        return await _claimed_after_all(zookeeper, epoch, session)
    return Term(epoch, results[1].version, session)


async def _claimed_after_all(zookeeper: ZooKeeper, epoch: int, session: int) -> Term | None:
    """The claim's outcome is unknown: it is mine only if the claim is my session's and the epoch is mine."""
    try:
        _, claim_stat = await zookeeper.get(paths.CONTROLLER)
    except exceptions.NoNodeError:
        return None
    data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    if claim_stat.ephemeralOwner == session == zookeeper.session_id and int(data) == epoch:
        return Term(epoch, stat.version, session)
    return None


class Fence:
    """The only way in which a controller writes to ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, term: Term) -> None:
        self._zookeeper = zookeeper
        self._term = term

    async def write(self, operations: Sequence[Any]) -> list[Any]:
        """The results of these writes. Raises ``Replaced`` when the term is over, else what ``multi`` raises."""
        try:
            check = CheckVersion(paths.CONTROLLER_EPOCH, self._term.epoch_version)
            results = await self._zookeeper.multi([check, *operations])
        except exceptions.BadVersionError:
            _, stat = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
            if stat.version != self._term.epoch_version:
                raise Replaced(f"controller epoch {self._term.epoch} is over") from None
            raise
        return results[1:]
