"""A cluster without machines: nodes that obey or refuse, and links whose traffic is a function of time."""

from __future__ import annotations

import asyncio
import fnmatch
import functools
import itertools
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from assay.cluster.node import (
    DiskChange,
    DiskErrorEffects,
    DiskRoom,
    Exhaustion,
    Flow,
    ImageChange,
    Node,
    NodeError,
    ProcessState,
    ProcessStatus,
    Slowed,
    Traffic,
)
from assay.cluster.second_copy import SecondCopyStatus
from assay.cluster.sim.loop import SimLoop
from assay.nemesis.engine.conductor import Conductor
from assay.nemesis.engine.cut_ledger import CutLedger, Drop
from assay.nemesis.engine.reporter import FaultPhase, FaultRow
from assay.nemesis.faults.fault import FaultContext, Injection
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.draw import draw_schedule as draw_from
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import named_target
from assay.system_under_test.broker_rpc import ReplicaPlacement

T = TypeVar("T")
FAULTS = FaultCatalogue.standard()
draw = functools.partial(draw_from, catalogue=FAULTS)
"""A random schedule of the project's own faults."""
PACKETS_PER_SECOND = 10
PREFIXES = {"broker": "n", "zookeeper": "zk", "client": "client"}
HOLD_FILE = "/etc/hold"
LOCK_FILE = "/data/.lock"
PORT = 9092
DURABLE = 150
"""Bytes of each data file that count as durable; the active one has 200."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs in virtual time."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(coroutine)


def now() -> float:
    return asyncio.get_running_loop().time()


class FakeNode:
    """``refuse``: how often each call yet fails. ``deaf``: calls that return and do nothing. ``quiet``: no traffic.

    ``silent``: peers that say nothing to it.
    """

    def __init__(self, role: str, index: int) -> None:
        self.name = f"{PREFIXES[role]}{index}"
        self.role = role
        self.index = index
        self.address = f"198.18.{list(PREFIXES).index(role)}.{index}"
        self.state = ProcessState.RUNNING
        self.incarnation = 1
        self.rules: dict[str, float] = {}
        self.refuse: dict[str, int] = {}
        self.deaf: set[str] = set()
        self.quiet = False
        self.silent: set[str] = set()
        self.calls: list[str] = []
        self.is_frozen = False
        self.clock_ahead = 0.0
        self.slow_since: float | None = None
        self.slow_calls = False
        self.halts = 0
        self.child: ProcessState | None = None
        """State of the child process, which makes the fsyncs of the main one."""
        self.failing: tuple[list[str], int, int, bool] | None = None
        self.changes: list[str] = ["write", "fsync"]
        """The kinds that it makes, each of them again and again."""
        self.came_of = DiskErrorEffects()
        self.unslowed: str | None = None
        self.unlimited: str | None = None
        self.no_image: str | None = None
        self.traffic: tuple[Traffic, list[str] | None] | None = None
        self.filled = False
        self.unshaped: str | None = None
        self.unpowered: str | None = None
        self.slow_power_loss = 0.0
        self.kept: dict[str, str] = {}
        self.files: dict[str, bytes] = {"/data/orders-0/00.log": b"old", "/data/orders-0/11.log": bytes(range(200))}
        self.made: dict[str, bytes] = {}
        """Files that a start makes."""
        self.copy: dict[str, bytes] | None = None
        self.writes = True
        """A process that is killed has written something."""
        self.on_event: Callable[[str, str], None] | None = None
        self.copies: list[SecondCopyStatus] = []
        self.refuses_second = True
        self.no_second: str | None = None

    def _called(self, what: str) -> bool:
        self.calls.append(what)
        if self.is_frozen and what not in ("thaw", "frozen"):
            raise NodeError(f"{self.name} is frozen")
        if self.refuse.get(what, 0) > 0:
            self.refuse[what] -= 1
            raise NodeError(f"{self.name}: {what} refused")
        return what not in self.deaf

    async def start(self) -> None:
        if self._called("start"):
            if self.state is not ProcessState.DEAD:
                raise NodeError(f"{self.name}: a process is alive already")
            self.state = ProcessState.RUNNING
            self.files |= self.made
            self.incarnation += 1
            for event in FakeSystem.start_events:
                if self.state is ProcessState.RUNNING:
                    self.say(event)

    def say(self, event: str, key: str | None = None, **detail: Any) -> None:
        """Writes an event, and stops after it if so ordered."""
        if self.on_event is not None:
            line = {"event": event, "key": key, "seq": self.incarnation, "detail": detail}
            self.on_event(self.name, msgspec.json.encode(line).decode())
        orders = self.files.get(HOLD_FILE, b"").decode().splitlines()
        if (event in orders or f"{event} {key}" in orders) and "hold" not in self.deaf:
            self.state = ProcessState.STOPPED

    def second_unavailable(self) -> str | None:
        return self.no_second

    async def start_second(self, data: str | None = None) -> None:
        if self._called("start_second"):
            self.copies.append(SecondCopyStatus(f"second.{len(self.copies) + 1}", alive=True))
            if self.refuses_second:
                self.copies[-1] = SecondCopyStatus(None, alive=False, exit_status=1)

    async def second(self) -> SecondCopyStatus:
        self._called("second")
        if not self.copies:
            raise NodeError(f"{self.name}: no second copy was started")
        return self.copies[-1]

    async def end_second(self) -> None:
        if self._called("end_second") and self.copies and self.copies[-1].alive:
            self.copies[-1] = SecondCopyStatus(None, alive=False)

    async def terminate(self) -> None:
        if self._called("terminate"):
            if "hand over" not in self.deaf:
                self.say("handed-over", led=2, kept=self.kept)
            self.state = ProcessState.DEAD

    async def freeze(self) -> None:
        if self._called("freeze"):
            self.is_frozen = True

    async def thaw(self) -> None:
        if self._called("thaw"):
            self.is_frozen = False

    async def frozen(self) -> bool:
        self._called("frozen")
        return self.is_frozen

    async def kill(self) -> None:
        if self._called("kill"):
            self.state = ProcessState.DEAD
            if self.writes and "/data/orders-0/11.log" in self.files:
                self.files["/data/notes"] = b"killed"

    def own_disk_unavailable(self) -> str | None:
        return self.unpowered

    async def cut_power(self) -> Mapping[str, int]:
        await asyncio.sleep(self.slow_power_loss)
        if self._called("power_loss"):
            self.state = ProcessState.DEAD
        return {"/data/orders-0/11.log": 7}

    async def freezing_unavailable(self) -> str | None:
        return None

    def image_change_unavailable(self) -> str | None:
        return self.no_image

    async def change_image(self) -> ImageChange:
        return ImageChange("new", "new" if self._called("change_image") else "old")

    async def memory_unavailable(self) -> str | None:
        return self.unlimited

    async def exhaust_memory(self) -> Exhaustion:
        if self._called("exhaust_memory"):
            await self.kill()
        return Exhaustion(100, 60, int("count" not in self.deaf))

    async def fill_disk(self) -> None:
        if self._called("fill_disk"):
            self.filled = True

    async def free_disk(self) -> None:
        self._called("free_disk")
        self.filled = False

    async def room(self) -> DiskRoom:
        self._called("room")
        return DiskRoom(0, True) if self.filled else DiskRoom(1 << 20, False)

    async def shift_clock(self, seconds: float) -> None:
        if self._called("shift_clock"):
            self.clock_ahead = seconds

    async def clock_shift(self) -> float:
        self._called("clock_shift")
        return self.clock_ahead

    def slowness_unavailable(self) -> str | None:
        return self.unslowed

    async def slow_disk(self, fsync: float, call: float = 0.0) -> None:
        if self._called("slow_disk"):
            self.slow_since = now() if fsync or call else None
            self.slow_calls = call > 0

    async def halt_in_fsync(self, after: float) -> None:
        self._called("halt_in_fsync")
        if after and self.slow_since is not None and "fsync" not in self.deaf:
            self.halts += 1
            if self.child is None:
                self.state = ProcessState.STOPPED
            else:
                self.child = ProcessState.STOPPED
        elif not after and self.state is ProcessState.STOPPED:
            self.state = ProcessState.RUNNING

    async def read_disk_delays(self) -> Slowed:
        self._called("slowed")
        count = 0 if self.slow_since is None else int((now() - self.slow_since) * 10)
        is_halted = ProcessState.STOPPED in (self.state, self.child)
        return Slowed(count, count * self.slow_calls, self.halts, is_halted)

    async def break_disk(
        self, changes: Collection[DiskChange], after: int = 0, errors: int = 1, *, after_change: bool = False
    ) -> None:
        if self._called("break_disk"):
            self.failing = (sorted(changes), after, errors, after_change) if changes else None
            if self.state is ProcessState.RUNNING and set(changes) & set(self.changes):
                if errors:
                    self.came_of = DiskErrorEffects(self.came_of.errors + 1, self.came_of.ends)
                else:
                    self.came_of = DiskErrorEffects(self.came_of.errors, self.came_of.ends + 1)
                    self.state = ProcessState.DEAD

    async def read_disk_errors(self) -> DiskErrorEffects:
        self._called("broken")
        return self.came_of

    async def shaping_unavailable(self) -> str | None:
        return self.unshaped

    async def shape(self, traffic: Traffic | None, peers: Sequence[Node] | None = None) -> None:
        if self._called("shape"):
            self.traffic = None if traffic is None else (traffic, None if peers is None else [p.name for p in peers])

    async def shaped(self) -> Mapping[str, int]:
        self._called("shaped")
        traffic = None if self.traffic is None else self.traffic[0]
        if traffic is None or self.quiet:
            return {}
        late = bool(traffic.delay or traffic.rate)
        return {"late": 7 * late, "lost": 7 * bool(traffic.loss), "doubled": 7 * bool(traffic.copies)}

    async def stop(self) -> None:
        if self._called("stop"):
            if self.state is ProcessState.DEAD:
                raise NodeError(f"{self.name}: no process to stop")
            self.state = ProcessState.STOPPED

    async def resume(self) -> None:
        if self._called("resume"):
            if self.state is not ProcessState.STOPPED:
                raise NodeError(f"{self.name}: no stopped process")
            self.state = ProcessState.RUNNING

    async def process(self) -> ProcessStatus:
        self._called("process")
        return ProcessStatus(self.state, str(self.incarnation))

    async def drop_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        self._filter("drop_from", peers, flow)

    async def reject_from(self, peers: Sequence[Node], flow: Flow | None = None) -> None:
        self._filter("reject_from", peers, flow)

    def _filter(self, what: str, peers: Sequence[Node], flow: Flow | None) -> None:
        if self._called(what):
            for rule in (f"{peer.name}{flow or ''}" for peer in peers):
                assert rule not in self.rules, f"{self.name} {what} {rule} twice"
                self.rules[rule] = now()

    async def accept_all(self) -> None:
        if self._called("accept_all"):
            self.rules.clear()

    async def dropped(self) -> Mapping[str, int]:
        self._called("dropped")
        silent = set(self.rules) if self.quiet else {rule for rule in self.rules if rule.split(":")[0] in self.silent}
        rates = {peer: 0 if peer in silent else PACKETS_PER_SECOND for peer in self.rules}
        return {peer: int((now() - since) * rates[peer]) for peer, since in self.rules.items()}

    async def write_file(self, path: str, data: bytes) -> None:
        if self._called("write_file"):
            self.files[path] = data

    async def read_file(self, path: str) -> bytes:
        return self.files[path]

    async def find_files(self, pattern: str) -> Mapping[str, int]:
        self._called("find_files")
        return {path: len(data) for path, data in sorted(self.files.items()) if fnmatch.fnmatchcase(path, pattern)}

    async def read_range(self, path: str, position: int, size: int) -> bytes:
        self._called("read_range")
        return self.files[path][position : position + size]

    async def write_range(self, path: str, position: int, data: bytes) -> None:
        if self._called("write_range"):
            assert self.state is ProcessState.DEAD, "files of a living process"
            content = bytearray(self.files[path])
            content[position : position + len(data)] = data
            self.files[path] = bytes(content)

    async def truncate_file(self, path: str, size: int) -> None:
        if self._called("truncate_file"):
            assert self.state is ProcessState.DEAD, "files of a living process"
            self.files[path] = self.files[path][:size]

    def _in(self, folder: str, kept: Collection[str]) -> dict[str, bytes]:
        found = sorted(self.files.items())
        return {path: data for path, data in found if path.startswith(f"{folder}/") and path not in kept}

    async def contents(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        self._called("contents")
        return {path: data.hex() for path, data in self._in(folder, kept).items()}

    async def remove_contents(self, folder: str, kept: Collection[str] = ()) -> None:
        if self._called("remove_contents"):
            assert self.state is ProcessState.DEAD, "files of a living process"
            removed = self._in(folder, kept)
            self.files = {path: data for path, data in self.files.items() if path not in removed}

    async def save(self, folder: str, kept: Collection[str] = ()) -> Mapping[str, str]:
        if self._called("save"):
            self.copy = self._in(folder, kept)
        return await self.contents(folder, kept)

    async def restore(self, folder: str, kept: Collection[str] = ()) -> None:
        if self._called("restore"):
            await self.remove_contents(folder, kept)
            assert self.copy is not None
            self.files |= self.copy

    async def discard(self, folder: str) -> None:
        if self._called("discard"):
            self.copy = None

    async def events(self) -> AsyncIterator[str]:
        lines: list[str] = []
        for line in lines:
            yield line

    def kill_by_itself(self) -> None:
        self.state = ProcessState.DEAD

    @property
    def untouched(self) -> bool:
        alive = self.state is ProcessState.RUNNING and not self.is_frozen
        return alive and not (
            self.copy
            or self.rules
            or self.clock_ahead
            or self.slow_since
            or self.failing
            or self.traffic
            or self.filled
            or self.files.get(HOLD_FILE)
        )


class FakeCluster:
    kind = "fake"
    description: Mapping[str, str] = {}

    def __init__(self, servers: int = 3, zookeepers: int = 1, clients: int = 2, spares: int = 1) -> None:
        self.servers = [FakeNode("broker", index + 1) for index in range(servers)]
        self.spares = [FakeNode("broker", servers + index + 1) for index in range(spares)]
        for spare in self.spares:
            spare.state, spare.made, spare.files = ProcessState.DEAD, spare.files, {}
        self.zookeepers = [FakeNode("zookeeper", index + 1) for index in range(zookeepers)]
        self.clients = [FakeNode("client", index + 1) for index in range(clients)]

    @property
    def nodes(self) -> list[FakeNode]:
        return [*self.zookeepers, *self.servers, *self.clients]

    def node(self, name: str) -> FakeNode:
        return next(node for node in (*self.nodes, *self.spares) if node.name == name)

    @property
    def untouched(self) -> bool:
        left = [node for node in self.spares if node.state is not ProcessState.DEAD or node.files]
        return not left and all(node.untouched and node.copy is None for node in self.nodes)

    async def close(self) -> None: ...


class FakeSystem:
    """``leaders``, ``controller`` and ``coordinator`` are names; ``slow`` seconds a node needs to serve after it was
    seen down.
    """

    name = "fake"
    roles = ("zookeeper", "broker", "client")
    groups = ("members",)
    client_sessions = True
    start_events = ("registered", "recovered")

    def hold_file(self, node: Any) -> str:
        return HOLD_FILE

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Any) -> str:
        return "/data"

    def lock_files(self, node: Any) -> Sequence[str]:
        return [LOCK_FILE]

    async def alone_with(self, cluster: Any, node: Any, away: Any) -> str | None:
        others = self.in_sync_with.get(node.name)
        if others is not None and others <= {one.name for one in away}:
            return "orders-1"
        alone = now() < self.alone_until.get(node.name, 0.0)
        return "orders-1" if alone or (node.name in self.alone_when_ended and node.state is ProcessState.DEAD) else None

    def data_files(self, node: Any) -> Sequence[str]:
        return ["/data/*/*.log"]

    async def durable_size(self, node: Any, path: str) -> int:
        return DURABLE

    def __init__(self, cluster: FakeCluster, slow: float = 1.0) -> None:
        self.cluster = cluster
        self.leaders: dict[str, str | None] = {"orders-0": "n1", "orders-1": "n2"}
        self.controller: str | None = "n3"
        self.coordinator: str | None = "n2"
        self.slow = slow
        self.never_ready: set[str] = set()
        self.alone_until: dict[str, float] = {}
        """Until when a node alone has all of something."""
        self.in_sync_with: dict[str, set[str]] = {}
        """Who else has it."""
        self.alone_when_ended: set[str] = set()
        """Nodes that do once their process has ended."""
        self.asked: list[tuple[str, str | None]] = []
        self.find_error: Exception | None = None
        self.placed = ["n1", "n2", "n3"]
        self.moving_until = 0.0
        self.refusals: list[str] = []
        self._up_since: dict[str, float] = {}

    async def ready(self, node: Any) -> bool:
        if not node.untouched or node.name in self.never_ready:
            self._up_since.pop(node.name, None)
            return False
        return now() >= self._up_since.setdefault(node.name, now()) + self.slow

    async def find(self, cluster: Any, what: str, key: str | None = None) -> Any:
        self.asked.append((what, key))
        if self.find_error is not None:
            raise self.find_error
        known = {"controller": self.controller, "coordinator": self.coordinator}
        name = known[what] if what in known else self.leaders.get(key or "")
        return None if name is None else self.cluster.node(name)

    def keys(self) -> Sequence[str]:
        return list(self.leaders)

    async def replicas_of(self, cluster: Any, key: str) -> Any:
        return None if now() < self.moving_until else [self.cluster.node(name) for name in self.placed]

    async def move(self, cluster: Any, key: str, nodes: Sequence[Any]) -> str | None:
        if self.refusals:
            return self.refusals.pop(0)
        if not any("move" in node.deaf for node in (*self.cluster.nodes, *self.cluster.spares)):
            self.placed = [node.name for node in nodes]
            self.moving_until = now() + self.slow
        return None

    def moved(self, line: Mapping[str, Any]) -> tuple[str, Sequence[int]] | None:
        return (line["key"], line["detail"]["replicas"]) if line["event"] == "moved" else None

    async def standing(self, cluster: Any) -> Any:
        """A server is a member as long as it runs; one that is deaf to this stays one."""
        if now() < self.moving_until:
            return ReplicaPlacement(self._members(), {}, {key: [1, 2, 3] for key in self.leaders})
        placed = [self.cluster.node(name).index for name in self.placed]
        return ReplicaPlacement(self._members(), dict.fromkeys(self.leaders, placed), {})

    def _members(self) -> list[int]:
        everyone = [*self.cluster.servers, *self.cluster.spares]
        return [n.index for n in everyone if n.state is ProcessState.RUNNING or "leave" in n.deaf]

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        return (line["detail"]["led"], line["detail"]["kept"]) if line["event"] == "handed-over" else None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the nemesis must not use System.{name}")


class Play:
    """A conductor with its cluster and the rows it reported."""

    def __init__(self, schedule: FaultSchedule, cluster: FakeCluster | None = None, **options: Any) -> None:
        self.cluster = cluster or FakeCluster()
        self.system = FakeSystem(self.cluster)
        self.schedule = schedule
        self.rows: list[FaultRow] = []
        self.times: list[float] = []
        self.options = options
        self._stamps = itertools.count(1)

    def conductor(self) -> Conductor:
        def record(row: FaultRow) -> None:
            self.rows.append(row)
            self.times.append(round(now(), 6))

        stamp = self._stamps.__next__
        made = Conductor(
            self.cluster,
            self.system,
            self.schedule,
            random.Random(1),
            record,
            stamp,
            **{"catalogue": FAULTS, **self.options},
        )
        for node in self.cluster.nodes:
            node.on_event = made.handle_event
        return made

    def play(self) -> list[FaultRow]:
        async def main() -> None:
            conductor = self.conductor()
            await conductor.run()
            await conductor.wait_for_recoveries()
            self.record = conductor.outcome
            self.finds = conductor.finder_statistics

        run(main())
        return self.rows

    def phases(self, number: int) -> list[str]:
        return [str(row.phase) for row in self.rows if row.id == number]

    def row(self, number: int, phase: FaultPhase) -> FaultRow:
        return next(row for row in self.rows if row.id == number and row.phase is phase)

    def at(self, number: int, phase: FaultPhase) -> float:
        return next(
            at for row, at in zip(self.rows, self.times, strict=True) if row.id == number and row.phase is phase
        )


def links(fault: Any, servers: int, targets: list[str], zookeepers: int = 1, **parameters: Any) -> set[Drop]:
    """Returns what a fault cuts of these targets."""
    cluster = FakeCluster(servers, zookeepers)
    step = FaultStep(0.0, fault.name, named_target(*targets), 1.0, parameters)
    context = FaultContext(cluster, FakeSystem(cluster), CutLedger(cluster))
    nodes = tuple(cluster.node(name) for name in targets)
    return set(fault.links(Injection(1, step, nodes, context)))


class FakeAgent(FakeNode):
    """A process beside a fake node's main one, which then is a node with several."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node.role, node.index)
        self.files, self.writes = {}, False
        several: Any = node
        several.sidecars = ("agent",)
        several.part = {"agent": self, "main": node}.__getitem__
