"""Controlled shutdown: a server is asked to end (SIGTERM), and hands its leadership over before it ends.

It is a ``restart`` of a server that leads a key, unless another target is requested. Proof: that of the restart, and a
line of the process's own event log, written before it ended. The line names the keys that it still led, each with the
reason why its leadership could not move. Evidence: ``led`` when it was asked to end, and ``kept`` of those.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from assay.cluster.node import Node
from assay.cluster.system import SupportsHandover
from assay.nemesis.faults.fault import Census, Injection
from assay.nemesis.faults.process import draw_target
from assay.nemesis.faults.restart import Restart
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import Target, TargetError, TargetKind


class ControlledShutdown(Restart):
    """Ends a leader cleanly; see the module."""

    name = "controlled-shutdown"
    description = "a leader is ended cleanly (SIGTERM), others lead before it ends; started again at the heal"
    capabilities: Sequence[type] = (SupportsHandover,)

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return draw_target(rng, census, target, (TargetKind.ONE,) if census.keys == () else (TargetKind.LEADER,))

    async def inject(self, injection: Injection) -> None:
        system = injection.context.system
        if not isinstance(system, SupportsHandover):
            raise TargetError(f"{system.name} does not say what a process led when it ended (handed_over)")
        nodes: Mapping[str, Node] = {node.name: node for node in injection.targets}

        def listen(name: str, line: Mapping[str, Any]) -> None:
            found = system.handed_over(line) if name in nodes else None
            seen = injection.evidence.get(name, {})
            if found is not None and "asked" in seen and "after" not in seen:
                seen["led"], seen["kept"] = found[0], dict(found[1])

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
