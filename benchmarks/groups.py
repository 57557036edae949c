"""Cost of a rebalance with 10, 100 and 1,000 groups of three members on three brokers, in the simulation.

In all groups at once, a member leaves, and rejoins when the other members are stable. These are two rebalances per
group. Two figures are measured for each rebalance:

- processor time of the whole simulation (brokers, members and network). It would grow if a broker scanned all groups or
  members for each request.
- virtual time from the change until all members of the group are in one generation and know their assignment. It would
  grow if a broker queued requests.

Then the broker that coordinates the most groups is killed. The failover time is the virtual seconds until other brokers
answer for all groups.

    python benchmarks/groups.py [--groups 10,100,1000] [--seed 1] [--json]
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from dataclasses import dataclass

from assay.cluster.deploy import start_system
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.membership import Membership
from assay.system_under_test.deployment import Broker

from figures import Output, make_parser, numbers

MEMBERS = 3
SESSION = 12.0
"""Seconds; a member learns of a rebalance by its heartbeat, four times per session timeout."""
PATIENCE = 60.0
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Measured:
    """``cost``: processor milliseconds per rebalance; ``waits``: virtual seconds of each rebalance."""

    groups: int
    cost: float
    waits: list[float]
    failover: float


class Group:
    """A group whose members join independently, whenever they have no generation."""

    def __init__(self, cluster: SimCluster, bootstrap: list[str], name: str) -> None:
        self.members = [
            Membership(
                bootstrap,
                name,
                ("orders",),
                MemberConfig(session_timeout=SESSION, rebalance_timeout=PATIENCE, timeout=PATIENCE),
                runtime=cluster.harness_runtime(),
            )
            for _ in range(MEMBERS)
        ]
        self._out: set[Membership] = set()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_joined(member)) for member in self.members]

    async def _keep_joined(self, member: Membership) -> None:
        while True:
            if member.generation is None and member not in self._out:
                await member.enter()
            await asyncio.sleep(POLL_SECONDS)

    async def wait_until_stable(self, members: list[Membership], above: int = 0) -> float:
        """Waits until all members are in one generation later than ``above``; returns the seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            numbers = {-1 if member.generation is None else member.generation.number for member in members}
            if len(numbers) == 1 and numbers.pop() > above:
                return loop.time() - began
            await asyncio.sleep(POLL_SECONDS)

    async def leave_and_rejoin(self) -> list[float]:
        """Lets a member leave and rejoin; returns the seconds of both rebalances."""
        first, *others = self.members
        assert first.generation is not None, "it is stable"
        self._out.add(first)
        before = first.generation.number
        await first.leave()
        alone = await self.wait_until_stable(others, before)
        self._out.clear()
        return [alone, await self.wait_until_stable(self.members, before + 1)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.members:
            await member.close()


async def measure(groups: int, seed: int) -> Measured:
    system = Broker(partitions=MEMBERS).with_setting("max.connections", "20000")
    cluster = SimCluster(system, {"zookeeper": 1, "broker": 3}, seed)
    await cluster.start()
    await start_system(system, cluster, 60.0, lambda _: None)
    bootstrap = [f"{node.address}:9092" for node in cluster.nodes if node.role == "broker"]
    made = [Group(cluster, bootstrap, f"group-{number}") for number in range(groups)]
    try:
        await asyncio.gather(*(group.wait_until_stable(group.members) for group in made))
        began = time.process_time()
        waits = await asyncio.gather(*(group.leave_and_rejoin() for group in made))
        cost = (time.process_time() - began) * 1000 / (2 * groups)
        return Measured(
            groups, cost, sorted(wait for both in waits for wait in both), await measure_failover(cluster, made)
        )
    finally:
        for group in made:
            await group.close()
        await cluster.close()


async def measure_failover(cluster: SimCluster, groups: list[Group]) -> float:
    """Kills a broker; returns the seconds until the offsets of every group can be fetched."""
    loop = asyncio.get_running_loop()
    hosts = Counter(address.host for group in groups if (address := group.members[0]._coordinator) is not None)
    victim = hosts.most_common(1)[0][0]
    await next(node for node in cluster.nodes if node.address == victim).kill()
    began = loop.time()

    async def answered(group: Group) -> None:
        while True:
            try:
                await group.members[0].committed([("orders", 0)])
                return
            except ReadFailed:
                await asyncio.sleep(POLL_SECONDS)

    await asyncio.gather(*(answered(group) for group in groups))
    return loop.time() - began


def run(groups: int, seed: int) -> Measured:
    loop = SimLoop(seed)
    try:
        return loop.run_until_complete(measure(groups, seed))
    finally:
        loop.close()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--groups", type=numbers, default=[10, 100, 1000], help="each number is measured by itself")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    out = Output(options.json)
    run(3, options.seed)  # warms up
    out.text("groups | ms of processor time per rebalance | virtual s, median | p99 | longest | failover, virtual s")
    rows = []
    for groups in options.groups:
        one = run(groups, options.seed)
        row = {
            "groups": groups,
            "processor_ms_per_rebalance": one.cost,
            "rebalance_median": statistics.median(one.waits),
            "rebalance_p99": one.waits[int(0.99 * (len(one.waits) - 1))],
            "rebalance_longest": one.waits[-1],
            "failover": one.failover,
        }
        out.text("{:6} | {:34.1f} | {:17.2f} | {:3.2f} | {:7.2f} | {:.2f}".format(*row.values()))
        rows.append(row)
    first, last = rows[0], rows[-1]
    cost = last["processor_ms_per_rebalance"] / first["processor_ms_per_rebalance"]
    longer = last["rebalance_median"] / first["rebalance_median"]
    out.text(f"{last['groups']} groups to {first['groups']}: processor time {cost:.2f}, time {longer:.2f}")
    out.figures({"runs": rows})


if __name__ == "__main__":
    main()
