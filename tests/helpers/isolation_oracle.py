"""Isolation levels by brute force: every order of the transactions, or of their starts and commits.

The oracle reads the formulas of ``assay.checkers.isolation.levels`` literally, and shares no code with the checker.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.transactions import Row

from helpers.txn_histories import Micro, Txn


def to_rows(txns: Iterable[Txn]) -> list[Row]:
    """Returns the rows of ``effects`` that the checker reads."""
    return [
        (row["op"], row["sub"], row["process"], row["key"], row["kind"], row["list_index"], row["value"],
         row["call"], row["ret"], row["outcome"])
        for txn in txns for row in txn.rows()
    ]  # fmt: skip


def keeps(txns: Sequence[Txn], level: Level, order: Sequence[int]) -> bool:
    """Returns whether this order keeps the level. It has the events of ``assay.checkers.isolation.certificate``."""
    facts = _collect(txns)
    place = {event: position for position, event in enumerate(order)}
    if level.rule is Rule.SNAPSHOT_ISOLATION:
        return _keeps_snapshots(facts, level, place)
    return _holds(facts, level, place)


def _keeps_snapshots(facts: _Facts, level: Level, place: dict[int, int]) -> bool:
    numbers = range(len(facts.txns))
    start, commit = [place[2 * one] for one in numbers], [place[2 * one + 1] for one in numbers]
    before = {(a, b) for a in numbers for b in numbers if _precedes(facts, level.order, a, b)} | facts.versions
    before |= {(writer, reader) for reader in numbers for _, _, all_ in facts.reads[reader] for writer in all_}
    if any(commit[a] >= start[b] for a, b in before) or any(start[one] >= commit[one] for one in numbers):
        return False
    for one, other in combinations(numbers, 2):
        shared = facts.writes[one].keys() & facts.writes[other].keys()
        if shared and commit[one] >= start[other] and commit[other] >= start[one]:
            return False
    for one in numbers:
        for key, writer, _ in facts.reads[one]:
            others = [other for other in numbers if other not in (writer, one) and key in facts.writes[other]]
            latest = -1 if writer is None else commit[writer]
            if any(latest <= commit[other] <= start[one] for other in others):
                return False
    return True


@dataclass
class _Facts:
    """Reads and writes of the committed transactions. Reads are (key, writer or None, writers of all elements)."""

    txns: list[Txn]
    reads: list[list[tuple[str, int | None, tuple[int, ...]]]] = field(default_factory=list)
    writes: list[dict[str, int]] = field(default_factory=list)
    versions: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of transactions of which the second wrote a later version of a list."""
    anomalies: set[str] = field(default_factory=set)


def satisfies(txns: Sequence[Txn], level: Level) -> bool:
    """Returns whether some order of the transactions keeps the level."""
    facts = _collect(txns)
    if facts.anomalies & level.forbidden_values:
        return False
    count = len(facts.txns)
    if level.rule is Rule.SNAPSHOT_ISOLATION:
        return _has_snapshot_order(facts, level, frozenset(), frozenset(), {})
    return any(_holds(facts, level, {txn: place for place, txn in enumerate(order)})
               for order in permutations(range(count)))  # fmt: skip


def _collect(txns: Sequence[Txn]) -> _Facts:
    shown = {(micro[1], one) for txn in txns if txn.outcome == "ok" for micro in txn.micros if micro[0] == "r"
             for one in _elements(micro[2])}  # fmt: skip
    counted = [
        txn
        for txn in txns
        if txn.outcome == "ok"
        or (txn.outcome == "info" and any(f != "r" and (key, value) in shown for f, key, value in txn.micros))
    ]
    facts = _Facts(counted)
    facts.writes = [{key: value for f, key, value in txn.micros if f != "r"} for txn in counted]
    writers = {(key, value): n for n, txn in enumerate(counted) for f, key, value in txn.micros if f != "r"}
    failed = {(key, value) for txn in txns if txn.outcome == "fail" for f, key, value in txn.micros if f != "r"}
    for number, txn in enumerate(counted):
        facts.reads.append([])
        own: dict[str, list[int]] = {}
        for f, key, value in txn.micros:
            if f != "r":
                own.setdefault(key, []).append(value)
            elif txn.outcome == "ok":
                _collect_read(facts, number, key, value, own.get(key, []), writers, failed)
    _collect_versions(facts, writers)
    return facts


def _elements(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _collect_read(
    facts: _Facts, number: int, key: str, value: Any, own: list[int], writers: dict[tuple[str, int], int],
    failed: set[tuple[str, int]],
) -> None:  # fmt: skip
    elements = _elements(value)
    for one in elements:
        if (key, one) not in writers:
            facts.anomalies.add("G1a" if (key, one) in failed else "garbage-read")
        elif writers[key, one] == number and one not in own:
            facts.anomalies.add("internal")
    is_list = isinstance(value, list | tuple)
    if own and not (set(own) <= set(elements) if is_list else elements == own[-1:]):
        facts.anomalies.add("internal")
    if len(set(elements)) < len(elements):
        facts.anomalies.add("duplicate-elements")
    others = [one for one in elements if (key, one) in writers and writers[key, one] != number]
    if others:
        last = others[-1]
        if elements[-1] == last and facts.writes[writers[key, last]][key] != last:
            facts.anomalies.add("G1b")
        facts.reads[number].append((key, writers[key, last], tuple(writers[key, one] for one in others)))
    elif not own and not any((key, one) in writers or (not is_list) for one in elements):
        facts.reads[number].append((key, None, ()))


def _collect_versions(facts: _Facts, writers: dict[tuple[str, int], int]) -> None:
    lists = {micro[1] for txn in facts.txns for micro in txn.micros if micro[0] == "append"}
    for key in lists:
        reads = [[one for one in micro[2] if (key, one) in writers] for txn in facts.txns if txn.outcome == "ok"
                 for micro in txn.micros if micro[0] == "r" and micro[1] == key]  # fmt: skip
        longest = max(reads, key=len, default=[])
        if any(longest[: len(read)] != read for read in reads):
            facts.anomalies.add("incompatible-order")
            continue
        for number, txn in enumerate(facts.txns):
            own = [micro[2] for micro in txn.micros if micro[0] == "append" and micro[1] == key]
            places = [longest.index(one) if one in longest else len(longest) for one in own]
            if places != sorted(places):
                facts.anomalies.add("internal")
            for one in own:
                later = longest[longest.index(one) + 1 :] if one in longest else []
                unseen = [value for (name, value) in writers if name == key and value not in longest]
                for value in [*later, *(unseen if one in longest else [])]:
                    if writers[key, value] != number:
                        facts.versions.add((number, writers[key, value]))


def _precedes(facts: _Facts, order: Order, first: int, second: int) -> bool:
    one, other = facts.txns[first], facts.txns[second]
    if one.outcome == "info" or order is Order.NONE or first == second:
        return False
    if order is Order.SESSION:
        return one.process == other.process and one.call < other.call
    return one.ret is not None and one.ret < other.call


def _holds(facts: _Facts, level: Level, place: dict[int, int]) -> bool:
    numbers = range(len(facts.txns))
    orders = {level.order} | ({Order.SESSION} if level.rule is Rule.CAUSAL else set())
    declared = {(a, b) for a in numbers for b in numbers for order in orders if _precedes(facts, order, a, b)}
    if any(place[a] >= place[b] for a, b in (*declared, *facts.versions)):
        return False
    if level.rule is Rule.READ_UNCOMMITTED:
        return True
    read = {(writer, reader) for reader in numbers for _, _, all_ in facts.reads[reader] for writer in all_}
    if any(place[a] >= place[b] for a, b in read):
        return False
    if level.rule is Rule.READ_COMMITTED:
        return True
    paths = declared | read
    if level.rule is Rule.CAUSAL:
        for middle in numbers:
            paths |= {(a, b) for a in numbers for b in numbers if {(a, middle), (middle, b)} <= paths}
    for reader in numbers:
        for number, (key, writer, _) in enumerate(facts.reads[reader]):
            for other in numbers:
                if other in (writer, reader) or key not in facts.writes[other]:
                    continue
                before_writer = writer is not None and place[other] < place[writer]
                if level.rule in (Rule.SERIALIZABLE, Rule.REPEATABLE_READ):
                    if not before_writer and place[other] < place[reader]:
                        return False
                elif level.rule is Rule.AXIOMATIC_READ_COMMITTED:
                    earlier = {one for _, _, all_ in facts.reads[reader][:number] for one in all_}
                    if other in earlier and not before_writer:
                        return False
                elif (other, reader) in paths and not before_writer:
                    return False
    return True


def _has_snapshot_order(
    facts: _Facts, level: Level, started: frozenset[int], committed: frozenset[int], state: dict[str, int]
) -> bool:
    numbers = range(len(facts.txns))
    if len(committed) == len(numbers):
        return True
    for number in numbers:
        if number in committed:
            continue
        if number in started:
            after = state | dict.fromkeys(facts.writes[number], number)
            if _has_snapshot_order(facts, level, started, committed | {number}, after):
                return True
        elif (
            all(state.get(key) == writer for key, writer, _ in facts.reads[number])
            and not any(set(facts.writes[one]) & set(facts.writes[number]) for one in started - committed)
            and all(one in committed for one in numbers
                    if _precedes(facts, level.order, one, number) or (one, number) in facts.versions)
            and _has_snapshot_order(facts, level, started | {number}, committed, state)
        ):  # fmt: skip
            return True
    return False


def draw_history(rng: random.Random, most: int, *, lists: bool = False) -> list[Txn]:
    """Draws up to ``most`` transactions with reads of any written value, some of which contradict each other."""
    keys = "xyz"[: rng.choice((1, 2, 2, 3))]
    values = 0
    plans: list[list[tuple[str, str, int | None]]] = []
    for _ in range(rng.randint(2, most)):
        micros: list[tuple[str, str, int | None]] = []
        for _ in range(rng.randint(1, 4)):
            key = rng.choice(keys)
            if rng.random() < 0.5:
                values += 1
                micros.append(("append" if lists else "w", key, values))
            else:
                micros.append(("r", key, None))
        plans.append(micros)
    orders = {key: [one[2] for plan in plans for one in plan if one[0] != "r" and one[1] == key] for key in keys}
    for order in orders.values():
        if rng.random() < 0.7:
            rng.shuffle(order)
    txns, clock, free = [], 0, dict.fromkeys(range(3), 0)
    for op, plan in enumerate(plans):
        process = rng.choice(list(free))
        clock = max(clock + 1, free[process])
        call, ret = clock * 1000 + op, (clock + rng.choice((1, 1, 2, 4, 8))) * 1000 + 500 + op
        free[process] = ret // 1000 + 1
        outcome = rng.choices(("ok", "info", "fail"), (10, 2, 1))[0]
        done: list[Micro] = []
        for f, key, value in plan:
            if f != "r":
                done.append((f, key, value))
            elif lists:
                done.append(("r", key, _draw_list(rng, orders[key], done, key)))
            else:
                own = [one[2] for one in done if one[0] == "w" and one[1] == key]
                others = [one for one in orders[key] if one not in own]
                likely = own[-1:] if own and rng.random() < 0.9 else [None, *others]
                done.append(("r", key, rng.choice(likely) if rng.random() < 0.98 else 99))
        txns.append(Txn(op, done, call, None if outcome == "info" else ret, outcome, process))
    return txns


def _draw_list(rng: random.Random, order: Sequence[Any], done: Sequence[Micro], key: str) -> list[int]:
    read = list(order[: rng.randint(0, len(order))])
    own = [one[2] for one in done if one[0] == "append" and one[1] == key]
    if own and rng.random() < 0.8:
        read = list(order[: 1 + max(order.index(one) for one in own)])
    if read and rng.random() < 0.04:
        read[rng.randrange(len(read))] = rng.choice((99, read[0]))
    return read


def draw_large_history(
    rng: random.Random, count: int, *, has_cases: bool = False, keeps_times: bool = False
) -> list[Txn]:
    """Draws transactions of a contended store, some of which read an older version of a register.

    The times may be shuffled, so that only reads show an order, unless ``keeps_times``. ``has_cases``: adds
    transactions that are not serializable, as only a split into cases shows (``draw_split``), or are, because one of
    them is missing.
    """
    keys = [f"k{number}" for number in range(rng.randint(count // 8 + 2, count // 3 + 3))]
    versions: dict[str, list[int | None]] = {key: [None] for key in keys}
    staleness, free = rng.choice((0, 0, 0, 1) if keeps_times else (0, 0, 1, 2)), [0] * rng.choice((3, 6, 12))
    values, clock, txns = 0, 0, list[Txn]()
    for op in range(count):
        clock = max(clock + 1000, min(free) + 1)
        process = rng.choice([one for one, end in enumerate(free) if end < clock])
        call, free[process] = clock, clock + rng.choice((101, 3002, 9003))
        ret = free[process]
        micros: list[Micro] = []
        for key in rng.sample(keys, rng.randint(1, min(4, len(keys)))):
            if rng.random() < 0.5:
                values += 1
                micros.append(("w", key, values))
            else:
                back = rng.randint(0, staleness) if rng.random() < 0.1 else 0
                micros.append(("r", key, versions[key][max(0, len(versions[key]) - 1 - back)]))
        for f, key, value in micros:
            if f == "w":
                versions[key].append(value)
        txns.append(Txn(op, micros, call, ret, "ok", process))
    if not keeps_times and rng.random() < 0.5:
        times = [(txn.call, txn.ret) for txn in txns]
        rng.shuffle(times)
        for txn, (call, ret) in zip(txns, times, strict=True):
            txn.call, txn.ret = call, ret
    if has_cases:
        more = draw_split(rng, count, begin=1000 * (count + 50) + 10**6)
        txns += more if rng.random() < 0.5 else _leave_one_out(rng, more)
    return txns


def draw_split(rng: random.Random, first: int, begin: int = 1) -> list[Txn]:
    """Draws concurrent transactions that are refuted in each order of two writers of x, and by no less.

    If the first writer of x is before the second one, both writers of y are before both readers of y, which differ. In
    the other case this holds for z.
    """
    texts = ("wx1 ws1", "wx2 wt1", "wy1 wp1", "wy2 wq1", "rx1 rp1 rq1", "rt1 ry1", "rt1 ry2", "wz1 wu1", "wz2 wv1",
             "rx2 ru1 rv1", "rs1 rz1", "rs1 rz2")  # fmt: skip
    order = rng.sample(range(len(texts)), len(texts))
    return [
        Txn(first + place, [(one[0], f"split-{one[1]}", int(one[2])) for one in texts[number].split()],
            begin + place, begin + 10**6 + place, "ok", 1000 + place)
        for place, number in enumerate(order)
    ]  # fmt: skip


def _leave_one_out(rng: random.Random, txns: Sequence[Txn]) -> list[Txn]:
    left = list(txns)
    left.pop(rng.randrange(len(left)))
    written = {(key, value) for txn in left for f, key, value in txn.micros if f == "w"}
    for txn in left:
        txn.micros = [one for one in txn.micros if one[0] == "w" or (one[1], one[2]) in written]
    return [txn for txn in left if txn.micros]
