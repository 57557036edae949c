"""What the controller sends to the brokers: the lines to them, and the changes that each does not have yet.

A change is remembered until it is sent, so that a handler that failed between writing a state and sending it loses
nothing: the next handler sends both. A broker that has just started gets everything.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.cluster_state import ClusterState, PartitionId
from assay.system_under_test.controller.leaders import BrokerLife
from assay.system_under_test.controller.term import Replaced, Term
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.tasks import Background

_log = logging.getLogger("assay.controller")

BACK_OFF = 0.1
"""Seconds."""


class Channel:
    """The line to one life of one broker: requests go out one at a time, in order, until they are answered.

    Every request may be repeated, so a lost connection is simply tried again. ``rejected`` is called when the broker
    knows a newer controller, or is not in the life that was meant.
    """

    def __init__(self, broker: BrokerLife, request_timeout: float, rejected: Callable[[], None]) -> None:
        self.broker = broker
        self._request_timeout = request_timeout
        self._rejected = rejected
        self._queue: deque[tuple[Request[Any], asyncio.Future[Any]]] = deque()
        self._filled = asyncio.Event()

    def send(self, request: Request[Any]) -> asyncio.Future[Any]:
        """The answer to come; cancelled when the line is closed first."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        self._filled.set()
        return future

    async def run(self) -> None:
        """Ends only when it is cancelled."""
        connection: Connection | None = None
        try:
            while True:
                if not self._queue:
                    self._filled.clear()
                    await self._filled.wait()
                request, future = self._queue[0]
                try:
                    if connection is None:
                        connection = await Connection.open(self.broker.host, self.broker.port, self._request_timeout)
                    response = await connection.call(request, 0, self._request_timeout)
                except CallError as error:
                    _log.info("%s to broker %d: %s", type(request).__name__, self.broker.broker_id, error)
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(BACK_OFF)
                    continue
                if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                    self._rejected()
                    await asyncio.sleep(BACK_OFF)
                    continue
                self._queue.popleft()
                if not future.done():
                    future.set_result(response)
        finally:
            for _, future in self._queue:
                future.cancel()
            if connection is not None:
                await connection.close()


@dataclass(eq=False)
class Broadcast:
    """The lines of one term. ``rejected`` is called when a broker does not obey it."""

    config: BrokerConfig
    term: Term
    cluster: ClusterState
    background: Background
    rejected: Callable[[], None]
    _channels: dict[int, tuple[Channel, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _asked: dict[int, asyncio.Future[Any]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _some_left: bool = field(default=False, init=False)
    _newcomers: dict[int, None] = field(default_factory=dict, init=False)
    _changed: dict[PartitionId, None] = field(default_factory=dict, init=False)
    _deleted: dict[str, None] = field(default_factory=dict, init=False)
    _serial: int = field(default=0, init=False)

    def reaches(self, brokers: Iterable[int]) -> bool:
        """Is there a line to each of them?"""
        return all(broker in self._channels for broker in brokers)

    def open(self) -> None:
        """Opens lines to the brokers that live; those to lives that are over are closed, with all that waits in them.

        Raises ``Replaced`` after ``close``: a handler may still be at work when its term has ended.
        """
        if self._closed:
            raise Replaced(f"controller epoch {self.term.epoch} ended meanwhile")
        brokers = self.cluster.brokers
        for broker_id, (channel, task) in list(self._channels.items()):
            if brokers.get(broker_id) != channel.broker:
                task.cancel()
                del self._channels[broker_id]
                self._newcomers.pop(broker_id, None)
                self._some_left = True
        for broker_id, life in brokers.items():
            if broker_id not in self._channels:
                channel = Channel(life, self.config.request_timeout_ms / 1000, self.rejected)
                task = self.background.spawn(channel.run(), f"controller to {broker_id}")
                self._channels[broker_id] = channel, task
                self._newcomers[broker_id] = None

    def close(self) -> None:
        self._closed = True
        for _, task in self._channels.values():
            task.cancel()
        self._channels = {}

    def changed(self, partition: PartitionId) -> None:
        """Its state is another than the brokers have."""
        self._changed[partition] = None

    def deleted(self, topic: str) -> None:
        self._deleted[topic] = None

    def send(self) -> None:
        """LeaderAndIsr to the replicas of what changed, UpdateMetadata to all; everything to the newcomers."""
        changed, self._changed = list(self._changed), {}
        newcomers, self._newcomers = self._newcomers, {}
        deleted, self._deleted = list(self._deleted), {}
        left, self._some_left = self._some_left, False
        if not (changed or newcomers or deleted or left):
            return
        for broker_id in self._channels:
            full = broker_id in newcomers
            self._send_to(broker_id, self.cluster.all_partitions() if full else changed, deleted, full=full)

    def _send_to(self, broker_id: int, partitions: Sequence[PartitionId], deleted: list[str], *, full: bool) -> None:
        updates = self.cluster.updates(partitions)
        live, serial = self.cluster.live(), self._next_serial()
        mine = [update for update in updates if broker_id in update.replicas]
        if mine or full:
            settings = self.cluster.settings({update.topic for update in mine})
            roles = partial(internal.LeaderAndIsrRequest, partitions=mine, topics=settings)
            self._send(broker_id, partial(roles, live_brokers=live, serial=serial))
        news = partial(internal.UpdateMetadataRequest, full=full, partitions=updates, deleted=deleted)
        self._send(broker_id, partial(news, live_brokers=live, serial=serial))

    async def log_end(self, broker_id: int, partition: PartitionId) -> tuple[int, int] | None:
        """A replica's (last epoch, log end); None when it is not available now.

        A broker that has not answered the last question yet is not waited for again: it may be dead, and for as long as
        the controller waits it does not hear of anything else, such as that broker's next life.
        """
        former = self._asked.get(broker_id)
        if former is not None and not former.done():
            return None
        topic, index = partition
        czxid = self.cluster.topics[topic].czxid
        query = internal.LogEndPartition(topic=topic, partition=index, topic_czxid=czxid)
        answer = self._send(broker_id, partial(internal.LogEndRequest, partitions=[query]))
        if answer is None:
            return None
        self._asked[broker_id] = answer
        done, _ = await asyncio.wait([answer], timeout=self.config.request_timeout_ms / 1000)
        if not done or answer.cancelled():
            return None
        end = answer.result().partitions[0]
        return (end.last_epoch, end.end_offset) if end.error_code == ErrorCode.NONE else None

    def stop(self, broker_id: int, partitions: Sequence[PartitionId]) -> None:
        """Has a broker stop these replicas of its own for the rest of their leader epoch."""
        stopped = [self._stopped(partition) for partition in partitions]
        if stopped:
            self._send(broker_id, self._stopping(stopped, delete=False))

    def stop_topic(self, topic: str) -> None:
        """Has all brokers stop their replicas of it, which is about to be forgotten."""
        known = [p for p in self.cluster.all_partitions() if p[0] == topic and p in self.cluster.states]
        for broker_id in self.cluster.replicas_of(topic):
            self.stop(broker_id, known)

    async def delete_replicas(self, topic: str, replicas: Iterable[int]) -> bool:
        """Has these brokers delete their replicas of the topic. False when a line was closed before the answer."""
        partitions = [
            self._stopped(partition, later=1)
            for partition in self.cluster.all_partitions()
            if partition[0] == topic and partition in self.cluster.states
        ]
        deletion = self._stopping(partitions, delete=True)
        answers = [self._send(replica, deletion) for replica in replicas]
        for answer in answers:
            if answer is None:
                return False
            await asyncio.wait([answer])
            if answer.cancelled():
                return False
        return True

    async def delete_replica(self, partition: PartitionId, brokers: Iterable[int]) -> list[int]:
        """Which of these brokers have deleted theirs; the others' lines were closed before they answered."""
        deletion = self._stopping([self._stopped(partition)], delete=True)
        answers = {broker: self._send(broker, deletion) for broker in brokers}
        deleted = []
        for broker, answer in answers.items():
            if answer is None:
                continue
            await asyncio.wait([answer])
            if not answer.cancelled() and answer.result().partitions[0].error_code == ErrorCode.NONE:
                deleted.append(broker)
        return deleted

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _stopping(
        self, partitions: list[internal.StopReplicaPartition], *, delete: bool
    ) -> Callable[..., internal.StopReplicaRequest]:
        serial = self._next_serial()
        return partial(internal.StopReplicaRequest, delete=delete, partitions=partitions, serial=serial)

    def _stopped(self, partition: PartitionId, later: int = 0) -> internal.StopReplicaPartition:
        """In the present leader epoch, or so many later."""
        (topic, index), epoch = partition, self.cluster.states[partition].value.leader_epoch + later
        czxid = self.cluster.topics[topic].czxid
        return internal.StopReplicaPartition(topic=topic, partition=index, leader_epoch=epoch, topic_czxid=czxid)

    def _send(self, broker_id: int, make: Callable[..., Request[Any]]) -> asyncio.Future[Any] | None:
        """``make`` lacks the fields that all requests to brokers have."""
        if broker_id not in self._channels:
            return None
        channel = self._channels[broker_id][0]
        me, epoch = self.config.broker_id, self.term.epoch
        return channel.send(make(controller_id=me, controller_epoch=epoch, broker_epoch=channel.broker.czxid))
