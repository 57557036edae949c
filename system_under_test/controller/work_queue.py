"""The controller's work queue: triggers and requested actions, handled one by one."""

import asyncio
import enum
from collections.abc import Mapping
from typing import Any, Final

from assay.system_under_test.controller.active_term import Action, T
from assay.system_under_test.runtime import Watch


class Trigger(enum.Enum):
    """The kinds of changes that the controller reacts to."""

    CLAIM = "controller"
    BROKERS = "brokers"
    TOPICS = "topics"
    ASSIGNMENTS = "assignments"
    SETTINGS = "settings"
    ISR = "in-sync sets"
    DELETIONS = "deletions"
    MOVES = "reassignments"
    PREFERRED = "elections of preferred leaders"
    BALANCE = "balance of leaders"
    REJECTED = "rejected by a broker"


ZOOKEEPER_TRIGGERS: Final = (
    Trigger.CLAIM,
    Trigger.BROKERS,
    Trigger.TOPICS,
    Trigger.ASSIGNMENTS,
    Trigger.ISR,
    Trigger.DELETIONS,
    Trigger.MOVES,
    Trigger.PREFERRED,
)
"""Triggers that repeat a read of ZooKeeper. All other triggers come from requests and timers."""

RequestedAction = tuple[Action[Any], asyncio.Future[Any]]
"""An action and the future that its caller waits for."""


class WorkQueue:
    """The queue. A trigger is in it at most once."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Trigger | RequestedAction] = asyncio.Queue()
        self._queued: set[Trigger] = set()
        self._watches: Mapping[Trigger, Watch] = {trigger: self._make_watch(trigger) for trigger in Trigger}

    def notify(self, trigger: Trigger) -> None:
        if trigger not in self._queued:
            self._queued.add(trigger)
            self._queue.put_nowait(trigger)

    async def notify_later(self, trigger: Trigger, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.notify(trigger)

    def watch(self, trigger: Trigger) -> Watch:
        """Returns the watch that notifies a trigger.

        Each trigger has a single watch, because a ZooKeeper client keeps every distinct watch until it fires.
        """
        return self._watches[trigger]

    def _make_watch(self, trigger: Trigger) -> Watch:
        return lambda _: self.notify(trigger)

    async def next(self) -> Trigger | RequestedAction:
        item = await self._queue.get()
        if isinstance(item, Trigger):
            self._queued.discard(item)
        return item

    async def perform(self, action: Action[T]) -> T:
        """Runs the action between two triggers, and returns its result.

        Raises the action's ``TopicError``, or one with NOT_CONTROLLER (this broker is not the controller) or UNKNOWN
        (the outcome is unknown).
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((action, done))
        return await done
