"""Outage: all servers go down one after the other, and come back one after the other, each in a random order.

Only the server that dies last is sure to have everything. The first to come back may be another one, which may be
stopped once more before the others are there. Any of them may stop as soon as it is registered. Who may go on depends
on what each server recorded about its end, and what others recorded about it. The rules of the last replica standing
(KIP-966) cover exactly this.

- ``outage``: some are ended cleanly, the others killed; or all but one hang, and are killed
- ``outage-power-loss``: the server in the parameter ``last`` goes last, and loses its power

If a server that is asked to end takes too long, the fault has failed, and the server is killed at the heal.

Proof: that of the kill, for each.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Final, cast

from assay.cluster.node import Node, NodeError, ProcessState, SupportsPowerLoss
from assay.cluster.system import SupportsHold, System
from assay.nemesis.faults.fault import Census, Impact, Injection, on_each
from assay.nemesis.faults.kill import Kill, PowerLoss
from assay.nemesis.faults.process import draw_target, evidence_of, read_status, resume_stopped
from assay.nemesis.faults.restart import wait_until_serving
from assay.nemesis.schedule.schedule import Parameter
from assay.nemesis.schedule.target import Target, TargetKind

PAUSES = (0.05, 0.4, 0.9)
"""Seconds between two servers that go down, or come back."""
CLEAN_ENDS = (0, 1, 1, 2)
"""How many of the first servers are ended cleanly, so that the others go on without them for a while.

The rest is killed. If none is ended cleanly, all go down within an instant.
"""
HANG_PROBABILITY = 0.3
"""Probability that all but the last are stopped first, so that the last goes on alone before others notice."""
HANG_SECONDS = (1.5, 3.0)
"""Seconds that they are stopped."""
SHUFFLE_PROBABILITY = 0.4
"""Probability that they do not come back in reverse order, the last one first."""
RESTOP_PROBABILITY = 0.6
"""Probability that the first to come back is stopped cleanly once more."""
ALONE_SECONDS = (0.3, 1.5)
"""Seconds that it then runs alone."""
SERVE_SECONDS: Final = 4.0
"""Seconds for it to serve. A member of a quorum never serves alone, and the others must not wait."""
FALTER_PROBABILITY: Final = 0.7
"""Probability that one of them pauses as soon as it is back, if the first was not stopped again. The others count on
it, and it does not answer."""
FALTER_SECONDS: Final = (1.0, 3.5)
"""Seconds of that pause: from less than a request timeout to more than a session."""
FALTER_WAIT_SECONDS: Final = 3.0
"""Seconds for it to reach the pause."""
LOOK_EVERY: Final = 0.1


class Outage(Kill):
    """Takes all servers down and brings them back; see the module."""

    name = "outage"
    description = "all servers go down, killed or ended cleanly, and come back, one after the other in any order"
    impact = Impact(ends_process=True, pauses_process=True, gradual=True)
    takes_leave = True
    excluded_from_all = True

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        return draw_target(rng, census, target if target is not None else Target(TargetKind.ALL))

    async def inject(self, injection: Injection) -> None:
        rng, order = random.Random(injection.seed), self._shuffle_targets(injection)
        cleanly = order[: min(rng.choice(CLEAN_ENDS), len(order) - 1)]
        for node in order:
            injection.evidence[node.name] = {"before": await read_status(node)}
        if rng.random() < HANG_PROBABILITY:
            cleanly = []
            await on_each(order[:-1], lambda node: node.stop())
            await asyncio.sleep(rng.uniform(*HANG_SECONDS))

        async def take_down(node: Node) -> None:
            if node in cleanly:
                await _terminate(injection, node)
            elif node is order[-1]:
                await self.end(injection, node)
            else:
                await node.kill()
            injection.evidence[node.name]["killed"] = await read_status(node)
            if node is not order[-1]:
                await asyncio.sleep(rng.choice(PAUSES) if cleanly else PAUSES[0])

        await on_each(order, take_down)

    async def _await_serving(self, injection: Injection, node: Node) -> None:
        """Waits until it serves, but not too long, because it may not be able to serve alone."""
        with contextlib.suppress(NodeError, TimeoutError):
            async with asyncio.timeout(SERVE_SECONDS):
                await wait_until_serving(injection.context.system, node)

    def _shuffle_targets(self, injection: Injection) -> Sequence[Node]:
        """Returns the order in which they go down, equal at each call."""
        return random.Random(injection.seed).sample(injection.targets, len(injection.targets))

    async def heal(self, injection: Injection) -> None:
        rng, order = random.Random(injection.seed + 1), list(self._shuffle_targets(injection))[::-1]
        if rng.random() < SHUFFLE_PROBABILITY:
            rng.shuffle(order)
        again = rng.random() < RESTOP_PROBABILITY
        system = injection.context.system
        await on_each(order, lambda node: _resume(node, system))
        await on_each(order, lambda node: _kill_if_asked(injection, node))
        first = order[0]
        faltering = None if again or rng.random() >= FALTER_PROBABILITY else rng.choice(order)
        if again and (await first.process()).state is ProcessState.DEAD:
            await first.start()
            await self._await_serving(injection, first)
            await _terminate(injection, first)
            await first.start()
            await self._await_serving(injection, first)
            await asyncio.sleep(rng.uniform(*ALONE_SECONDS))

        async def start(node: Node) -> None:
            if (await node.process()).state is ProcessState.DEAD:
                if node is faltering and isinstance(system, SupportsHold):
                    await node.write_file(system.hold_file(node), f"{system.start_events[0]}\n".encode())
                await node.start()
            injection.evidence.setdefault(node.name, {})["after"] = await read_status(node)
            await asyncio.sleep(rng.choice(PAUSES))

        await on_each(order, start)
        if faltering is not None and isinstance(system, SupportsHold):
            await _falter(faltering, rng.uniform(*FALTER_SECONDS))
            await _resume(faltering, system)


async def _terminate(injection: Injection, node: Node) -> None:
    """Ends a process cleanly.

    Raises ``NodeError`` if it takes too long: the injection, or the heal, has failed then.
    """
    seen = evidence_of(injection, node)
    seen["asked"] = True
    await node.terminate()
    del seen["asked"]


async def _kill_if_asked(injection: Injection, node: Node) -> None:
    """Kills a process that was asked to end and has not ended, because it would end after the heal and stay away."""
    if evidence_of(injection, node).pop("asked", False) and (await node.process()).state is not ProcessState.DEAD:
        await node.kill()
        evidence_of(injection, node)["too_slow"] = True


async def _falter(node: Node, seconds: float) -> None:
    """Waits until the node has been paused for ``seconds``, or has not paused itself in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FALTER_WAIT_SECONDS
    while (await node.process()).state is not ProcessState.STOPPED:
        if loop.time() >= deadline:
            return
        await asyncio.sleep(LOOK_EVERY)
    await asyncio.sleep(seconds)


async def _resume(node: Node, system: System) -> None:
    """Withdraws the order and continues the node, even after an injection, or a heal, that failed midway."""
    if isinstance(system, SupportsHold):
        await node.write_file(system.hold_file(node), b"")
    await resume_stopped(node)


class OutagePowerLoss(Outage):
    """Takes all servers down, one by a power loss; see the module."""

    name = "outage-power-loss"
    description = "all servers go down and come back one after the other, and one of them, the last, loses its power"
    impact = Impact(ends_process=True, pauses_process=True, gradual=True, loses_unsynced=True)
    abilities = PowerLoss.abilities

    def _shuffle_targets(self, injection: Injection) -> Sequence[Node]:
        """Puts the server that loses its power last."""
        last = injection.step.parameters.get("last", injection.names[-1])
        return sorted(super()._shuffle_targets(injection), key=lambda node: node.name == last)

    async def end(self, injection: Injection, node: Node) -> None:
        lost = dict(await cast(SupportsPowerLoss, node).cut_power())
        injection.evidence[node.name]["lost_bytes"] = sum(lost.values())
