"""A slow network: what a server sends takes its time, and nothing is lost.

The tenths of a millisecond in which a follower has one message of two, or a request is on its way while its answer is
already untrue, become tenths of a second, which other faults can hit. Proof: the host's count of packets that were
late.
"""

import random
from typing import Final, cast

from assay.cluster.node import Cluster, Node, SlowToSend
from assay.cluster.system import System
from assay.nemesis.fault import LINGER_SECONDS, Census, Injection, Proof, Scope, on_each
from assay.nemesis.process import ServerFault
from assay.nemesis.schedule import Parameter
from assay.nemesis.target import Target, TargetError, servers

SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2)
LONGEST: Final = 1.0


class SlowNetwork(ServerFault):
    """What the targets send arrives later; after the heal as soon as before."""

    name = "slow-network"
    description = "what the server sends arrives up to 0.2 s later, in order"
    scope = Scope.CONNECTION
    lingers = LINGER_SECONDS

    def draw(self, rng: random.Random, census: Census, target: Target | None) -> tuple[Target, dict[str, Parameter]]:
        whom, _ = super().draw(rng, census, target)
        return whom, {"seconds": rng.choice(SECONDS)}

    async def probe(self, cluster: Cluster, system: System) -> str | None:
        if not all(isinstance(node, SlowToSend) for node in servers(cluster, system)):
            return (
                f"what a {cluster.kind} node sends cannot be made late: that takes the kernel's netem queue, which "
                "many kernels of containers lack; the simulation's can (--cluster=sim)"
            )
        return await super().probe(cluster, system)

    async def inject(self, injection: Injection) -> None:
        seconds = injection.step.parameters.get("seconds")
        if isinstance(seconds, str) or seconds is None or not 0 < seconds <= LONGEST:
            raise TargetError(
                f"slow-network needs the parameter seconds, more than 0 and at most {LONGEST:g}, not {seconds!r}"
            )

        async def slow(node: Node) -> None:
            injection.evidence[node.name] = {"before": await cast(SlowToSend, node).late_packets()}
            await cast(SlowToSend, node).slow_sends(float(seconds))

        await on_each(injection.targets, slow)

    async def observe(self, injection: Injection) -> None:
        async def count(node: Node) -> None:
            seen = injection.evidence[node.name]
            seen["late"] = await cast(SlowToSend, node).late_packets() - seen["before"]

        await on_each(injection.targets, count)

    async def heal(self, injection: Injection) -> None:
        async def as_before(node: Node) -> None:
            if isinstance(node, SlowToSend):
                await node.slow_sends(0.0)

        await on_each(injection.targets, as_before)

    def proof(self, injection: Injection) -> Proof:
        quick = [name for name in injection.names if not injection.evidence.get(name, {}).get("late")]
        return Proof(not quick, injection.evidence, f"{', '.join(quick)} sent nothing that was late" if quick else None)
