"""How a broker leaves its cluster: others lead what it led before it closes its sockets, so that no client waits for
the end of its session.

It waits first until every in-sync set is large enough without it, where a live replica may still join: in a rolling
restart, the broker that was restarted before. Then it asks the controller to move its leads away, again and again,
until its own terms have ended. All of that has ``controlled_shutdown_max_ms``; then it stops all the same.
"""

import asyncio
import logging
from dataclasses import dataclass

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.events import EventLog
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import ShutdownRequest
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.partition import Partition

_log = logging.getLogger("assay.broker")

LOOK = 0.02
"""Seconds between two looks at what has to come by itself."""
BACK_OFF = 0.2
"""Seconds before the controller is asked again."""
VERSION = 0


@dataclass
class Departure:
    """See the module."""

    config: BrokerConfig
    cache: MetadataCache
    manager: ReplicaManager
    events: EventLog

    async def hand_over(self) -> None:
        """Returns when this broker leads nothing that another could lead, or its time is over."""
        seconds, now = self.config.controlled_shutdown_max_ms / 1000, asyncio.get_running_loop().time()
        if not seconds:
            return
        led = len(self._led())
        self.events.emit("shutdown-began", value=led)
        try:
            async with asyncio.timeout_at(now + seconds):
                await self._until_dispensable(now + seconds / 2)
                await self._move_leads()
        except TimeoutError:
            _log.warning("stopping without a successor as leader of %s", ", ".join(self._led()) or "nothing")
        kept = self._led()
        self.events.emit("shutdown-handed-over", value=len(kept), detail={"led": led, "kept": kept})

    def leave_early(self) -> None:
        """Of a broker that is asked to end while it starts: it leads nothing yet, and says so."""
        self.events.emit("shutdown-handed-over", value=0, detail={"led": 0, "kept": {}})

    def _led(self) -> dict[str, str]:
        """What this broker leads and others might, and why they do not."""
        found = self.manager.replicas.all()
        led = [replica for replica in found if replica.leader is not None and replica.leader.positions]
        return {replica.key: self._why(replica) for replica in led}

    def _why(self, replica: Partition) -> str:
        others = self._live() & {*replica.leader.positions} if replica.leader is not None else set()
        state = self.cache.state(replica.topic, replica.index)
        if not others:
            return "no other replica lives"
        if state is not None and not others & {*state.isr}:
            return "no other live replica is in sync"
        return "no controller moved it in time"

    def _live(self) -> set[int]:
        return {broker.broker_id for broker in self.cache.brokers()} - {self.config.broker_id}

    async def _until_dispensable(self, deadline: float) -> None:
        """Or until the deadline: with too few in sync no send is acknowledged."""
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() >= deadline or not self._is_needed():
                return
            await asyncio.sleep(LOOK)

    def _is_needed(self) -> bool:
        me = self.config.broker_id
        live = {broker.broker_id for broker in self.cache.brokers()}
        for replica in self.manager.replicas.all():
            state = self.cache.state(replica.topic, replica.index)
            if state is None or me not in state.isr:
                continue
            others = [member for member in state.isr if member != me]
            to_come = [one for one in state.replicas if one in live and one not in state.isr]
            if to_come and len(others) < replica.config.min_insync_replicas:
                return True
        return False

    async def _move_leads(self) -> None:
        """Asks again and again, until the controller has done it and this broker's terms have ended: then clients that
        ask it are sent on.
        """
        loop = asyncio.get_running_loop()
        while True:
            deadline = loop.time() + (self.config.request_timeout_ms / 1000 if await self._ask() else BACK_OFF)
            while loop.time() < deadline:
                if not self._leads():
                    return
                await asyncio.sleep(LOOK)

    async def _ask(self) -> bool:
        """Has the controller moved all leads that it can move?"""
        patience = self.config.request_timeout_ms / 1000
        controller, life = self.cache.controller(), self.manager.broker_epoch
        if controller is None or life < 0:
            return False
        request = ShutdownRequest(broker_id=self.config.broker_id, broker_epoch=life)
        try:
            connection = await Connection.open(controller.host, controller.port, patience)
            try:
                answer = await connection.call(request, VERSION, patience)
            finally:
                await connection.close()
        except CallError as error:
            _log.info("asking broker %d to move leads away: %s", controller.broker_id, error)
            return False
        return bool(answer.error_code == ErrorCode.NONE and not answer.partitions_remaining)

    def _leads(self) -> bool:
        """What a live broker could lead?"""
        return any(
            self._live() & replica.leader.positions.keys()
            for replica in self.manager.replicas.all()
            if replica.leader is not None
        )
