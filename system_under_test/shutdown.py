"""Controlled shutdown: hands over leadership before the sockets close, so that clients need not wait for an election.

1. The broker waits until every in-sync set is large enough without it, if a live replica may still join. In a rolling
   restart, that replica is on the broker that was restarted before.
2. It asks the controller repeatedly to move leadership to others, until it leads nothing that another could lead.

After ``controlled_shutdown_max_ms`` in total, the broker stops anyway.
"""

import asyncio
import logging
from dataclasses import dataclass

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.events import EventLog
from assay.system_under_test.network.connection import CallError, ask
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import ShutdownRequest
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition

_log = logging.getLogger("assay.broker")

CHECK_INTERVAL = 0.02
"""Seconds between two checks of whether a condition holds."""
BACK_OFF = 0.2
"""Seconds before the controller is asked again."""
VERSION = 0
"""Version of the request to the controller."""


@dataclass
class BrokerShutdown:
    """The controlled shutdown of one broker."""

    config: BrokerConfig
    cache: MetadataCache
    manager: ReplicaManager
    events: EventLog

    async def hand_over(self) -> None:
        """Hands over leadership, until this broker leads nothing that another could lead, or the time is over."""
        seconds, now = self.config.controlled_shutdown_max_ms / 1000, asyncio.get_running_loop().time()
        if not seconds:
            return
        led = len(self._find_led())
        self.events.emit("shutdown-began", value=led)
        try:
            async with asyncio.timeout_at(now + seconds):
                await self._await_dispensable(now + seconds / 2)
                await self._move_leadership()
        except TimeoutError:
            _log.warning("stopping without a successor as leader of %s", ", ".join(self._find_led()) or "nothing")
        kept = self._find_led()
        self.events.emit("shutdown-handed-over", value=len(kept), detail={"led": led, "kept": kept})

    def report_early_stop(self) -> None:
        """Emits the event for a broker that is stopped while it starts, and so leads nothing yet."""
        self.events.emit("shutdown-handed-over", value=0, detail={"led": 0, "kept": {}})

    def _find_led(self) -> dict[str, str]:
        """Returns the led partitions that have other replicas, with the reason why this broker still leads each."""
        found = self.manager.replicas.all()
        led = [replica for replica in found if replica.leader is not None and replica.leader.positions]
        return {replica.key: self._explain_kept(replica) for replica in led}

    def _explain_kept(self, replica: Partition) -> str:
        others = self._find_other_brokers() & {*replica.leader.positions} if replica.leader is not None else set()
        state = self.cache.find_state(replica.topic, replica.index)
        if not others:
            return "no other replica lives"
        if state is not None and not others & {*state.isr}:
            return "no other live replica is in sync"
        return "no controller moved it in time"

    def _find_other_brokers(self) -> set[int]:
        return {broker.broker_id for broker in self.cache.list_brokers()} - {self.config.broker_id}

    async def _await_dispensable(self, deadline: float) -> None:
        """Waits while an in-sync set would be too small without this broker; until the deadline at most."""
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() >= deadline or not self._is_needed():
                return
            await asyncio.sleep(CHECK_INTERVAL)

    def _is_needed(self) -> bool:
        me = self.config.broker_id
        live = {broker.broker_id for broker in self.cache.list_brokers()}
        for replica in self.manager.replicas.all():
            state = self.cache.find_state(replica.topic, replica.index)
            if state is None or me not in state.isr:
                continue
            others = [member for member in state.isr if member != me]
            rejoining = [one for one in state.replicas if one in live and one not in state.isr]
            if rejoining and len(others) < replica.config.min_insync_replicas:
                return True
        return False

    async def _move_leadership(self) -> None:
        """Asks the controller repeatedly, until this broker leads nothing that another live broker could lead."""
        loop = asyncio.get_running_loop()
        while True:
            deadline = loop.time() + (
                self.config.request_timeout_ms / 1000 if await self._ask_controller() else BACK_OFF
            )
            while loop.time() < deadline:
                if not self._leads_transferable():
                    return
                await asyncio.sleep(CHECK_INTERVAL)

    async def _ask_controller(self) -> bool:
        """Asks the controller, and returns whether it has moved all leadership that it can."""
        timeout = self.config.request_timeout_ms / 1000
        controller, broker_epoch = self.cache.find_controller(), self.manager.broker_epoch
        if controller is None or broker_epoch < 0:
            return False
        request = ShutdownRequest(broker_id=self.config.broker_id, broker_epoch=broker_epoch)
        try:
            answer = await ask(controller.host, controller.port, request, VERSION, timeout)
        except CallError as error:
            _log.info("asking controller %d to move leadership away: %s", controller.broker_id, error)
            return False
        return bool(answer.error_code == ErrorCode.NONE and not answer.partitions_remaining)

    def _leads_transferable(self) -> bool:
        """Returns whether this broker leads a partition that another live broker could lead."""
        return any(
            self._find_other_brokers() & replica.leader.positions.keys()
            for replica in self.manager.replicas.all()
            if replica.leader is not None
        )
