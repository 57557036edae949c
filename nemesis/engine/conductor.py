"""Plays a schedule on a cluster while the workload runs, and reports the outcome of every fault.

- Injections and heals run one at a time, in the order of their times. At equal times, heals come first. So two faults
  never race for a node. Recoveries are awaited in the background.
- No error of a node, a finder or the user's system ends the run. A fault that fails is reported as ``failed`` with the
  reason and undone as far as possible. Then the next one is played. A failed fault makes the run's coverage unknown;
  the checkers report that.
- A step with a trigger begins to wait at its time (:mod:`assay.nemesis.engine.waiting_steps`). The trial calls the
  conductor for each acknowledged operation and each line of the nodes' event logs. The step acts as soon as the current
  action has ended, and the delay is recorded. With ``hold``, the process that wrote the event is stopped until then
  (:mod:`assay.nemesis.engine.stop_at_event`).
- A step whose trigger never fires is reported as failed. So is a step that is postponed for too long because another
  server has just lost its data (:mod:`assay.nemesis.faults.data_loss`).
- A fault that ``lingers`` is healed once it has had its effect, or at a time limit. Other faults go on meanwhile. For
  example, a fault on passing packets has no effect while another fault keeps its target silent.

:meth:`Conductor.heal_all` never leaves a fault active. :meth:`Conductor.run` calls it at its end, on cancellation and
on errors, and it can be called again.
"""

import asyncio
import enum
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from assay.cluster.node import Cluster, Node, ProcessState
from assay.cluster.system import System
from assay.nemesis.engine.active_faults import ActiveFaults
from assay.nemesis.engine.cut_ledger import CutLedger
from assay.nemesis.engine.guarded_call import ACTION_SECONDS, run_guarded
from assay.nemesis.engine.recovery import RECOVERY_SECONDS, RecoveryWatch
from assay.nemesis.engine.reporter import FailureStage, FaultReporter, FaultRow, describe_injection
from assay.nemesis.engine.step_list import StepList
from assay.nemesis.engine.stop_at_event import EventStop
from assay.nemesis.engine.waiting_steps import RUN_ENDED, WaitingSteps
from assay.nemesis.faults.fault import FaultContext, FinderStatistics, Injection, Proof, get_declaration
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import Branch, FaultSchedule, FaultStep, ScheduleRecord
from assay.nemesis.schedule.target import ChosenTarget, list_clients, servers
from assay.nemesis.schedule.trigger import FiredTrigger

POLL_SECONDS: Final = 0.2
"""Seconds between two checks whether a lingering fault has had its effect."""
_LINE = msgspec.json.Decoder(dict[str, Any])


class _ActionOrder(enum.IntEnum):
    """Order of actions that are due at the same time: heals before injections."""

    HEAL = 0
    FIRED = 1
    """A step whose trigger has fired."""
    GIVE_UP = 2
    """A step whose trigger has not fired by its deadline."""
    BEGIN = 3
    """A step whose time has come."""


HEAL_RETRY_SECONDS: Final = 5.0
"""Seconds from the first failed heal of a fault to the next attempt. Each further pause is longer by this number.

A heal may succeed later, for example after the heal of another fault has thawed the node.
"""
MAX_HEAL_RETRY_SECONDS: Final = 60.0


class Conductor:
    """Plays one schedule once.

    - ``record`` takes each row as it happens.
    - ``stamp`` returns the history's strictly increasing nanoseconds.
    - ``rng`` feeds the choices of steps without a seed.
    - ``reseed`` takes the seed of a branch, from which all its randomness comes.
    - ``call_between_events`` calls a function at a time of the loop's clock, between two iterations of the event loop.
      In the simulation nothing else about the run changes.

    Raises ``ScheduleError`` at once if the schedule names a fault that is not in ``catalogue``.
    """

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        schedule: FaultSchedule,
        rng: random.Random,
        record: Callable[[FaultRow], None],
        stamp: Callable[[], int],
        *,
        catalogue: FaultCatalogue,
        recovery_seconds: float = RECOVERY_SECONDS,
        reseed: Callable[[int], None] = lambda seed: None,
        call_between_events: Callable[[float, Callable[[], object]], object] | None = None,
    ) -> None:
        catalogue.check(schedule)
        self._faults = catalogue
        self._step_list = StepList(schedule)
        self._rng = rng
        self._reseed = reseed
        self._call_between_events = call_between_events or asyncio.get_running_loop().call_at
        # Drawn now, in the order of the steps, because later events must not change the targets.
        self._seeds = {number: self._seed(step) for number, step in self._step_list.iterate_numbered()}
        self._steps: deque[tuple[int, FaultStep]] = deque()
        """Steps whose time has not come, by time."""
        self._last_events: dict[str, Mapping[str, Any]] = {}
        self._event_counts: Counter[str] = Counter()
        self._context = FaultContext(
            cluster,
            system,
            CutLedger(cluster),
            self._last_events,
            self._event_counts,
            unavailable_nodes=lambda: self._active.find_unavailable(),
            recovering=lambda: self._recoveries.list_recovering(),
        )
        self._reporter = FaultReporter(self._step_list, catalogue, list_clients(cluster), record, stamp)
        self._recoveries = RecoveryWatch(
            system, self._reporter, recovery_seconds, lambda: self._active.find_unavailable(), self._start_again
        )
        self._active = ActiveFaults(self._context, catalogue)
        self._wake = asyncio.Event()
        event_stop = EventStop(servers(cluster, system), system, self._last_events)
        self._waiting = WaitingSteps(self._step_list, event_stop, self._active, self._reporter, self._wake.set)
        self._heal_times: dict[int, float] = {}
        """Time at which each active fault must be healed, in seconds of the run."""
        self._failed_heals: Counter[int] = Counter()
        """How often the heal of each active fault has failed. It is repeated while other steps are played, and at the
        end."""
        self._latest_heal_times: dict[int, float] = {}
        """Latest heal times, in seconds of the run, of faults that linger because they have had no effect."""
        self._action_lock = asyncio.Lock()
        self._halted = False
        """Whether all known steps were played or dropped. A branch that begins then resumes playing."""
        self._over = False
        """Whether no further step is played, even if a branch begins."""
        self._branch_tasks: list[asyncio.Task[None]] = []
        """Tasks that play the steps of branches that began when all other steps were played."""

    @property
    def start_time(self) -> float:
        """The loop's time at which the main phase began."""
        return self._reporter.started

    @property
    def elapsed(self) -> float:
        """Seconds of the run."""
        return self._reporter.elapsed()

    @property
    def active_faults(self) -> tuple[Injection, ...]:
        """The active faults, oldest first."""
        return tuple(self._active)

    @property
    def outcome(self) -> ScheduleRecord:
        """The plan and its outcome so far. A run stores it as ``schedule.json``."""
        return self._reporter.outcome

    def count_acknowledged(self, count: int = 1) -> None:
        """Reports successful operations."""
        self._waiting.count_acknowledged(count)

    def handle_event(self, node: str, line: str) -> None:
        """Reports one line of a node's event log. A line that is no JSON object is ignored."""
        try:
            known = _LINE.decode(line)
        except msgspec.DecodeError:
            return
        self._last_events[node] = known
        self._event_counts[str(known.get("event"))] += 1
        for listener in tuple(self._context.listeners.values()):
            listener(node, known)
        self._waiting.handle_event(node, known)

    async def run(self) -> None:
        """Plays all steps and returns when the last is healed. For the recoveries see :meth:`wait_for_recoveries`.

        A cancellation heals the active faults first.
        """
        self._reporter.start_clock()
        self._reporter.report_intended(self._step_list.iterate_numbered())
        self._steps.extend(self._step_list.iterate_numbered())
        for branch in self._step_list.schedule.branches:
            self._call_between_events(self._reporter.started + branch.at, partial(self.begin_branch, branch))
        await self._play_all()

    def begin_branch(self, branch: Branch) -> None:
        """Begins a branch: reseeds all randomness, and adds the steps of the branch."""
        self._reseed(branch.seed)
        added = self._step_list.begin(branch)
        self._seeds |= {number: self._seed(step) for number, step in added}
        self._reporter.report_intended(added, self._reporter.elapsed())
        self._queue(added)
        if self._halted and added and not self._over:
            self._halted = False
            task = asyncio.get_running_loop().create_task(self._play_all(), name="nemesis of a branch")
            self._branch_tasks.append(task)
        self._wake.set()

    def _queue(self, added: Iterable[tuple[int, FaultStep]]) -> None:
        self._steps = deque(sorted((*self._steps, *added), key=lambda numbered: numbered[1].at))

    def _seed(self, step: FaultStep) -> int:
        return self._rng.getrandbits(32) if step.seed is None else step.seed

    async def _play_all(self) -> None:
        try:
            await self._play()
        except BaseException:
            self._over = True
            raise
        finally:
            await self._undo_all()

    async def heal_all(self) -> tuple[str, ...]:
        """Plays no further step and heals every active fault, even after a failed heal. Idempotent.

        Returns a message for each fault that could not be healed; empty if no fault is left active.
        """
        self._over = True
        errors = await self._undo_all()
        for task in self._branch_tasks:
            await task
        return errors

    async def _undo_all(self) -> tuple[str, ...]:
        self._halted = True
        self._wake.set()
        self._waiting.drop_all(number for number, _ in self._steps)
        self._steps.clear()
        while True:
            before = [injection.id for injection in sorted(self._active, key=self._linger_seconds)]
            troubles = [await self._heal(number) for number in before] + [await self._waiting.withdraw_request()]
            errors = [trouble for trouble in troubles if trouble is not None]
            # Repeated, because one heal may depend on another: a frozen node's rules can only change after its thaw.
            # Faults that linger longest are healed last.
            if not errors or len(self._active) == len(before):
                return tuple(errors)

    @property
    def finder_statistics(self) -> FinderStatistics:
        """How often the system's finders were asked, and how often they failed."""
        return self._context.finder_statistics

    async def wait_for_recoveries(self) -> None:
        """Waits until every healed fault is reported as recovered, or as not recovered within its deadline."""
        await self._recoveries.wait_for_all()

    async def close(self) -> tuple[str, ...]:
        """Heals all faults and stops waiting for recoveries: unfinished ones are reported as failed. Idempotent."""
        errors = await self.heal_all()
        await self._recoveries.close()
        return errors

    async def _play(self) -> None:
        """Injects and heals, one action after another, until nothing is left to do."""
        while not self._halted and (self._steps or self._waiting or self._heal_times.keys() - self._failed_heals):
            self._wake.clear()
            at, action, number = min(self._agenda())
            if not await self._wait_until(at) or self._halted:
                continue  # a trigger fired, or the run was halted, maybe at this very moment
            if action is _ActionOrder.HEAL:
                if not await self._lingers(number, at):
                    await self._heal(number)
            elif action is _ActionOrder.FIRED:
                await self._inject(number, self._waiting.pop(number))
            elif action is _ActionOrder.GIVE_UP:
                await self._waiting.give_up(number, at)
            else:
                step = self._steps.popleft()[1]
                if step.trigger is None:
                    await self._inject(number)
                else:
                    await self._waiting.arm(number, step.trigger)

    def _agenda(self) -> Iterator[tuple[float, _ActionOrder, int]]:
        """Yields the next action of each sort, with its time in seconds of the run."""
        for number, at in self._heal_times.items():
            yield at, _ActionOrder.HEAL, number
        for at, number in self._waiting.iterate_due():
            yield at, _ActionOrder.FIRED, number
        for at, number in self._waiting.iterate_deadlines():
            yield at, _ActionOrder.GIVE_UP, number
        if self._steps:
            number, step = self._steps[0]
            yield step.at, _ActionOrder.BEGIN, number

    async def _wait_until(self, seconds: float) -> bool:
        """Waits until that time. Returns False as soon as the agenda may have changed."""
        try:
            async with asyncio.timeout_at(self._reporter.started + seconds):
                await self._wake.wait()
        except TimeoutError:
            return not self._wake.is_set()  # a trigger may have fired since the timeout was due
        return False

    async def _inject(self, number: int, fired: FiredTrigger | None = None) -> None:
        """Injects a fault. ``fired``: the event that fulfilled the step's trigger, if it has one."""
        trouble = None
        async with self._action_lock:
            if self._halted:  # halted while it waited for its turn
                if fired is not None:
                    self._waiting.drop(number, RUN_ENDED)
                return
            held = fired is not None and self._waiting.has_request(number)
            if fired is not None and held:
                fired = await self._waiting.confirm_stopped(number, fired)
            if fired is not None or not held:
                trouble = await self._strike(number, fired, held)
            await self._waiting.withdraw_request()
        if trouble is not None:
            await self._heal(number, failed=trouble)

    async def _strike(self, number: int, fired: FiredTrigger | None, held: bool) -> str | None:
        """Chooses the targets and injects the fault. Returns why it could not be injected, or None.

        ``held``: whether the process that wrote the event is stopped until the step has acted.
        """
        step, began = self._step_list[number], self._reporter.elapsed()
        # A process that is stopped at an event must not be kept waiting, because other processes may wait for it.
        chosen = await self._choose(number, step, fired, waits=not held)
        if isinstance(chosen, str):
            self._reporter.report_missed(number, began, FailureStage.TARGET, chosen)
            return None
        if chosen.wait_reason is not None:
            self._queue(self._waiting.postpone(number, fired, chosen.wait_reason))
            return None
        seed = self._seeds[number]
        injection = Injection(number, step, chosen.nodes, self._context, seed=seed, others=chosen.others)
        began = self._reporter.next_moment()
        self._reporter.report_targeted(injection, began, describe_injection(step, chosen, fired, held, began))
        self._active.add(injection)
        trouble = await run_guarded(ACTION_SECONDS, self._faults[step.fault].inject(injection))
        if trouble is not None:
            self._report_not_injected(injection, trouble)
            return trouble
        if fired is not None:
            self._heal_times[number] = began + step.duration
        else:
            self._heal_times[number] = max(step.until, began + self._waiting.minimum_duration(number))
        self._reporter.report_injected(injection)
        return None

    def _report_not_injected(self, injection: Injection, trouble: str) -> None:
        others = [f"fault {other.id} ({other.step.fault})" for other in self._active if other is not injection]
        if injection.step.yields and others:  # the step may be skipped because of other faults
            trouble = f"{trouble}; active faults: {', '.join(others)}"
            self._reporter.report_not_injected(injection, FailureStage.HINDERED, trouble)
        else:
            self._reporter.report_not_injected(injection, FailureStage.INJECT, trouble)

    async def _choose(
        self, number: int, step: FaultStep, fired: FiredTrigger | None, *, waits: bool
    ) -> ChosenTarget | str:
        """Returns the targets, or the reason why there are none."""
        if (conflict := self._waiting.find_conflict(step)) is not None:
            return conflict
        chosen: list[ChosenTarget] = []

        async def choose() -> None:
            chosen.append(await self._active.choose(step, self._seeds[number], fired, waits=waits))

        trouble = await run_guarded(ACTION_SECONDS, choose())
        return chosen[0] if trouble is None else trouble

    async def _lingers(self, number: int, at: float) -> bool:
        """Returns whether the fault stays active after ``at`` because it has had no effect.

        Then its heal is postponed.
        """
        injection = self._active.get(number)
        patience = self._linger_seconds(injection) if injection is not None else 0.0
        if injection is None or not patience:
            return False
        fault, latest = self._faults[injection.step.fault], self._latest_heal_times.setdefault(number, at + patience)
        if self._reporter.elapsed() >= latest:
            return False
        async with self._action_lock:
            trouble = await run_guarded(ACTION_SECONDS, fault.observe(injection))
        if trouble is not None or fault.proof(injection).took_effect or self._halted:
            return False
        self._heal_times[number] = min(self._reporter.elapsed() + POLL_SECONDS, latest)
        return True

    def _linger_seconds(self, injection: Injection) -> float:
        """Returns how many seconds the fault may outlast its duration."""
        fault = self._faults[injection.step.fault]
        return 0.0 if injection.step.exact else get_declaration(fault, "lingers") or 0.0

    async def _heal(self, number: int, failed: str | None = None) -> str | None:
        """Observes, heals and judges one fault. Returns why it could not be healed, or None.

        ``failed``: why the injection failed.
        """
        async with self._action_lock:
            self._heal_times.pop(number, None)
            injection = self._active.get(number)
            if injection is None:
                return None
            names, fault = injection.names, self._faults[injection.step.fault]
            if failed is None:
                unseen = await run_guarded(ACTION_SECONDS, fault.observe(injection))
                if unseen is not None:
                    self._reporter.report_failed(number, names, FailureStage.OBSERVE, unseen)
            began = self._reporter.next_moment()
            trouble = await run_guarded(ACTION_SECONDS, fault.heal(injection))
            if trouble is not None:
                if number not in self._failed_heals:
                    self._reporter.report_failed(number, names, FailureStage.HEAL, trouble)
                self._failed_heals[number] += 1
                pause = min(HEAL_RETRY_SECONDS * self._failed_heals[number], MAX_HEAL_RETRY_SECONDS)
                self._heal_times[number] = self._reporter.elapsed() + pause
                return f"{injection.step.fault} of {'+'.join(names)} could not be healed: {trouble}"
            self._active.remove(number)
            self._failed_heals.pop(number, None)
            proof = fault.proof(injection) if failed is None else Proof(False, injection.evidence, failed)
            self._reporter.report_healed(injection, proof, began)
            await self._waiting.withdraw_request()  # a frozen machine could not be asked before
            self._recoveries.begin(injection)
        return None

    async def _start_again(self, injection: Injection, node: Node) -> None:
        """Restarts a target that has ended since the heal, unless another fault keeps it from running.

        The fault itself may have ended it, or other faults hindered its start. Raises ``NodeError``.
        """
        fault = self._faults[injection.step.fault]
        if not (get_declaration(fault, "ends_late") or (fault.impact.ends_process and self._active.hinders_start())):
            return  # before the lock is taken, because the fault that holds the lock may wait for this recovery
        async with self._action_lock:
            held = node.name in self._active.find_ended_or_paused()
            if not held and (await node.process()).state is ProcessState.DEAD:
                await node.start()
