"""The controller's term: the claim on /controller, the epoch, and writes that only the claim's holder can make.

The claim and the increment of /controller_epoch are one multi(). Every later write of that controller is a multi() that
checks the version of /controller_epoch from its own election. So a controller that was replaced while it was paused
cannot write any more (KAFKA-6082).
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
from assay.system_under_test.zookeeper.znodes import read_watched

_log = logging.getLogger("assay.controller")

NO_CONTROLLER = -1
NO_SESSION = 0
"""The owner of a persistent znode, which stays when its creator ends."""


class ControllerReplaced(Exception):
    """There is a newer controller, so this term is over."""


@dataclass(frozen=True)
class ControllerTerm:
    """A controller's term. ``epoch_version``: the znode version of /controller_epoch that its election returned."""

    epoch: int
    epoch_version: int
    session_id: int


async def read_claim(zookeeper: ZooKeeper, watch: Watch) -> tuple[int, int, int] | None:
    """Returns (broker id, owning session, znode version) of the claim, or None; watches /controller in either case."""
    found = await read_watched(zookeeper, paths.CONTROLLER, watch)
    if found is None:
        return None
    data, stat = found
    return znodes.parse_controller_id(data), stat.ephemeralOwner, stat.version


async def read_epoch(zookeeper: ZooKeeper, watch: Watch | None = None) -> int:
    """Returns the highest controller epoch so far; 0 before the first. Raises ``ZnodeError``."""
    found = await read_watched(zookeeper, paths.CONTROLLER_EPOCH, watch)
    return 0 if found is None else _parse_epoch(found[0])


def _parse_epoch(data: bytes) -> int:
    """Parses the epoch. Raises ``ZnodeError`` for an invalid value.

    The epoch must not be guessed. If it were used twice, brokers could confuse the old and the new controller.
    """
    if re.fullmatch(rb"\d{1,10}", data) is None or int(data) >= znodes.MAX_ID:
        raise znodes.ZnodeError(
            f"znode {paths.CONTROLLER_EPOCH} holds {data[:120]!r}, not a number from 0 to {znodes.MAX_ID - 1}; until "
            "it does, no controller is elected and no broker joins. "
            f"Run set {paths.CONTROLLER_EPOCH} N in zkCli.sh. N must be at least as high as every earlier controller "
            "epoch: the controller_epoch in the states of all partitions, and in the event logs of all brokers"
        )
    return int(data)


async def _read_or_create_epoch(zookeeper: ZooKeeper) -> tuple[bytes, int]:
    """Returns the controller epoch as written, and its znode's version; creates the znode if necessary."""
    with contextlib.suppress(exceptions.NodeExistsError):
        await zookeeper.create(paths.CONTROLLER_EPOCH, b"0", makepath=True)
    data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    return data, stat.version


async def remove_false_claim(zookeeper: ZooKeeper) -> None:
    """Removes /controller if it is persistent: no session holds it, so it would block elections forever.

    Only the claim that was read is removed. The znode's version does not identify the claim, because every claim begins
    with version 0. But each election raises the epoch. So the version of the epoch's znode is read before the claim,
    and checked here.
    """
    _, epoch_version = await _read_or_create_epoch(zookeeper)
    try:
        data, stat = await zookeeper.get(paths.CONTROLLER)
    except exceptions.NoNodeError:
        return
    if stat.ephemeralOwner != NO_SESSION:
        return
    _log.error(
        "znode %s holds %r and is persistent, so no live broker holds this claim; it is removed, and a "
        "controller is elected. If this repeats, stop the process that writes it, and run deleteall %s in zkCli.sh",
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


async def claim(zookeeper: ZooKeeper, broker_id: int, timestamp: str) -> ControllerTerm | None:
    """Tries to become controller; returns None if another broker was faster. Raises ``ZnodeError``."""
    known, version = await _read_or_create_epoch(zookeeper)
    epoch = _parse_epoch(known) + 1
    session = zookeeper.session_id
    operations = [
        znodes.make_create(
            paths.CONTROLLER, znodes.encode(znodes.ControllerClaim(broker_id, timestamp)), ephemeral=True
        ),
        SetData(paths.CONTROLLER_EPOCH, str(epoch).encode(), version),
    ]
    try:
        results = await zookeeper.multi(operations)
    except (exceptions.NodeExistsError, exceptions.BadVersionError):
        return None
    except (exceptions.ConnectionLoss, exceptions.OperationTimeoutError, exceptions.SessionExpiredError):
        return await _resolve_claim(zookeeper, epoch, session)
    return ControllerTerm(epoch, results[1].version, session)


async def _resolve_claim(zookeeper: ZooKeeper, epoch: int, session: int) -> ControllerTerm | None:
    """Resolves a claim of unknown outcome. It has succeeded if /controller is this session's and the epoch is right."""
    try:
        _, claim_stat = await zookeeper.get(paths.CONTROLLER)
    except exceptions.NoNodeError:
        return None
    data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    if claim_stat.ephemeralOwner == session == zookeeper.session_id and data == str(epoch).encode():
        return ControllerTerm(epoch, stat.version, session)
    return None


class FencedWriter:
    """The only path by which a controller writes to ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, term: ControllerTerm) -> None:
        self._zookeeper = zookeeper
        self._term = term

    async def write(self, operations: Sequence[Any]) -> list[Any]:
        """Performs all operations or none; returns their results. Raises ``ControllerReplaced`` if the term is over.

        Also raises the errors of ``multi``.
        """
        try:
            check = CheckVersion(paths.CONTROLLER_EPOCH, self._term.epoch_version)
            results = await self._zookeeper.multi([check, *operations])
        except exceptions.BadVersionError:
            _, stat = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
            if stat.version != self._term.epoch_version:
                raise ControllerReplaced(f"controller epoch {self._term.epoch} is over") from None
            raise
        return results[1:]
