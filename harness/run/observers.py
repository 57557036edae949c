"""Observers of a run: they record what its operations do not show.

- ``LeaderPoller`` polls the leaders of a system without event logs once a second, for the report only. An answer may be
  late or wrong, and a slow one is dropped. Therefore no check reads these events.
- ``InspectingRecorder`` inspects the servers each time a send is acknowledged, if the system can be inspected at an
  instant. ``assay.checkers.servers.acknowledged_state`` judges the findings.
- ``InvariantAsserter`` asserts a system's invariants during a simulation: at each event of a node's log, and at each
  acknowledgement. An event is checked before its process goes on. The first broken invariant ends the run and is a row
  ``broken``; rows ``asserted`` count how often each was checked. ``assay.checkers.servers.invariants`` judges both.
- ``record_processes`` records which server processes exist after every fault is healed: a missing one has ended by
  itself. ``assay.checkers.servers.process_exits`` judges the rows.
- ``QuiescenceWatch`` takes snapshots of a system after a run until it is at rest: all work that has begun must end.
- ``StallMeter`` measures how long the machine kept the tester from running.

The history calls a snapshot a look. Findings outside snapshots are rows of its table ``looks`` with look 0.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.checkers.liveness.snapshots import MAX_PAUSE
from assay.cluster.node import Cluster, Node, NodeError, Part, ProcessState, SupportsParts
from assay.cluster.system import (
    DeploymentError,
    Inspector,
    Invariants,
    SeenAtRest,
    SupportsInvariants,
    SupportsSnapshots,
    System,
)
from assay.harness.core.history import History
from assay.harness.core.interpreter_status import describe_with_location
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.printable import to_printable
from assay.harness.core.timestamps import Stamps
from assay.nemesis.faults.fault import FinderStatistics

SEEN_LEADING: Final = "seen-leading"
"""Event: a node leads a key, according to an answer."""
SEEN_GONE: Final = "seen-gone"
"""Event: no node leads the key, or no answer came."""
POLL_INTERVAL: Final = 1.0
"""Seconds between two rounds of polling, and the time limit of an answer."""
LEADER: Final = "leader"
"""The key in the history if the system has no keys."""


class LeaderPoller:
    """Polls ``system`` from ``start`` to ``stop``, unless one of its nodes has an event log."""

    def __init__(self, system: System, cluster: Cluster, history: History, stamps: Stamps) -> None:
        self._system, self._cluster, self._history, self._stamps = system, cluster, history, stamps
        self._leaders: dict[str, str] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self.problems: list[str] = []
        """Why polling ended early."""

    def start(self) -> None:
        if all(self._system.event_log(node) is None for node in self._cluster.nodes):
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="who leads")

    async def stop(self) -> None:
        """Ends the polling. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                self.problems.append(f"who led was not recorded to the end: {type(ended).__name__}: {ended}")
            self._task = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            for key in self._system.keys() or (None,):
                self._record_leader(key or LEADER, await self._find_leader(key))

    async def _find_leader(self, key: str | None) -> str | None:
        try:
            async with asyncio.timeout(POLL_INTERVAL):
                found = await self._system.find(self._cluster, "leader", key)
        except Exception:  # noqa: BLE001 - user code, called while nodes are down; the conductor reports failures
            return None
        return None if found is None else found.name

    def _record_leader(self, key: str, leader: str | None) -> None:
        before = self._leaders.get(key)
        if leader == before:
            return
        if before is not None:
            del self._leaders[key]
            self._write(SEEN_GONE, before, key)
        if leader is not None:
            self._leaders[key] = leader
            self._write(SEEN_LEADING, leader, key)

    def _write(self, event: str, node: str, key: str) -> None:
        self._count += 1
        self._history.event(time=self._stamps.now(), node=node, incarnation=0, seq=self._count, event=event, key=key)


def describe_failed_finds(finds: FinderStatistics) -> list[str]:
    """Returns a line if the system's ``find`` raised exceptions other than those for nodes that are down."""
    if finds.last is None:
        return []
    return [
        f"find() raised in {finds.failed} of {finds.asked} calls, so faults were aimed without it; the last error: "
        f"{describe_with_location(finds.last)}"
    ]


APPEND: Final = "append"


@dataclass
class InspectingRecorder:
    """A ``Recorder`` that records each operation in the history and then calls the inspector."""

    history: History
    inspector: Inspector | None
    stamps: Stamps
    on_acknowledged: Callable[[str, int, Sequence[SeenAtRest]], None]
    """Called with a partition, its last offset that this operation acknowledged, and the findings of the inspector."""

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None:
        self.history.completed(completed, effects)
        last: dict[str, int] = {}
        for effect in effects:
            outcome = completed.completion.outcome if effect.outcome is None else effect.outcome
            if effect.kind == APPEND and outcome is Outcome.OK and effect.position is not None:
                last[effect.key] = max(effect.position, last.get(effect.key, -1))
        for key, position in last.items():
            found = () if self.inspector is None else self.inspector.acknowledged(key, position)
            self._record(found)
            self.on_acknowledged(key, position, found)

    def close(self) -> None:
        """Records how much was inspected."""
        if self.inspector is not None:
            self._record(self.inspector.looked_at())

    def _record(self, seen: Iterable[SeenAtRest]) -> None:
        for row in seen:
            _record_finding(self.history, self.stamps, **row)


def _record_finding(history: History, stamps: Stamps, **row: Any) -> None:
    """Records a finding outside snapshots."""
    now = stamps.now()
    history.look(look=0, time=now, ended=now, **row)


class InvariantAsserter:
    """Checks invariants from :meth:`begin` to :meth:`end`. ``broken``: whether one was violated, or its code raised."""

    def __init__(self) -> None:
        self.broken = False
        self._invariants: Invariants | None = None
        self._error: Exception | None = None

    def begin(
        self, system: System, cluster: Cluster, history: History, stamps: Stamps, on_broken: Callable[[], None]
    ) -> None:
        """Starts the assertions, if the system has invariants and can be inspected. ``on_broken`` is called once."""
        self._invariants = system.invariants(cluster) if isinstance(system, SupportsInvariants) else None
        if self._invariants is None:
            return
        self._history, self._stamps, self._on_broken = history, stamps, on_broken
        simulated: Any = cluster  # only a simulated one can call a function at each line of an event log
        simulated.watch(self._check_event)

    def end(self) -> None:
        """Records how often each invariant was checked, and checks nothing more. Idempotent.

        Raises the exception of an invariant, if there was one, because it is no finding about the system.
        """
        invariants, self._invariants = self._invariants, None
        if invariants is not None:
            for name, count in sorted(invariants.asserted().items()):
                _record_finding(self._history, self._stamps, what="asserted", invariant=name, assertions=count)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> None:
        """Checks the acknowledgement of a partition up to an offset. ``found``: rows of the system's inspector."""
        if not self.broken and self._invariants is not None:
            self._check(self._invariants.acknowledged, key, position, found)

    def _check_event(self, node: str, line: str) -> None:
        if not self.broken and self._invariants is not None:
            self._check(self._invariants.event, node, line)

    def _check(self, invariants: Callable[..., Sequence[SeenAtRest]], *arguments: Any) -> None:
        try:
            for row in invariants(*arguments):
                _record_finding(self._history, self._stamps, what="broken", **row)
                self.broken = True
        except Exception as error:  # noqa: BLE001 - it must not end the process that has written the line
            self.broken, self._error = True, error
        if self.broken:
            self._on_broken()


CRASHED: Final = "crashed:"
"""Marks a problem of a run: a process of the system ended by an exception."""


async def record_processes(cluster: Cluster, servers: Sequence[Node], history: History, stamps: Stamps) -> None:
    """Writes a row per process of each server (``n1``, ``n1/agent``), and one per crash that the cluster knows of.

    Spares that joined the cluster have left it by now, so they need no process. The crash of a spare still counts.
    """
    if cluster.kind == "attach":
        return  # the state of these processes is unknown
    names = {node.name for node in (*servers, *cluster.spares)}
    for crash in getattr(cluster, "crashes", ()):
        moment = stamps.to_stamp(crash.time)
        if not crash.expected and crash.node in names:
            history.look(look=0, time=moment, ended=moment, what="crashed", node=crash.node)
    for server in servers:
        parts: dict[str, Node | Part] = {server.name: server}
        if isinstance(server, SupportsParts):
            parts |= {f"{server.name}/{named}": server.part(named) for named in server.sidecars}
        for name, part in parts.items():
            start = stamps.now()
            try:
                status = await part.process()
            except NodeError:
                continue
            what = "ended" if status.state is ProcessState.DEAD else "process"
            history.look(look=0, time=start, ended=stamps.now(), what=what, node=name)


def list_crashes(cluster: Cluster) -> list[str]:
    """Returns the processes that ended by their own exception, if the cluster knows (as the simulation does)."""
    return [f"{crash.node} {CRASHED} {crash.traceback}" for crash in getattr(cluster, "crashes", ())]


def read_wall_offsets(cluster: Cluster) -> dict[str, float]:
    """Returns the seconds by which wall clocks of nodes are ahead, by name, if the cluster has measured an offset."""
    found = {node.name: getattr(node, "wall_ahead", 0.0) for node in (*cluster.nodes, *cluster.spares)}
    return {name: ahead for name, ahead in found.items() if ahead}


def read_clock_difference(cluster: Cluster) -> float:
    """Returns the greatest difference of two wall clocks, in seconds, if the cluster has measured it; 0 otherwise."""
    return float(getattr(cluster, "clock_difference", 0.0))


def read_slowest_offset(cluster: Cluster) -> float:
    """Returns the seconds by which the slowest wall clock of a node is ahead. It is negative if that clock is behind.

    Work that is due by this clock is due by the clock of every node.
    """
    return min((getattr(node, "wall_ahead", 0.0) for node in (*cluster.nodes, *cluster.spares)), default=0.0)


LOOK_INTERVAL: Final = 1.0
"""Seconds between the end of a look and the next one."""
LOOK_SECONDS: Final = 20.0
"""Time limit of one look."""
PATIENCE_FACTOR: Final = 3
"""Limit of the total time, as a multiple of the patience."""


@dataclass
class QuiescenceWatch:
    """Takes snapshots of the system at the end of a run. The history calls each one a look.

    The system is at rest if two looks in a row show no unfinished work, because one look is not atomic. The epochs that
    the system reports, such as those of leaders, must also be equal in both looks. Otherwise work may have been handed
    over under a new epoch, although each look shows it as complete.
    """

    system: SupportsSnapshots
    cluster: Cluster
    runtime: Any
    history: History
    stamps: Stamps
    looks: int = 0
    _epochs: Mapping[tuple[str | None, ...], int | None] | None = None
    """The epochs of the last look."""

    async def wait_until_at_rest(self, patience: int, stopped: Callable[[], bool]) -> str | None:
        """Takes looks until the system is at rest, for at most ``patience`` ns.

        The time restarts after a period without a complete look. Returns the error of the last look, if it failed.
        """
        began = patience_began = last_complete = self.stamps.now()
        obstacle, was_at_rest = None, False
        while not stopped():
            start = self.stamps.now()
            if start - last_complete > MAX_PAUSE:
                patience_began = start
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    at_rest = await self._look()
            except (NodeError, DeploymentError, OSError) as error:
                reason = str(error) or "no answer in time"
                at_rest, obstacle = False, f"the system at rest could not be looked at: {reason}"
            else:
                last_complete, obstacle = self.stamps.now(), None
            now = self.stamps.now()
            if (at_rest and was_at_rest) or now - patience_began > patience or now - began > PATIENCE_FACTOR * patience:
                break
            was_at_rest = at_rest
            if not at_rest:
                await asyncio.sleep(LOOK_INTERVAL)
        return obstacle

    async def _look(self) -> bool:
        """Takes a look. Returns whether it shows no unfinished work, and the epochs of the previous look."""
        start = self.stamps.now()
        wall_ms = int((self.runtime.wall_clock() + read_slowest_offset(self.cluster)) * 1000)
        seen = await self.system.look(self.cluster, self.runtime)
        ended = self.stamps.now()
        unsettled = self.system.unsettled(seen, wall_ms)
        self.looks += 1
        for one in seen:
            self.history.look(look=self.looks, time=start, ended=ended, **one)
        self.history.look(look=self.looks, time=start, ended=ended, what="look", wall_ms=wall_ms, unsettled=unsettled)
        previous = self._epochs
        self._epochs = {
            (one["what"], one.get("key"), one.get("node")): one["epoch"] for one in seen if one.get("epoch") is not None
        }
        return unsettled == 0 and previous in (None, self._epochs)


MIN_STALL: Final = 0.25
"""Minimum seconds of a stall that counts, because processes of a busy machine take turns of milliseconds."""


@dataclass
class StallMeter:
    """Adds up the stalls of the tester: a task that sleeps repeatedly wakes up too late.

    A machine may be overloaded, paused or asleep (a virtual machine, a closed lid, Ctrl-Z). Deadlines then pass
    although no process could run, so a missed deadline proves nothing. The loop's clock stands still while the machine
    sleeps, so the sleep is measured by another clock. A slow disk of the tester has the same effect,
    because the history is written between the steps of its clients. Computation by the tester's own process is no
    stall, however long it takes.
    """

    sleep: float
    """Intended seconds of each sleep."""
    total: float = 0.0
    """Seconds."""
    _last: tuple[float, float, float] | None = None

    def record_sleep(self, now: float, computed: float, slept: float = 0.0) -> None:
        """Adds the delay of the last sleep. Must be called before each sleep.

        - ``now``: seconds of the loop's clock
        - ``computed``: processor seconds of the whole process so far
        - ``slept``: see :func:`assay.cluster.operating_system.measure_sleep`; 0 with simulated time
        """
        if self._last is not None:
            before, computed_before, slept_before = self._last
            stall = now - before - self.sleep - (computed - computed_before) + slept - slept_before
            if stall >= MIN_STALL:
                self.total += stall
        self._last = now, computed, slept


def describe_uncaught(errors: Sequence[Any]) -> list[str]:
    """Returns a sentence for each simulated process with uncaught exceptions: their number, and the first.

    ``errors``: those of ``assay.cluster.sim.loop.SimLoop.uncaught``.
    """
    by_process: dict[str, list[Any]] = {}
    for error in errors:
        by_process.setdefault(error.process, []).append(error)
    described = []
    for name, own in by_process.items():
        first: BaseException = own[0].error
        frames = traceback.extract_tb(first.__traceback__)
        place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        count = "an exception" if len(own) == 1 else f"{len(own)} exceptions"
        described.append(
            f"{name}: {count} that its code did not catch, at first {to_printable(repr(first))}{place} after "
            f"{own[0].time:.3f} s; logs/{name.partition('/')[0]} has the traceback"
        )
    return described
