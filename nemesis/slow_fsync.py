"""Slow fsyncs: a device that takes its time; and the end that comes while one is under way.

``slow-fsync``           each fsync of the targets takes ``seconds`` more while the fault is in force
``kill-in-fsync``        the same for ``slow_for`` seconds; then, midway in such an fsync, the process is killed
``power-loss-in-fsync``  the same, and the power is lost (``power_loss``)

What an fsync has not ended for is not on the disk; a system that counts on it before has promised too much. And what
takes several fsyncs is half done most of the time while they are slow, which it nearly never is otherwise. Proof: the
node's count of fsyncs that were slow; of the others, that such a one was under way, and the proof of the end.
"""

import asyncio
import random
from typing import Final, cast

from assay.cluster.node import Cluster, Node, NodeError, SlowToFsync
from assay.cluster.system import System
from assay.nemesis.fault import LINGER_SECONDS, Census, Injection, Proof, Scope, on_all, on_each
from assay.nemesis.kill import Kill
from assay.nemesis.power_loss import PowerLoss
from assay.nemesis.process import ServerFault
from assay.nemesis.schedule import Parameter
from assay.nemesis.target import Target, TargetError, servers

SECONDS: Final = (0.05, 0.2, 0.8)
LONG: Final = (0.05, 0.2, 0.8)
SLOW_FOR: Final = (0.0, 0.0, 0.5, 1.5)
"""Seconds: what is begun, appended or counted during a slow fsync shows after it."""
PATIENCE: Final = 4.0
"""Seconds for an fsync to begin: the broker's come once a second at least, while it is written to."""
LOOK_EVERY: Final = 0.01


class SlowFsync(ServerFault):
    """Every fsync takes longer; at the heal as long as before."""

    name = "slow-fsync"
    description = "each fsync of the server takes up to 0.8 s longer"
    scope = Scope.DISK
    lingers = LINGER_SECONDS

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom, _ = super().draw(rng, census, target)
        return whom, {"seconds": rng.choice(SECONDS)}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return _not_here(cluster, system) or await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        seconds = _seconds(injection)

        async def slow(node: Node) -> None:
            before, _ = await cast(SlowToFsync, node).fsyncs()
            injection.evidence[node.name] = {"before": before}
            await cast(SlowToFsync, node).slow_fsyncs(seconds)

        await on_each(injection.targets, slow)

    async def observe(self, injection: Injection) -> None:
        async def count(node: Node) -> None:
            injection.evidence[node.name]["slow"] = await _slow(node) - injection.evidence[node.name]["before"]

        await on_each(injection.targets, count)

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, _as_before)

    def proof(self, injection: Injection) -> Proof:
        fast = [name for name in injection.names if not injection.evidence.get(name, {}).get("slow")]
        reason = f"{', '.join(fast)} made no fsync that was slow" if fast else None
        return Proof(not fast, injection.evidence, reason)


class KillInFsync(Kill):
    """The process of one server is killed while an fsync is under way."""

    name = "kill-in-fsync"
    description = "fsyncs are slow for a moment, and in the middle of one the process is killed; started at the heal"

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom, _ = super().draw(rng, census, target)
        slow = {"seconds": rng.choice(LONG), "slow_for": rng.choice(SLOW_FOR)}
        return whom, {**slow, "part": rng.choice((0.1, 0.5, 0.9))}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        return _not_here(cluster, system) or await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        """Of several machines, which lose power together, one is enough to be in an fsync."""
        seconds, parameters = _seconds(injection), injection.step.parameters
        midway = seconds * min(float(parameters.get("part", 0.5)), 0.9)
        slow_for = float(parameters.get("slow_for", 0.0))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await on_each(injection.targets, lambda node: cast(SlowToFsync, node).slow_fsyncs(seconds))
        await asyncio.sleep(slow_for)
        caught: list[str] = []
        while not caught and loop.time() <= began + slow_for + PATIENCE:
            found = await _under_way(injection)
            await asyncio.sleep(midway if found else LOOK_EVERY)
            caught = await _under_way(injection) if found else []  # one that was nearly over may have ended
        injection.evidence["in_fsync"] = caught
        injection.evidence["waited"] = round(loop.time() - began, 3)
        await super().inject(injection)
        await on_each(injection.targets, _as_before)

    async def heal(self, injection: Injection) -> None:
        await on_each(injection.targets, _as_before)
        await super().heal(injection)

    def proof(self, injection: Injection) -> Proof:
        lost = super().proof(injection)
        if not lost.took_effect or injection.evidence.get("in_fsync"):
            return lost
        return Proof(False, lost.evidence, f"no fsync of {', '.join(injection.names)} was under way")


class PowerLossInFsync(KillInFsync, PowerLoss):
    """The power of one server is lost while an fsync is under way."""

    name = "power-loss-in-fsync"
    description = "the same, and the machine loses power: what was not fsynced is gone; started again at the heal"
    impact = PowerLoss.impact
    on_targets = staticmethod(on_all)


async def _under_way(injection: Injection) -> list[str]:
    """The targets that are in an fsync that is slow."""
    return [node.name for node in injection.targets if (await cast(SlowToFsync, node).fsyncs())[1]]


def _not_here(cluster: Cluster, system: System) -> str | None:
    if all(isinstance(node, SlowToFsync) for node in servers(cluster, system)):
        return None
    return (
        f"a {cluster.kind} node's fsyncs cannot be made slow: that takes a device of its own making (device-mapper), "
        "which a container has not; the simulation's can (--cluster=sim)"
    )


def _seconds(injection: Injection) -> float:
    value = injection.step.parameters.get("seconds")
    if isinstance(value, str) or value is None or not 0 < value <= 10:
        raise TargetError(
            f"{injection.step.fault} needs the parameter seconds, more than 0 and at most 10, not {value!r}"
        )
    if any(node for node in injection.targets if not isinstance(node, SlowToFsync)):
        raise NodeError(f"{', '.join(injection.names)}: fsyncs cannot be made slow here")
    return float(value)


async def _slow(node: Node) -> int:
    count, _ = await cast(SlowToFsync, node).fsyncs()
    return count


async def _as_before(node: Node) -> None:
    if isinstance(node, SlowToFsync):
        await node.slow_fsyncs(0.0)
