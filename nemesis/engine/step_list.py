"""The steps that a run knows so far: those of its schedule, and of each branch once it has come to that."""

from collections.abc import Iterator

import msgspec

from assay.nemesis.schedule.schedule import Branch, Schedule, Step


class Score:
    """A step's number is its place in here, from 1: it keeps it, whatever is added later."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        """All that is meant, with branches that are still to come."""
        self._steps = list(schedule.steps)
        self._begun = 0

    def __getitem__(self, number: int) -> Step:
        return self._steps[number - 1]

    def numbered(self) -> Iterator[tuple[int, Step]]:
        """All that are known, in the order of their numbers."""
        return enumerate(self._steps, start=1)

    def begin(self, branch: Branch) -> tuple[tuple[int, Step], ...]:
        """The next branch's time has come: its steps with their numbers. One that was not foreseen is the last."""
        self._begun += 1
        if self._begun > len(self.schedule.branches):
            branches = (*self.schedule.branches, branch)
            self.schedule = msgspec.structs.replace(self.schedule, branches=branches)
        first = len(self._steps) + 1
        self._steps += branch.steps
        return tuple(enumerate(branch.steps, start=first))
