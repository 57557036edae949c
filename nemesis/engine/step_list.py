"""The steps that a run knows so far: those of its schedule, and of each branch that has begun."""

from collections.abc import Iterator

import msgspec

from assay.nemesis.schedule.schedule import Branch, FaultSchedule, FaultStep


class StepList:
    """Numbered steps. Numbers count from 1, and a step's number never changes."""

    def __init__(self, schedule: FaultSchedule) -> None:
        self.schedule = schedule
        """The complete plan, including future branches."""
        self._steps = list(schedule.steps)
        self._branches_begun = 0

    def __getitem__(self, number: int) -> FaultStep:
        return self._steps[number - 1]

    def iterate_numbered(self) -> Iterator[tuple[int, FaultStep]]:
        """Returns all known steps, in the order of their numbers."""
        return enumerate(self._steps, start=1)

    def begin(self, branch: Branch) -> tuple[tuple[int, FaultStep], ...]:
        """Begins the next branch.

        Returns its numbered steps. An unplanned branch is added to the schedule as its last.
        """
        self._branches_begun += 1
        if self._branches_begun > len(self.schedule.branches):
            branches = (*self.schedule.branches, branch)
            self.schedule = msgspec.structs.replace(self.schedule, branches=branches)
        first = len(self._steps) + 1
        self._steps += branch.steps
        return tuple(enumerate(branch.steps, start=first))
