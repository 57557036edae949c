"""A topic's own settings, as they are in ZooKeeper.

They reach a broker in two ways, from the controller with its role and from ZooKeeper when they change, and may
overtake each other. So each reading has the zxid as of which it is true, and an older one replaces nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kazoo.exceptions import NoNodeError

from assay.system_under_test.config import ConfigError, TopicConfig
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")


@dataclass(frozen=True)
class TopicSettings:
    """Settings as text, as of a transaction (zxid)."""

    values: Mapping[str, str]
    zxid: int


async def read_settings(zookeeper: ZooKeeper, topic: str, zxid: int) -> TopicSettings | None:
    """What the topic has; None, and a line in the log, when its znode makes no sense.

    ``zxid`` is that of a transaction which is known to be visible: without a znode there are no settings as of then.
    """
    path = paths.topic_config(topic)
    try:
        data, stat = await zookeeper.get(path)
    except NoNodeError:
        return TopicSettings({}, zxid)
    try:
        values = znodes.decode(znodes.TopicSettings, path, data).config
    except znodes.ZnodeError as error:
        _log.error("%s; it is ignored", error)
        return None
    return TopicSettings(_usable(topic, values), max(zxid, stat.mzxid))


def _usable(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Without those that this broker does not know or cannot take: other tools may write anything there."""
    usable = {}
    for key, value in settings.items():
        try:
            TopicConfig().override({key: value})
        except ConfigError as error:
            _log.error("topic %s: %s; it is ignored", name, error)
        else:
            usable[key] = value
    return usable
