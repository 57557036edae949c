"""Faults in the history of another tool, by the events of its nemesis.

The events only serve readers: a text says which faults were in force at a finding. No verdict depends on them, because
tools record them in ways of their own. The names follow the conventions of Jepsen (``jepsen.nemesis.combined``):

- ``start-partition`` begins a partition, and ``stop-partition`` ends it. ``start`` and ``stop`` are a fault without a
  name.
- ``kill`` lasts until ``start``, and ``pause`` until ``resume``.
- ``heal`` ends everything.
- Any other event is a moment, such as ``bump-clock``.

Most tools record two events for each action, one after the other: its begin and its completion.
"""

from dataclasses import dataclass, field
from typing import Final

UNNAMED: Final = "fault"
HEALS: Final = ("heal", "heal-all")
"""Verbs that end everything."""
BEGINS: Final = {"start": UNNAMED, "kill": "kill", "pause": "pause"}
ENDS: Final = {"stop": UNNAMED, "start": "kill", "resume": "pause"}


@dataclass(frozen=True)
class ForeignFault:
    """A fault in nanoseconds since the run began. ``end`` None: no event ended it."""

    name: str
    begin: int
    end: int | None


@dataclass
class NemesisEvents:
    """Takes the nemesis' events in order, and combines them to faults."""

    count: int = 0
    _open: dict[str, int] = field(default_factory=dict)
    """Begin by name."""
    _ended: dict[str, ForeignFault] = field(default_factory=dict)
    """The last fault of each name that has ended; a second event of the same action may still move its end."""
    _faults: list[ForeignFault] = field(default_factory=list)
    _last: str = ""
    """The verb of the event before."""

    def add(self, f: str, time: int) -> None:
        """Takes an event with its verb and its time in nanoseconds."""
        self.count += 1
        ended, begun = self._find_ended(f), self._find_begun(f)
        if ended:
            for name in ended:
                self._end(name, time)
        elif begun is not None:
            if begun not in self._open:
                self._settle(begun)
                self._open[begun] = time
        elif f not in HEALS:
            self._faults.append(ForeignFault(f, time, time))
        self._last = f

    def faults(self) -> tuple[ForeignFault, ...]:
        """Returns the faults so far by their begin. A fault that has not ended has no end."""
        unended = (ForeignFault(name, begin, None) for name, begin in self._open.items())
        return tuple(sorted((*self._faults, *self._ended.values(), *unended), key=lambda fault: fault.begin))

    def _find_begun(self, f: str) -> str | None:
        return f.removeprefix("start-") if f.startswith("start-") else BEGINS.get(f)

    def _find_ended(self, f: str) -> list[str]:
        """Returns the names of the faults that an event ends, or whose end it confirms."""
        confirmed = self._ended if f == self._last else {}
        if f in HEALS:
            return [*self._open] or [*confirmed]
        name = f.removeprefix("stop-") if f.startswith("stop-") else ENDS.get(f)
        return [name] if name is not None and (name in self._open or name in confirmed) else []

    def _end(self, name: str, time: int) -> None:
        begin = self._open.pop(name, None)
        if begin is not None:
            self._settle(name)
            self._ended[name] = ForeignFault(name, begin, time)
        else:
            self._ended[name] = ForeignFault(name, self._ended[name].begin, time)

    def _settle(self, name: str) -> None:
        """Settles the last fault of a name, because a new one begins."""
        if name in self._ended:
            self._faults.append(self._ended.pop(name))
