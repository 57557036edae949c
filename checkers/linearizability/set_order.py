"""Sets in near-linear time, without a search, if no element is removed.

An element that is never removed appears once: at the first of its adds that takes effect. So each element has an
interval in which it appears:

- from the begin of its first add, or of the last ``contains`` that did not find it, if that is later,
- until the first end of its adds of known outcome, or of a ``contains`` that found it, if that is earlier.

Repeated adds need no case of their own: the add that began first is pending until the first end. So the element can
appear at each moment from the first begin to the first end.

A read of the whole set comes after the elements that it shows appear, and before all others appear. So reads and
elements form layers: the elements of the smallest read, all reads that show exactly these elements, the further
elements of the next larger read, and so on. Each layer comes before the next. A set is linearizable iff:

1. Each element that was shown was added, and no read shows an element twice.
2. The interval of each element is not empty.
3. For any two reads, one shows all elements that the other shows.
4. No operation of a layer ended before one of an earlier layer began.

Rule 4 suffices for an order that keeps both the layers and real time. If there were none, steps from layer to layer and
steps of real time would form a cycle. Such a cycle goes back to an earlier layer at least once. Only real time can
demand that step, and rule 4 excludes it. A sort of the reads and running extremes over the layers decide rule 4.

An element may have only adds of unknown outcome, and no operation that shows it. Then it need not appear, and its
interval has no end.

Each element of a set is an object of its own for ``add``, ``remove`` and ``contains``. So with removals, but without
reads of the whole set, each element is judged alone (``set_elements``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.key_result import Contradiction
from assay.checkers.linearizability.limits import Deadline
from assay.checkers.linearizability.sets import ADD, CONTAINS, NO_SET, READ, REMOVE, list_elements, read_action, to_bits

BEFORE = -FOREVER
"""A time before all others."""
UNFINISHED: Final = "before all reads were compared"


class _Moment(NamedTuple):
    """A time, and the row of the operation that has it."""

    time: int
    row: int


NEVER = _Moment(FOREVER, -1)
"""A moment after all times: an event that did not happen."""
EARLIEST = _Moment(BEFORE, -1)
"""A moment before all times."""


@dataclass
class _Element:
    """The earliest or latest times of the operations on an element."""

    first_add: _Moment = NEVER
    """The first begin of an add."""
    first_added: _Moment = NEVER
    """The first end of an add of known outcome."""
    last_missed: _Moment = EARLIEST
    """The last begin of a ``contains`` that did not find the element."""
    first_found: _Moment = NEVER
    """The first end of a ``contains`` that found the element."""

    @property
    def begin(self) -> _Moment:
        return max(self.first_add, self.last_missed)

    @property
    def end(self) -> _Moment:
        return min(self.first_added, self.first_found)


@dataclass
class _Layer:
    """Reads that show the same elements, and the elements that they show and smaller reads do not."""

    bits: int
    elements: list[int]
    reads: list[int] = field(default_factory=list)


def has_removals(history: KeyHistory) -> bool:
    """Returns whether an element may have been removed."""
    return any(action.f == REMOVE for action in history.actions)


def find_set_contradiction(history: KeyHistory, deadline: Deadline) -> Contradiction | None:
    """Returns operations that contradict each other, or None if the key is linearizable.

    No operation may be a removal. Raises ``OutOfTime``.
    """
    return _Order(history, deadline).find()


class _Order:
    def __init__(self, history: KeyHistory, deadline: Deadline) -> None:
        self._history = history
        self._deadline = deadline
        self._call = history.call.tolist()
        self._ret = history.ret.tolist()
        self._elements: dict[int, _Element] = {}
        self._reads: dict[int, list[int]] = {}
        """By the elements that they show, as bits, the rows of the reads."""
        actions = [read_action(action) for action in history.actions]
        for row, number in enumerate(history.action.tolist()):
            kind, x, y = actions[number]
            if kind == READ:
                self._reads.setdefault(x, []).append(row)
                continue
            element = self._elements.setdefault(x, _Element())
            begin, end = _Moment(self._call[row], row), _Moment(self._ret[row], row)
            if kind == ADD:
                element.first_add = min(element.first_add, begin)
                if end.time < FOREVER:
                    element.first_added = min(element.first_added, end)
            elif kind == CONTAINS and y:
                element.first_found = min(element.first_found, end)
            else:
                element.last_missed = max(element.last_missed, begin)

    def find(self) -> Contradiction | None:
        return (
            self._find_double()
            or self._find_phantom()
            or self._find_empty_interval()
            or self._find_fork()
            or self._find_step_back()
        )

    def _describe(self, row: int) -> str:
        return self._history.describe_operation(row)

    def _name(self, element: int) -> str:
        return self._history.values.text(element)

    def _find_double(self) -> Contradiction | None:
        if NO_SET not in self._reads:
            return None
        row = self._reads[NO_SET][0]
        return Contradiction(f"{self._describe(row)} returned an element twice.", (row,))

    def _find_phantom(self) -> Contradiction | None:
        """Rule 1."""
        for number, element in self._elements.items():
            if element.first_add is NEVER and element.first_found is not NEVER:
                row = element.first_found.row
                return Contradiction(f"{self._describe(row)} found {self._name(number)}, which no one added.", (row,))
        added = to_bits([number for number, element in self._elements.items() if element.first_add is not NEVER])
        for bits in sorted(self._reads, key=lambda bits: self._reads[bits][0]):
            self._deadline.require(UNFINISHED)
            if phantoms := bits & ~added:
                row = self._reads[bits][0]
                name = self._name(list_elements(phantoms)[0])
                return Contradiction(f"{self._describe(row)} returned {name}, which no one added.", (row,))
        return None

    def _find_empty_interval(self) -> Contradiction | None:
        """Rule 2."""
        for number, element in self._elements.items():
            if element.first_add is NEVER or element.end.time >= element.begin.time:
                continue
            name, found, missed = self._name(number), element.first_found, element.last_missed
            if found.time < element.first_add.time:
                return self._to_early(found.row, element.first_add.row, f"found {name}, and")
            return self._to_missed(missed.row, element.end.row, f"did not find {name}", element)
        return None

    def _to_early(self, shown: int, add: int, what: str) -> Contradiction:
        claim = f"{self._describe(shown)} {what} returned before its first {self._describe(add)} was called."
        return Contradiction(claim, (shown, add))

    def _to_missed(self, missed: int, before: int, what: str, element: _Element) -> Contradiction:
        added = "" if before == element.first_added.row else ", which had found it,"
        claim = (
            f"{self._describe(missed)} {what}; yet {self._describe(before)}{added} had returned before it was called."
        )
        return Contradiction(claim, (missed, before))

    def _find_fork(self) -> Contradiction | None:
        """Rule 3."""
        chain = sorted(self._reads, key=lambda bits: (bits.bit_count(), self._reads[bits][0]))
        for small, large in pairwise(chain):
            self._deadline.require(UNFINISHED)
            if not small & ~large:
                continue
            one, other = list_elements(small & ~large)[0], list_elements(large & ~small)[0]
            small_row, large_row = self._reads[small][0], self._reads[large][0]
            for row, shown_by, lacking in ((large_row, small_row, one), (small_row, large_row, other)):
                if (found := self._find_missing(row, shown_by, lacking)) is not None:
                    return found
            claim = (
                f"{self._describe(small_row)} shows {self._name(one)} but not {self._name(other)}; yet "
                f"{self._describe(large_row)} shows {self._name(other)} but not {self._name(one)}."
            )
            return Contradiction(claim, (small_row, large_row))
        return None

    def _find_missing(self, read: int, shown_by: int, number: int) -> Contradiction | None:
        """Returns the contradiction if the element, which ``read`` does not show, must have been there before."""
        element = self._elements[number]
        if element.end.time < self._call[read]:
            return self._to_missed(read, element.end.row, f"does not show {self._name(number)}", element)
        if self._ret[shown_by] < self._call[read]:
            return self._to_vanished(read, shown_by, number)
        return None

    def _to_vanished(self, read: int, shown_by: int, number: int) -> Contradiction:
        claim = (
            f"{self._describe(read)} does not show {self._name(number)}; yet {self._describe(shown_by)}, which showed "
            "it, had returned before it was called."
        )
        return Contradiction(claim, (read, shown_by))

    def _find_step_back(self) -> Contradiction | None:
        """Rule 4."""
        layers = self._make_layers()
        latest_read, latest_element, latest_number = EARLIEST, EARLIEST, -1
        for layer in layers:
            for number in layer.elements:
                end = self._elements[number].end
                if end.time < latest_read.time:
                    element = self._elements[number]
                    what = f"does not show {self._name(number)}"
                    return self._to_missed(latest_read.row, end.row, what, element)
            for number in layer.elements:
                end = self._elements[number].end
                if end.time < latest_element.time:
                    return self._to_crossed(layers, latest_number, latest_element.row, number, end.row)
            for number in layer.elements:
                begin = self._elements[number].begin
                if begin > latest_element:
                    latest_element, latest_number = begin, number
            for row in layer.reads:
                if self._ret[row] < latest_element.time:
                    return self._to_later(row, latest_number, latest_element.row)
                if self._ret[row] < latest_read.time:
                    _, shown, _ = read_action(self._history.actions[int(self._history.action[latest_read.row])])
                    return self._to_vanished(latest_read.row, row, list_elements(layer.bits & ~shown)[0])
            latest_read = max([latest_read, *(_Moment(self._call[row], row) for row in layer.reads)])
        return None

    def _to_later(self, read: int, number: int, row: int) -> Contradiction:
        """The element that ``read`` shows appeared later: ``row`` added it or did not find it."""
        element, name = self._elements[number], self._name(number)
        if element.first_add.row == row:
            return self._to_early(read, row, f"shows {name}, and")
        claim = (
            f"{self._describe(row)} did not find {name}; yet {self._describe(read)}, which showed it, had returned "
            "before it was called."
        )
        return Contradiction(claim, (row, read))

    def _to_crossed(self, layers: list[_Layer], early: int, begun: int, late: int, ended: int) -> Contradiction:
        """Two elements appeared in the other order than a read between them shows."""
        read = next(
            layer.reads[0] for layer in layers if layer.reads and layer.bits >> early & 1 and not layer.bits >> late & 1
        )
        claim = (
            f"{self._describe(read)} shows {self._name(early)} but not {self._name(late)}; yet {self._describe(ended)} "
            f"had returned before {self._describe(begun)} was called."
        )
        return Contradiction(claim, (read, ended, begun))

    def _make_layers(self) -> list[_Layer]:
        """Returns the layers in order. Elements that no read shows come last, without reads."""
        added = [number for number, element in self._elements.items() if element.first_add is not NEVER]
        layers, shown = [], 0
        for bits in sorted(self._reads, key=int.bit_count):
            self._deadline.require(UNFINISHED)
            layers.append(_Layer(bits, list_elements(bits & ~shown), self._reads[bits]))
            shown = bits
        return [*layers, _Layer(-1, [number for number in added if not shown >> number & 1])]
