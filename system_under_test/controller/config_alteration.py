"""Settings of a topic changed by request: written to ZooKeeper with the announcement that makes brokers read them."""

from collections.abc import Mapping

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from assay.system_under_test.config import ConfigError, TopicConfig
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

SEQUENCE = 2
ANNOUNCED_VERSION = 2


async def alter(
    zookeeper: ZooKeeper, active: ActiveTerm, topic: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Sets these; None means the brokers' default. Raises ``TopicError``.

    Settings that are not named stay, also those that no broker here knows: other tools may have put them there.
    """
    if topic not in active.cluster.topics:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    try:
        TopicConfig().override({name: value for name, value in changes.items() if value is not None})
    except ConfigError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, str(error)) from error
    path = paths.topic_config(topic)
    values: dict[str, str] = {}
    version = None
    try:
        data, stat = await zookeeper.get(path)
        version = stat.version
        values = znodes.decode(znodes.TopicSettings, path, data).config
    except NoNodeError:
        pass  # it has none of its own yet
    except znodes.ZnodeError as error:
        raise TopicError(ErrorCode.INVALID_CONFIG, f"{error}; repair or delete it first") from error
    wanted = {name: value for name, value in {**values, **changes}.items() if value is not None}
    if validate_only or wanted == values:
        return
    written = znodes.encode(znodes.TopicSettings(wanted))
    announcement = znodes.encode(znodes.ConfigChange(ANNOUNCED_VERSION, f"topics/{topic}"))
    operations = [
        Create(path, written, OPEN_ACL_UNSAFE, 0) if version is None else SetData(path, written, version),
        Create(paths.config_change(), announcement, OPEN_ACL_UNSAFE, SEQUENCE),
    ]
    try:
        await active.fence.write(operations)
    except (BadVersionError, NodeExistsError) as error:
        raise TopicError(ErrorCode.INVALID_REQUEST, f"settings of {topic!r} changed meanwhile; ask again") from error
