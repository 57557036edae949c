"""Rolling outage: all servers go down one after the other, and come back one after the other, both in random order.

Only the server that dies last is sure to have everything. The first server that comes back may be another one, and it
may be stopped once more before the others are back. Any server may pause as soon as it is registered. The election of a
leader then depends on what each server recorded about its end, and on what others recorded about it. The rules of the
last replica standing (KIP-966) are made for this case.

- ``outage``: some servers are ended cleanly and the others killed; or all but one are paused first, and then all are
  killed
- ``outage-power-loss``: the server in the parameter ``last`` goes down last, and loses its power

If a server that is asked to end takes too long, the fault has failed, and the server is killed at the heal.

Proof: that of ``kill``, for each server.
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
"""Numbers of servers that are ended cleanly, before the rest is killed. The rest goes on without them for a while.

With 0, all servers go down within an instant.
"""
HANG_PROBABILITY = 0.3
"""Probability that all servers but the last are paused first, so that the last one goes on alone."""
HANG_SECONDS = (1.5, 3.0)
"""Range of the seconds that they are paused."""
SHUFFLE_PROBABILITY = 0.4
"""Probability that the servers come back in random order. Otherwise they come back in reverse order, the last first."""
RESTOP_PROBABILITY = 0.6
"""Probability that the first server that comes back is stopped cleanly once more."""
ALONE_SECONDS = (0.3, 1.5)
"""Range of the seconds that this server then runs alone."""
SERVE_SECONDS: Final = 4.0
"""Maximum seconds to wait until it serves. A member of a quorum never serves alone, and the others must not wait."""
FALTER_PROBABILITY: Final = 0.7
"""Probability that a server pauses as soon as it is back, if the first one is not stopped again.

Other servers then count on a server that does not answer.
"""
FALTER_SECONDS: Final = (1.0, 3.5)
"""Range of the seconds of that pause: from less than a request timeout to more than a session."""
FALTER_WAIT_SECONDS: Final = 3.0
"""Maximum seconds to wait until the server pauses."""
POLL_SECONDS: Final = 0.1


class Outage(Kill):
    """Takes all servers down and brings them back; see the module."""

    name = "outage"
    description = "all servers go down, killed or ended cleanly, and come back, one after the other in any order"
    impact = Impact(ends_process=True, pauses_process=True, gradual=True)
    takes_leave = True  # servers may end cleanly, and their sessions then end at once
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
        """Waits until the node serves, at most ``SERVE_SECONDS``, because it may not be able to serve alone."""
        with contextlib.suppress(NodeError, TimeoutError):
            async with asyncio.timeout(SERVE_SECONDS):
                await wait_until_serving(injection.context.system, node)

    def _shuffle_targets(self, injection: Injection) -> Sequence[Node]:
        """Returns the order in which the targets go down. It is equal at each call."""
        return random.Random(injection.seed).sample(injection.targets, len(injection.targets))

    async def heal(self, injection: Injection) -> None:
        rng, order = random.Random(injection.seed + 1), list(self._shuffle_targets(injection))[::-1]
        if rng.random() < SHUFFLE_PROBABILITY:
            rng.shuffle(order)
        restop = rng.random() < RESTOP_PROBABILITY
        system = injection.context.system
        await on_each(order, lambda node: _resume(node, system))
        await on_each(order, lambda node: _kill_if_asked(injection, node))
        first = order[0]
        faltering = None if restop or rng.random() >= FALTER_PROBABILITY else rng.choice(order)
        if restop and (await first.process()).state is ProcessState.DEAD:
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
            await _wait_for_pause(faltering, rng.uniform(*FALTER_SECONDS))
            await _resume(faltering, system)


async def _terminate(injection: Injection, node: Node) -> None:
    """Ends a process cleanly. Raises ``NodeError`` if it takes too long; the injection or the heal then fails."""
    seen = evidence_of(injection, node)
    seen["asked"] = True
    await node.terminate()
    del seen["asked"]


async def _kill_if_asked(injection: Injection, node: Node) -> None:
    """Kills a process that was asked to end and still runs. It might end after the heal and would not be restarted."""
    if evidence_of(injection, node).pop("asked", False) and (await node.process()).state is not ProcessState.DEAD:
        await node.kill()
        evidence_of(injection, node)["too_slow"] = True


async def _wait_for_pause(node: Node, seconds: float) -> None:
    """Waits until the node has been paused for ``seconds``. Gives up if it does not pause itself in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FALTER_WAIT_SECONDS
    while (await node.process()).state is not ProcessState.STOPPED:
        if loop.time() >= deadline:
            return
        await asyncio.sleep(POLL_SECONDS)
    await asyncio.sleep(seconds)


async def _resume(node: Node, system: System) -> None:
    """Withdraws the request to pause and continues the node, even after an injection, or a heal, that failed midway."""
    if isinstance(system, SupportsHold):
        await node.write_file(system.hold_file(node), b"")
    await resume_stopped(node)


class OutagePowerLoss(Outage):
    """Takes all servers down, the last one by a power loss; see the module."""

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
