"""ZooKeeper sessions that expire: a node is cut from every ZooKeeper node for longer than its sessions last.

A pause of the process would expire the session, too, but a paused process cannot act on an expired session. A node that
is cut off runs on, and considers its session valid until its own timeout. Meanwhile ZooKeeper removes all its ephemeral
znodes.

The cut lasts until ZooKeeper has ended the session, if necessary beyond the planned heal. Other faults do not wait for
the end of the cut, and may keep ZooKeeper from answering. Proof, in addition to the counters of dropped packets:
ZooKeeper listed sessions of the node before, and lists none of them at the heal.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from assay.cluster import zookeeper
from assay.cluster.system import ZOOKEEPER_ROLE
from assay.nemesis.faults.fault import Census, Injection, Proof, Scope, complete_target
from assay.nemesis.faults.partition import PartitionFault
from assay.nemesis.schedule.schedule import Parameter, PartitionShape, ScheduleError
from assay.nemesis.schedule.target import CLIENT_KINDS, Target, TargetError, TargetKind, list_zookeepers

EXPIRY_SECONDS: Final = 15.0
"""Maximum seconds to wait, after the planned heal, until sessions have ended. ZooKeeper grants 10 s at most here."""
POLL_SECONDS: Final = 0.25
"""Seconds between two questions to ZooKeeper."""
SESSION_SECONDS: Final = 5.0
"""Seconds to wait until each target has a session. After an earlier fault, a server soon gets a new one."""


class ZooKeeperExpire(PartitionFault):
    """Cuts a node from every ZooKeeper node until its sessions are gone."""

    name = "zookeeper-expire"
    description = "one server, or consumer, cut from ZooKeeper until its session has expired"
    variants = (PartitionShape.FROM_ZOOKEEPER,)
    roles = (ZOOKEEPER_ROLE,)
    scope = Scope.NODE
    """No other fault may hit the node: the session of a dead or paused process would expire for that reason."""
    lingers = EXPIRY_SECONDS  # maximum seconds beyond the duration while it has no effect yet

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        if not census.zookeepers:
            raise ScheduleError(f"{self.name} needs a ZooKeeper node, and this cluster has none: choose another fault")
        if target is not None and target.kind in (TargetKind.ZOOKEEPER, TargetKind.ZOOKEEPERS):
            raise ScheduleError(
                f"{self.name} expires sessions of servers and consumers, so its target cannot be {target}: name one "
                "of these"
            )
        if not census.servers and (target is None or target.kind not in CLIENT_KINDS):
            raise ScheduleError(f"{self.name} needs a server, and the cluster has none: set --nodes=3")
        return complete_target(target if target is not None else Target(TargetKind.ONE), rng, census), {}

    async def inject(self, injection: Injection) -> None:
        """Waits until each target holds a session, and cuts the links. Raises ``TargetError`` if a target gets none."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SESSION_SECONDS
        while without := [name for name, own in (await self._read_own_sessions(injection)).items() if not own]:
            if loop.time() > deadline:
                whom = ", ".join(without)
                raise TargetError(
                    f"{injection.step.fault}: {whom} had no ZooKeeper session within {SESSION_SECONDS:g} s: let it "
                    "strike later, or name another target"
                )
            await asyncio.sleep(POLL_SECONDS)
        await super().inject(injection)

    async def _read_own_sessions(self, injection: Injection) -> Mapping[str, dict[str, float]]:
        """Returns the living sessions of each target, with their timeouts in seconds, and stores them as evidence."""
        zookeepers = list_zookeepers(injection.context.cluster)
        connected = await zookeeper.read_connected_sessions(zookeepers)
        alive = await zookeeper.read_sessions(zookeepers) or set()
        listed = {session: known for session, known in connected.items() if session in alive}
        own_sessions = {node.name: _select_sessions(node.address, listed) for node in injection.targets}
        injection.evidence["sessions"] = own_sessions
        return own_sessions

    async def observe(self, injection: Injection) -> None:
        await self._record_alive(injection)
        await super().observe(injection)

    async def heal(self, injection: Injection) -> None:
        """Waits until the sessions have ended, even after the end of the run, and heals."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EXPIRY_SECONDS
        while injection.evidence.get("alive") and loop.time() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            await self._record_alive(injection)
        await super().heal(injection)

    async def _record_alive(self, injection: Injection) -> None:
        """Records which sessions are alive. It never fails, so that the links are restored in any case."""
        wanted = {int(session, 16) for own in injection.evidence["sessions"].values() for session in own}
        alive = await zookeeper.read_sessions(list_zookeepers(injection.context.cluster))
        injection.evidence["alive"] = None if alive is None else sorted(f"{session:#x}" for session in wanted & alive)

    def proof(self, injection: Injection) -> Proof:
        cut = super().proof(injection)
        seen: dict[str, Any] = {name: injection.evidence.get(name) for name in ("sessions", "alive")}
        evidence = {**cut.evidence, **seen}
        if not cut.took_effect:
            return Proof(False, evidence, cut.reason)
        if seen["alive"] is None:
            return Proof(False, evidence, "ZooKeeper did not say which sessions there were")
        if seen["alive"]:
            return Proof(False, evidence, f"ZooKeeper still had {', '.join(seen['alive'])} at the heal")
        return Proof(True, evidence)


def _select_sessions(address: str, held: Mapping[int, tuple[str, float]]) -> dict[str, float]:
    """Returns the sessions of clients at this address, with their timeouts in seconds."""
    return {f"{session:#x}": timeout for session, (client, timeout) in sorted(held.items()) if client == address}
