"""A broker's registration: the ephemeral znode /brokers/ids/N, whose czxid identifies it."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError, OperationTimeoutError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from assay.system_under_test.config import BrokerConfig, join_host_port
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

GRACE = 2.0
"""Seconds beyond the session timeout that a former registration may last while ZooKeeper is available.

While ZooKeeper is unavailable, no session expires. When it returns, each session gets its whole timeout again.
"""


RegistrationMatcher = Callable[[ZooKeeper, BrokerConfig, bytes, ZnodeStat], bool]
"""Decides whether a registration that was read is this process's own."""


def matches_session(zookeeper: ZooKeeper, config: BrokerConfig, data: bytes, stat: ZnodeStat) -> bool:
    """Recognizes the registration by its session, never by its host: an id may move to another machine."""
    return bool(stat.ephemeralOwner == zookeeper.session_id)


def matches_address(zookeeper: ZooKeeper, config: BrokerConfig, data: bytes, stat: ZnodeStat) -> bool:
    """Recognizes the registration by its address (the defect ``lost-registration``).

    The registration may be a former session's, and expire with it (KAFKA-1387).
    """
    found = znodes.decode(znodes.BrokerRegistration, paths.broker(config.broker_id), data)
    return (found.host, found.port) == (config.host, config.port)


class BrokerIdTaken(Exception):
    """Another process uses this id; the message says which, and what to do."""


async def register_broker(
    zookeeper: ZooKeeper,
    config: BrokerConfig,
    *,
    clean_registrations: Sequence[int],
    timestamp: str,
    recognises_registration: RegistrationMatcher = matches_session,
) -> int:
    """Registers the broker, and returns the czxid. ``clean_registrations``: see ``BrokerRegistration``.

    Raises ``BrokerIdTaken`` if another registration does not expire in time.
    """
    path = paths.broker(config.broker_id)
    data = znodes.encode(
        znodes.BrokerRegistration(
            host=config.host,
            port=config.port,
            endpoints=[f"PLAINTEXT://{join_host_port(config.host, config.port)}"],
            timestamp=timestamp,
            clean_registrations=list(clean_registrations),
        )
    )
    while True:
        # After an error the znode may still be this broker's, so the outcome is read below.
        with contextlib.suppress(NodeExistsError, ConnectionLoss, OperationTimeoutError):
            await zookeeper.create(path, data, ephemeral=True, makepath=True)
        gone = asyncio.Event()

        def on_event(_: WatchedEvent, gone: asyncio.Event = gone) -> None:
            gone.set()

        try:
            found, stat = await zookeeper.get(path, on_event)
        except NoNodeError:
            continue
        if recognises_registration(zookeeper, config, found, stat):
            return int(stat.czxid)
        try:
            async with asyncio.timeout(zookeeper.session_timeout + GRACE):
                await gone.wait()
        except TimeoutError:
            # If this process was paused, the timeout may fire before the event that the znode is gone.
            current = await zookeeper.exists(path)
            if current is not None and current.czxid == stat.czxid:
                raise BrokerIdTaken(await _describe_holder(zookeeper, config, stat)) from None


async def _describe_holder(zookeeper: ZooKeeper, config: BrokerConfig, stat: ZnodeStat) -> str:
    try:
        data, stat = await zookeeper.get(paths.broker(config.broker_id))
        other = znodes.decode(znodes.BrokerRegistration, paths.broker(config.broker_id), data)
        where = join_host_port(other.host, other.port)
    except (NoNodeError, znodes.ZnodeError):
        where = "an unknown address"
    return (
        f"broker id {config.broker_id} is taken by {where} (session {stat.ephemeralOwner:#x}); "
        "stop that broker or give this one another broker_id"
    )
