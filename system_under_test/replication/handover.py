"""A replica whose log has lost something that it had made durable gives up what it is trusted with.

It leads no more, at once, and asks the controller to take it out of the in-sync set, and out of those eligible for
having everything, until it is given a role in which no one counts on it. Only then its log is discarded, and copied
again from the leader (``following``). If there is no one else, no one leads, and its bytes are kept.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import DamagedReplica, DamagedReplicasRequest, LiveBroker
from assay.system_under_test.replication.follower import BACK_OFF
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.tasks import Background

_log = logging.getLogger("assay.replication")

AGAIN = 1.0
"""Seconds for a role to come from a controller that has done what it was asked for, before it is asked again."""


@dataclass(eq=False)
class Handover:
    """See the module. ``controller`` is where the active controller is reached, ``broker_epoch`` this broker's
    registration.
    """

    config: BrokerConfig
    background: Background
    controller: Callable[[], LiveBroker | None]
    broker_epoch: Callable[[], int]
    _under_way: dict[Partition, None] = field(default_factory=dict, init=False)
    """Not by name: a replica of a later topic of that name has a log of its own."""

    def begin(self, partition: Partition) -> None:
        """Unless its log is whole, or no one counts on it; may be called again and again."""
        if partition.log.damage is not None and partition.counts and partition not in self._under_way:
            self._under_way[partition] = None
            self.background.spawn(self._run(partition), f"handing over {partition.key}")

    async def _run(self, partition: Partition) -> None:
        try:
            while partition.log.damage is not None and partition.counts and not partition.log.closed:
                if partition.leader is not None:
                    partition.go_offline()
                epoch, again = partition.leader_epoch, AGAIN if await self._report(partition) else 0.0
                while again > 0 and partition.leader_epoch == epoch:
                    await asyncio.sleep(BACK_OFF)
                    again -= BACK_OFF
                await asyncio.sleep(BACK_OFF)
        finally:
            del self._under_way[partition]

    async def _report(self, partition: Partition) -> bool:
        """Has the controller heard of it?"""
        controller = self.controller()
        if controller is None:
            return False
        named = DamagedReplica(
            topic=partition.topic,
            topic_czxid=partition.incarnation,
            partition=partition.index,
            leader_epoch=partition.leader_epoch,
        )
        request = DamagedReplicasRequest(
            broker_id=self.config.broker_id, broker_epoch=self.broker_epoch(), partitions=[named]
        )
        patience = self.config.request_timeout_ms / 1000
        try:
            connection = await Connection.open(controller.host, controller.port, patience)
            try:
                answer = await connection.call(request, 0, patience)
            finally:
                await connection.close()
        except CallError as error:
            _log.info("%s is damaged; reporting that to broker %d: %s", partition.key, controller.broker_id, error)
            return False
        return answer.error_code == ErrorCode.NONE
