"""Who is controller: the claim on /controller, the epoch, and writes that only its holder can make.

The claim and the epoch's rise are one multi(). Every later write of that controller goes in a multi() that checks the
version of /controller_epoch which its own election returned, so a controller that was replaced while it slept can
write nothing any more (KAFKA-6082).
"""

import contextlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, Delete, SetData

from assay.system_under_test.runtime import Watch, ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import watched

_log = logging.getLogger("assay.controller")

NO_CONTROLLER = -1
NO_SESSION = 0
"""The owner of a znode that is persistent: it stays when the one that made it ends."""


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


async def known_epoch(zookeeper: ZooKeeper, watch: Watch | None = None) -> int:
    """The highest controller epoch there ever was; 0 before the first. Raises ``ZnodeError``."""
    found = await watched(zookeeper, paths.CONTROLLER_EPOCH, watch)
    return 0 if found is None else _epoch(found[0])


def _epoch(data: bytes) -> int:
    """Raises ``ZnodeError``. What makes no sense is never guessed: a controller with an epoch that there was before
    would be taken for one that was replaced, or the other way round.
    """
    if re.fullmatch(rb"\d{1,10}", data) is None or int(data) >= znodes.MAX_ID:
        raise znodes.ZnodeError(
            f"znode {paths.CONTROLLER_EPOCH} holds {data[:120]!r}, not a number from 0 to {znodes.MAX_ID - 1}; until "
            "it does, no controller is elected and no broker joins. "
            f"Run set {paths.CONTROLLER_EPOCH} N in zkCli.sh, with an N that is not below any controller epoch before: "
            "the controller_epoch in the states of all partitions, and in the event logs of all brokers"
        )
    return int(data)


async def _present_epoch(zookeeper: ZooKeeper) -> tuple[bytes, int]:
    """The controller epoch, as it is written, and its znode's version; the znode is there from now on."""
    with contextlib.suppress(exceptions.NodeExistsError):
        await zookeeper.create(paths.CONTROLLER_EPOCH, b"0", makepath=True)
    data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    return data, stat.version


async def remove_false_claim(zookeeper: ZooKeeper) -> None:
    """Removes /controller if it is persistent: no session holds it, so none ends it, and there would be no controller.

    Only what was read is removed. Its version alone does not show that: a claim made since has version 0 again, but
    with every claim the epoch rises, and its version was read first.
    """
    _, epoch_version = await _present_epoch(zookeeper)
    try:
        data, stat = await zookeeper.get(paths.CONTROLLER)
    except exceptions.NoNodeError:
        return
    if stat.ephemeralOwner != NO_SESSION:
        return
    _log.error(
        "znode %s holds %r and is persistent, so it is the claim of no broker that lives; it is removed, and a "
        "controller is elected. Should this line come again: end what writes there, and run deleteall %s in zkCli.sh",
        paths.CONTROLLER,
        data[:120],
        paths.CONTROLLER,
    )
    try:
        await zookeeper.multi(
            [CheckVersion(paths.CONTROLLER_EPOCH, epoch_version), Delete(paths.CONTROLLER, stat.version)]
        )
    except (exceptions.BadVersionError, exceptions.NoNodeError):
        _log.info("%s changed while it was being removed", paths.CONTROLLER)


async def claim(zookeeper: ZooKeeper, broker_id: int, timestamp: str) -> Term | None:
    """Tries to become controller; None when another was faster, which is normal. Raises ``ZnodeError``."""
    known, version = await _present_epoch(zookeeper)
    epoch = _epoch(known) + 1
    session = zookeeper.session_id
    operations = [
        znodes.create(paths.CONTROLLER, znodes.encode(znodes.ControllerClaim(broker_id, timestamp)), ephemeral=True),
        SetData(paths.CONTROLLER_EPOCH, str(epoch).encode(), version),
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
    if claim_stat.ephemeralOwner == session == zookeeper.session_id and data == str(epoch).encode():
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
