"""Restart: the process is asked to end (SIGTERM), ends by itself, and is started again.

- ``restart``: the targets are down from the injection to the heal, as for a long maintenance
- ``restart-rolling``: one server after the other is restarted, as in a rolling upgrade. Each waits until the previous
  one serves again. This happens in the background between the injection and the heal.
- ``controlled-shutdown``: a restart of a server that leads a key, unless another target is requested. The server hands
  its leadership over before it ends.

After a clean stop, the next start trusts what the process recorded before it ended. So a clean stop is tested as a
fault of its own. If a process does not end, the fault has failed. The process is killed at the heal, because it could
not be started again otherwise.

Proof: the process was running before, ended by itself, and another incarnation runs afterwards. For
``controlled-shutdown``, the process must also have written a line into its event log before it ended. The line names
the keys that the process still led, each with the reason why its leadership could not move. Evidence: ``led``, the
number of keys that it led when it was asked to end, and ``kept``, the keys that it still led at its end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from assay.cluster.node import Node, NodeError, ProcessState
from assay.cluster.system import SupportsHandover, System
from assay.nemesis.faults.fault import Census, Impact, Injection
from assay.nemesis.faults.process import (
    ServerFault,
    draw_target,
    evidence_of,
    find_unseen,
    get_node_or_process,
    read_status,
)
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import Target, TargetError, TargetKind

READY_POLL_SECONDS = 0.1
READY_WITHIN = 10.0
"""Maximum seconds until a server of a rolling restart serves again."""


class Restart(ServerFault):
    """A clean end at the injection, a new start at the heal."""

    name = "restart"
    description = "the process is ended cleanly (SIGTERM) and started again at the heal"
    impact = Impact(ends_process=True)
    takes_leave = True  # processes end their sessions themselves

    async def strike(self, injection: Injection, node: Node) -> None:
        seen, target = evidence_of(injection, node), get_node_or_process(injection, node)
        seen["before"] = await read_status(target)
        seen["asked"] = True
        await target.terminate()
        seen["ended"] = await read_status(target)

    async def undo(self, injection: Injection, node: Node) -> None:
        seen, target = evidence_of(injection, node), get_node_or_process(injection, node)
        now = await target.process()
        if now.state is not ProcessState.DEAD and "asked" in seen and "ended" not in seen:
            await target.kill()
            now = await target.process()
        if now.state is ProcessState.DEAD:
            await target.start()
        seen["after"] = await read_status(target)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if (missing := find_unseen(seen, "before", "ended", "after")) is not None:
            return missing
        if seen["before"]["state"] != ProcessState.RUNNING:
            return "was not running when it should have been ended"
        if seen["ended"]["state"] != ProcessState.DEAD:
            return "had not ended after it was asked to end"
        if seen["after"]["incarnation"] in (None, seen["before"]["incarnation"]):
            return "no new process ran after the fault"
        return None


class RollingRestart(Restart):
    """Restarts one server after the other."""

    name = "restart-rolling"
    description = "every server is ended cleanly and started again, one after the other"
    impact = Impact(ends_process=True, gradual=True)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return draw_target(rng, census, target if target is not None else Target(TargetKind.ALL))

    async def inject(self, injection: Injection) -> None:
        async def roll() -> None:
            for node in injection.targets:
                await self.strike(injection, node)
                await node.start()
                evidence_of(injection, node)["started"] = await read_status(node)
                await wait_until_serving(injection.context.system, node)

        injection.background = asyncio.get_running_loop().create_task(roll(), name=f"rolling restart {injection.id}")

    async def observe(self, injection: Injection) -> None:
        """Waits until the last server serves, if necessary beyond the time of the heal."""
        if injection.background is not None:
            await asyncio.shield(injection.background)

    async def heal(self, injection: Injection) -> None:
        await injection.end_background()
        await super().heal(injection)


async def wait_until_serving(system: System, node: Node) -> None:
    """Waits until the node serves. Raises ``NodeError`` if it does not within ``READY_WITHIN``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_WITHIN
    raised = ""
    while loop.time() < deadline:
        try:
            async with asyncio.timeout_at(deadline):
                if await system.ready(node):
                    return
        except Exception as error:  # noqa: BLE001 - a starting server may answer in any way: note it, then ask again
            raised = f" (ready() raised {type(error).__name__}: {error})"
        await asyncio.sleep(READY_POLL_SECONDS)
    raise NodeError(
        f"{node.name} did not serve within {READY_WITHIN:g} s of its restart{raised}; the other targets were not "
        "restarted"
    )


class ControlledShutdown(Restart):
    """Ends a leader cleanly; see the module."""

    name = "controlled-shutdown"
    description = "a leader is ended cleanly (SIGTERM), others lead before it ends; started again at the heal"
    capabilities: Sequence[type] = (SupportsHandover,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return draw_target(rng, census, target, (TargetKind.ONE,) if census.lacks_keys else (TargetKind.LEADER,))

    async def inject(self, injection: Injection) -> None:
        system = injection.context.system
        if not isinstance(system, SupportsHandover):
            raise TargetError(
                f"{system.name} does not say what a process led when it ended: define its method handed_over"
            )
        nodes: Mapping[str, Node] = {node.name: node for node in injection.targets}

        def listen(name: str, line: Mapping[str, Any]) -> None:
            handover = system.handed_over(line) if name in nodes else None
            seen = injection.evidence.get(name, {})
            if handover is not None and "asked" in seen and "after" not in seen:
                led, kept = handover
                seen["led"], seen["kept"] = led, dict(kept)

        injection.context.listeners[injection.id] = listen
        await super().inject(injection)

    async def heal(self, injection: Injection) -> None:
        injection.context.listeners.pop(injection.id, None)
        await super().heal(injection)

    def find_missing_proof(self, seen: Mapping[str, Any]) -> str | None:
        if (missing := super().find_missing_proof(seen)) is not None:
            return missing
        if "kept" not in seen:
            return "its event log does not say what it still led when it ended"
        unexplained = sorted(key for key, why in seen["kept"].items() if not why)
        return f"it kept the lead of {', '.join(unexplained)} without a reason" if unexplained else None
