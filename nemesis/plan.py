"""A schedule as a display shows it: one line per fault, when it is in force, and for how long altogether."""

from dataclasses import dataclass

from assay.nemesis.schedule import Record, Schedule


@dataclass(frozen=True)
class PlannedFault:
    """One fault; times in seconds from the start of the main phase. ``targets``: nodes, once they are known."""

    id: int
    fault: str
    what: str
    begins: float
    ends: float
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        nodes = f" ({'+'.join(self.targets)})" if self.targets else ""
        return f"{self.begins:7.3f} s - {self.ends:7.3f} s  {self.what}{nodes}"


@dataclass(frozen=True)
class FaultPlan:
    """All faults of a run, by the time they begin; ``omitted``: asked for and no time for them."""

    faults: tuple[PlannedFault, ...]
    omitted: tuple[str, ...] = ()

    @property
    def ends(self) -> float:
        """Seconds until the last heal; 0 for a run without faults."""
        return max((fault.ends for fault in self.faults), default=0.0)

    def in_force(self, at: float) -> tuple[PlannedFault, ...]:
        return tuple(fault for fault in self.faults if fault.begins <= at < fault.ends)

    def lines(self) -> list[str]:
        """One line per fault, and one for what was left out."""
        left_out = [f"no time for {', '.join(self.omitted)}"] if self.omitted else []
        return [*(str(fault) for fault in self.faults), *left_out]


def plan(document: Schedule | Record) -> FaultPlan:
    """The faults as meant or, for a run's record, as they came out; steps that were never reached are not in that."""
    if isinstance(document, Schedule):
        meant = [
            PlannedFault(number, step.fault, str(step), step.at, step.until)
            for number, step in enumerate(document.all_steps, start=1)
        ]
        return FaultPlan(tuple(meant), document.omitted)
    happened = [
        PlannedFault(
            number,
            done.step.fault,
            str(done.step),
            done.at,
            done.healed_at if done.healed_at is not None else (done.step.until if done.targets else done.at),
            done.targets,
        )
        for number, done in enumerate(document.resolved, start=1)
    ]
    return FaultPlan(tuple(sorted(happened, key=lambda fault: fault.begins)), document.schedule.omitted)
