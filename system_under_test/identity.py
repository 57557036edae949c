"""The broker's id: from its configuration, else from its data directory, else generated.

Generated ids lie above ``reserved_broker_max_id``, as in Kafka. Each is that number plus the znode version that a write
to ``/brokers/seqid`` has returned, so all ids are distinct. An id is lost if the broker is killed before it has stored
the id in its data directory.
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

RETRIABLE_ERRORS = (ConnectionLoss, SessionExpiredError, OperationTimeoutError)
"""ZooKeeper errors after which a starting broker retries. For example, its session can expire during log recovery."""
BACK_OFF = 0.1
"""Seconds between attempts to reach ZooKeeper."""


class BrokerError(Exception):
    """The broker cannot start or continue; the message is one line for the user who started it."""


async def fill_in_id(config: BrokerConfig, runtime: Runtime) -> BrokerConfig:
    """Returns the configuration with the broker's id filled in. Raises ``BrokerError``."""
    if config.broker_id >= 0:
        return config
    try:
        found = directory.read_meta_properties(runtime.storage, config.data_dir)
        broker_id = await _generate_id(config, runtime) if found is None else found.broker_id
    except (ConnectionError, directory.DirectoryError) as error:
        raise BrokerError(str(error)) from error
    except KazooException as error:
        raise BrokerError(f"ZooKeeper at {config.zookeeper}: {error!r}") from error
    except OSError as error:
        raise BrokerError(f"the data in {config.data_dir}: {error}") from error
    return msgspec.structs.replace(config, broker_id=broker_id)


async def _generate_id(config: BrokerConfig, runtime: Runtime) -> int:
    zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout_ms / 1000)
    try:
        await zookeeper.connect(config.connect_timeout_ms / 1000)
        while True:
            try:
                broker_id = config.reserved_broker_max_id + await _next_number(zookeeper)
                break
            except RETRIABLE_ERRORS as error:
                _log.info("generating a broker id: %r; it is tried again", error)
                await asyncio.sleep(BACK_OFF)
    finally:
        await zookeeper.close()
    _log.info("the id of this broker is %d from now on", broker_id)
    return broker_id


async def _next_number(zookeeper: ZooKeeper) -> int:
    while True:
        try:
            version: int = (await zookeeper.set(paths.BROKER_SEQUENCE, b"")).version
            return version
        except NoNodeError:
            try:
                await zookeeper.create(paths.BROKER_SEQUENCE, makepath=True)
            except NodeExistsError:
                _log.debug("another broker created %s", paths.BROKER_SEQUENCE)
