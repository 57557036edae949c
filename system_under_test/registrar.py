"""How a broker joins its cluster: prepares ZooKeeper, claims its data directory, registers, and registers again with
each new session.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, WatchedEvent

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.cluster_state import parse_assignment
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.registration import IdTaken, Recognises, by_session, register
from assay.system_under_test.controller.term import known_epoch
from assay.system_under_test.events import EventLog
from assay.system_under_test.identity import BACK_OFF, BrokerError
from assay.system_under_test.log import directory
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import Background
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.broker")

MOST_LIVES = 100
"""So many of its clean lives a broker remembers; who was admitted in an older one counts as having come back uncleanly.
"""
REMEDY = (
    "correct the setting zookeeper, or give this broker a directory of its own. If ZooKeeper has lost its data: "
    "docs/broker/running_the_broker.md, After ZooKeeper lost its data"
)
"""For the directory of another cluster."""
_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@dataclass
class Registrar:
    """See the module. ``on_registered`` is called after each registration."""

    config: BrokerConfig
    runtime: Runtime
    zookeeper: ZooKeeper
    events: EventLog
    background: Background
    manager: ReplicaManager
    cache: MetadataCache
    on_registered: Callable[[], None]
    recognises: Recognises = by_session
    stays_registered: bool = True
    """Does it register again when someone has deleted its registration?"""
    _registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _doubt: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the registration has to be looked at."""
    _registered_in: int = 0
    """The session."""
    _clean_lives: tuple[int, ...] = ()
    """The registrations of the unbroken row of lives that all stopped cleanly; of the last ``MOST_LIVES``."""

    async def prepare_zookeeper(self) -> None:
        """Makes the folders that all brokers use, and the cluster's id.

        Raises ``BrokerError`` if the directory names a cluster and ZooKeeper has none, which stays as it is: an id made
        here would refuse this very directory.
        """
        found = directory.read_meta_properties(self.runtime.storage, self.config.data_dir)
        if found is not None and found.cluster_id is not None:
            await self.zookeeper.sync(paths.CLUSTER_ID)  # this session's server may be behind
            if await self.zookeeper.exists(paths.CLUSTER_ID) is None:
                raise BrokerError(
                    f"data_dir {self.config.data_dir} belongs to cluster {found.cluster_id}, but ZooKeeper at "
                    f"{self.config.zookeeper} has no {paths.CLUSTER_ID}; {REMEDY}"
                )
        for path in paths.PERSISTENT:
            if await self.zookeeper.exists(path) is None:
                try:
                    await self.zookeeper.create(path, makepath=True)
                except NodeExistsError:
                    continue  # another broker was faster
        if await self.zookeeper.exists(paths.CLUSTER_ID) is None:
            made = "".join(self.runtime.random.choice(_ID_ALPHABET) for _ in range(22))
            try:
                await self.zookeeper.create(paths.CLUSTER_ID, znodes.encode(znodes.ClusterId(made)))
            except NodeExistsError:
                _log.debug("another broker made the cluster id")
        data, _ = await self.zookeeper.get(paths.CLUSTER_ID)
        self.cache.cluster_id = znodes.decode(znodes.ClusterId, paths.CLUSTER_ID, data).id

    async def claim_directory(self) -> bool:
        """Makes the data directory this broker's own. Did the last process that used it stop cleanly?

        Raises ``BrokerError`` for the directory of another broker or another cluster, which stays as it is.
        """
        storage, where = self.runtime.storage, self.config.data_dir
        await directory.make_root(storage, where)
        found = directory.read_meta_properties(storage, where)
        if found is not None and found.broker_id != self.config.broker_id:
            raise BrokerError(
                f"data_dir {where} belongs to broker {found.broker_id}, not {self.config.broker_id}; "
                "give this broker a directory of its own"
            )
        if found is not None and found.cluster_id not in (None, self.cache.cluster_id):
            raise BrokerError(
                f"data_dir {where} belongs to cluster {found.cluster_id}, but ZooKeeper at {self.config.zookeeper} is "
                f"that of cluster {self.cache.cluster_id}; {REMEDY}"
            )
        self._clean_lives = await directory.take_clean_marker(storage, where)
        if found is None:
            made = directory.MetaProperties(self.config.broker_id, self.cache.cluster_id)
            await directory.write_meta_properties(storage, made, where)
        return bool(self._clean_lives)

    async def set_strays_aside(self) -> None:
        """Logs of topics that are no more, and of partitions that are on others. A dead broker's are waited for before
        a topic is forgotten or a move has ended, so an older copy of this disk was put back, and no one will ask that
        they be deleted again.

        Not those of partitions that are being moved away: the controller may still wait for this broker to delete
        them. Never in a directory that names no cluster.
        """
        storage, where = self.runtime.storage, self.config.data_dir
        claimed = directory.read_meta_properties(storage, where)
        if claimed is None or claimed.cluster_id != self.cache.cluster_id:
            return
        found = directory.partition_directories(storage, where)
        if found:
            await self.zookeeper.sync(paths.TOPICS)  # a topic that this session's server does not know yet is no stray
        for topic, index in found:
            path = f"{where}/{directory.directory_name(topic, index)}"
            if await self._is_stray(path, topic, index):
                aside = await directory.set_aside(storage, path)
                _log.warning("%s-%d is no more, or on others only: set aside as %s", topic, index, aside)

    async def _is_stray(self, path: str, topic: str, index: int) -> bool:
        """By the note of which creation of the topic it belongs to; without one nothing is known."""
        try:
            made_for = directory.read_incarnation(self.runtime.storage, path)
            if made_for is None:
                return False
            data, stat = await self.zookeeper.get(paths.topic(topic))
        except NoNodeError:
            return True
        except directory.DirectoryError:
            return False
        return made_for != int(stat.czxid) or await self._is_elsewhere(topic, index, data)

    async def _is_elsewhere(self, topic: str, index: int, data: bytes) -> bool:
        """Whether others have this partition, and no move of it is under way. The assignment was read before: of a move
        that ends it is written first.
        """
        try:
            replicas = parse_assignment(paths.topic(topic), data).get(index)
            moves = await znodes.read(self.zookeeper, znodes.Moves, paths.REASSIGNMENTS)
        except znodes.ZnodeError:
            return False  # what is meant is not known
        moving = () if moves is None else moves[0].partitions
        under_way = any((move.topic, move.partition) == (topic, index) for move in moving)
        return replicas is not None and self.config.broker_id not in replicas and not under_way

    async def leave_directory(self) -> None:
        """After a clean stop: every log is closed and every checkpoint written. With a log that lost something the row
        of clean stops is broken, also if it was about to register again for that.
        """
        if self.manager.replicas.lost or not self._clean_lives:
            return  # what it had when it registered it has no more
        await directory.write_clean_marker(self.runtime.storage, self._clean_lives, self.config.data_dir)

    async def register(self) -> None:
        timestamp = str(int(self.runtime.wall_clock() * 1000))
        if self.manager.replicas.take_lost():
            self._clean_lives = ()
        before = self._clean_lives
        self.manager.broker_epoch = await register(
            self.zookeeper, self.config, clean_lives=before, timestamp=timestamp, recognises=self.recognises
        )
        self._registered_in = self.zookeeper.session_id
        self._doubt.set()
        self._clean_lives = (*before, self.manager.broker_epoch)[-MOST_LIVES:]
        known = await self._known_epoch()  # while a newer controller may be obeyed already
        self.manager.controller_epoch = max(self.manager.controller_epoch, known)
        self.events.emit(
            "registered",
            zxid=self.manager.broker_epoch,
            value=self.config.broker_id,
            detail={"clean_since": before[0] if before else None},
        )

    async def _known_epoch(self) -> int:
        """Waits until it makes sense: without it this broker might obey a controller that was replaced."""
        said = ""
        while True:
            try:
                return await known_epoch(self.zookeeper)
            except znodes.ZnodeError as error:
                if str(error) != said:
                    said = str(error)
                    _log.error("%s", said)
            await asyncio.sleep(BACK_OFF)

    def follow_sessions(self) -> None:
        """From now on this broker registers again whenever its session was replaced, or its registration deleted."""
        self.zookeeper.add_listener(self._session_changed)
        if self.stays_registered:
            self.background.spawn(self._stay_registered(), "registration that stays")

    def catch_up(self) -> None:
        """What became of the session between ``register`` and ``follow_sessions``."""
        if self.zookeeper.session_id == self._registered_in:
            self.on_registered()
        else:
            self._session_changed(KazooState.LOST)
            if self.zookeeper.session_id:
                self._session_changed(KazooState.CONNECTED)

    def _session_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self.manager.broker_epoch = -1
            self.events.emit("session-lost")
        elif state == KazooState.CONNECTED and self.manager.broker_epoch == -1:
            self.background.spawn(self._register_again(), "registration")

    async def _register_again(self) -> None:
        """A new session is a new life to the others, although this process has lost nothing."""
        session = self.zookeeper.session_id
        async with self._registering:
            while self.zookeeper.session_id == session:
                try:
                    if self._registered_in != session or self.manager.broker_epoch == -1:
                        await self.register()
                except IdTaken as error:
                    raise BrokerError(str(error)) from error
                except KazooException as error:
                    _log.info("registering again: %r", error)
                    await asyncio.sleep(BACK_OFF)
                    continue
                if self.zookeeper.session_id == session:  # else it is registered again in the next one
                    self.on_registered()
                return

    async def _stay_registered(self) -> None:
        """Runs until it is cancelled. To the others this broker is dead without its registration, and its session lives
        on and does not show that.
        """
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            try:
                await self._look_at_registration()
            except KazooException as error:
                _log.info("the registration: %r; again", error)
                await asyncio.sleep(BACK_OFF)
                self._doubt.set()

    async def _look_at_registration(self) -> None:
        """Has it watched, and makes it again if someone has deleted or overwritten it. Raises kazoo's errors."""
        epoch, path = self.manager.broker_epoch, paths.broker(self.config.broker_id)
        if epoch == -1:
            return  # it registers in a new session, and looks again after that
        stat = await self.zookeeper.exists(path, self._changed)
        if stat is not None and stat.czxid == epoch:
            if stat.version == 0:
                return
            await self.zookeeper.delete(path, stat.version)  # the others may have read what was written there
        if self.manager.broker_epoch == epoch:
            _log.warning("%s was deleted or overwritten by someone else: registering again", path)
            self.manager.broker_epoch = -1
            await self._register_again()

    def _changed(self, event: WatchedEvent) -> None:
        self._doubt.set()
