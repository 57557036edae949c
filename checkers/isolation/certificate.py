"""Verifies certificates. A certificate is an order of events that shows that a history satisfies a level.

The order lists each transaction once, by its number in the history. For snapshot isolation it lists two events of
each: ``2 t`` is the start of transaction t, and ``2 t + 1`` its commit. The verifier replays the order. It shares no
code with the searches, and needs no graph.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.transactions import INITIAL, NEVER, TransactionHistory


def find_flaw(history: TransactionHistory, level: Level, order: Sequence[int]) -> str | None:
    """Returns why the order does not show that the history satisfies the level, or None if it does."""
    snapshot = level.rule is Rule.SNAPSHOT_ISOLATION
    if sorted(order) != list(range(len(history) * (2 if snapshot else 1))):
        return "some event is missing, or is there twice"
    place = {event: number for number, event in enumerate(order)}
    starts = [place[2 * t if snapshot else t] for t in range(len(history))]
    commits = [place[2 * t + 1 if snapshot else t] for t in range(len(history))]
    if any(start > commit for start, commit in zip(starts, commits, strict=True)):
        return "a transaction commits before it starts"
    if any(commits[first] >= starts[second] for first, second, _ in history.list_version_order() if first != second):
        return "two versions of a list are in the wrong order"
    has_sessions = level.order is Order.SESSION or level.rule is Rule.CAUSAL
    if has_sessions and any(commits[first] >= starts[second] for first, second in _list_sessions(history)):
        return "the order of a session is not kept"
    if level.order is Order.REAL_TIME:
        # The earliest return of the transactions that commit later in the order, and the number of this transaction.
        earliest = (NEVER, -1)
        for event in reversed(order):
            number = event // 2 if snapshot else event
            if (not snapshot or event % 2 == 0) and earliest[0] < history.calls[number]:
                early, late = history.ops[earliest[1]], history.ops[number]
                return f"transaction {early} returned before transaction {late} was called, but comes after {late}"
            if not snapshot or event % 2:
                earliest = min(earliest, (history.returns[number], number))
    if level.rule is Rule.READ_UNCOMMITTED:
        return None
    if any(commits[writer] >= starts[number] for number, reads in enumerate(history.reads)
           for read in reads for writer in read.writers if writer != INITIAL):  # fmt: skip
        return "a read comes before its write"
    if level.rule is Rule.READ_COMMITTED:
        return None
    if level.rule.needs_search:
        return _replay(history, order, snapshot=snapshot)
    seen = _list_causes(history, level, order) if level.rule is Rule.CAUSAL else _list_visible(history, level, place)
    for reader, read_key, writer, other in seen:
        if (
            read_key in history.writes[other]
            and other not in (writer, reader)
            and (writer == INITIAL or place[other] > place[writer])
        ):
            return f"transaction {history.ops[reader]} sees a later version of {history.keys[read_key]} than it read"
    return None


def to_certificate(history: TransactionHistory, level: Level, order: Sequence[int]) -> dict[str, Any]:
    """Returns the certificate as a map, with the ids of operations (``certificate_replay``)."""
    events: list[Any]
    if level.rule is Rule.SNAPSHOT_ISOLATION:
        events = [["commit" if event % 2 else "start", history.ops[event // 2]] for event in order]
    else:
        events = [history.ops[event] for event in order]
    # Writes do not count if the transaction failed, or if its outcome is unknown and no ok transaction read them. Then
    # only its reads are judged.
    without_writes = [op for op, counted in zip(history.ops, history.are_writes_counted, strict=True) if not counted]
    return {
        "level": level.name,
        "rule": level.rule.value,
        "order": level.order.value,
        "without_writes": without_writes,
        "events": events,
    }


def _replay(history: TransactionHistory, order: Sequence[int], *, snapshot: bool) -> str | None:
    """Returns why an event of the order is impossible, or None if all are possible one after the other."""
    state: dict[int, int] = {}
    active: set[int] = set()  # under snapshot isolation, the keys of transactions that have started, but not committed
    for event in order:
        number = event // 2 if snapshot else event
        if not snapshot or event % 2 == 0:
            for read in history.reads[number]:
                if state.get(read.key, INITIAL) != read.writer:
                    return f"transaction {history.ops[number]} does not find what it read of {history.keys[read.key]}"
            if not active.isdisjoint(history.writes[number]):
                return f"transaction {history.ops[number]} is concurrent with another writer of one object"
            active.update(history.writes[number] if snapshot else ())
        if not snapshot or event % 2:
            state.update(dict.fromkeys(history.writes[number], number))
            active.difference_update(history.writes[number])
    return None


def _list_sessions(history: TransactionHistory) -> Iterator[tuple[int, int]]:
    """Yields pairs of consecutive transactions of a session. Unknown outcomes precede nothing."""
    last: dict[int, int] = {}
    for number, process in enumerate(history.processes):
        if process in last:
            yield last[process], number
        if history.returns[number] != NEVER:
            last[process] = number


def _list_visible(
    history: TransactionHistory, level: Level, places: Mapping[int, int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (reader, key, writer, another transaction that the reader sees) for each read."""
    writers: dict[int, list[int]] = {}
    for number, written in enumerate(history.writes):
        for key in written:
            writers.setdefault(key, []).append(number)
    ended = _Returned(history, level, writers, places) if level.rule is Rule.READ_ATOMIC else None
    for reader, reads in enumerate(history.reads):
        visible: set[int] = set()
        if level.rule is Rule.READ_ATOMIC:
            visible = {one for read in reads for one in read.writers} - {INITIAL}
        for read in reads:
            yield from ((reader, read.key, read.writer, other) for other in visible)
            if level.rule is Rule.AXIOMATIC_READ_COMMITTED:
                visible |= {one for one in read.writers if one != INITIAL}
            elif ended is not None and level.order is not Order.NONE:
                group = history.processes[reader] if level.order is Order.SESSION else 0
                for other in ended.find_last(group, read.key, history.calls[reader]):
                    yield reader, read.key, read.writer, other


class _Returned:
    """Writers of a key that returned before a moment, by session. Group 0 holds all if the level needs no sessions.

    Only the two writers that come last in the order are kept. ``find_flaw`` ignores two writers, the reader
    itself and the writer W that it read. If any third one comes after W, then one of the last two is no ignored
    writer, and comes after W, too.
    """

    def __init__(
        self, history: TransactionHistory, level: Level, writers: Mapping[int, Sequence[int]], places: Mapping[int, int]
    ) -> None:
        self._returns: dict[tuple[int, int], list[int]] = {}
        self._last: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for key, numbers in writers.items():
            for number in sorted(numbers, key=history.returns.__getitem__):
                if history.returns[number] == NEVER:
                    break
                group = history.processes[number] if level.order is Order.SESSION else 0, key
                known = self._last.setdefault(group, [()])
                known.append(tuple(sorted((*known[-1], number), key=places.__getitem__)[-2:]))
                self._returns.setdefault(group, []).append(history.returns[number])

    def find_last(self, group: int, key: int, before: int) -> tuple[int, ...]:
        """Returns the writers of the key that returned before this moment: the last two of them in the order."""
        returns = self._returns.get((group, key), [])
        return self._last.get((group, key), [()])[bisect_left(returns, before)]


def _list_causes(
    history: TransactionHistory, level: Level, order: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (reader, key, writer, another transaction that the reader sees) for each read, for the rule causal.

    In each session, only the last writer of the key that the reader sees is yielded. The order keeps sessions, so
    earlier writers of the session come earlier in it as well. A transaction of unknown outcome is a session of its own.
    """
    sessions = [
        process if ret != NEVER else -1 - number
        for number, (process, ret) in enumerate(zip(history.processes, history.returns, strict=True))
    ]
    direct: list[set[int]] = [set() for _ in sessions]
    for first, second in _list_sessions(history):
        direct[second].add(first)
    for number, reads in enumerate(history.reads):
        direct[number] |= {one for read in reads for one in read.writers} - {INITIAL}
    writers: dict[int, dict[int, list[int]]] = {}
    for number, written in enumerate(history.writes):
        for key in written:
            writers.setdefault(key, {}).setdefault(sessions[number], []).append(number)
    by_return = sorted(
        number for number in order if level.order is Order.REAL_TIME and history.returns[number] != NEVER
    )
    by_return.sort(key=history.returns.__getitem__)
    returns = [history.returns[number] for number in by_return]
    before = [bisect_left(returns, call) for call in history.calls]
    # Key: a length of a prefix of `by_return`. Value: how many transactions still need `ended` as it was after this
    # prefix (a copy in `kept`).
    waiting = Counter(before)
    seen_by: dict[int, dict[int, int]] = {}  # for each transaction, by session, the last transaction that it sees
    ended: dict[int, int] = {}  # the first `passed` transactions of `by_return`, and all that they saw
    passed = 0
    kept: dict[int, dict[int, int]] = {0: {}}
    for number in order:
        seen = seen_by[number] = dict(kept[before[number]])
        waiting[before[number]] -= 1
        if not waiting[before[number]]:
            del kept[before[number]]
        for source in direct[number]:
            _merge(seen, seen_by[source])
            seen[sessions[source]] = max(source, seen.get(sessions[source], -1))
        while passed < len(by_return) and by_return[passed] in seen_by:
            one = by_return[passed]
            _merge(ended, seen_by[one])
            ended[sessions[one]] = max(one, ended.get(sessions[one], -1))
            passed += 1
            if waiting[passed]:
                kept[passed] = dict(ended)
        for read in history.reads[number]:
            for session, candidates in writers.get(read.key, {}).items():
                place = bisect_right(candidates, seen.get(session, -1))
                if place:
                    yield number, read.key, read.writer, candidates[place - 1]


def _merge(seen: dict[int, int], more: Mapping[int, int]) -> None:
    """Adds to what is seen, by session, the later transactions of ``more``."""
    for session, number in more.items():
        if seen.get(session, -1) < number:
            seen[session] = number
