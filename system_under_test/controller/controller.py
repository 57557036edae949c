"""The controller: election, and a queue of triggers that are handled one by one. The active one holds /controller.

A trigger says what may have changed. Its handler reads ZooKeeper again, compares the result with the known state, and
writes its decisions. So a trigger may come late, twice, or again after a failure. A request is sent to brokers only
after the write that it reports has succeeded.
"""

import asyncio
import logging

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.states import KazooState

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import cluster_state
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.changes import ChangeHandlers
from assay.system_under_test.controller.cluster_state import ClusterState
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.partitions import PartitionStates
from assay.system_under_test.controller.state_machines import StateMachines
from assay.system_under_test.controller.term import (
    NO_CONTROLLER,
    NO_SESSION,
    ControllerReplaced,
    ControllerTerm,
    claim,
    read_claim,
    read_epoch,
    remove_false_claim,
)
from assay.system_under_test.controller.topic_actions import TopicActions
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.controller.topics import TopicError
from assay.system_under_test.controller.traits import CORRECT, ControllerTraits
from assay.system_under_test.controller.work_queue import ZOOKEEPER_TRIGGERS, RequestedAction, Trigger, WorkQueue
from assay.system_under_test.events import EventLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import Runtime, ZooKeeper
from assay.system_under_test.tasks import BACK_OFF, BackgroundTasks
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import ZnodeError

_log = logging.getLogger("assay.controller")


class Controller:
    """The controller of one broker. Call ``start`` once this broker is registered."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        events: EventLog,
        background: BackgroundTasks,
        cache: MetadataCache,
        traits: ControllerTraits = CORRECT,
    ) -> None:
        self._config = config
        self._wall_clock = runtime.wall_clock
        self._zookeeper = zookeeper
        self._events = events
        self._background = background
        self._cache = cache
        self._traits = traits
        self._queue = WorkQueue()
        self.perform = self._queue.perform
        self._changes = ChangeHandlers(config, zookeeper, events, background, self._queue)
        self._active: ActiveTerm | None = None
        self._registered = False
        self._logged_epoch_problem: str | None = None
        self.topics = TopicActions(config, runtime.random, zookeeper, self._queue, self._changes)
        self.reassignments = self._changes.reassignments

    def start(self) -> None:
        self._zookeeper.add_listener(self._session_changed)
        self._background.spawn(self._run(), "controller")
        if self._config.auto_leader_rebalance_enable:
            self._background.spawn(self._changes.balance_periodically(), "balance of leaders")

    def allow_candidacy(self) -> None:
        """Allows this broker to stand for election. Called after each registration."""
        self._registered = True
        self._queue.notify(Trigger.CLAIM)

    def configure(self, topic: str, settings: VersionedSettings) -> None:
        """Records a topic's changed settings; elections depend on them."""
        if self._active is not None:  # a broker that becomes controller later reads them itself
            self._changes.configure(topic, settings)

    def _session_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registered = False
            self._resign("session lost")

    async def _run(self) -> None:
        while True:
            item = await self._queue.next()
            try:
                if isinstance(item, Trigger):
                    await self._handle(item)
                else:
                    await self._run_action(item)
            except ControllerReplaced as replaced:
                self._resign(str(replaced))
                self._queue.notify(Trigger.CLAIM)
            except KazooException as error:
                _log.info("%s: %r; again in %.1f s", item, error, BACK_OFF)
                await asyncio.sleep(BACK_OFF)
                if isinstance(item, Trigger):
                    self._queue.notify(item)
                # After a failure, any watch may be missing, so everything is read again.
                for trigger in ZOOKEEPER_TRIGGERS:
                    self._queue.notify(trigger)

    async def _run_action(self, requested: RequestedAction) -> None:
        action, done = requested
        try:
            if self._active is None:
                raise TopicError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            result = await action(self._active)
        except TopicError as error:
            if not done.done():
                done.set_exception(error)
        except (KazooException, ControllerReplaced) as error:
            if not done.done():
                failure = TopicError(ErrorCode.UNKNOWN, f"outcome unknown: {error!r}")
                failure.__cause__ = error
                done.set_exception(failure)
            raise
        else:
            if not done.done():
                done.set_result(result)

    async def _handle(self, trigger: Trigger) -> None:
        if trigger is Trigger.CLAIM:
            await self._stand_for_election()
        elif self._active is not None:
            await self._changes.handle(trigger, self._active)

    # -- election ----------------------------------------------------------------------------------------------------

    async def _stand_for_election(self) -> None:
        """Reads the claim, and stands for election if no broker holds it."""
        while self._registered:
            found = await read_claim(self._zookeeper, self._queue.watch(Trigger.CLAIM))
            if found is not None:
                broker_id, session, version = found
                active = self._active
                if active is not None and (broker_id != self._config.broker_id or session != active.term.session_id):
                    self._resign(f"the claim is broker {broker_id}'s")
                if session == self._zookeeper.session_id and self._active is None:
                    # An earlier election left the claim, but its term did not begin, or is over.
                    await self._give_up_claim(version)
                    continue
                if session == NO_SESSION:
                    self._cache.controller_id = NO_CONTROLLER
                    await remove_false_claim(self._zookeeper)
                    continue
                self._cache.controller_id = broker_id
                return
            self._resign("the claim is gone")
            self._cache.controller_id = NO_CONTROLLER
            try:
                term = await claim(self._zookeeper, self._config.broker_id, str(int(self._wall_clock() * 1000)))
            except ZnodeError:
                if await self._check_epoch():
                    continue
                return
            self._logged_epoch_problem = None
            if term is not None:
                await self._begin(term)

    async def _check_epoch(self) -> bool:
        """Returns whether the epoch's znode is valid. If not, logs each problem once, and watches the znode."""
        try:
            await read_epoch(self._zookeeper, self._queue.watch(Trigger.CLAIM))
        except ZnodeError as error:
            if str(error) != self._logged_epoch_problem:
                _log.error("%s", error)
            self._logged_epoch_problem = str(error)
            return False
        return True

    async def _give_up_claim(self, version: int) -> None:
        try:
            await self._zookeeper.delete(paths.CONTROLLER, version)
        except (NoNodeError, BadVersionError):
            _log.info("the claim changed while it was being given up")

    async def _begin(self, term: ControllerTerm) -> None:
        """Begins a term after the election: reads brokers and topics. If that fails, ends the term.

        A term with an incomplete state would treat brokers or topics that were not read as missing.
        """
        self._cache.controller_id = self._config.broker_id
        self._events.emit("became-controller", controller_epoch=term.epoch, value=self._config.broker_id)
        cluster, writer = ClusterState(), self._traits.writer(self._zookeeper, term)
        brokers = Broadcast(self._config, term, cluster, self._background, lambda: self._queue.notify(Trigger.REJECTED))
        machines = StateMachines(self._events, term.epoch, cluster)
        partitions = PartitionStates(
            self._zookeeper, term, writer, cluster, machines, self._config, self._events, brokers, self._traits.decide
        )
        active = ActiveTerm(term, writer, cluster, machines, partitions, brokers)
        self._active = active
        try:
            cluster.brokers = await cluster_state.read_brokers(self._zookeeper, self._queue.watch(Trigger.BROKERS))
            brokers.open()
            await self._changes.handle_topics(active)
        except KazooException as error:
            self._resign(f"reading the cluster's state: {error!r}")
            raise
        for trigger in (Trigger.BROKERS, Trigger.ISR, Trigger.DELETIONS, Trigger.MOVES, Trigger.PREFERRED):
            self._queue.notify(trigger)

    def _resign(self, reason: str) -> None:
        """Ends the term, and closes all channels to brokers."""
        if self._active is None or not self._traits.resigns:
            return
        active, self._active = self._active, None
        active.broadcast.close()
        self._events.emit("resigned-controller", controller_epoch=active.term.epoch, detail={"reason": reason})
