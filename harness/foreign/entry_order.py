"""Order of the entries of a file: by their times, or by their lines.

A call is recorded before it is made, and its completion after it. So the order of the lines is an order of real time if
*one* recorder wrote them. Times may contradict this order: threads read the clock before they write, and clocks are set
back. Then file order is used if the lines show that one recorder wrote them. At each step back in time, one of these
must hold:

- An operation is in progress: its call stands before the step, its completion after it.
- All entries have an ``:index``, and some process has lines on both sides of the step.

Otherwise the file may be several recordings one after another, or sorted by process. Then neither order is known to be
the order of real time, and none is claimed. Each entry then gets a stamp by its line instead of a time, and only checks
that do not use real time may use it.

Clocks of milliseconds give many entries one time. In a file of one recorder, their lines order them. If the user says
that the lines may have any order, a call counts as earlier than the completions of other processes at its time. So the
two operations are concurrent. If several processes complete an operation and call the next one at one time, each order
would put one of them before another. Then no order of real time is claimed either.
"""

import enum
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Final

from assay.harness.foreign.source import MalformedError, TextPosition

ENTRY_INTERVAL: Final = 1_000_000
"""Nanoseconds between two entries of a file without times: entry 14203 is shown as 14.203 s."""
MISSING: Final = -1
"""Marks an entry without a time, an entry of the nemesis, and an operation without a return."""


class EntryOrder(enum.StrEnum):
    """Order of entries: chosen by what the file shows, by ``:time``, or by their order in the file."""

    AUTO = "auto"
    TIME = "time"
    FILE = "file"


@dataclass(frozen=True)
class ChosenOrder:
    """The order that the entries got.

    - ``note``: a sentence for the user that says why the order is not simply that of the times; empty if it is, or if
      the user chose the order
    - ``contradiction``: the first entry whose place is unknown, if no order of real time is claimed
    - ``reason``, ``remedy``: why its place is unknown, and what the user can do
    """

    note: str = ""
    contradiction: TextPosition | None = None
    reason: str = ""
    remedy: str = ""

    @property
    def is_real_time(self) -> bool:
        return self.contradiction is None


FILE_REMEDY: Final = "use --order=file if one recorder wrote the lines in the order of the events"
REMEDY: Final = f"{FILE_REMEDY}, or --order=time if one clock gave all times"


class EntryTimes:
    """Times of the entries in file order, and the stamps that follow from them."""

    def __init__(self, path: Path, order: EntryOrder) -> None:
        self._path = path
        self._order = order
        self._times = array("q")
        self._lines, self._columns = array("q"), array("q")
        self._processes: dict[int, tuple[int, int]] = {}
        """By process, the positions of its first and its last entry."""
        self._timed = self._untimed = 0
        self._last = MISSING
        self._steps = array("q")
        """The steps back in time: positions of entries whose time is before that of the entry before them."""

    def add(self, place: TextPosition, process: int | None, time: int | None, *, nemesis: bool) -> None:
        """Adds the next entry of the file."""
        position = len(self._times)
        self._lines.append(place.line)
        self._columns.append(place.column)
        self._times.append(MISSING if nemesis or time is None else time)
        if nemesis:
            return
        if process is not None:
            self._processes[process] = (self._processes.get(process, (position,))[0], position)
        if time is None:
            self._untimed += 1
            return
        self._timed += 1
        if time < self._last:
            self._steps.append(position)
        self._last = time

    def choose_order(
        self, calls: Sequence[int], returns: Sequence[int], processes: Sequence[int], *, numbered: bool
    ) -> tuple[Sequence[int], ChosenOrder, bool]:
        """Returns the stamp of each entry, the order that was used, and whether the stamps are times.

        ``calls`` and ``returns`` are the positions of all operations, ``MISSING`` for no return, ``processes`` their
        processes, ``MISSING`` for none. ``numbered``: all entries have an ``:index``. Raises ``MalformedError`` if
        times are required and impossible.
        """
        by_file = range(0, ENTRY_INTERVAL * len(self._times), ENTRY_INTERVAL)
        if self._order is EntryOrder.FILE or not self._timed:
            return by_file, ChosenOrder(), False
        if self._untimed and self._order is EntryOrder.TIME:
            raise MalformedError(
                self._path, None, "some operations have a :time, and some have none; --order=file ignores it"
            )
        if self._order is EntryOrder.TIME:
            return *self._sort_by_time(calls, returns, processes), True
        if not self._steps and not self._untimed:
            return _make_distinct(self._times), ChosenOrder(), True
        doubtful = self._find_doubtful_step(calls, returns, numbered)
        if doubtful is not None:
            place = self._locate(doubtful)
            note = (
                f"time goes backwards at line {place.line}, and the lines may be of several recorders: no order of "
                f"real time is claimed; {REMEDY}"
            )
            reason = "time goes backwards, and the lines may be of several recorders"
            return by_file, ChosenOrder(note, place, reason, REMEDY), False
        if not self._steps:
            return by_file, ChosenOrder("some operations have no :time, so the order of the file counts"), False
        line = self._locate(self._steps[0]).line
        steps = f"{len(self._steps)} times" if len(self._steps) > 1 else "once"
        note = f"time goes backwards {steps}, first at line {line}, so the order of the file counts, not :time"
        return by_file, ChosenOrder(note), False

    def _locate(self, position: int) -> TextPosition:
        return TextPosition(self._lines[position], self._columns[position])

    def _find_doubtful_step(self, calls: Sequence[int], returns: Sequence[int], numbered: bool) -> int | None:
        """Returns the first step back in time at which several recorders may meet."""
        size = len(self._times)
        in_progress = _count_spans(
            size, ((call, ret) for call, ret in zip(calls, returns, strict=True) if ret != MISSING)
        )
        continued = _count_spans(size, self._processes.values()) if numbered else [0] * size
        return next((step for step in self._steps if not in_progress[step] and not continued[step]), None)

    def _sort_by_time(
        self, calls: Sequence[int], returns: Sequence[int], processes: Sequence[int]
    ) -> tuple[Sequence[int], ChosenOrder]:
        """Returns stamps by time alone. Raises ``MalformedError`` if an operation would end before its call."""
        for call, ret in zip(calls, returns, strict=True):
            if ret != MISSING and self._times[ret] < self._times[call]:
                raise MalformedError(
                    self._path,
                    self._locate(ret),
                    f"time goes backwards: this operation ends at {self._times[ret]} ns, and was called at "
                    f"{self._times[call]} ns; --order=file uses the order in the file, without times",
                )
        called = set(calls)
        process_of = {}
        for row, (call, ret, process) in enumerate(zip(calls, returns, processes, strict=True)):
            process_of[call] = process_of[ret] = (process, row) if process == MISSING else (process, MISSING)
        order: list[int] = []
        ambiguous: int | None = None
        in_time = sorted(range(len(self._times)), key=self._times.__getitem__)
        for time, group in groupby(in_time, self._times.__getitem__):
            positions = list(group)
            if time != MISSING and len(positions) > 1:
                positions, is_ordered = _order_simultaneous(positions, process_of, called)
                ambiguous = positions[0] if ambiguous is None and not is_ordered else ambiguous
            order += positions
        stamps = array("q", bytes(8 * len(order)))
        for position, stamp in zip(order, _make_distinct([self._times[one] for one in order]), strict=True):
            stamps[position] = stamp
        if ambiguous is None:
            return stamps, ChosenOrder()
        place = self._locate(ambiguous)
        reason = f"at {self._times[ambiguous]} ns, several processes end an operation and call the next one"
        note = f"line {place.line}: {reason}: no order of real time is claimed; {FILE_REMEDY}"
        return stamps, ChosenOrder(note, place, reason, FILE_REMEDY)


def _order_simultaneous(
    positions: Sequence[int], process_of: Mapping[int, tuple[int, int]], called: Container[int]
) -> tuple[list[int], bool]:
    """Orders entries of one time so that each call comes before the completions of other processes.

    Each process keeps the order of its lines. Returns False as well if that is impossible, because several processes
    first complete an operation, and then call another.
    """
    lines: dict[tuple[int, int], list[int]] = {}
    for position in positions:
        lines.setdefault(process_of.get(position, (MISSING, MISSING - 1 - position)), []).append(position)
    first = [line.pop(0) for line in lines.values() if line[0] in called]
    calling = [line for line in lines.values() if any(position in called for position in line)]
    ending = [line for line in lines.values() if not any(position in called for position in line)]
    return [*first, *chain.from_iterable(calling), *chain.from_iterable(ending)], len(calling) < 2


def _make_distinct(times: Sequence[int]) -> Sequence[int]:
    """Returns increasing stamps: an entry with the time of the entry before it counts as a nanosecond later.

    The times must not decrease, except that ``MISSING`` may stand anywhere; its stamp means nothing.
    """
    stamps = array("q")
    last = MISSING
    for time in times:
        if time == MISSING:
            stamps.append(MISSING)
        else:
            last = max(time, last + 1)
            stamps.append(last)
    return stamps


def _count_spans(size: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Returns for each position the number of spans (first, last) with first < position <= last."""
    changes = [0] * (size + 2)
    for first, last in spans:
        changes[first + 1] += 1
        changes[last + 1] -= 1
    return list(accumulate(changes))[: size + 1]
