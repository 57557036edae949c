"""Which id a broker has: the one in its configuration, else the one of its data directory, else one that is generated.

Generated ids lie above ``reserved_broker_max_id``, as in Kafka: each is that number plus the version which a write to
``/brokers/seqid`` has made, so no two brokers get the same. A number whose owner was killed before its data directory
had it is lost.
"""

import asyncio
import logging

import msgspec
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.log import directory
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.zookeeper import paths

_log = logging.getLogger("assay.broker")

HICCUPS = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""What a start waits out: recovery can outlast a session, and ZooKeeper may go away at any time."""
BACK_OFF = 0.1
"""Seconds between tries of what ZooKeeper did not let through."""


class BrokerError(Exception):
    """The broker cannot start or go on; the message is one line for the user who started it."""


async def with_id(config: BrokerConfig, runtime: Runtime) -> BrokerConfig:
    """The configuration with the id that the broker has. Raises ``BrokerError``."""
    if config.broker_id >= 0:
        return config
    try:
        found = directory.read_meta_properties(runtime.storage, config.data_dir)
        broker_id = await _generated(config, runtime) if found is None else found.broker_id
    except (ConnectionError, directory.DirectoryError) as error:
        raise BrokerError(str(error)) from error
    except KazooException as error:
        raise BrokerError(f"ZooKeeper at {config.zookeeper}: {error!r}") from error
    return msgspec.structs.replace(config, broker_id=broker_id)


async def _generated(config: BrokerConfig, runtime: Runtime) -> int:
    zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout_ms / 1000)
    try:
        await zookeeper.connect(config.connect_timeout_ms / 1000)
        while True:
            try:
                broker_id = config.reserved_broker_max_id + await _next(zookeeper)
                break
            except HICCUPS as error:
                _log.info("asking for a broker id: %r; again", error)
                await asyncio.sleep(BACK_OFF)
    finally:
        await zookeeper.close()
    _log.info("the id of this broker is %d from now on", broker_id)
    return broker_id


async def _next(zookeeper: ZooKeeper) -> int:
    while True:
        try:
            version: int = (await zookeeper.set(paths.BROKER_SEQUENCE, b"")).version
            return version
        except NoNodeError:
            try:
                await zookeeper.create(paths.BROKER_SEQUENCE, makepath=True)
            except NodeExistsError:
                _log.debug("another broker made %s", paths.BROKER_SEQUENCE)
