"""The waiting steps of a run: some wait for their triggers, others are postponed.

If a trigger has ``hold``, the process that writes the event stops there (:mod:`assay.nemesis.engine.stop_at_event`).
The step acts once that process is seen stopped.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from assay.nemesis.engine.active_faults import ActiveFaults
from assay.nemesis.engine.guarded_call import ACTION_SECONDS, run_guarded
from assay.nemesis.engine.reporter import FailureStage, FaultReporter
from assay.nemesis.engine.step_list import StepList
from assay.nemesis.engine.stop_at_event import LINE_SECONDS, EventStop
from assay.nemesis.faults.fault import NOT_READY_ERRORS
from assay.nemesis.faults.hold import HoldFault
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.trigger import ArmedTrigger, FiredTrigger, OnEvent, Trigger

RETRY_SECONDS = 0.25
"""Seconds between attempts of a postponed step. Also between checks for a line that may still arrive late."""
MAX_POSTPONEMENT = 15.0
"""Maximum seconds that a step is postponed.

ZooKeeper grants sessions of 10 s at most, and a server serves soon after. Most faults that hold all possible targets
are healed within that time, too.
"""
RUN_ENDED = "the run ended first"
MIN_DURATION = 1.0
"""Minimum seconds of a fault that begins late, because the injection before it took long (such as a clean stop)."""


class WaitingSteps:
    """Waiting steps of one run. ``wake`` is called when a trigger fires."""

    def __init__(
        self,
        step_list: StepList,
        event_stop: EventStop,
        active: ActiveFaults,
        reporter: FaultReporter,
        wake: Callable[[], None],
    ) -> None:
        self._step_list = step_list
        self._event_stop = event_stop
        self._active = active
        self._reporter = reporter
        self._wake = wake
        self._acknowledged = 0
        self._armed: dict[int, ArmedTrigger] = {}
        self._fired: dict[int, FiredTrigger] = {}
        self._give_up_times: dict[int, float] = {}
        """Times at which postponed steps are given up, in seconds of the run."""
        self._reasons: dict[int, str] = {}
        """Latest reasons for the postponement of steps."""

    def __bool__(self) -> bool:
        return bool(self._armed or self._fired)

    def iterate_deadlines(self) -> Iterator[tuple[float, int]]:
        """Yields the deadline of each armed step, in seconds of the run."""
        for number, armed in self._armed.items():
            yield armed.deadline, number

    def iterate_due(self) -> Iterator[tuple[float, int]]:
        """Yields the action time of each step whose trigger has fired."""
        for number, fired in self._fired.items():
            yield fired.due, number

    def count_acknowledged(self, count: int) -> None:
        """Reports ``count`` more successful operations."""
        self._acknowledged += count
        for number in [number for number, armed in self._armed.items() if armed.fires_at(self._acknowledged)]:
            self._fire(number)

    def handle_event(self, node: str, line: Mapping[str, Any]) -> None:
        """Reports a line of a node's event log."""
        for number in [number for number, armed in self._armed.items() if armed.fires_on(line)]:
            self._fire(number, node, line)

    def _fire(self, number: int, origin: str | None = None, line: Mapping[str, Any] | None = None) -> None:
        armed, now = self._armed.pop(number), self._reporter.elapsed()
        self._fired[number] = FiredTrigger(now, now + armed.trigger.delay, origin, line)
        self._wake()

    async def arm(self, number: int, trigger: Trigger) -> None:
        """Arms a step whose time has come."""
        self._arm(number, trigger)
        if isinstance(trigger, OnEvent) and trigger.hold:
            holds = [held for held in self._active if held.step.fault == HoldFault.name]
            trouble = f"{holds[0].step} is active and already makes processes stop at its own event" if holds else None
            trouble = trouble or await run_guarded(ACTION_SECONDS, self._event_stop.request_stop(number, trigger))
            if trouble is not None:
                self.drop(number, trouble)
                await self.withdraw_request()

    def _arm(self, number: int, trigger: Trigger) -> None:
        self._armed[number] = ArmedTrigger(trigger, self._step_list[number].at + trigger.within, self._acknowledged)

    async def give_up(self, number: int, at: float) -> None:
        """Gives up a step whose deadline has passed. Waits longer if a process is stopped and its line is unread."""
        armed, step = self._armed[number], self._step_list[number]
        if self._event_stop.step == number and at < step.at + armed.trigger.within + LINE_SECONDS:
            try:
                stopped = await self._event_stop.is_any_stopped(self._active.find_paused())
            except NOT_READY_ERRORS:
                stopped = True  # unknown, so it is asked again
            if self._armed.get(number) is not armed:
                return  # the line has arrived
            if stopped:
                armed.deadline = at + RETRY_SECONDS
                return
        self.drop(number, armed.describe_shortfall())
        await self.withdraw_request()

    def find_conflict(self, step: FaultStep) -> str | None:
        """Returns why a step of the fault ``hold`` cannot make its requests, or None.

        It cannot while a waiting step has a request of its own, because both use the same files.
        """
        if step.fault != HoldFault.name or self._event_stop.step is None:
            return None
        return f"{self._step_list[self._event_stop.step]} already makes processes stop at its own event"

    def has_request(self, number: int) -> bool:
        """Returns whether the active request belongs to this step."""
        return self._event_stop.step == number

    def pop(self, number: int) -> FiredTrigger:
        """Removes a due step and returns the event that fired its trigger."""
        return self._fired.pop(number)

    def postpone(self, number: int, fired: FiredTrigger | None, reason: str) -> Sequence[tuple[int, FaultStep]]:
        """Postpones a step that cannot act yet, up to a limit.

        Returns the step with its new time if it has no trigger.
        """
        now = self._reporter.elapsed()
        retry_time = now + RETRY_SECONDS
        self._reasons[number] = reason
        if now >= self._give_up_times.setdefault(number, now + MAX_POSTPONEMENT):
            self._reporter.report_missed(number, now, FailureStage.TARGET, reason)
        elif fired is not None:
            self._fired[number] = replace(fired, due=retry_time)
        else:
            return ((number, msgspec.structs.replace(self._step_list[number], at=retry_time)),)
        return ()

    def minimum_duration(self, number: int) -> float:
        """Returns the minimum duration of a step in seconds, from its injection."""
        step = self._step_list[number]
        if step.exact:
            return 0.0
        return step.duration if number in self._reasons else min(step.duration, MIN_DURATION)

    async def confirm_stopped(self, number: int, fired: FiredTrigger) -> FiredTrigger | None:
        """Returns the event of the process that is stopped. If none is, the step waits again, and it returns None."""
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                caught = await self._event_stop.find_stopped(self._active.find_paused())
        except NOT_READY_ERRORS as error:
            self.drop(number, f"no process was seen stopped: {error}")
            return None
        if caught is None:  # armed again at once, because the next line may arrive at any moment
            trigger = self._step_list[number].trigger
            assert trigger is not None, "it has fired"
            self._arm(number, trigger)
            return None
        return FiredTrigger(fired.at, fired.due, *caught)

    async def withdraw_request(self) -> str | None:
        """Withdraws a request that no step waits for. Returns the error or None.

        Nodes paused by a fault stay paused.
        """
        if (
            self._event_stop.step is None
            or self._event_stop.step in self._armed
            or self._event_stop.step in self._fired
        ):
            return None
        return await run_guarded(ACTION_SECONDS, self._event_stop.withdraw(self._active.find_paused()))

    def drop_all(self, queued: Iterable[int]) -> None:
        """Drops all waiting and ``queued`` steps, because the run ends. Postponed steps are reported."""
        for number in sorted([*queued, *self._armed, *self._fired]):
            if (reason := self._reasons.get(number)) is not None:
                self._armed.pop(number, None)
                self._fired.pop(number, None)
                self._reporter.report_missed(
                    number, self._reporter.elapsed(), FailureStage.TARGET, f"{RUN_ENDED}: {reason}"
                )
            elif number in self._armed or number in self._fired:
                self.drop(number, RUN_ENDED)

    def drop(self, number: int, reason: str) -> None:
        """Drops a step whose trigger did not fire, or fired too late to act."""
        self._armed.pop(number, None)
        self._fired.pop(number, None)
        reason = f"{self._step_list[number]}: {reason}"
        self._reporter.report_missed(number, self._reporter.elapsed(), FailureStage.TRIGGER, reason)
