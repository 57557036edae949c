"""Transactions and keys as integers: who read whose version, who wrote what, and which order of versions is known.

A history is made from rows of ``effects`` (kinds ``txn-write``, ``txn-append`` and ``txn-read``), in steps:

1. Values: each (key, value) has one writer. A value with several writers is *ambiguous*: its reads prove nothing, and
   a reason not to pass (a doubt) names it.
2. Transactions that count: all that ended ok, and those of unknown outcome of which an ok transaction read a write.
3. Reads: each read names the transaction that wrote the version, or ``INITIAL``. Reads that no order can explain are
   *value anomalies* (``levels``). A read of a value that no transaction wrote, or only a failed one, gives no edge.
4. Lists: the longest read is the order of the versions. Elements that no read shows come after those of this read.

The reads of failed and unknown transactions are only judged on request (``all_reads``). A failed transaction then
counts as one that only reads. So does one of unknown outcome, unless its writes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

from assay.checkers.isolation.levels import (
    ABORTED_READ,
    DUPLICATE_ELEMENTS,
    GARBAGE_READ,
    INCOMPATIBLE_ORDER,
    INTERMEDIATE_READ,
    INTERNAL,
)

INITIAL: Final = -1
"""The writer of every initial value."""
NEVER: Final = 2**62
"""The return of a transaction of unknown outcome, in nanoseconds: later than any call."""
MOST_NAMED: Final = 5
"""Maximum number of keys, and of values, that doubts name."""

Row = tuple[int, int, int, str, str, int | None, int | None, int, int | None, str]
"""``op``, ``sub``, ``process``, ``key``, ``kind``, ``list_index``, ``value``, ``call``, ``ret`` and ``outcome``.

``sub`` is the place of the effect in its operation, and ``list_index`` that of an element in a list that was read.
"""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of another transaction's version: of ``key``, written by transaction ``writer``, or ``INITIAL``.

    ``writers_of_earlier_elements``: a read of a list also shows the elements before the last one; these are their
    writers.
    """

    key: int
    writer: int
    value: int | None
    writers_of_earlier_elements: tuple[int, ...] = ()

    @property
    def writers(self) -> tuple[int, ...]:
        """The writers of everything that the read shows. The last one may be ``INITIAL``."""
        return (*self.writers_of_earlier_elements, self.writer)


@dataclass(frozen=True)
class ValueAnomaly:
    """A read whose value is wrong in every order of transactions. ``op``: the number of the reading operation."""

    name: str
    op: int
    key: str
    value: int | None


@dataclass
class TransactionHistory:
    """Transactions that count, numbered from 0 in the order of their calls.

    ``reads`` are in program order, and leave out a transaction's own writes. ``writes`` has the keys whose final
    version a transaction wrote.
    """

    keys: list[str] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)
    reads: list[list[Read]] = field(default_factory=list)
    writes: list[dict[int, int | None]] = field(default_factory=list)
    are_writes_counted: list[bool] = field(default_factory=list)
    """For each transaction, whether its writes count. Writes of a failed transaction do not."""
    versions: dict[int, list[int]] = field(default_factory=dict)
    """By list key, the writers in the order of their versions. A writer of several elements in a row stands once."""
    unseen: dict[int, list[int]] = field(default_factory=dict)
    """By list key, the writers of elements that no read shows."""
    anomalies: list[ValueAnomaly] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Reasons why a level cannot pass: keys and values that cannot be judged."""
    notes: list[str] = field(default_factory=list)
    """Remarks that change no verdict."""

    def __len__(self) -> int:
        return len(self.ops)

    def list_version_order(self) -> Iterable[tuple[int, int, int]]:
        """Yields the known order of the versions of lists: transaction, next transaction, key."""
        for key, writers in self.versions.items():
            yield from ((first, second, key) for first, second in pairwise(writers))
            if writers:
                yield from ((writers[-1], one, key) for one in self.unseen.get(key, ()) if one != writers[-1])

    def leave_out_unknown(self) -> TransactionHistory:
        """Returns a copy without the list versions of transactions of unknown outcome. Their reads and writes stay."""
        versions = {
            key: [one for one in writers if self.returns[one] != NEVER] for key, writers in self.versions.items()
        }
        return replace(
            self,
            versions={key: [one for one, _ in groupby(writers)] for key, writers in versions.items()},
            unseen={
                key: [one for one in writers if self.returns[one] != NEVER] for key, writers in self.unseen.items()
            },
        )

    def list_session_order(self) -> list[tuple[int, int]]:
        """Returns pairs of transactions whose transitive closure is the order of sessions.

        A transaction of unknown outcome may take effect at any time after its call, so it precedes nothing.
        """
        last: dict[int, int] = {}
        pairs = []
        for number, process in enumerate(self.processes):
            if process in last:
                pairs.append((last[process], number))
            if self.returns[number] != NEVER:
                last[process] = number
        return pairs


def make_history(rows: Iterable[Row], *, all_reads: bool = False) -> TransactionHistory:
    """Makes a history from rows in any order. A register that no transaction wrote has the value None.

    ``all_reads``: whether the recorded reads of failed and unknown transactions are judged as well. The rows must not
    have such a read of a key that the same transaction wrote before.
    """
    return _Builder(sorted(rows, key=itemgetter(0, 1)), all_reads=all_reads).build()


@dataclass(slots=True)
class _Draft:
    """A transaction before it is known whether it counts."""

    op: int
    process: int
    call: int
    ret: int
    outcome: str
    micros: list[tuple[str, int, int | None, list[int]]]
    """The micro-operations: kind, key, value of a write or of a register's read, and elements of a list's read."""

    @property
    def has_reads(self) -> bool:
        """Whether a read is recorded."""
        return any(micro[0] == "txn-read" for micro in self.micros)


class _Builder:
    """Makes a :class:`TransactionHistory` by the steps of the module's docstring."""

    def __init__(self, rows: Sequence[Row], *, all_reads: bool) -> None:
        self._all_reads = all_reads
        self._key_numbers: dict[str, int] = {}
        self._lists: set[int] = set()  # the keys that are lists, and those that are registers
        self._registers: set[int] = set()
        self._drafts = [self._make_draft(op, list(group)) for op, group in groupby(rows, itemgetter(0))]
        self._drafts.sort(key=lambda draft: (draft.call, draft.op))
        self.history = TransactionHistory(keys=list(self._key_numbers))
        self._writers: dict[tuple[int, int | None], int] = {}  # to the place of the writer in `_drafts`
        """By key and value, the draft that wrote it and may be committed."""
        self._failed: set[tuple[int, int | None]] = set()
        """Keys and values that failed transactions wrote."""
        self._final: list[dict[int, int | None]] = []
        """By draft, the last value that it wrote to each key."""
        self._ambiguous: set[tuple[int, int | None]] = set()
        self._committed: set[int] = set()
        """The operations whose writes count."""

    def build(self) -> TransactionHistory:
        self._find_writers()
        numbers = self._number_transactions()
        for draft, final in zip(self._drafts, self._final, strict=True):
            if draft.op in numbers:
                self._add(draft, final if draft.op in self._committed else {})
        self._order_lists(numbers)
        for number, draft in enumerate(one for one in self._drafts if one.op in numbers):
            if self._is_judged(draft):
                self._add_reads(number, draft, numbers)
        self._describe()
        return self.history

    def _make_draft(self, op: int, rows: list[Row]) -> _Draft:
        _, _, process, _, _, _, _, call, ret, outcome = rows[0]
        draft = _Draft(op, process, call, NEVER if ret is None or outcome == "info" else ret, outcome, [])
        for _, _, _, name, kind, position, value, _, _, _ in rows:
            key = self._key_numbers.setdefault(name, len(self._key_numbers))
            if kind == "txn-read":
                if position is not None:
                    self._lists.add(key)
                    if position > 0:
                        draft.micros[-1][3].append(value if value is not None else 0)
                        continue
                elif value is not None:
                    self._registers.add(key)
                draft.micros.append((kind, key, value, [] if position is None or value is None else [value]))
            else:
                (self._lists if kind == "txn-append" else self._registers).add(key)
                draft.micros.append((kind, key, value, []))
        return draft

    def _is_judged(self, draft: _Draft) -> bool:
        return draft.outcome == "ok" or (self._all_reads and draft.has_reads)

    def _find_writers(self) -> None:
        mixed = self._lists & self._registers
        for key in sorted(mixed)[:MOST_NAMED]:
            self.history.doubts.append(
                f"transactions on {self.history.keys[key]} cannot be judged: it is a list and a register at once"
            )
        for place, draft in enumerate(self._drafts):
            final: dict[int, int | None] = {}
            draft.micros = [micro for micro in draft.micros if micro[1] not in mixed]
            for kind, key, value, _ in draft.micros:
                if kind == "txn-read":
                    continue
                final[key] = value
                if draft.outcome == "fail":
                    self._failed.add((key, value))
                elif (key, value) in self._writers or value is None:
                    self._ambiguous.add((key, value))
                else:
                    self._writers[key, value] = place
            self._final.append(final)

    def _number_transactions(self) -> dict[int, int]:
        """Returns the number of each operation that counts."""
        observed = set()
        for draft in filter(self._is_judged, self._drafts):
            for kind, key, value, elements in draft.micros:
                if kind != "txn-read":
                    continue
                for one in elements if key in self._lists else (value,):
                    if (key, one) in self._writers and (key, one) not in self._ambiguous:
                        observed.add(self._writers[key, one])
        self._committed = {
            draft.op
            for place, draft in enumerate(self._drafts)
            if draft.outcome == "ok" or (draft.outcome == "info" and place in observed)
        }
        counted = [draft for draft in self._drafts if draft.op in self._committed or self._is_judged(draft)]
        return {draft.op: number for number, draft in enumerate(counted)}

    def _add(self, draft: _Draft, final: dict[int, int | None]) -> None:
        history = self.history
        history.ops.append(draft.op)
        history.processes.append(draft.process)
        history.calls.append(draft.call)
        history.returns.append(draft.ret)
        history.reads.append([])
        history.writes.append(final)
        history.are_writes_counted.append(draft.op in self._committed)

    def _report(self, name: str, draft: _Draft, key: int, value: int | None) -> None:
        self.history.anomalies.append(ValueAnomaly(name, draft.op, self.history.keys[key], value))

    def _find_writer(self, key: int, value: int | None, numbers: Mapping[int, int]) -> int | None:
        """Returns the number of the transaction that wrote a value, or None if the value proves no order."""
        writer = self._writers.get((key, value))
        if writer is None or (key, value) in self._ambiguous:
            return None
        return numbers.get(self._drafts[writer].op)

    def _order_lists(self, numbers: Mapping[int, int]) -> None:
        self._orders: dict[int, list[int]] = {}
        disordered: set[int] = set()
        for draft in filter(self._is_judged, self._drafts):
            for kind, key, _, elements in draft.micros:
                if kind != "txn-read" or key not in self._lists:
                    continue
                known = [one for one in elements if self._find_writer(key, one, numbers) is not None]
                clear = [one for one in elements if (key, one) not in self._ambiguous]
                if len(set(clear)) < len(clear):
                    self._report(DUPLICATE_ELEMENTS, draft, key, clear[-1])
                    disordered.add(key)
                longest = self._orders.setdefault(key, known)
                shorter, longer = sorted((longest, known), key=len)
                if longer[: len(shorter)] != shorter:
                    if key not in disordered:
                        self._report(INCOMPATIBLE_ORDER, draft, key, None)
                    disordered.add(key)
                self._orders[key] = longer
        for key in disordered:
            del self._orders[key]
        appended: dict[int, list[int]] = {}
        for at, draft in enumerate(self._drafts):
            for kind, key, value, _ in draft.micros:
                if kind != "txn-append" or key in disordered or draft.op not in self._committed or value is None:
                    continue
                if self._writers.get((key, value)) == at and (key, value) not in self._ambiguous:
                    appended.setdefault(key, []).append(value)
        for key, values in appended.items():
            order = self._orders.setdefault(key, [])
            places = {value: place for place, value in enumerate(order)}
            writers = [self._find_writer(key, value, numbers) for value in order]
            self.history.versions[key] = [
                writer for place, writer in enumerate(writers)
                if writer is not None and (place == 0 or writers[place - 1] != writer)
            ]  # fmt: skip
            missing = (self._find_writer(key, value, numbers) for value in values if value not in places)
            self.history.unseen[key] = list(dict.fromkeys(one for one in missing if one is not None))
        self._check_own_appends()

    def _check_own_appends(self) -> None:
        """Reports transactions whose elements stand in another order than they were appended."""
        places = {key: {value: place for place, value in enumerate(order)} for key, order in self._orders.items()}
        for draft in self._drafts:
            if draft.op not in self._committed:
                continue
            last: dict[int, int] = {}
            for kind, key, value, _ in draft.micros:
                if kind == "txn-append" and key in places and value is not None and (key, value) not in self._ambiguous:
                    place = places[key].get(value, NEVER)
                    if place < last.get(key, -1):
                        self._report(INTERNAL, draft, key, value)
                    last[key] = place

    def _add_reads(self, number: int, draft: _Draft, numbers: Mapping[int, int]) -> None:
        own: dict[int, list[int | None]] = {}
        for kind, key, value, elements in draft.micros:
            if kind != "txn-read":
                own.setdefault(key, []).append(value)
            elif key in self._lists:
                self._add_list_read(number, draft, key, elements, own.get(key, []), numbers)
            else:
                self._add_register_read(number, draft, key, value, own.get(key, []), numbers)

    def _add_register_read(
        self, number: int, draft: _Draft, key: int, value: int | None, own: list[int | None],
        numbers: Mapping[int, int],
    ) -> None:  # fmt: skip
        if (key, value) in self._ambiguous:
            return
        if own and value == own[-1]:
            return
        if own:
            self._report(INTERNAL, draft, key, value)
        if value is None:
            if not own:
                self.history.reads[number].append(Read(key, INITIAL, value))
            return
        writer = self._find_writer(key, value, numbers)
        if writer is None:
            self._report(ABORTED_READ if (key, value) in self._failed else GARBAGE_READ, draft, key, value)
        elif writer == number:
            if not own:
                self._report(INTERNAL, draft, key, value)
        else:
            if self.history.writes[writer].get(key) != value:
                self._report(INTERMEDIATE_READ, draft, key, value)
            self.history.reads[number].append(Read(key, writer, value))

    def _add_list_read(
        self, number: int, draft: _Draft, key: int, elements: list[int], own: list[int | None],
        numbers: Mapping[int, int],
    ) -> None:  # fmt: skip
        writers: dict[int, int] = {}
        last_value: int | None = None
        is_clear = True  # False if an ambiguous element follows the last one with a known writer
        for element in elements:
            if (key, element) in self._ambiguous:
                is_clear = False
                continue
            writer = self._find_writer(key, element, numbers)
            if writer is None:
                self._report(ABORTED_READ if (key, element) in self._failed else GARBAGE_READ, draft, key, element)
            elif writer != number:
                writers.pop(writer, None)
                writers[writer] = last_value = element
                is_clear = True
            elif element not in own:
                self._report(INTERNAL, draft, key, element)
        for value in own:
            if value not in elements and (key, value) not in self._ambiguous:
                self._report(INTERNAL, draft, key, value)
        if not is_clear or (not writers and own):
            return
        *others, last = writers or (INITIAL,)
        is_last = bool(elements) and last != INITIAL and elements[-1] == last_value
        if is_last and self.history.writes[last].get(key) != last_value:
            self._report(INTERMEDIATE_READ, draft, key, last_value)
        self.history.reads[number].append(Read(key, last, last_value, tuple(others)))

    def _describe(self) -> None:
        history = self.history
        named = sorted(
            self._ambiguous, key=lambda one: (history.keys[one[0]], one[1] if one[1] is not None else -NEVER)
        )
        for key, value in named[:MOST_NAMED]:
            history.doubts.append(
                f"transactions on {history.keys[key]} cannot be judged: a write on it has no value"
                if value is None
                else f"{value} was written to {history.keys[key]} twice, so reads of it have no single writer and are "
                "not judged"
            )
        if len(named) > MOST_NAMED:
            history.doubts.append(f"{len(named) - MOST_NAMED} other values have several writers as well")
        unjudged = sum(draft.has_reads and not self._is_judged(draft) for draft in self._drafts)
        if unjudged:
            history.notes.append(f"the reads of {unjudged} transactions that failed or have no outcome are not judged")
