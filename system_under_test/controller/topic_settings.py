"""A topic's own settings, and this broker's: as they are in ZooKeeper, and when they change while brokers run.

They reach a broker in two ways, from the controller with its role and from ZooKeeper when they change, and may
overtake each other. So each reading has the zxid as of which it is true, and an older one replaces nothing.

Every broker watches /config/changes, where a sequence node names the topic of a change; what it has now is in
/config/topics. A broker's own are in /config/brokers, and go the same way. All settings are read again at the start,
and whenever an announcement may have come and gone unread, as when the connection was lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from assay.system_under_test.config import ConfigError, TopicConfig
from assay.system_under_test.protocol.topics import is_topic_name
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.tasks import BACK_OFF
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")

KEPT_MS = 15 * 60 * 1000
"""How long an announcement stays, as in Kafka; here by ZooKeeper's clock: until one comes that is so much younger."""


@dataclass(frozen=True)
class SettingsRead:
    """Settings as text, as of a transaction (zxid)."""

    values: Mapping[str, str]
    zxid: int


async def read_settings(zookeeper: ZooKeeper, topic: str, zxid: int) -> SettingsRead | None:
    """What the topic has; None, and a line in the log, when its znode makes no sense.

    ``zxid`` is that of a transaction which is known to be visible: without a znode there are no settings as of then.
    """
    try:
        found = await znodes.read(zookeeper, znodes.TopicSettings, paths.topic_config(topic))
    except znodes.ZnodeError as error:
        _log.error("%s; it is ignored", error)
        return None
    if found is None:
        return SettingsRead({}, zxid)
    return SettingsRead(_usable(topic, found[0].config), max(zxid, found[1].mzxid))


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


@dataclass(eq=False)
class ConfigChanges:
    """``apply`` gets the settings of a topic, possibly again, possibly of one that is not here; ``apply_own`` those of
    this broker.
    """

    zookeeper: ZooKeeper
    apply: Callable[[str, SettingsRead], Awaitable[None]]
    broker_id: int
    apply_own: Callable[[Mapping[str, str]], None]
    _handled: dict[str, int] = field(default_factory=dict, init=False)
    """Announcements that are there and done, and when they were made (ms)."""
    _fired: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _read_all: bool = field(default=True, init=False)

    async def read_all(self) -> None:
        """The settings of every topic that has any, and of this broker."""
        self._read_all = False
        await self._read_own()
        for name in await self.zookeeper.get_children(paths.TOPIC_CONFIGS):
            await self._read(name, 0)

    async def run(self) -> None:
        """Ends only when it is cancelled."""
        while True:
            self._fired.clear()
            try:
                names = await self.zookeeper.get_children(paths.CONFIG_CHANGES, self._on_event)
                if self._read_all:
                    await self.read_all()
                await self._handle(names)
            except KazooException as error:
                _log.info("changes of settings: %r; again in %.1f s", error, BACK_OFF)
                self._read_all = True
                await asyncio.sleep(BACK_OFF)
                continue
            await self._fired.wait()

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == EventType.NONE:
            self._read_all = True
        self._fired.set()

    async def _handle(self, names: list[str]) -> None:
        self._handled = {name: made for name, made in self._handled.items() if name in names}
        for name in names:
            if name in self._handled:
                continue
            path = f"{paths.CONFIG_CHANGES}/{name}"
            try:
                data, stat = await self.zookeeper.get(path)
            except NoNodeError:  # it is not known now whose it was
                self._read_all = True
                self._fired.set()
                continue
            try:
                kind, entity = znodes.decode(znodes.ConfigChange, path, data).entity()
                if kind == "topics" and not is_topic_name(entity):
                    raise ValueError(f"{entity!r} is no name of a topic")
            except (znodes.ZnodeError, ValueError) as error:
                _log.error("change of settings %s: %s; it is ignored", path, error)
            else:
                if kind == "topics":
                    await self._read(entity, stat.czxid)
                elif (kind, entity) == ("brokers", str(self.broker_id)):
                    await self._read_own()
            self._handled[name] = stat.ctime
        await self._forget_old()

    async def _read(self, topic: str, zxid: int) -> None:
        settings = await read_settings(self.zookeeper, topic, zxid)
        if settings is not None:
            await self.apply(topic, settings)

    async def _read_own(self) -> None:
        try:
            found = await znodes.read(self.zookeeper, znodes.TopicSettings, paths.broker_config(self.broker_id))
        except znodes.ZnodeError as error:
            _log.error("%s; it is ignored", error)
        else:
            self.apply_own({} if found is None else found[0].config)  # it may have none, or none any more

    async def _forget_old(self) -> None:
        newest = max(self._handled.values(), default=0)
        for name, made in self._handled.items():
            if newest - made > KEPT_MS:
                with contextlib.suppress(NoNodeError):  # every broker does this
                    await self.zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")
