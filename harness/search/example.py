"""Example of a search: a whole run as plain data, so that it can be varied, kept, shrunk and repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from assay.cluster.system import ZOOKEEPER_ROLE, System
from assay.harness.core.files import write_atomically
from assay.harness.core.printable import count_noun
from assay.harness.run.faults import list_fault_names
from assay.harness.run.settings import Settings
from assay.nemesis.schedule.schedule import Branch, FaultSchedule, FaultStep, encode_schedule
from assay.nemesis.schedule.target import ONE, TargetKind
from assay.nemesis.schedule.trigger import EVERY_INTERVAL, OnEvent


class Example(msgspec.Struct, frozen=True):
    """The varying part of a run: seed, topology, workload, configuration, faults. Times are in seconds."""

    seed: int
    schedule: FaultSchedule
    nodes: int
    zookeepers: int
    concurrency: int
    rate: float | None
    time_limit: float
    configuration: tuple[str, ...] = ()

    def settings(self, base: Settings, file: Path) -> Settings:
        """Returns the settings of its run, which replays the schedule that this method writes to ``file``."""
        write_atomically(file, encode_schedule(self.schedule))
        return replace(self.vary(base), replay=file)

    def vary(self, base: Settings) -> Settings:
        """Returns the settings of its run without the schedule. The caller passes the schedule on itself."""
        values = msgspec.structs.asdict(self)
        del values["schedule"]
        return replace(
            base,
            **values,
            nemesis=list_fault_names(self.schedule),
            nemesis_target=None,
            nemesis_trigger=EVERY_INTERVAL,
            replay=None,
        )

    def keep_steps(self, numbers: Collection[int]) -> Example:
        """Returns a copy with only these steps, counted from 1, or itself if none would be left.

        The copy has no branches, because another run would not reach their fork points again.
        """
        kept = [step for number, step in enumerate(self.schedule.all_steps, start=1) if number in numbers]
        return self.with_schedule(sorted(kept, key=lambda step: step.at)) if kept else self

    def with_schedule(self, steps: Iterable[FaultStep], branches: Iterable[Branch] = ()) -> Example:
        """Returns a copy with these faults."""
        schedule = FaultSchedule(self.schedule.seed, tuple(steps), branches=tuple(branches))
        return msgspec.structs.replace(self, schedule=schedule)

    def with_branch(self, branch: Branch) -> Example:
        """Returns a copy with one more branch."""
        return self.with_schedule(self.schedule.steps, (*self.schedule.branches, branch))

    def require_triggers(self) -> Example:
        """Returns a copy whose runs are rejected if an event-triggered step never fired.

        It is used to replay a schedule on another cluster.
        """

        def require(step: FaultStep) -> FaultStep:
            if not isinstance(step.trigger, OnEvent):
                return step
            return msgspec.structs.replace(step, trigger=msgspec.structs.replace(step.trigger, optional=False))

        branches = [
            msgspec.structs.replace(branch, steps=tuple(map(require, branch.steps)))
            for branch in self.schedule.branches
        ]
        return self.with_schedule(map(require, self.schedule.steps), branches)

    @staticmethod
    def of(settings: Settings, schedule: FaultSchedule) -> Example:
        """Returns the example for these settings and this schedule."""
        values = {name: getattr(settings, name) for name in Example.__struct_fields__ if name != "schedule"}
        return Example(schedule=schedule, **values)

    def lines(self, parts: SystemParts) -> list[str]:
        """Returns a description of the run as lines of text."""
        shape = [
            count_noun(self.nodes, "node"),
            *([count_noun(self.zookeepers, "ZooKeeper")] if parts.zookeeper else []),
            count_noun(self.concurrency, "client"),
            "as fast as they can" if self.rate is None else f"{self.rate:g} operations/s",
            f"{self.time_limit:g} s",
        ]
        lines = [", ".join([*shape, *self.configuration]), *map(parts.describe_step, self.schedule.steps)]
        for branch in self.schedule.branches:
            lines += [f"{branch.at:6.3f} s  {branch}", *map(parts.describe_step, branch.steps)]
        return lines


KINDS_FOUND_BY_SYSTEM: Final = frozenset(
    {TargetKind.LEADER, TargetKind.FOLLOWER, TargetKind.CONTROLLER, TargetKind.COORDINATOR}
)
"""Kinds of targets that a system's ``find`` must find. If it finds none, a fault strikes one server."""


@dataclass(frozen=True)
class SystemParts:
    """The parts of a system that descriptions may name. A system may have no ZooKeeper, or no leader.

    ``zookeeper``: whether it has ZooKeeper. ``missing``: kinds of targets that the system does not have.
    """

    zookeeper: bool = True
    missing: frozenset[TargetKind] = frozenset()

    @staticmethod
    def of(system: System) -> SystemParts:
        """Returns the parts of this system."""
        finds = getattr(type(system), "find", System.find) is not System.find
        return SystemParts(ZOOKEEPER_ROLE in system.roles, frozenset() if finds else KINDS_FOUND_BY_SYSTEM)

    def describe_step(self, step: FaultStep) -> str:
        """Returns a description of one step, with its times."""
        if step.target.kind in self.missing:
            step = msgspec.structs.replace(step, target=msgspec.structs.replace(step.target, kind=ONE.kind, key=None))
        return f"{step.at:6.3f} s  {step}, for {step.duration:g} s"
