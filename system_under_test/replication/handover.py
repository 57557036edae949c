"""Handover by a replica whose log has lost durable records: it gives up leadership and its place in the in-sync set.

1. The replica stops leading at once.
2. It asks the controller to remove it from the in-sync set and the eligible leader replicas. It repeats the request
   until it has a role in which no other broker relies on it.
3. Only then its log is discarded and copied again from the leader (``follower``).

If no other replica can lead, the partition has no leader, and the damaged log is kept.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import DamagedReplica, DamagedReplicasRequest, LiveBroker
from assay.system_under_test.replication.follower import BACK_OFF
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.tasks import BackgroundTasks

_log = logging.getLogger("assay.replication")

REPORT_INTERVAL = 1.0
"""Seconds before an accepted report is sent again, unless a new role arrives."""


@dataclass(eq=False)
class Handover:
    """The handovers of one broker.

    ``controller`` returns the active controller, ``broker_epoch`` this broker's registration.
    """

    config: BrokerConfig
    background: BackgroundTasks
    controller: Callable[[], LiveBroker | None]
    broker_epoch: Callable[[], int]
    _in_progress: dict[Partition, None] = field(default_factory=dict, init=False)
    """The replicas whose handover is in progress. The keys are objects, not names, because a later topic of the same
    name has new objects."""

    def begin_if_damaged(self, partition: Partition) -> None:
        """Starts a handover if the log is damaged and other brokers rely on it, unless one is in progress."""
        if partition.log.damage is not None and partition.is_relied_on and partition not in self._in_progress:
            self._in_progress[partition] = None
            self.background.spawn(self._run(partition), f"handing over {partition.key}")

    async def _run(self, partition: Partition) -> None:
        try:
            while partition.log.damage is not None and partition.is_relied_on and not partition.log.closed:
                if partition.leader is not None:
                    partition.go_offline()
                epoch, remaining = partition.leader_epoch, REPORT_INTERVAL if await self._report(partition) else 0.0
                while remaining > 0 and partition.leader_epoch == epoch:
                    await asyncio.sleep(BACK_OFF)
                    remaining -= BACK_OFF
                await asyncio.sleep(BACK_OFF)
        finally:
            del self._in_progress[partition]

    async def _report(self, partition: Partition) -> bool:
        """Reports the damage, and returns whether the controller accepted the report."""
        controller = self.controller()
        if controller is None:
            return False
        damaged = DamagedReplica(
            topic=partition.topic,
            topic_czxid=partition.incarnation,
            partition=partition.index,
            leader_epoch=partition.leader_epoch,
        )
        request = DamagedReplicasRequest(
            broker_id=self.config.broker_id, broker_epoch=self.broker_epoch(), partitions=[damaged]
        )
        timeout = self.config.request_timeout_ms / 1000
        try:
            answer = await ask(controller.host, controller.port, request, 0, timeout)
        except CallError as error:
            _log.info("%s is damaged; reporting that to broker %d: %s", partition.key, controller.broker_id, error)
            return False
        return answer.error_code == ErrorCode.NONE
