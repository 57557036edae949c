"""The registrar: prepares ZooKeeper, claims the data directory, and registers the broker in each new session."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, WatchedEvent

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.cluster_state import parse_assignment
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.registration import (
    BrokerIdTaken,
    RegistrationMatcher,
    matches_session,
    register_broker,
)
from assay.system_under_test.controller.term import read_epoch
from assay.system_under_test.events import EventLog
from assay.system_under_test.identity import BACK_OFF, BrokerError
from assay.system_under_test.log import directory
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.broker")

MAX_CLEAN_REGISTRATIONS = 100
"""Maximum number of cleanly stopped incarnations that a broker remembers.

An in-sync member that was admitted under an older registration counts as restarted uncleanly.
"""
REMEDY = (
    "correct the setting zookeeper, or give this broker a directory of its own. If ZooKeeper has lost its data: "
    "docs/broker/running_the_broker.md, After ZooKeeper lost its data"
)
"""Advice for a directory of another cluster."""
_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@dataclass
class Registrar:
    """The registrar of one broker. ``on_registered`` is called after each registration."""

    config: BrokerConfig
    runtime: Runtime
    zookeeper: ZooKeeper
    events: EventLog
    background: BackgroundTasks
    manager: ReplicaManager
    cache: MetadataCache
    on_registered: Callable[[], None]
    recognises_registration: RegistrationMatcher = matches_session
    """Decides whether a registration is this process's own."""
    stays_registered: bool = True
    """Whether the broker registers again after another process deleted its registration."""
    _registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _check_requested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the registration must be checked."""
    _registered_session: int = 0
    """The ZooKeeper session in which the broker last registered."""
    _clean_registrations: tuple[int, ...] = ()
    """The czxids of its latest registrations that ended with clean stops; ``MAX_CLEAN_REGISTRATIONS`` at most."""

    async def prepare_zookeeper(self) -> None:
        """Creates the parent znodes that all brokers use, and the cluster's id.

        Raises ``BrokerError``, and changes nothing, if the data directory names a cluster and ZooKeeper has no cluster
        id. With a new id, the directory would belong to another cluster.
        """
        found = directory.read_meta_properties(self.runtime.storage, self.config.data_dir)
        if found is not None and found.cluster_id is not None:
            await self.zookeeper.sync(paths.CLUSTER_ID)  # this session's server may be behind
            if await self.zookeeper.exists(paths.CLUSTER_ID) is None:
                raise BrokerError(
                    f"data_dir {self.config.data_dir} belongs to cluster {found.cluster_id}, but ZooKeeper at "
                    f"{self.config.zookeeper} has no {paths.CLUSTER_ID}; {REMEDY}"
                )
        for path in paths.CREATED_AT_START:
            if await self.zookeeper.exists(path) is None:
                try:
                    await self.zookeeper.create(path, makepath=True)
                except NodeExistsError:
                    continue  # another broker was faster
        if await self.zookeeper.exists(paths.CLUSTER_ID) is None:
            cluster_id = "".join(self.runtime.random.choice(_ID_ALPHABET) for _ in range(22))
            try:
                await self.zookeeper.create(paths.CLUSTER_ID, znodes.encode(znodes.ClusterId(cluster_id)))
            except NodeExistsError:
                _log.debug("another broker created the cluster id")
        data, _ = await self.zookeeper.get(paths.CLUSTER_ID)
        self.cache.cluster_id = znodes.decode(znodes.ClusterId, paths.CLUSTER_ID, data).id

    async def claim_directory(self) -> bool:
        """Claims the data directory for this broker; returns whether the last process that used it stopped cleanly.

        Raises ``BrokerError`` for the directory of another broker or another cluster, which stays unchanged.
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
        self._clean_registrations = await directory.take_clean_marker(storage, where)
        if found is None:
            properties = directory.MetaProperties(self.config.broker_id, self.cache.cluster_id)
            await directory.write_meta_properties(storage, properties, where)
        return bool(self._clean_registrations)

    async def set_strays_aside(self) -> None:
        """Sets aside logs of deleted topics, and of partitions that only other brokers have.

        The controller waits for dead brokers before it forgets a topic or ends a reassignment. So such a log means that
        an older copy of this disk was restored, and no one will ask for its deletion again.

        The log of a partition being reassigned is kept, because the controller may still ask for its deletion. Nothing
        is set aside in a directory that names no cluster.
        """
        storage, where = self.runtime.storage, self.config.data_dir
        claimed = directory.read_meta_properties(storage, where)
        if claimed is None or claimed.cluster_id != self.cache.cluster_id:
            return
        found = directory.list_partition_directories(storage, where)
        if found:
            await self.zookeeper.sync(paths.TOPICS)  # a topic that this session's server does not know yet is no stray
        for topic, index in found:
            path = f"{where}/{directory.format_directory_name(topic, index)}"
            if await self._is_stray(path, topic, index):
                aside = await directory.set_aside(storage, path)
                _log.warning("%s-%d was deleted or moved to other brokers: set aside as %s", topic, index, aside)

    async def _is_stray(self, path: str, topic: str, index: int) -> bool:
        """Returns whether the log is a stray. A log that does not name its topic's incarnation is never a stray."""
        try:
            topic_czxid = directory.read_incarnation(self.runtime.storage, path)
            if topic_czxid is None:
                return False
            data, stat = await self.zookeeper.get(paths.topic(topic))
        except NoNodeError:
            return True
        except directory.DirectoryError:
            return False
        return topic_czxid != int(stat.czxid) or await self._is_elsewhere(topic, index, data)

    async def _is_elsewhere(self, topic: str, index: int, data: bytes) -> bool:
        """Returns whether only other brokers have this partition, and no reassignment of it is in progress.

        ``data`` is the topic's znode, read before the reassignments. The order matters: a reassignment that ends writes
        the assignment first, and then disappears.
        """
        try:
            replicas = parse_assignment(paths.topic(topic), data).get(index)
            moves = await znodes.read(self.zookeeper, znodes.ReassignmentList, paths.REASSIGNMENTS)
        except znodes.ZnodeError:
            return False  # the assignment is unknown
        moving = () if moves is None else moves[0].partitions
        under_way = any((move.topic, move.partition) == (topic, index) for move in moving)
        return replicas is not None and self.config.broker_id not in replicas and not under_way

    async def leave_directory(self) -> None:
        """Writes the marker of a clean stop; every log must be closed and every checkpoint written.

        Writes none if this incarnation has lost records: the broker no longer has all that it had when it registered.
        """
        if self.manager.replicas.records_lost or not self._clean_registrations:
            return
        directory.require_in_place(self.runtime.storage, self.config.data_dir)
        await directory.write_clean_marker(self.runtime.storage, self._clean_registrations, self.config.data_dir)

    async def register(self) -> None:
        timestamp = str(int(self.runtime.wall_clock() * 1000))
        if self.manager.replicas.take_records_lost():  # durable records were lost since the last registration
            self._clean_registrations = ()
        before = self._clean_registrations
        self.manager.broker_epoch = await register_broker(
            self.zookeeper,
            self.config,
            clean_registrations=before,
            timestamp=timestamp,
            recognises_registration=self.recognises_registration,
        )
        self._registered_session = self.zookeeper.session_id
        self._check_requested.set()
        self._clean_registrations = (*before, self.manager.broker_epoch)[-MAX_CLEAN_REGISTRATIONS:]
        known = await self._await_controller_epoch()  # max, because a newer controller may have been obeyed meanwhile
        self.manager.controller_epoch = max(self.manager.controller_epoch, known)
        self.events.emit(
            "registered",
            zxid=self.manager.broker_epoch,
            value=self.config.broker_id,
            detail={"clean_since": before[0] if before else None},
        )

    async def _await_controller_epoch(self) -> int:
        """Waits for a valid epoch. Without it, this broker might obey a controller that was replaced."""
        logged = ""
        while True:
            try:
                return await read_epoch(self.zookeeper)
            except znodes.ZnodeError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.error("%s", logged)
            await asyncio.sleep(BACK_OFF)

    def follow_sessions(self) -> None:
        """From now on, registers again whenever the session is replaced or the registration is deleted."""
        self.zookeeper.add_listener(self._session_changed)
        if self.stays_registered:
            self.background.spawn(self._stay_registered(), "registration that stays")

    def handle_missed_changes(self) -> None:
        """Handles changes of the session between ``register_broker`` and ``follow_sessions``."""
        if self.zookeeper.session_id == self._registered_session:
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
        """Registers in a new session. Other brokers treat this as a restart, although the process has lost nothing."""
        session = self.zookeeper.session_id
        async with self._registering:
            while self.zookeeper.session_id == session:
                try:
                    if self._registered_session != session or self.manager.broker_epoch == -1:
                        await self.register()
                except BrokerIdTaken as error:
                    raise BrokerError(str(error)) from error
                except KazooException as error:
                    _log.info("registering again: %r", error)
                    await asyncio.sleep(BACK_OFF)
                    continue
                if self.zookeeper.session_id == session:  # otherwise it registers again in the next session
                    self.on_registered()
                return

    async def _stay_registered(self) -> None:
        """Checks and renews the registration until cancelled. Other brokers treat an unregistered broker as dead."""
        while True:
            await self._check_requested.wait()
            self._check_requested.clear()
            try:
                await self._check_registration()
            except KazooException as error:
                _log.info("checking the registration: %r; it is tried again", error)
                await asyncio.sleep(BACK_OFF)
                self._check_requested.set()

    async def _check_registration(self) -> None:
        """Watches the registration, and renews it if another process deleted or overwrote it. Raises kazoo's errors."""
        epoch, path = self.manager.broker_epoch, paths.broker(self.config.broker_id)
        if epoch == -1:
            return  # the broker is about to register in a new session, and is checked again after that
        stat = await self.zookeeper.exists(path, self._on_registration_event)
        if stat is not None and stat.czxid == epoch:
            if stat.version == 0:
                return
            await self.zookeeper.delete(path, stat.version)  # other brokers may have read the overwritten content
        if self.manager.broker_epoch == epoch:
            _log.warning("%s was deleted or overwritten by someone else: registering again", path)
            self.manager.broker_epoch = -1
            await self._register_again()

    def _on_registration_event(self, event: WatchedEvent) -> None:
        self._check_requested.set()
