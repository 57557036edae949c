"""Replays a certificate on the operations of a history. It shares no code with the checker, and needs only Python.

A certificate is a map, as ``assay check --certificate=FILE`` writes it:

- ``rule``: the level without its prefix, such as ``serializable``; ``order``: ``none``, ``session`` or ``real-time``
- ``events``: the ids of transactions in an order that keeps the formula of the level. For ``snapshot-isolation``, each
  transaction has two events, ``["start", id]`` and ``["commit", id]``.
- ``without_writes``: ids of failed and unknown transactions that count as ones that only read

Serializability and snapshot isolation are replayed on a store. For weaker levels, each read is compared with the
transactions that its reader sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

ON_A_STORE: Final = ("serializable", "repeatable-read", "snapshot-isolation")
WITH_OWN_ORDER: Final = ("axiomatic-read-committed", "read-atomic", "causal")
"""Rules by which elements of one transaction stand in the order of its appends. ``ON_A_STORE`` implies that."""
Initial = Callable[[str], Any]
"""Returns the initial value of a key."""


@dataclass(frozen=True)
class Operation:
    """A transaction. ``micros``, its reads and writes: (``r``, ``w`` or ``append``, key, value). A read of a list has a
    list as its value.

    Reads that do not count are left out. ``ret`` is None if the outcome is unknown.
    """

    process: int
    call: int
    ret: int | None
    outcome: str
    micros: Sequence[tuple[str, str, Any]]


def find_flaw(
    certificate: Mapping[str, Any], operations: Mapping[int, Operation], initial: Initial = lambda key: None
) -> str | None:
    """Returns why the certificate does not show the level, or None if it does. ``operations``: by id."""
    rule, order = certificate["rule"], certificate["order"]
    without_writes = set(certificate.get("without_writes", ()))
    is_snapshot = rule == "snapshot-isolation"
    events = [tuple(event) if is_snapshot else ("commit", event) for event in certificate["events"]]
    commits = {id: place for place, (kind, id) in enumerate(events) if kind == "commit"}
    starts = {id: place for place, (kind, id) in enumerate(events) if kind == "start"} if is_snapshot else commits
    if len(events) != len(commits) * (1 + is_snapshot) or starts.keys() != commits.keys():
        return "an event is missing, or is there twice"
    unknown = sorted(commits.keys() - operations.keys())
    if unknown:
        return f"the history has no transaction {unknown[0]}"
    for id, one in operations.items():
        if one.outcome == "ok" and (id not in commits or id in without_writes):
            return f"transaction {id} or its writes are left out, although it succeeded"
        if one.outcome == "fail" and id in commits and id not in without_writes:
            return f"transaction {id} counts with its writes, although it failed"
    if any(starts[id] > commits[id] for id in starts):
        return "a transaction commits before it starts"
    counted = {id: _leave_out_writes(operations[id]) if id in without_writes else operations[id] for id in commits}
    by_session = order == "session" or rule == "causal"
    for first, second in _list_declared(counted, commits, by_session=by_session, by_time=order == "real-time"):
        if commits[first] >= starts[second]:
            return f"transaction {second} comes before {first}, which ended before it was called"
    if rule in ON_A_STORE:
        return _replay(events, counted, initial)
    attempts = Counter((key, value) for one in operations.values() for f, key, value in one.micros if f != "r")
    compared = _Comparison(rule, commits, counted, initial, attempts)
    return compared.find_flaw(by_session=by_session, by_time=order == "real-time")


def _leave_out_writes(one: Operation) -> Operation:
    reads = [micro for micro in one.micros if micro[0] == "r"]
    return Operation(one.process, one.call, one.ret, one.outcome, reads)


def _list_declared(
    operations: Mapping[int, Operation], commits: Mapping[int, int], *, by_session: bool, by_time: bool
) -> Iterator[tuple[int, int]]:
    """Yields pairs of transactions in the declared order: enough of them to find any contradiction to the
    certificate."""
    by_call = sorted(operations, key=lambda id: operations[id].call)
    ended = sorted((one.ret, id) for id, one in operations.items() if one.ret is not None)
    last: dict[int, int] = {}  # by process
    place, latest = 0, -1  # of the transactions that ended before the call, the one that commits last
    for id in by_call:
        one = operations[id]
        if by_session and one.process in last:
            yield last[one.process], id
        if one.ret is not None:
            last[one.process] = id
        while place < len(ended) and ended[place][0] < one.call:
            latest = max(ended[place][1], latest, key=lambda id: commits.get(id, -1))
            place += 1
        if by_time and latest >= 0:
            yield latest, id


def _replay(events: Iterable[tuple[Any, ...]], operations: Mapping[int, Operation], initial: Initial) -> str | None:
    """Plays the events on a store. A transaction without a start starts when it commits."""
    store: dict[str, Any] = {}
    active: dict[str, int] = {}  # by key, the transaction that will write it
    started: set[int] = set()
    for kind, id in events:
        own: dict[str, Any] = {}
        added: dict[str, list[Any]] = {}
        for f, key, value in () if id in started else operations[id].micros:
            if f == "append":
                added.setdefault(key, []).append(value)
                continue
            if f == "w":
                own[key] = value
                continue
            content = own.get(key, store.get(key, initial(key)))
            content = [*(content or ()), *added[key]] if key in added else content
            if value != content and (value, content) not in (([], None), (None, [])):
                return f"transaction {id} read {value} of {key}, but finds {content}"
        written = [(f, key, value) for f, key, value in operations[id].micros if f != "r"]
        if kind == "start":
            for _, key, _ in written:
                if active.setdefault(key, id) != id:
                    return f"transaction {id} is concurrent with {active[key]}, which writes {key} as well"
            started.add(id)
            continue
        for f, key, value in written:
            if f == "append":
                store.setdefault(key, []).append(value)
            else:
                store[key] = value
            active.pop(key, None)
    return None


class _Ended:
    """Transactions in the order in which they ended, and sets of the first ones.

    Each set is made from the next smaller one, so all of them take a linear number of steps.
    """

    def __init__(self, ids: Sequence[int], places: Mapping[int, int]) -> None:
        self._ids, self._places = ids, places
        self._first = [0]
        self._with_causes = [0]

    def list_first(self, count: int) -> int:
        """Returns the set of the first transactions."""
        while len(self._first) <= count:
            self._first.append(self._first[-1] | 1 << self._places[self._ids[len(self._first) - 1]])
        return self._first[count]

    def list_causes(self, count: int, causes: Mapping[int, int]) -> int:
        """Returns the set of all causes of the first transactions, which ``causes`` must have."""
        while len(self._with_causes) <= count:
            self._with_causes.append(self._with_causes[-1] | causes[self._ids[len(self._with_causes) - 1]])
        return self._with_causes[count]


class _Comparison:
    """Compares reads with the transactions that their readers see.

    A set of transactions is an integer, with a bit for the place of each transaction in the certificate. ``attempts``:
    how often any transaction, even a failed one, wrote a value to a key.
    """

    def __init__(
        self,
        rule: str,
        places: Mapping[int, int],
        operations: Mapping[int, Operation],
        initial: Initial,
        attempts: Mapping[tuple[str, Any], int],
    ) -> None:
        self._rule, self._places, self._operations, self._initial = rule, places, operations, initial
        self._attempts = attempts
        self._ids = sorted(places, key=places.__getitem__)
        self._writers: dict[tuple[str, Any], int] = {}  # by key and value
        self._final: dict[tuple[int, str], Any] = {}  # by transaction and key, the last value that it wrote
        self._writing: dict[str, int] = {}  # by key, the set of transactions that wrote it
        for id in self._ids:
            for f, key, value in operations[id].micros:
                if f != "r":
                    self._writers[key, value], self._final[id, key] = id, value
                    self._writing[key] = self._writing.get(key, 0) | 1 << places[id]

    def find_flaw(self, *, by_session: bool, by_time: bool) -> str | None:
        flaw = self._find_wrong_versions()
        if flaw is not None or self._rule == "read-uncommitted":
            return flaw
        before = self._list_before(by_session=by_session, by_time=by_time)
        causes: dict[int, int] = {}
        for id in self._ids:
            direct = self._list_sources(id)
            sources = self._to_set(direct)
            if sources >> self._places[id]:
                return f"transaction {id} comes before one whose write it read"
            seen = 0
            if self._rule in ("read-atomic", "causal"):
                ended, count = before[id]
                seen = sources | ended.list_first(count)
            if self._rule == "causal":
                for source in direct:
                    seen |= causes[source]
                seen |= ended.list_causes(count, causes)
                causes[id] = seen
            flaw = self._find_wrong_read(id, seen)
            if flaw is not None:
                return flaw
        return None

    def _find_wrong_read(self, id: int, seen: int) -> str | None:
        own: dict[str, list[Any]] = {}
        for f, key, value in self._operations[id].micros:
            if f != "r":
                own.setdefault(key, []).append(value)
                continue
            said = f"transaction {id} read {value} of {key}"
            elements = value if isinstance(value, list) else [] if value == self._initial(key) else [value]
            if any((key, one) not in self._writers for one in elements):
                return f"{said}, which no transaction wrote that counts"
            sources = [self._writers[key, one] for one in elements]
            others = [one for one in sources if one != id]
            if others and sources[-1] != id and self._final[others[-1], key] != elements[-1]:
                return f"{said}, an intermediate write"
            if self._rule == "read-committed":
                continue
            mine = own.get(key, [])
            if not set(mine if isinstance(value, list) else mine[-1:]) <= set(elements):
                return f"{said} after its own write"
            if not {one for one in elements if self._writers[key, one] == id} <= set(mine):
                return f"{said} before it wrote it"
            if others or not mine:
                last = others[-1] if others else None
                hidden = self._to_set([id] if last is None else [id, last])
                latest = (seen & self._writing.get(key, 0) & ~hidden).bit_length() - 1
                if latest > (-1 if last is None else self._places[last]):
                    return f"{said}, although it sees transaction {self._ids[latest]}, which wrote it later"
            if self._rule == "axiomatic-read-committed":
                seen |= self._to_set(others)
        return None

    def _find_wrong_versions(self) -> str | None:
        """Finds a read that no order of versions explains, or a write that contradicts this order.

        The longest read of a list is the order of its versions. Elements that no read shows come after it. An element
        that was written twice proves no order.
        """
        orders: dict[str, list[Any]] = {}
        for id, one in self._operations.items():
            for f, key, value in one.micros:
                if f != "r":
                    continue
                elements = value if isinstance(value, list) else [] if value == self._initial(key) else [value]
                if any((key, element) not in self._attempts for element in elements):
                    return f"transaction {id} read {value} of {key}, which no transaction wrote"
                if not isinstance(value, list):
                    continue
                clear = [element for element in elements if self._attempts[key, element] == 1]
                if len(set(clear)) < len(clear):
                    return f"transaction {id} read {value} of {key}, which shows an element twice"
                known = [element for element in clear if (key, element) in self._writers]
                shorter, longer = sorted((orders.get(key, []), known), key=len)
                if longer[: len(shorter)] != shorter:
                    return f"transaction {id} read {value} of {key}, and another one read another order"
                orders[key] = longer
        unseen: dict[str, set[int]] = {}
        shown = {(key, element) for key, elements in orders.items() for element in elements}
        for (key, value), id in self._writers.items():
            if (key, value) not in shown and self._attempts[key, value] == 1:
                unseen.setdefault(key, set()).add(id)
        for key, elements in orders.items():
            writers = [self._writers[key, element] for element in elements]
            last = writers[-1:]
            after = [(one, other) for one in last for other in unseen.get(key, ())]
            for first, second in [*pairwise(writers), *after]:
                if self._places[first] > self._places[second]:
                    return f"transaction {second} wrote {key} after {first}, and comes before it"
        return self._find_wrong_own_order(orders) if self._rule in WITH_OWN_ORDER else None

    def _find_wrong_own_order(self, orders: Mapping[str, Sequence[Any]]) -> str | None:
        """Finds a transaction whose elements stand in another order than they were appended."""
        places = {(key, element): place for key, order in orders.items() for place, element in enumerate(order)}
        for id, one in self._operations.items():
            last: dict[str, float] = {}
            for f, key, value in one.micros:
                if f == "append" and key in orders and self._attempts[key, value] == 1:
                    place = places.get((key, value), inf)
                    if place < last.get(key, -1):
                        return f"transaction {id} appended {value} to {key} last, and it stands before earlier elements"
                    last[key] = place
        return None

    def _list_sources(self, id: int) -> list[int]:
        """Returns the other transactions whose writes the transaction read."""
        values = [(key, value) for f, key, value in self._operations[id].micros if f == "r"]
        shown = [(key, one) for key, value in values for one in (value if isinstance(value, list) else [value])]
        return [self._writers[one] for one in shown if self._writers.get(one, id) != id]

    def _list_before(self, *, by_session: bool, by_time: bool) -> Mapping[int, tuple[_Ended, int]]:
        """Returns for each transaction the ended transactions of its group, and the number of those that precede it.

        They precede it by the declared order. A group is a session, or with ``by_time`` the whole history.
        """
        groups: dict[int, list[int]] = {}
        if by_time or by_session:
            for id, one in self._operations.items():
                groups.setdefault(0 if by_time else one.process, []).append(id)
        nothing = _Ended((), self._places)
        found = dict.fromkeys(self._operations, (nothing, 0))
        for ids in groups.values():
            returns = sorted((ret, id) for id in ids if (ret := self._operations[id].ret) is not None)
            ended, place = _Ended([id for _, id in returns], self._places), 0
            for id in sorted(ids, key=lambda id: self._operations[id].call):
                while place < len(returns) and returns[place][0] < self._operations[id].call:
                    place += 1
                found[id] = ended, place
        return found

    def _to_set(self, ids: Iterable[int]) -> int:
        found = 0
        for id in ids:
            found |= 1 << self._places[id]
        return found
