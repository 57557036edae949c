"""The settings of topics and of this broker in ZooKeeper, and their changes while brokers run.

The settings of a topic are in /config/topics, those of a broker in /config/brokers. A change is announced by a sequence
node in /config/changes, which names the topic or broker, and which every broker watches. All settings are read at the
start, and whenever an announcement may have been missed, for example after a lost connection.

The controller also sends a topic's settings with each role, and older settings may arrive after newer ones. So settings
carry a zxid, and never replace settings with a higher zxid.
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

LIFETIME_MS = 15 * 60 * 1000
"""An announcement is deleted when it is this much older than the newest one. Kafka compares with a broker's clock."""


@dataclass(frozen=True)
class VersionedSettings:
    """Settings as text, valid as of the transaction ``zxid``."""

    values: Mapping[str, str]
    zxid: int


async def read_settings(zookeeper: ZooKeeper, topic: str, zxid: int) -> VersionedSettings | None:
    """Reads a topic's settings; returns None for an invalid znode, which is logged.

    ``zxid``: a transaction that this read is known to include. A missing znode means no settings as of ``zxid``.
    """
    try:
        found = await znodes.read(zookeeper, znodes.TopicSettings, paths.topic_config(topic))
    except znodes.ZnodeError as error:
        _log.error("%s; it is ignored", error)
        return None
    if found is None:
        return VersionedSettings({}, zxid)
    return VersionedSettings(_filter_usable(topic, found[0].config), max(zxid, found[1].mzxid))


def _filter_usable(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that this broker accepts; other tools may write anything to the znode."""
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
    """Follows changes of settings, on every broker.

    ``apply`` gets a topic's settings, possibly the same ones again, and even for a topic without a replica here.
    ``apply_own`` gets this broker's settings.
    """

    zookeeper: ZooKeeper
    apply: Callable[[str, VersionedSettings], Awaitable[None]]
    broker_id: int
    apply_own: Callable[[Mapping[str, str]], None]
    _handled: dict[str, int] = field(default_factory=dict, init=False)
    """Handled announcements that still exist, with their creation times (ms)."""
    _fired: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when there may be new announcements."""
    _must_read_all: bool = field(default=True, init=False)
    """Whether an announcement may have been missed."""

    async def read_all(self) -> None:
        """Reads the settings of every topic that has any, and of this broker."""
        self._must_read_all = False
        await self._read_own()
        for name in await self.zookeeper.get_children(paths.TOPIC_CONFIGS):
            await self._read(name, 0)

    async def run(self) -> None:
        """Follows changes forever; ends only by cancellation."""
        while True:
            self._fired.clear()
            try:
                names = await self.zookeeper.get_children(paths.CONFIG_CHANGES, self._on_event)
                if self._must_read_all:
                    await self.read_all()
                await self._handle(names)
            except KazooException as error:
                _log.info("changes of settings: %r; again in %.1f s", error, BACK_OFF)
                self._must_read_all = True
                await asyncio.sleep(BACK_OFF)
                continue
            await self._fired.wait()

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == EventType.NONE:
            self._must_read_all = True
        self._fired.set()

    async def _handle(self, names: list[str]) -> None:
        self._handled = {name: created_ms for name, created_ms in self._handled.items() if name in names}
        for name in names:
            if name in self._handled:
                continue
            path = f"{paths.CONFIG_CHANGES}/{name}"
            try:
                data, stat = await self.zookeeper.get(path)
            except NoNodeError:  # the topic that it named is unknown
                self._must_read_all = True
                self._fired.set()
                continue
            try:
                kind, entity = znodes.decode(znodes.ConfigChange, path, data).entity()
                if kind == "topics" and not is_topic_name(entity):
                    raise ValueError(f"{entity!r} is not a valid topic name")
            except (znodes.ZnodeError, ValueError) as error:
                _log.error("change of settings %s: %s; it is ignored", path, error)
            else:
                if kind == "topics":
                    await self._read(entity, stat.czxid)
                elif (kind, entity) == ("brokers", str(self.broker_id)):
                    await self._read_own()
            self._handled[name] = stat.ctime
        await self._delete_old_announcements()

    async def _read(self, topic: str, zxid: int) -> None:
        """Reads and applies a topic's settings."""
        settings = await read_settings(self.zookeeper, topic, zxid)
        if settings is not None:
            await self.apply(topic, settings)

    async def _read_own(self) -> None:
        """Reads and applies the broker's own settings."""
        try:
            found = await znodes.read(self.zookeeper, znodes.TopicSettings, paths.broker_config(self.broker_id))
        except znodes.ZnodeError as error:
            _log.error("%s; it is ignored", error)
        else:
            self.apply_own({} if found is None else found[0].config)

    async def _delete_old_announcements(self) -> None:
        newest = max(self._handled.values(), default=0)
        for name, created_ms in self._handled.items():
            if newest - created_ms > LIFETIME_MS:
                with contextlib.suppress(NoNodeError):  # every broker does this
                    await self.zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")
