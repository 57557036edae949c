"""Cost of a leave or join for a group of 10 to 300 consumers, in each design of groups, in the simulation.

In the design on ZooKeeper, every member watches all others. Each change wakes all members. Each member reads everything
again and decides by itself (the herd effect). With a coordinator, one process decides, and each member asks it once.
These figures are counted for each change, until two seconds after all members own their partitions:

- *notifications*: fired watches of all ZooKeeper clients, including the brokers;
- *requests*: to ZooKeeper and the coordinator, without session pings and heartbeats;
- *decisions*: computations of an assignment;
- *seconds*: virtual time until all members own their partitions.

Each figure is the mean of one leave and one join of a member that owns a partition. The topic has 12 partitions, so
most members of a large group wake without need.

    python benchmarks/herd.py [--consumers 10,30,100,300] [--seed 1] [--plot docs/images/herd.svg] [--json]
"""

from __future__ import annotations

import asyncio
import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from assay.cluster.deploy import start_system
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.zookeeper.client import SimZooKeeper
from assay.system_under_test.client.config import DraftConfig, MemberConfig
from assay.system_under_test.client.coordinated import CoordinatorClient
from assay.system_under_test.client.draft_membership import DraftMembership
from assay.system_under_test.client.membership import Membership
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.client.zookeeper_groups.connector import ConsumerConnector
from assay.system_under_test.client.zookeeper_groups.view import assign_partitions, to_thread_id
from assay.system_under_test.deployment import Broker

from figures import Output, make_parser, numbers

TOPIC: Final = "orders"
PARTITIONS: Final = 12
SESSION: Final = 6.0
PATIENCE: Final = 60.0
POLL_SECONDS: Final = 0.01
QUIET: Final = 2.0
"""Seconds after which all activity of a change has ended."""
FIGURES: Final = ("notifications", "requests", "decisions", "seconds")
COLOURS: Final = {"zookeeper": "#c0392b", "draft": "#7f8c8d", "coordinator": "#2471a3"}

counts: Counter[str] = Counter()


def count_calls(owner: type, method: str, name: Callable[..., str | None]) -> None:
    """Counts each call of a method under the name that ``name`` returns for its arguments; None is not counted."""
    plain = getattr(owner, method)

    @functools.wraps(plain)
    def counted(self: Any, *arguments: Any, **more: Any) -> Any:
        if (what := name(*arguments, **more)) is not None:
            counts[what] += 1
        return plain(self, *arguments, **more)

    setattr(owner, method, counted)


def name_request(request: Any, *_: Any) -> str | None:
    return None if "Heartbeat" in type(request).__name__ else "requests"


class Group(ABC):
    """A group of numbered consumers."""

    def __init__(self, cluster: SimCluster, consumers: int) -> None:
        self.cluster = cluster
        self.consumers = range(consumers)
        self.bootstrap = [f"{node.address}:9092" for node in cluster.nodes if node.role == "broker"]

    @abstractmethod
    async def enter(self, number: int) -> None: ...

    @abstractmethod
    async def leave(self, number: int) -> None: ...

    @abstractmethod
    def find_owner(self) -> int:
        """Returns the number of a member that owns a partition."""

    @abstractmethod
    def has_settled(self) -> bool:
        """Whether all members own their partitions after the latest change."""


class GroupOnZooKeeper(Group):
    def __init__(self, cluster: SimCluster, consumers: int) -> None:
        super().__init__(cluster, consumers)
        self.members: dict[int, ConsumerConnector] = {}

    async def enter(self, number: int) -> None:
        servers = ",".join(f"{node.address}:2181" for node in self.cluster.nodes if node.role == "zookeeper")
        config = ConnectorConfig(
            zookeeper=servers,
            bootstrap=self.bootstrap,
            group="g",
            consumer_id=f"{number:03}",
            session_timeout=SESSION,
            auto_commit=False,
            reset="smallest",
        )
        self.members[number] = member = ConsumerConnector(config, runtime=self.cluster.harness_runtime())
        await member.create_streams({TOPIC: 1})

    async def leave(self, number: int) -> None:
        await self.members.pop(number).shutdown()

    def find_owner(self) -> int:
        return next(number for number, member in self.members.items() if member.owned)

    def has_settled(self) -> bool:
        threads = [to_thread_id(member.consumer_id, 0) for member in self.members.values()]
        wanted = assign_partitions({TOPIC: range(PARTITIONS)}, {TOPIC: threads})
        owned = [item for member in self.members.values() for item in member.owned.items()]
        return len(owned) == len(wanted) and dict(owned) == wanted


class GroupWithCoordinator(Group):
    """A group with a coordinator; ``make`` returns a member of the design."""

    def __init__(self, cluster: SimCluster, consumers: int, make: Callable[[Group], Any]) -> None:
        super().__init__(cluster, consumers)
        self._make = make
        self.members: dict[int, Any] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._generation = 0
        """The last generation that contained all members."""

    async def enter(self, number: int) -> None:
        self.members[number] = self._make(self)
        self._tasks[number] = asyncio.get_running_loop().create_task(self._keep_joined(self.members[number]))

    async def leave(self, number: int) -> None:
        self._tasks.pop(number).cancel()
        member = self.members.pop(number)
        await member.leave()
        await member.close()

    def find_owner(self) -> int:
        return next(number for number, member in self.members.items() if member.generation.partitions)

    def has_settled(self) -> bool:
        found = {-1 if member.generation is None else member.generation.number for member in self.members.values()}
        if len(found) != 1 or min(found) <= self._generation:
            return False
        counts["decisions"] += min(found) - self._generation
        self._generation = min(found)
        return True

    async def _keep_joined(self, member: Any) -> None:
        while True:
            if member.generation is None:
                await member.enter()
            await asyncio.sleep(POLL_SECONDS)


def make_member(group: Group) -> Membership:
    config = MemberConfig(session_timeout=SESSION, rebalance_timeout=PATIENCE, timeout=PATIENCE)
    return Membership(group.bootstrap, "g", (TOPIC,), config, runtime=group.cluster.harness_runtime())


def make_draft_member(group: Group) -> DraftMembership:
    config = DraftConfig(session_timeout=SESSION, join_timeout=PATIENCE, timeout=PATIENCE)
    return DraftMembership(group.bootstrap, "g", (TOPIC,), config, runtime=group.cluster.harness_runtime())


DESIGNS: Final[dict[str, Callable[[SimCluster, int], Group]]] = {
    "zookeeper": GroupOnZooKeeper,
    "draft": lambda cluster, consumers: GroupWithCoordinator(cluster, consumers, make_draft_member),
    "coordinator": lambda cluster, consumers: GroupWithCoordinator(cluster, consumers, make_member),
}


async def wait_until_settled(group: Group) -> float:
    """Returns the virtual seconds until all members own their partitions; then waits ``QUIET`` seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        if group.has_settled():
            took = loop.time() - began
            await asyncio.sleep(QUIET)
            return took
        await asyncio.sleep(POLL_SECONDS)


async def measure(design: str, consumers: int, seed: int) -> dict[str, float]:
    """Returns the mean of each figure for a leave and a join."""
    system = Broker(partitions=PARTITIONS).with_setting("max.connections", "20000")
    cluster = SimCluster(system, {"zookeeper": 1, "broker": 3}, seed)
    await cluster.start()
    await start_system(system, cluster, 60.0, lambda _: None)
    group = DESIGNS[design](cluster, consumers)
    await asyncio.gather(*map(group.enter, group.consumers))
    await wait_until_settled(group)
    counts.clear()
    number = group.find_owner()
    await group.leave(number)
    took = await wait_until_settled(group)
    await group.enter(number)
    took += await wait_until_settled(group)
    found = {name: counts[name] / 2 for name in FIGURES} | {"seconds": took / 2}
    await asyncio.gather(*map(group.leave, group.consumers))
    await cluster.close()
    return found


def run(design: str, consumers: int, seed: int) -> dict[str, float]:
    loop = SimLoop(seed)
    try:
        return loop.run_until_complete(measure(design, consumers, seed))
    finally:
        loop.close()


WIDTH, HEIGHT, MARGIN = 250, 200, 46


def draw_plot(rows: Sequence[dict[str, Any]]) -> str:
    """Draws an SVG with a panel for each figure, with logarithmic axes."""
    parts = []
    least, most = (math.log10(f(row["consumers"] for row in rows)) for f in (min, max))
    for index, figure in enumerate(FIGURES):
        left, drawn = MARGIN + index * (WIDTH + MARGIN), [row for row in rows if row[figure] > 0]
        low = math.floor(min((math.log10(row[figure]) for row in drawn), default=0))
        high = max(low + 1, math.ceil(max((math.log10(row[figure]) for row in drawn), default=1)))
        bottom = MARGIN + HEIGHT

        def x(value: float, left: int = left) -> float:
            return left + (math.log10(value) - least) / max(most - least, 0.1) * WIDTH

        def y(value: float, low: int = low, high: int = high, bottom: int = bottom) -> float:
            return bottom - (math.log10(value) - low) / (high - low) * HEIGHT

        parts.append(f'<text x="{left}" y="{MARGIN - 14}" font-weight="bold">{figure} per change</text>')
        for power in range(low, high + 1):
            at = y(10**power)
            parts.append(f'<path d="M{left} {at:.1f}h{WIDTH}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 4}" y="{at + 4:.1f}" text-anchor="end">{10**power:g}</text>')
        for consumers in dict.fromkeys(row["consumers"] for row in rows):
            parts.append(f'<text x="{x(consumers):.1f}" y="{bottom + 16}" text-anchor="middle">{consumers}</text>')
        for design, colour in COLOURS.items():
            points = [(x(row["consumers"]), y(row[figure])) for row in drawn if row["design"] == design]
            line = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>' for across, up in points]
    wide, tall = MARGIN + len(FIGURES) * (WIDTH + MARGIN), HEIGHT + 2 * MARGIN + 24
    for index, (design, colour) in enumerate(COLOURS.items()):
        parts.append(f'<text x="{MARGIN + index * 130}" y="{tall - 8}" fill="{colour}">{design}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif"'
    return "\n".join((f'{head} font-size="12">', '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--consumers", type=numbers, default=[10, 30, 100, 300], help="each is measured by itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="path of an SVG with the figures")
    options = parser.parse_args()
    count_calls(SimZooKeeper, "_fire_watches", lambda *_: "notifications")
    count_calls(SimZooKeeper, "_ask", lambda *_, **__: "requests")
    count_calls(CoordinatorClient, "_ask", name_request)
    count_calls(ConsumerConnector, "_rebalance", lambda *_: "decisions")
    out = Output(options.json)
    out.text(f"consumers | design      | {' | '.join(f'{name:>13}' for name in FIGURES)}")
    rows: list[dict[str, Any]] = []
    for consumers in options.consumers:
        for design in DESIGNS:
            found = run(design, consumers, options.seed)
            out.text(f"{consumers:9} | {design:11} | {' | '.join(f'{found[name]:13,.1f}' for name in FIGURES)}")
            rows.append({"consumers": consumers, "design": design} | found)
    if options.plot is not None:
        options.plot.write_text(draw_plot(rows), encoding="utf-8")
    out.figures({"runs": rows})


if __name__ == "__main__":
    main()
