"""The active controller's handlers of triggers: each reads ZooKeeper again, decides, and writes its decisions."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from kazoo.protocol.serialization import Delete

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import assignments, cluster_state, preferred, topics
from assay.system_under_test.controller.active_term import ActiveTerm
from assay.system_under_test.controller.deletion import TopicDeletions
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.reassignment import Reassignments
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.controller.work_queue import Trigger, WorkQueue
from assay.system_under_test.events import EventLog
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.tasks import BACK_OFF, BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")


class ChangeHandlers:
    """The handlers of one controller, by trigger."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeper,
        events: EventLog,
        background: BackgroundTasks,
        queue: WorkQueue,
    ) -> None:
        self._config = config
        self._zookeeper = zookeeper
        self._background = background
        self._queue = queue
        self._new_settings: dict[str, VersionedSettings] = {}
        """By topic: changed settings that ``_handle_settings`` has not applied yet."""
        self.reassignments = Reassignments(
            zookeeper, background, events, queue.perform, lambda: queue.notify(Trigger.MOVES), self.handle_assignments
        )
        self.deletions = TopicDeletions(
            zookeeper,
            background,
            queue.perform,
            lambda: queue.notify(Trigger.DELETIONS),
            self.reassignments.plan_endings,
        )
        self._handlers: Mapping[Trigger, Callable[[ActiveTerm], Awaitable[object]]] = {
            Trigger.BROKERS: self._handle_brokers,
            Trigger.TOPICS: self.handle_topics,
            Trigger.ASSIGNMENTS: self.handle_assignments,
            Trigger.SETTINGS: self._handle_settings,
            Trigger.ISR: self._handle_isr_changes,
            Trigger.DELETIONS: self._handle_deletions,
            Trigger.MOVES: lambda active: self.reassignments.perform_steps(active, queue.watch(Trigger.MOVES)),
            Trigger.PREFERRED: lambda active: preferred.handle_election_znode(
                zookeeper, active, queue.watch(Trigger.PREFERRED)
            ),
            Trigger.BALANCE: self._handle_balance,
            # An empty write fails if this broker is no longer the controller.
            Trigger.REJECTED: lambda active: active.writer.write([]),
        }

    async def handle(self, trigger: Trigger, active: ActiveTerm) -> None:
        """Handles any trigger except the claim, which the controller handles itself."""
        await self._handlers[trigger](active)

    async def balance_periodically(self) -> None:
        while True:
            await self._queue.notify_later(Trigger.BALANCE, self._config.leader_imbalance_check_interval_seconds)

    def configure(self, topic: str, settings: VersionedSettings) -> None:
        """Records a topic's changed settings; elections depend on them."""
        self._new_settings[topic] = settings
        self._queue.notify(Trigger.SETTINGS)

    async def _handle_brokers(self, active: ActiveTerm) -> None:
        """Handles lost registrations first, then new ones. A quick restart is both, because the czxid changes."""
        cluster = active.cluster
        before: dict[int, BrokerIncarnation] = cluster.brokers
        now = await cluster_state.read_brokers(self._zookeeper, self._queue.watch(Trigger.BROKERS))
        if now != before:
            cluster.brokers = {b: broker for b, broker in before.items() if now.get(b) == broker}
            active.broadcast.open()
            await active.partitions.update(cluster.all_partitions())
            cluster.brokers = now
            active.broadcast.open()
            await active.partitions.update(cluster.all_partitions())
            active.broadcast.send()
            self._queue.notify(Trigger.DELETIONS)
        # An election that waits for a broker's answer may be decided now.
        await active.partitions.update(cluster.all_partitions() if now == before else list(cluster.undecided))
        active.broadcast.send()
        self._continue_reassignments(active)
        if cluster.undecided:
            later = self._queue.notify_later(Trigger.BROKERS, BACK_OFF)
            self._background.spawn(later, "undecided elections")

    def _continue_reassignments(self, active: ActiveTerm) -> None:
        """Triggers the reassignments, which may have waited for a change."""
        if active.cluster.moves:
            self._queue.notify(Trigger.MOVES)

    async def handle_topics(self, active: ActiveTerm) -> None:
        """Gives the partitions of new topics a first state; forgets deleted topics."""
        names = await self._zookeeper.get_children(paths.TOPICS, self._queue.watch(Trigger.TOPICS))
        cluster = active.cluster
        for gone in [name for name in cluster.topics if name not in names]:
            active.forget(gone)
        for name in names:
            if name not in cluster.topics:
                watch = self._queue.watch(Trigger.ASSIGNMENTS)
                try:
                    topic = await cluster_state.read_topic(self._zookeeper, name, watch)
                except znodes.ZnodeError as error:
                    _log.error("%s; the topic is ignored", error)
                    continue
                has_begun = await topics.has_deletion_begun(self._zookeeper, name, topic.czxid)
                cluster.topics[name] = topic  # both or neither: a known topic is not read again
                if has_begun:
                    cluster.begun_deletions[name] = None
        await active.partitions.update([p for p in cluster.all_partitions() if p not in cluster.states])
        active.broadcast.send()
        self._continue_reassignments(active)

    async def handle_assignments(self, active: ActiveTerm) -> None:
        """Gives added partitions a first state. Also reads topics whose assignment was invalid before."""
        for name in list(active.cluster.topics):
            await assignments.check_assignment(self._zookeeper, active, name, self._queue.watch(Trigger.ASSIGNMENTS))
        await self.handle_topics(active)

    async def _handle_settings(self, active: ActiveTerm) -> None:
        changed = [name for name, settings in self._new_settings.items() if active.cluster.configure(name, settings)]
        self._new_settings = {}
        await active.partitions.update([p for p in active.cluster.all_partitions() if p[0] in changed])
        active.broadcast.send()

    async def _handle_isr_changes(self, active: ActiveTerm) -> None:
        """Reads states that leaders wrote, and updates the brokers' metadata."""
        names = await self._zookeeper.get_children(paths.ISR_CHANGES, self._queue.watch(Trigger.ISR))
        changed: dict[tuple[str, int], None] = {}
        for name in names:
            path = f"{paths.ISR_CHANGES}/{name}"
            data, _ = await self._zookeeper.get(path)
            try:
                notices = znodes.decode(znodes.IsrChange, path, data).partitions
            except znodes.ZnodeError as error:
                _log.error("%s; it is ignored", error)
                continue
            changed.update(((notice.topic, notice.partition), None) for notice in notices)
        await active.partitions.update([partition for partition in changed if partition in active.cluster.states])
        active.broadcast.send()
        if names:  # a fenced write: a replaced controller must not delete notices that its successor has not read
            await active.writer.write([Delete(f"{paths.ISR_CHANGES}/{name}", -1) for name in names])
        self._continue_reassignments(active)

    async def _handle_deletions(self, active: ActiveTerm) -> None:
        await self.reassignments.ensure_read(active)
        await self.deletions.begin_due(active, self._queue.watch(Trigger.DELETIONS))

    async def _handle_balance(self, active: ActiveTerm) -> None:
        for partition in preferred.find_imbalanced(active.cluster, self._config.leader_imbalance_per_broker_percentage):
            await preferred.elect_preferred_leader(active, partition)
        active.broadcast.send()
