"""Faults in the history of another tool, by the events of its nemesis.

The text of a finding says which of these faults were active. No verdict depends on them, because each tool records them
differently. The names of events follow the conventions of Jepsen (``jepsen.nemesis.combined``):

- ``start-partition`` begins a partition, and ``stop-partition`` ends it. ``start`` and ``stop`` are a fault without a
  name.
- ``kill`` lasts until ``start``, and ``pause`` until ``resume``.
- ``heal`` ends all faults.
- Any other event, such as ``bump-clock``, is a fault without duration.

Most tools record each action twice, one after the other: at its begin and at its completion. So if an event that
ended faults is repeated, their end moves.
"""

from dataclasses import dataclass, field
from typing import Final

UNNAMED: Final = "fault"
HEALS: Final = ("heal", "heal-all")
"""Events that end all faults."""
BEGINS: Final = {"start": UNNAMED, "kill": "kill", "pause": "pause"}
"""Event that begins a fault -> name of the fault."""
ENDS: Final = {"stop": UNNAMED, "start": "kill", "resume": "pause"}
"""Event that ends a fault -> name of the fault."""


@dataclass(frozen=True)
class ForeignFault:
    """A fault with its times in nanoseconds since the begin of the run. ``end`` None: no event ended it."""

    name: str
    begin: int
    end: int | None


@dataclass
class NemesisEvents:
    """Combines the events of the nemesis to faults."""

    count: int = 0
    _open: dict[str, int] = field(default_factory=dict)
    """Begin times of the active faults, by name."""
    _ended: dict[str, ForeignFault] = field(default_factory=dict)
    """The last fault of each name that has ended, by name."""
    _confirmable: tuple[str, ...] = ()
    """The faults that the previous event ended. If it is repeated, as its completion, their end moves."""
    _faults: list[ForeignFault] = field(default_factory=list)
    _last: str = ""
    """The name of the previous event."""

    def add(self, f: str, time: int) -> None:
        """Adds the next event, with its name and its time in nanoseconds."""
        self.count += 1
        ended, begun = self._find_ended(f), self._find_begun(f)
        if f != self._last or f in HEALS:
            self._confirmable = tuple(name for name in ended if name in self._open)
        if ended:
            for name in ended:
                self._end(name, time)
        elif begun is not None:
            if begun not in self._open:
                self._finish(begun)
                self._open[begun] = time
        elif f not in HEALS:
            self._faults.append(ForeignFault(f, time, time))
        self._last = f

    def list_faults(self) -> tuple[ForeignFault, ...]:
        """Returns the faults so far, in the order of their begin."""
        unended = (ForeignFault(name, begin, None) for name, begin in self._open.items())
        return tuple(sorted((*self._faults, *self._ended.values(), *unended), key=lambda fault: fault.begin))

    def _find_begun(self, f: str) -> str | None:
        return f.removeprefix("start-") if f.startswith("start-") else BEGINS.get(f)

    def _find_ended(self, f: str) -> list[str]:
        """Returns the names of the faults that an event ends, or whose end it confirms."""
        confirmed = self._confirmable if f == self._last else ()
        if f in HEALS:
            return [*self._open] or [*confirmed]
        name = f.removeprefix("stop-") if f.startswith("stop-") else ENDS.get(f)
        return [name] if name is not None and (name in self._open or name in confirmed) else []

    def _end(self, name: str, time: int) -> None:
        begin = self._open.pop(name, None)
        if begin is not None:
            self._finish(name)
            self._ended[name] = ForeignFault(name, begin, time)
        else:
            self._ended[name] = ForeignFault(name, self._ended[name].begin, time)

    def _finish(self, name: str) -> None:
        """Makes the end of the last fault of a name final, because a new one begins."""
        if name in self._ended:
            self._faults.append(self._ended.pop(name))
