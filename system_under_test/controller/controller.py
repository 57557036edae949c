"""The controller: one event queue, handled strictly in order, on every broker; active on the one that holds the claim.

Each event says what may have changed, and its handler reads ZooKeeper anew, compares with what it knew, and writes
what follows, so that an event may come late, twice, or after a failure again. No request leaves before the write that
it tells of has succeeded.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Mapping, Sequence

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.protocol.states import KazooState

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller import assignments, cluster_state, config_alteration, preferred, topics
from assay.system_under_test.controller.broadcast import Broadcast
from assay.system_under_test.controller.cluster_state import ClusterState
from assay.system_under_test.controller.deletion import Deletions
from assay.system_under_test.controller.leaders import LiveBroker
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.partitions import PartitionMachine
from assay.system_under_test.controller.reassignment import Reassignments
from assay.system_under_test.controller.rule import Action, Rule
from assay.system_under_test.controller.term import NOBODY, Replaced, Term, claim, holder
from assay.system_under_test.controller.topic_settings import TopicSettings, read_settings
from assay.system_under_test.controller.traits import CORRECT, ControllerTraits
from assay.system_under_test.events import EventLog
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.topics import CreatableTopic
from assay.system_under_test.runtime import Runtime, Watch, ZooKeeper
from assay.system_under_test.tasks import Background
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.controller")

BACK_OFF = 0.2
"""Seconds before an event is handled again after ZooKeeper failed it."""


class Event(enum.Enum):
    """What may have changed."""

    CLAIM = "controller"
    BROKERS = "brokers"
    TOPICS = "topics"
    ASSIGNMENTS = "assignments"
    SETTINGS = "settings"
    ISR = "in-sync sets"
    DELETIONS = "deletions"
    MOVES = "reassignments"
    PREFERRED = "elections of preferred leaders"
    BALANCE = "who leads too little"
    REFUSED = "refused by a broker"


_SEEN_IN_ZOOKEEPER = (
    Event.CLAIM,
    Event.BROKERS,
    Event.TOPICS,
    Event.ASSIGNMENTS,
    Event.ISR,
    Event.DELETIONS,
    Event.MOVES,
    Event.PREFERRED,
)


class Controller:
    """See the module. ``start`` once this broker is registered."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        zookeeper: ZooKeeper,
        events: EventLog,
        background: Background,
        cache: MetadataCache,
        traits: ControllerTraits = CORRECT,
    ) -> None:
        self._config = config
        self._wall_clock = runtime.wall_clock
        self._random: random.Random = runtime.random
        self._zookeeper = zookeeper
        self._events = events
        self._background = background
        self._cache = cache
        self._traits = traits
        self._queue: asyncio.Queue[Event | tuple[Action, asyncio.Future[None]]] = asyncio.Queue()
        self._queued: set[Event] = set()
        self._watches: dict[Event, Watch] = {}
        self._rule: Rule | None = None
        self._registered = False
        self.reassignments = Reassignments(
            zookeeper, background, events, self.perform, lambda: self._notify(Event.MOVES), self._assignments_changed
        )
        self._deletions = Deletions(
            zookeeper,
            background,
            self.perform,
            lambda: self._notify(Event.DELETIONS),
            self.reassignments.endings,
        )
        self._new_settings: dict[str, TopicSettings] = {}

    def start(self) -> None:
        self._zookeeper.add_listener(self._session_changed)
        self._background.spawn(self._run(), "controller")
        if self._config.auto_leader_rebalance_enable:
            self._background.spawn(self._balance_now_and_then(), "balance of leaders")

    def registered(self) -> None:
        """This broker has its registration (again) and may stand for election."""
        self._registered = True
        self._notify(Event.CLAIM)

    def _session_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._registered = False
            self._resign("session lost")

    def _notify(self, event: Event) -> None:
        if event not in self._queued:
            self._queued.add(event)
            self._queue.put_nowait(event)

    def _watch(self, event: Event) -> Watch:
        if event not in self._watches:  # one for each event: a client keeps each watch that it is given until it fires
            self._watches[event] = lambda _: self._notify(event)
        return self._watches[event]

    async def _run(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if isinstance(item, Event):
                    self._queued.discard(item)
                    await self._handle(item)
                else:
                    await self._act(*item)
            except Replaced as replaced:
                self._resign(str(replaced))
                self._notify(Event.CLAIM)
            except KazooException as error:
                _log.info("%s: %r; again in %.1f s", item, error, BACK_OFF)
                await asyncio.sleep(BACK_OFF)
                if isinstance(item, Event):
                    self._notify(item)
                # after a failure nobody knows which watches are set, so everything is looked at again
                for event in _SEEN_IN_ZOOKEEPER:
                    self._notify(event)

    async def _act(self, action: Action, done: asyncio.Future[None]) -> None:
        try:
            if self._rule is None:
                raise topics.TopicError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            await action(self._rule)
        except topics.TopicError as error:
            if not done.done():
                done.set_exception(error)
        except (KazooException, Replaced) as error:
            if not done.done():
                failure = topics.TopicError(ErrorCode.UNKNOWN, f"outcome unknown: {error!r}")
                failure.__cause__ = error
                done.set_exception(failure)
            raise
        else:
            if not done.done():
                done.set_result(None)

    async def _handle(self, event: Event) -> None:
        if event is Event.CLAIM:
            await self._stand()
            return
        rule = self._rule
        if rule is None:
            return
        if event is Event.BROKERS:
            await self._brokers_changed(rule)
        elif event is Event.TOPICS:
            await self._topics_changed(rule)
        elif event is Event.ASSIGNMENTS:
            await self._assignments_changed(rule)
        elif event is Event.SETTINGS:
            await self._settings_changed(rule)
        elif event is Event.ISR:
            await self._isr_changed(rule)
        elif event is Event.DELETIONS:
            await self.reassignments.know(rule)
            await self._deletions.look(rule, self._watch(Event.DELETIONS))
        elif event is Event.MOVES:
            await self.reassignments.look(rule, self._watch(Event.MOVES))
        elif event is Event.PREFERRED:
            await preferred.look(self._zookeeper, rule, self._watch(Event.PREFERRED))
        elif event is Event.BALANCE:
            await self._balance(rule)
        else:
            await rule.fence.write([])

    # -- election ----------------------------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Looks who holds the claim; stands for election when nobody does."""
        while self._registered:
            found = await holder(self._zookeeper, self._watch(Event.CLAIM))
            if found is not None:
                broker_id, session, version = found
                rule = self._rule
                if rule is not None and (broker_id != self._config.broker_id or session != rule.term.session_id):
                    self._resign(f"the claim is broker {broker_id}'s")
                if session == self._zookeeper.session_id and self._rule is None:
                    await self._give_up_claim(version)  # nobody is controller merely by reading its own id
                    continue
                self._cache.controller_id = broker_id
                return
            self._resign("the claim is gone")
            self._cache.controller_id = NOBODY
            term = await claim(self._zookeeper, self._config.broker_id, str(int(self._wall_clock() * 1000)))
            if term is not None:
                await self._begin(term)

    async def _give_up_claim(self, version: int) -> None:
        try:
            await self._zookeeper.delete(paths.CONTROLLER, version)
        except (NoNodeError, BadVersionError):
            _log.info("the claim changed while it was being given up")

    async def _begin(self, term: Term) -> None:
        """Everything is read after the election's multi."""
        self._cache.controller_id = self._config.broker_id
        self._events.emit("became-controller", controller_epoch=term.epoch, value=self._config.broker_id)
        cluster, fence = ClusterState(), self._traits.fence(self._zookeeper, term)
        brokers = Broadcast(self._config, term, cluster, self._background, lambda: self._notify(Event.REFUSED))
        machine = PartitionMachine(
            self._zookeeper, term, fence, cluster, self._config, self._events, brokers, self._traits.decide
        )
        rule = Rule(term, fence, cluster, machine, brokers)
        self._rule = rule
        cluster.brokers = await cluster_state.read_brokers(self._zookeeper, self._watch(Event.BROKERS))
        brokers.open()
        await self._topics_changed(rule)
        for event in (Event.BROKERS, Event.ISR, Event.DELETIONS, Event.MOVES, Event.PREFERRED):
            self._notify(event)

    def _resign(self, reason: str) -> None:
        """Before anything else: no line to any broker stays open."""
        if self._rule is None or not self._traits.resigns:
            return
        rule, self._rule = self._rule, None
        rule.brokers.close()
        self._events.emit("resigned-controller", controller_epoch=rule.term.epoch, reason=reason)

    # -- what may have changed -----------------------------------------------------------------------------------------

    async def _brokers_changed(self, rule: Rule) -> None:
        """Failures first, then starts, by (id, czxid): a quick bounce is both."""
        cluster = rule.cluster
        before: dict[int, LiveBroker] = cluster.brokers
        now = await cluster_state.read_brokers(self._zookeeper, self._watch(Event.BROKERS))
        if now != before:
            cluster.brokers = {b: life for b, life in before.items() if now.get(b) == life}
            rule.brokers.open()
            await rule.partitions.update(cluster.all_partitions())
            cluster.brokers = now
            rule.brokers.open()
            await rule.partitions.update(cluster.all_partitions())
            rule.brokers.tell()
            self._notify(Event.DELETIONS)
        # what waited for a broker's word may be decided now that the brokers have been told their roles
        await rule.partitions.update(cluster.all_partitions() if now == before else list(rule.partitions.undecided))
        rule.brokers.tell()
        self._go_on_moving(rule)
        if rule.partitions.undecided:
            self._background.spawn(self._notify_later(Event.BROKERS), "undecided elections")

    async def _notify_later(self, event: Event) -> None:
        await asyncio.sleep(BACK_OFF)
        self._notify(event)

    def _go_on_moving(self, rule: Rule) -> None:
        """A reassignment may have waited for that."""
        if rule.cluster.moves:
            self._notify(Event.MOVES)

    async def _balance_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            self._notify(Event.BALANCE)

    async def _balance(self, rule: Rule) -> None:
        for partition in preferred.imbalanced(rule.cluster, self._config.leader_imbalance_per_broker_percentage):
            await preferred.elect(rule, partition)
        rule.brokers.tell()

    async def _topics_changed(self, rule: Rule) -> None:
        """Learns of new topics and gives their partitions a first state; forgets topics that are gone."""
        names = await self._zookeeper.get_children(paths.TOPICS, self._watch(Event.TOPICS))
        cluster = rule.cluster
        for gone in [name for name in cluster.topics if name not in names]:
            cluster.forget(gone)
            rule.brokers.deleted(gone)
        for name in names:
            if name not in cluster.topics:
                try:
                    cluster.topics[name] = await cluster_state.read_topic(
                        self._zookeeper, name, self._watch(Event.ASSIGNMENTS)
                    )
                except znodes.ZnodeError as error:
                    _log.error("%s; the topic is ignored", error)
        await rule.partitions.update([p for p in cluster.all_partitions() if p not in cluster.states])
        rule.brokers.tell()
        self._go_on_moving(rule)

    async def _assignments_changed(self, rule: Rule) -> None:
        """Gives the partitions that were added to a topic a first state; a topic that made no sense may make some."""
        for name in list(rule.cluster.topics):
            await assignments.look_again(self._zookeeper, rule, name, self._watch(Event.ASSIGNMENTS))
        await self._topics_changed(rule)

    def configure(self, topic: str, settings: TopicSettings) -> None:
        """A topic's settings are others; elections go by them."""
        if self._rule is not None:  # whoever becomes controller later reads them himself
            self._new_settings[topic] = settings
            self._notify(Event.SETTINGS)

    async def _settings_changed(self, rule: Rule) -> None:
        changed = [name for name, settings in self._new_settings.items() if rule.cluster.configure(name, settings)]
        self._new_settings = {}
        await rule.partitions.update([p for p in rule.cluster.all_partitions() if p[0] in changed])
        rule.brokers.tell()

    async def _isr_changed(self, rule: Rule) -> None:
        """Leaders wrote states; brokers' metadata follows."""
        names = await self._zookeeper.get_children(paths.ISR_CHANGES, self._watch(Event.ISR))
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
        await rule.partitions.update([partition for partition in changed if partition in rule.cluster.states])
        rule.brokers.tell()
        for name in names:
            await self._zookeeper.delete(f"{paths.ISR_CHANGES}/{name}")
        self._go_on_moving(rule)

    # -- by request ---------------------------------------------------------------------------------------------

    async def create_topic(self, topic: CreatableTopic, validate_only: bool) -> None:
        """Returns once every partition has its first leader, as far as one is alive. Raises ``TopicError``."""

        async def act(rule: Rule) -> None:
            if topic.topic in rule.cluster.topics:
                raise topics.TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.topic!r} exists")
            plan = topics.plan(topic, sorted(rule.cluster.brokers), self._config, self._random)
            if not validate_only:
                await rule.fence.write(topics.creation(topic.topic, plan))
                await self._topics_changed(rule)

        await self.perform(act)

    async def delete_topic(self, name: str) -> None:
        """Returns once every replica and the topic itself are gone. Raises ``TopicError``."""
        await self._deletions.request(name)

    async def add_partitions(
        self, name: str, count: int, assigned: Sequence[Sequence[int]], *, validate_only: bool
    ) -> None:
        """Returns once every new partition has its first leader, as far as one is alive. Raises ``TopicError``."""

        async def act(rule: Rule) -> None:
            await assignments.add(self._zookeeper, rule, name, count, assigned, validate_only=validate_only)
            await self._assignments_changed(rule)

        await self.perform(act)

    async def alter_settings(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Returns once they are written; the brokers follow. Raises ``TopicError``."""

        async def act(rule: Rule) -> None:
            await config_alteration.alter(self._zookeeper, rule, name, changes, validate_only=validate_only)

        await self.perform(act)

    async def settings_of(self, name: str) -> Mapping[str, str]:
        """A topic's own settings, as they are in ZooKeeper now. Raises ``TopicError``."""
        found: dict[str, str] = {}

        async def act(rule: Rule) -> None:
            if name not in rule.cluster.topics:
                raise topics.TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            read = await read_settings(self._zookeeper, name, 0)
            found.update(read.values if read is not None else {})

        await self.perform(act)
        return found

    async def perform(self, action: Action) -> None:
        """Does it between two events. Raises ``TopicError``: 41 when this broker is not the controller, -1 when the
        outcome is unknown, and whatever the action raises.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((action, done))
        await done
