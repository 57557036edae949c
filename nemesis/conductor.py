"""Plays a schedule on a cluster while the workload runs, and reports what became of every fault.

One fault is acted on at a time, in the order of their times (heals before injections at the same moment), so two faults
never race for a node; waiting for recovery goes on beside it. Nothing a node, a finder or the user's system does ends
the run: a fault that fails is reported as ``failed`` with the reason, undone as far as there is anything to undo, and
the next one is played. A failed fault makes the run's coverage unknown; that is for the checkers to say.

A step with a trigger (:mod:`assay.nemesis.trigger`) waits beside the others once its time has come; whoever runs the
workload tells the conductor of acknowledged operations and of the nodes' event lines. It acts as soon as the action
that is under way has ended, and the delay is recorded; with ``hold`` the process that wrote the event stands still
until then (:mod:`assay.nemesis.ambush`). One that waits in vain is reported as failed.

Whatever happens, :meth:`Conductor.heal_all` leaves no fault in force: :meth:`Conductor.run` calls it at its end, when
it is cancelled and on errors, and it may be called again. An injection counts as in force from before its first call to
a node until its heal has succeeded.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from assay.cluster import zookeeper
from assay.cluster.node import Cluster, Node
from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.nemesis.ambush import LINE_SECONDS, Ambush
from assay.nemesis.attempt import attempt
from assay.nemesis.catalogue import Catalogue
from assay.nemesis.cuts import Cuts
from assay.nemesis.fault import NOT_READY_ERRORS, Bite, Context, Fault, Injection, Scope
from assay.nemesis.hold import Hold
from assay.nemesis.row import FaultPhase, FaultRow, Stage
from assay.nemesis.schedule import Record, Resolved, Schedule, Step
from assay.nemesis.target import KEYED, Chosen, Scene, Target, clients, groups, resolve, servers, zookeepers
from assay.nemesis.trigger import Armed, Fired, OnEvent, Trigger

ACTION_SECONDS = 30.0
"""An injection or a heal that takes longer has failed; a start over SSH takes less than one second."""
RECOVERY_SECONDS = 60.0
READY_EVERY = 0.25
STANDSTILL = (Scope.PROCESS, Scope.NODE)
"""Scopes of faults that decide whether a process runs."""
READY_SECONDS = 5.0

_LINE = msgspec.json.Decoder(dict[str, Any])


class _Turn(enum.IntEnum):
    """What is done first when several things are due at one moment: heals before injections."""

    HEAL = 0
    FIRED = 1
    GIVE_UP = 2
    BEGIN = 3


class Conductor:
    """Plays one schedule once.

    ``record`` takes each row as it comes to pass; ``stamp`` gives the history's strictly increasing nanoseconds;
    ``rng`` feeds the choices of steps that carry no seed of their own. Raises ``ScheduleError`` at once when the
    schedule names a fault that is not in ``catalogue``.
    """

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        schedule: Schedule,
        rng: random.Random,
        record: Callable[[FaultRow], None],
        stamp: Callable[[], int],
        *,
        catalogue: Catalogue,
        recovery_seconds: float = RECOVERY_SECONDS,
    ) -> None:
        catalogue.check(schedule)
        self._faults = catalogue
        self._system = system
        self._servers = servers(cluster, system)
        self._zookeepers = zookeepers(cluster)
        self._clients = clients(cluster)
        self._last_events: dict[str, Mapping[str, Any]] = {}
        self._context = Context(cluster, system, Cuts(cluster), self._last_events)
        self._ambush = Ambush(self._servers, system, self._last_events)
        self._cluster = cluster
        self._schedule = schedule
        # Drawn now, in the order of the steps: what happens in between must not change who is hit.
        self._seeds = [rng.getrandbits(32) if step.seed is None else step.seed for step in schedule.steps]
        self._record = record
        self._stamp = stamp
        self._recovery_seconds = recovery_seconds
        self._started = 0.0
        self._halted = False
        self._wake = asyncio.Event()
        self._acknowledged = 0
        self._armed: dict[int, Armed] = {}
        self._fired: dict[int, Fired] = {}
        self._acting = asyncio.Lock()
        self._in_force: dict[int, Injection] = {}
        self._due: dict[int, float] = {}
        self._resolved: dict[int, Resolved] = {}
        self._recoveries: dict[int, asyncio.Task[None]] = {}

    @property
    def in_force(self) -> tuple[Injection, ...]:
        """The faults injected and not healed, oldest first."""
        return tuple(self._in_force.values())

    @property
    def outcome(self) -> Record:
        """What was meant and what it has come to so far; a run stores it as ``schedule.json``."""
        return Record(self._schedule, tuple(self._resolved[number] for number in sorted(self._resolved)))

    def acknowledged(self, count: int = 1) -> None:
        """Tells of operations that ended well."""
        self._acknowledged += count
        for number in [number for number, armed in self._armed.items() if armed.acknowledged(self._acknowledged)]:
            self._fire(number)

    def event(self, node: str, line: str) -> None:
        """Tells of one line of a node's event log; what is no JSON object is nobody's event."""
        try:
            known = _LINE.decode(line)
        except msgspec.DecodeError:
            return
        self._last_events[node] = known
        for number in [number for number, armed in self._armed.items() if armed.event(known)]:
            self._fire(number, node, known)

    async def run(self) -> None:
        """Plays all steps and returns when the last is healed; recoveries may still be waited for (:meth:`settle`).

        Cancelling it heals what is in force before the cancellation goes on.
        """
        self._started = asyncio.get_running_loop().time()
        for number, step in enumerate(self._schedule.steps, start=1):
            detail = {"what": str(step), "at": step.at, "duration": step.duration, "parameters": dict(step.parameters)}
            self._row(number, step, (), FaultPhase.INTENDED, detail)
        try:
            await self._play()
        finally:
            await self.heal_all()

    async def heal_all(self) -> tuple[str, ...]:
        """Plays no further step and heals every fault in force, going on when one heal fails. Idempotent.

        Returns what could not be healed, a message each; empty when nothing is left in force.
        """
        self._halted = True
        self._wake.set()
        for number in sorted([*self._armed, *self._fired]):
            self._never(number, "the run ended first")
        while True:
            before = list(self._in_force)
            troubles = [await self._heal(number) for number in before] + [await self._end_ambush()]
            errors = [trouble for trouble in troubles if trouble is not None]
            # one may be in another's way: a frozen node's rules cannot be changed before it has been thawed
            if not errors or len(self._in_force) == len(before):
                return tuple(errors)

    async def settle(self) -> None:
        """Waits until every healed fault has been reported as recovered, or as not so within its deadline.

        Giving up on it, by a time limit of the caller's, ends no recovery: :meth:`close` does.
        """
        for task in list(self._recoveries.values()):
            await asyncio.shield(task)

    async def close(self) -> tuple[str, ...]:
        """:meth:`heal_all`, and no longer waits for recoveries: those still due are reported as failed. Idempotent."""
        errors = await self.heal_all()
        for number, task in self._recoveries.items():
            if not task.done():
                resolved = self._resolved[number]
                reason = "not ready yet when the run was closed"
                self._fail(number, resolved.step, resolved.targets, Stage.RECOVER, reason)
                task.cancel()
        await asyncio.gather(*self._recoveries.values(), return_exceptions=True)
        return errors

    async def _play(self) -> None:
        waiting = deque(enumerate(self._schedule.steps, start=1))
        while not self._halted and (waiting or self._armed or self._fired or self._due):
            self._wake.clear()
            at, turn, number = min(self._agenda(waiting))
            if not await self._time_has_come(at):
                continue  # a trigger was fulfilled, or the run is halted
            if turn is _Turn.HEAL:
                await self._heal(number)
            elif turn is _Turn.FIRED:
                await self._inject(number, self._schedule.steps[number - 1], self._fired.pop(number))
            elif turn is _Turn.GIVE_UP:
                await self._give_up(number, at)
            else:
                step = waiting.popleft()[1]
                if step.trigger is None:
                    await self._inject(number, step)
                else:
                    await self._arm(number, step, step.trigger)

    def _agenda(self, waiting: Sequence[tuple[int, Step]]) -> Iterator[tuple[float, _Turn, int]]:
        """What is to be done next of each sort, with its time in seconds of the run."""
        for number, at in self._due.items():
            yield at, _Turn.HEAL, number
        for number, fired in self._fired.items():
            yield fired.due, _Turn.FIRED, number
        for number, armed in self._armed.items():
            yield armed.deadline, _Turn.GIVE_UP, number
        if waiting:
            yield waiting[0][1].at, _Turn.BEGIN, waiting[0][0]

    async def _time_has_come(self, seconds: float) -> bool:
        """Waits until then; False as soon as there is a reason to look at the agenda again."""
        try:
            async with asyncio.timeout_at(self._started + seconds):
                await self._wake.wait()
        except TimeoutError:
            return True
        return False

    def _fire(self, number: int, origin: str | None = None, line: Mapping[str, Any] | None = None) -> None:
        armed, now = self._armed.pop(number), self._elapsed()
        self._fired[number] = Fired(now, now + armed.trigger.delay, origin, line)
        self._wake.set()

    async def _arm(self, number: int, step: Step, trigger: Trigger) -> None:
        self._armed[number] = Armed(trigger, step.at + trigger.within, self._acknowledged)
        if isinstance(trigger, OnEvent) and trigger.hold:
            orders = [held for held in self._in_force.values() if held.step.fault == Hold.name]
            trouble = f"{orders[0].step} is in force, with orders of its own" if orders else None
            trouble = trouble or await attempt(ACTION_SECONDS, self._ambush.lay(number, trigger))
            if trouble is not None:
                self._never(number, trouble)
                await self._end_ambush()

    async def _caught(self, number: int, fired: Fired) -> Fired | None:
        """With the process that stands at the event; None when none does, and the step goes on waiting."""
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                caught = await self._ambush.caught()
        except NOT_READY_ERRORS as error:
            self._never(number, f"no process was seen stopped: {error}")
            return None
        if caught is None:  # armed again at once: the next line may be read at any moment
            step = self._schedule.steps[number - 1]
            assert step.trigger is not None, "it has fired"
            self._armed[number] = Armed(step.trigger, step.at + step.trigger.within, self._acknowledged)
            return None
        return Fired(fired.at, fired.due, *caught)

    async def _give_up(self, number: int, at: float) -> None:
        """Unless a process stands in its ambush and only its line has not been read yet."""
        armed, step = self._armed[number], self._schedule.steps[number - 1]
        assert step.trigger is not None, "it is armed"
        if self._ambush.step == number and at < step.at + step.trigger.within + LINE_SECONDS:
            try:
                sprung = await self._ambush.has_sprung(self._kept_from_running())
            except NOT_READY_ERRORS:
                sprung = True  # nobody knows: it is asked again
            if self._armed.get(number) is not armed:
                return  # the line came meanwhile
            if sprung:
                armed.deadline = at + READY_EVERY
                return
        self._never(number, armed.missing)
        await self._end_ambush()

    def _kept_from_running(self) -> set[str]:
        still = [held for held in self._in_force.values() if self._faults[held.step.fault].scope in STANDSTILL]
        return {name for held in still for name in held.names}

    async def _end_ambush(self) -> str | None:
        """Unless a step still waits in it. Whom a fault keeps from running does not go on. What went wrong, or None."""
        if self._ambush.step is None or self._ambush.step in self._armed or self._ambush.step in self._fired:
            return None
        return await attempt(ACTION_SECONDS, self._ambush.end(self._kept_from_running()))

    def _never(self, number: int, reason: str) -> None:
        """A step whose trigger was not fulfilled, or too late to act."""
        self._armed.pop(number, None)
        self._fired.pop(number, None)
        step = self._schedule.steps[number - 1]
        reason = f"{step}: {reason}"
        self._resolved[number] = Resolved(step, (), self._elapsed(), None, {"reason": reason})
        self._fail(number, step, (), Stage.TRIGGER, reason)

    async def _inject(self, number: int, step: Step, fired: Fired | None = None) -> None:
        async with self._acting:
            held = fired is not None and self._ambush.step == number
            if fired is not None and held:
                fired = await self._caught(number, fired)
            trouble = None
            if fired is not None or not held:
                trouble = await self._strike(number, step, fired, held)
            await self._end_ambush()
        if trouble is not None:
            await self._heal(number, failed=trouble)

    async def _strike(self, number: int, step: Step, fired: Fired | None, held: bool) -> str | None:
        """Chooses the targets and injects the fault; why it could not be injected, or None."""
        fault = self._faults[step.fault]
        began = self._elapsed()
        chosen = await self._choose(number, step, fault, fired)
        if isinstance(chosen, str):
            self._resolved[number] = Resolved(step, (), began, None, {"reason": chosen})
            self._fail(number, step, (), Stage.TARGET, chosen)
            return None
        injection = Injection(number, step, chosen.nodes, self._context, seed=self._seeds[number - 1])
        departure = {"key": chosen.key, "note": chosen.note, "fell_back": chosen.fell_back}
        detail: dict[str, Any] = {"what": str(step), **{name: word for name, word in departure.items() if word}}
        began = self._elapsed()
        if fired is not None:
            trigger = {"at": fired.at, "delay": began - fired.at, "origin": fired.origin, "line": fired.line}
            trigger["held"] = held or None  # its process was seen stopped, with this line its last
            detail["trigger"] = {name: value for name, value in trigger.items() if value is not None}
        self._resolved[number] = Resolved(step, injection.names, began, None, detail)
        self._in_force[number] = injection
        trouble = await attempt(ACTION_SECONDS, fault.inject(injection))
        if trouble is not None:
            self._fail(number, step, injection.names, Stage.INJECT, trouble)
            return trouble
        self._due[number] = step.until if fired is None else began + step.duration
        extra = {"at": began, "parameters": step.parameters, "evidence": injection.evidence}
        self._row(number, step, injection.names, FaultPhase.INJECTED, {**detail, **extra})
        return None

    async def _choose(self, number: int, step: Step, fault: Fault, fired: Fired | None) -> Chosen | str:
        """The targets, or why there are none."""
        busy = self._busy(fault)
        target, origin = step.target, None if fired is None else fired.origin
        scene = Scene(
            self._servers,
            self._zookeepers,
            self._system.keys(),
            self._context.find,
            busy,
            origin,
            self._clients,
            groups(self._system),
        )
        if fired is not None and fired.line is not None and target.kind in KEYED and target.key is None:
            # The leader, or a follower, of what the event was about.
            about = fired.line.get("key")
            target = Target(target.kind, about if about in scene.whose(target.kind) else None)
        chosen: list[Chosen] = []

        async def choose() -> None:
            chosen.append(await resolve(target, scene, random.Random(self._seeds[number - 1])))

        trouble = await attempt(ACTION_SECONDS, choose())
        if trouble is not None:
            return trouble
        return self._sparing(chosen[0], scene) if step.keep_majority else chosen[0]

    def _sparing(self, chosen: Chosen, scene: Scene) -> Chosen:
        """The same, or one server that suffers already, when a majority of the servers would suffer otherwise."""
        if not any(node in self._servers for node in chosen.nodes):
            return chosen
        suffering = {name for held in self._in_force.values() for name in held.names}
        suffer = [n for n in self._servers if n.name in suffering or n.name in {node.name for node in chosen.nodes}]
        free = [node for node in self._servers if node.name in suffering and node.name not in scene.busy]
        if len(suffer) <= (len(self._servers) - 1) // 2 or not free:
            return chosen
        note = f"took {free[0].name}, which another fault holds already, so that a majority is left in peace"
        return Chosen((free[0],), key=chosen.key, note=note)

    def _busy(self, fault: Fault) -> list[str]:
        """The nodes that a fault holds which clashes with this one."""
        holders = [held for held in self._in_force.values() if self._faults[held.step.fault].scope.clashes(fault.scope)]
        return sorted({name for held in holders for name in held.names})

    async def _heal(self, number: int, failed: str | None = None) -> str | None:
        """Observes, heals and judges one fault; what could not be healed, or None. ``failed``: why it never began."""
        async with self._acting:
            self._due.pop(number, None)
            injection = self._in_force.get(number)
            if injection is None:
                return None
            step, names, fault = injection.step, injection.names, self._faults[injection.step.fault]
            if failed is None:
                unseen = await attempt(ACTION_SECONDS, fault.observe(injection))
                if unseen is not None:
                    self._fail(number, step, names, Stage.OBSERVE, unseen)
            began = self._elapsed()
            trouble = await attempt(ACTION_SECONDS, fault.heal(injection))
            if trouble is not None:
                self._fail(number, step, names, Stage.HEAL, trouble)
                return f"{step.fault} of {'+'.join(names)} could not be healed: {trouble}"
            del self._in_force[number]
            bite = fault.bit(injection) if failed is None else Bite(False, injection.evidence, failed)
            self._healed(number, injection, bite, began)
        return None

    def _healed(self, number: int, injection: Injection, bite: Bite, began: float) -> None:
        """Reports the heal and the bite, and begins to wait for the recovery."""
        step, names = injection.step, injection.names
        detail = {"at": began, "evidence": dict(bite.evidence)}
        if bite.reason is not None:
            detail["reason"] = bite.reason
        self._row(number, step, names, FaultPhase.HEALED, detail, bite.bit)
        resolved = self._resolved[number]
        self._resolved[number] = msgspec.structs.replace(
            resolved, healed_at=began, detail={**resolved.detail, "bit": bite.bit, **detail}
        )
        if not bite.bit:
            self._fail(number, step, names, Stage.BITE, bite.reason or "the fault did nothing")
        loop = asyncio.get_running_loop()
        name = f"recovery of fault {number}"
        self._recoveries[number] = loop.create_task(self._recover(number, injection), name=name)

    async def _recover(self, number: int, injection: Injection) -> None:
        """Until all targets serve again, at the same time or one after the other."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        missing = list(injection.targets)

        async def all_ready() -> None:
            while missing:
                if await self._ready(missing[0]):
                    missing.pop(0)
                else:
                    await asyncio.sleep(READY_EVERY)

        trouble = await attempt(self._recovery_seconds, all_ready())
        if trouble is None:
            detail = {"seconds": loop.time() - began}
            self._row(number, injection.step, injection.names, FaultPhase.RECOVERED, detail)
        else:
            reason = f"{', '.join(node.name for node in missing)} not ready after the heal: {trouble}"
            self._fail(number, injection.step, injection.names, Stage.RECOVER, reason)

    async def _ready(self, node: Node) -> bool:
        try:
            async with asyncio.timeout(READY_SECONDS):
                # ZooKeeper is the cluster's own, not the system's: what ready means there is the cluster's to say.
                if node.role == ZOOKEEPER_ROLE:
                    return await zookeeper.ready(node)
                return await self._system.ready(node)
        except NOT_READY_ERRORS:
            return False

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self._started

    def _fail(self, number: int, step: Step, targets: tuple[str, ...], stage: Stage, reason: str) -> None:
        detail = {"what": str(step), "stage": str(stage), "reason": reason}
        self._row(number, step, targets, FaultPhase.FAILED, detail)

    def _row(
        self,
        number: int,
        step: Step,
        targets: tuple[str, ...],
        phase: FaultPhase,
        detail: Mapping[str, Any],
        bit: bool | None = None,
    ) -> None:
        # A copy as it is now: evidence goes on growing after the row has been written.
        plain = msgspec.json.decode(msgspec.json.encode(dict(detail)))
        self._record(FaultRow(number, step.fault, targets, phase, self._stamp(), plain, bit))
