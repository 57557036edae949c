"""Requests from the controller to the brokers: the channels, and the changes that were not sent yet.

A change is remembered until it is sent. If a handler fails between writing a state and sending it, the next handler's
``send`` includes the change. A newly registered broker gets the whole state.
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
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.term import ControllerReplaced, ControllerTerm
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request
from assay.system_under_test.tasks import BackgroundTasks

_log = logging.getLogger("assay.controller")

BACK_OFF = 0.1
"""Seconds between tries after an error."""


class BrokerChannel:
    """The channel to one registration of one broker: sends requests one at a time, in order, until they are answered.

    Every request is idempotent, so it is sent again after a lost connection. ``rejected`` is called if the broker knows
    a newer controller, or has another registration.
    """

    def __init__(self, broker: BrokerIncarnation, request_timeout: float, rejected: Callable[[], None]) -> None:
        self.broker = broker
        self._request_timeout = request_timeout
        self._rejected = rejected
        self._queue: deque[tuple[Request[Any], asyncio.Future[Any]]] = deque()
        self._filled = asyncio.Event()

    def send(self, request: Request[Any]) -> asyncio.Future[Any]:
        """Queues a request, and returns its future answer, which is cancelled if the channel is closed first."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        self._filled.set()
        return future

    async def run(self) -> None:
        """Sends forever; ends only by cancellation."""
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
    """The channels of one term. ``rejected`` is called if a broker rejects the term's requests."""

    config: BrokerConfig
    term: ControllerTerm
    cluster: ClusterState
    background: BackgroundTasks
    rejected: Callable[[], None]
    _channels: dict[int, tuple[BrokerChannel, asyncio.Task[None]]] = field(default_factory=dict, init=False)
    _pending_questions: dict[int, asyncio.Future[Any]] = field(default_factory=dict, init=False)
    """By broker: the future answer to the last ``ask_log_end``."""
    _closed: bool = field(default=False, init=False)
    _brokers_left: bool = field(default=False, init=False)
    """Whether a broker has failed or left since the last ``send``."""
    _newcomers: dict[int, None] = field(default_factory=dict, init=False)
    """Brokers that have not been sent the whole state yet."""
    _changed: dict[PartitionId, None] = field(default_factory=dict, init=False)
    """Partitions whose state was not sent yet."""
    _deleted: dict[str, None] = field(default_factory=dict, init=False)
    """Topics whose deletion was not sent yet."""
    _serial: int = field(default=0, init=False)
    """Number of the last request. Brokers recognise late duplicates by it."""

    def has_channels(self, brokers: Iterable[int]) -> bool:
        """Returns whether there is a channel to each of these brokers."""
        return all(broker in self._channels for broker in brokers)

    def open(self) -> None:
        """Opens channels to the live brokers. Closes channels to former registrations, and drops their requests.

        Raises ``ControllerReplaced`` after ``close``, because a handler may still be running when its term has ended.
        """
        if self._closed:
            raise ControllerReplaced(f"controller epoch {self.term.epoch} ended meanwhile")
        brokers = self.cluster.brokers
        for broker_id, (channel, task) in list(self._channels.items()):
            if brokers.get(broker_id) != channel.broker:
                task.cancel()
                del self._channels[broker_id]
                self._newcomers.pop(broker_id, None)
                self._brokers_left = True
        for broker_id, broker in brokers.items():
            if broker_id not in self._channels:
                channel = BrokerChannel(broker, self.config.request_timeout_ms / 1000, self.rejected)
                task = self.background.spawn(channel.run(), f"controller to {broker_id}")
                self._channels[broker_id] = channel, task
                self._newcomers[broker_id] = None

    def close(self) -> None:
        self._closed = True
        for _, task in self._channels.values():
            task.cancel()
        self._channels = {}

    def mark_changed(self, partition: PartitionId) -> None:
        """Marks a partition whose state must be sent to the brokers."""
        self._changed[partition] = None

    def mark_deleted(self, topic: str) -> None:
        self._deleted[topic] = None

    def send(self) -> None:
        """Sends changes: LeaderAndIsr to the replicas, UpdateMetadata to all brokers. Newcomers get the whole state."""
        changed, self._changed = list(self._changed), {}
        newcomers, self._newcomers = self._newcomers, {}
        deleted, self._deleted = list(self._deleted), {}
        left, self._brokers_left = self._brokers_left, False
        if not (changed or newcomers or deleted or left):
            return
        for broker_id in self._channels:
            full = broker_id in newcomers
            self._send_to(broker_id, self.cluster.all_partitions() if full else changed, deleted, full=full)

    def _send_to(self, broker_id: int, partitions: Sequence[PartitionId], deleted: list[str], *, full: bool) -> None:
        updates = self.cluster.to_updates(partitions)
        live, serial = self.cluster.to_live_brokers(), self._next_serial()
        mine = [update for update in updates if broker_id in update.replicas]
        if mine or full:
            settings = self.cluster.to_settings_updates({update.topic for update in mine})
            roles = partial(internal.LeaderAndIsrRequest, partitions=mine, topics=settings)
            self._send(broker_id, partial(roles, live_brokers=live, serial=serial))
        metadata = partial(internal.UpdateMetadataRequest, full=full, partitions=updates, deleted=deleted)
        self._send(broker_id, partial(metadata, live_brokers=live, serial=serial))

    async def ask_log_end(self, broker_id: int, partition: PartitionId) -> tuple[int, int] | None:
        """Asks a broker for its replica's (last epoch, log end). Returns None if there is no answer.

        A broker that has not answered the previous request is not asked again, because it may be dead. While the
        controller waits for an answer, it handles no other changes, such as that broker's next registration.
        """
        former = self._pending_questions.get(broker_id)
        if former is not None and not former.done():
            return None
        topic, index = partition
        czxid = self.cluster.topics[topic].czxid
        query = internal.LogEndPartition(topic=topic, partition=index, topic_czxid=czxid)
        answer = self._send(broker_id, partial(internal.LogEndRequest, partitions=[query]))
        if answer is None:
            return None
        self._pending_questions[broker_id] = answer
        done, _ = await asyncio.wait([answer], timeout=self.config.request_timeout_ms / 1000)
        if not done or answer.cancelled():
            return None
        end = answer.result().partitions[0]
        return (end.last_epoch, end.end_offset) if end.error_code == ErrorCode.NONE else None

    def stop_replicas(self, broker_id: int, partitions: Sequence[PartitionId]) -> None:
        """Makes a broker stop these replicas for the rest of their leader epoch."""
        stopped = [self._describe_stop(partition) for partition in partitions]
        if stopped:
            self._send(broker_id, self._make_stop_request(stopped, delete=False))

    def stop_topic(self, topic: str) -> None:
        """Makes all brokers stop their replicas of a topic that is about to be forgotten."""
        known = [p for p in self.cluster.all_partitions() if p[0] == topic and p in self.cluster.states]
        for broker_id in self.cluster.list_brokers_with_files(topic):
            self.stop_replicas(broker_id, known)

    async def delete_replicas(self, topic: str, replicas: Iterable[int]) -> bool:
        """Makes these brokers delete their replicas of the topic. Returns whether all have answered."""
        partitions = [
            self._describe_stop(partition, later=1)
            for partition in self.cluster.all_partitions()
            if partition[0] == topic and partition in self.cluster.states
        ]
        deletion = self._make_stop_request(partitions, delete=True)
        answers = [self._send(replica, deletion) for replica in replicas]
        for answer in answers:
            if answer is None:
                return False
            await asyncio.wait([answer])
            if answer.cancelled():
                return False
        return True

    async def announce_deletion(self, topic: str) -> None:
        """Tells all brokers that the topic is deleted. Returns when each of them knows it, or has left.

        Coordinators then delete the offsets that groups have committed in the topic. If a coordinator did so later, it
        might delete offsets of a new topic of that name. A newcomer is left out, because it gets the whole state.
        """
        live, serial = self.cluster.to_live_brokers(), self._next_serial()
        update = partial(internal.UpdateMetadataRequest, full=False, partitions=[], deleted=[topic])
        known = [broker_id for broker_id in self._channels if broker_id not in self._newcomers]
        for answer in [self._send(broker_id, partial(update, live_brokers=live, serial=serial)) for broker_id in known]:
            if answer is not None:
                await asyncio.wait([answer])

    async def delete_replica(self, partition: PartitionId, brokers: Iterable[int]) -> list[int]:
        """Makes these brokers delete their replica of a partition; returns the brokers that have confirmed it."""
        deletion = self._make_stop_request([self._describe_stop(partition)], delete=True)
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

    def _make_stop_request(
        self, partitions: list[internal.StopReplicaPartition], *, delete: bool
    ) -> Callable[..., internal.StopReplicaRequest]:
        serial = self._next_serial()
        return partial(internal.StopReplicaRequest, delete=delete, partitions=partitions, serial=serial)

    def _describe_stop(self, partition: PartitionId, later: int = 0) -> internal.StopReplicaPartition:
        """Describes a replica to stop, under the current leader epoch plus ``later``."""
        (topic, index), epoch = partition, self.cluster.states[partition].value.leader_epoch + later
        czxid = self.cluster.topics[topic].czxid
        return internal.StopReplicaPartition(topic=topic, partition=index, leader_epoch=epoch, topic_czxid=czxid)

    def _send(self, broker_id: int, make: Callable[..., Request[Any]]) -> asyncio.Future[Any] | None:
        """Sends a request. ``make`` makes it from the sender and epochs. Returns None if there is no channel."""
        if broker_id not in self._channels:
            return None
        channel = self._channels[broker_id][0]
        me, epoch = self.config.broker_id, self.term.epoch
        return channel.send(make(controller_id=me, controller_epoch=epoch, broker_epoch=channel.broker.czxid))
