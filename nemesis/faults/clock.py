"""Clock faults: a wall clock is wrong by a constant (a bump), or alternates between wrong and right (a strobe).

Parameters:

- ``seconds``: how far the clock is ahead; negative if it is behind
- ``strobe``: the seconds between two changes; 0 for a bump

The monotonic clock stays right: timeouts and leases that use it must not be affected.

Proof: the clock was read and was wrong by ``seconds``. On a real node the system's process must have read it. A process
that another fault keeps from running cannot read its clock. Then the clock stays wrong for up to three seconds longer
(``lingers``), until the process has read it.
"""

import asyncio
import random
from typing import cast

from assay.cluster.node import Cluster, Node, NodeError, SupportsClockShift
from assay.cluster.system import System
from assay.nemesis.faults.abilities import CLOCK_SHIFT
from assay.nemesis.faults.fault import LINGER_SECONDS, Census, Impact, Injection, Proof, Scope
from assay.nemesis.faults.process import ServerFault
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import TargetError

MAX_SHIFT = 290.0
"""Seconds."""
STROBES = (0.0, 0.05, 0.5)
"""Seconds between two changes of the clock; 0 for a bump."""


class Clock(ServerFault):
    """A wrong wall clock, corrected at the heal."""

    name = "clock"
    description = "the wall clock jumps ahead or back (or back and forth, strobe), and is set right at the heal"
    abilities = (CLOCK_SHIFT,)
    scope = Scope.CLOCK
    impact = Impact(wrong_clock=True)
    lingers = LINGER_SECONDS  # maximum seconds beyond the duration while it has no effect yet

    def parameters(self, rng: random.Random, census: Census) -> dict[str, Parameter]:
        seconds = round(rng.choice((-1, 1)) * MAX_SHIFT ** rng.random(), 3)
        return {"seconds": seconds, "strobe": rng.choice(STROBES)}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if (reason := await super().probe(cluster, system)) is not None:
            return reason
        try:
            for node in self.find_candidates(cluster, system):
                await cast(SupportsClockShift, node).clock_shift()
        except NodeError as error:
            return str(error)
        return None

    async def inject(self, injection: Injection) -> None:
        seconds, strobe = _read_parameter(injection, "seconds"), _read_parameter(injection, "strobe")
        if not seconds:
            raise TargetError(
                "clock: the parameter seconds is missing or 0: give the number of seconds by which the clock is wrong"
            )
        await super().inject(injection)
        if strobe > 0:
            injection.background = asyncio.get_running_loop().create_task(_run_strobe(injection, seconds, strobe))

    async def strike(self, injection: Injection, node: Node) -> None:
        await cast(SupportsClockShift, node).shift_clock(_read_parameter(injection, "seconds"))
        injection.evidence[node.name] = {"changes": 1}
        await self.observe_node(injection, node)

    async def observe_node(self, injection: Injection, node: Node) -> None:
        """Reads the clock, unless the evidence already shows that it was wrong by the step's seconds."""
        seen, seconds = injection.evidence[node.name], _read_parameter(injection, "seconds")
        if seen.get("shift") != seconds:
            seen["shift"] = await cast(SupportsClockShift, node).clock_shift()

    async def observe(self, injection: Injection) -> None:
        for node in injection.targets:
            await self.observe_node(injection, node)

    async def heal(self, injection: Injection) -> None:
        await injection.end_background()
        await super().heal(injection)

    async def undo(self, injection: Injection, node: Node) -> None:
        if isinstance(node, SupportsClockShift):
            await node.shift_clock(0.0)

    def proof(self, injection: Injection) -> Proof:
        seconds = injection.step.parameters.get("seconds")
        unaffected = [name for name in injection.names if injection.evidence.get(name, {}).get("shift") != seconds]
        names = ", ".join(unaffected)
        reason = f"no process of {names} read its clock while that was wrong by {seconds} s" if unaffected else None
        return Proof(not unaffected, injection.evidence, reason)


async def _run_strobe(injection: Injection, seconds: float, period: float) -> None:
    wrong = True
    while True:
        await asyncio.sleep(period)
        wrong = not wrong
        for node in injection.targets:
            await cast(SupportsClockShift, node).shift_clock(seconds if wrong else 0.0)
            injection.evidence[node.name]["changes"] += 1


def _read_parameter(injection: Injection, name: str) -> float:
    value = injection.step.parameters.get(name, 0.0)
    if isinstance(value, str) or abs(value) > MAX_SHIFT:
        raise TargetError(
            f"clock: the parameter {name} is {value!r}; it must be a number of seconds of at most {MAX_SHIFT:g}"
        )
    return float(value)
