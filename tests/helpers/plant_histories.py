"""Small legal histories of each kind of object, each with an oracle, for tests of plants.

No two stamps are equal, so that copies are valid histories of their own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from assay.checkers.judging.contract import Contract
from assay.harness.core.history.data_sets import DATA_SETS

from helpers import (
    bank_histories,
    commit_histories,
    expiry_histories,
    fencing_histories,
    group_possible,
    hold_histories,
    log_possible,
    object_histories,
    register_oracle,
    start_histories,
    txn_oracle,
    view_histories,
)
from helpers.log_histories import Row, SimulatedLog, effect
from helpers.log_model import Model as LogModel
from helpers.object_models import GroupModel, Model, Pending, QueueModel
from helpers.object_oracle import (
    Impossible,
    bag_linearizable,
    count,
    element,
    largest,
    linearizable,
    of_element,
    queue_losses,
    queue_unexplained,
    queue_wrong,
)
from helpers.register_histories import SimulatedRegister
from helpers.statement_oracle import Witness
from helpers.txn_histories import SERIALIZABLE, SimulatedStore, Txn

STEP: Final = 2_000
"""Between two moments of a generator; room for calls and returns at the same moment."""
OPS: Final = 1_000
"""Operation numbers of each history."""
CONTRACT: Final = Contract(forbidden=(), minimum_operations=0)


@dataclass(frozen=True)
class Kind:
    """Histories of one kind of object."""

    name: str
    make: Callable[[str, random.Random, int], list[Row]]
    """Returns a legal history, by its key, a generator of random numbers, and the number of its first operation."""
    legal: Callable[[Sequence[Row]], bool]
    """Decides by search, or by looking at each pair."""
    anomalies: tuple[str, ...]
    """Anomalies whose plants are tried in them."""
    contract: Contract = CONTRACT
    legal_part: Callable[[Sequence[Row]], bool] | None = None
    """As ``legal``, for the part of an object that a copy has. None: ``legal`` decides parts, too."""

    def judge_part(self, rows: Sequence[Row]) -> bool:
        return (self.legal_part or self.legal)(rows)

    times: int = 1
    """How many times as many histories as of other kinds are needed, because few of them expose anything."""

    def histories(self, number: int) -> Iterator[list[Row]]:
        for index in range(self.times * number):
            rng = random.Random(f"{self.name}/{index}")
            yield spread(self.make(f"k{index}", rng, index * OPS))


def spread(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with stamps of their own. Operations that touched in time overlap."""
    ops = sorted({row["op"] for row in rows})
    number = {op: place for place, op in enumerate(ops)}
    earliest = min((row["call"] for row in rows), default=0)

    def move(row: Row) -> Row:
        call = (row["call"] - earliest) * STEP + number[row["op"]]
        ret = None if row["ret"] is None else (row["ret"] - earliest) * STEP + STEP // 2 + number[row["op"]]
        return {**row, "call": call, "ret": ret}

    return sorted((move(row) for row in rows), key=lambda row: (row["op"], row["sub"]))


def to_operations(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of ``ops`` to which these effects belong."""
    first = {row["op"]: row for row in reversed(rows)}
    return [
        {
            **dict.fromkeys(DATA_SETS["ops"].names), "index": op, "worker": "0", "f": row["kind"], "argument": "null",
            **{name: row[name] for name in ("process", "key", "call", "ret", "outcome", "error", "phase")},
        }
        for op, row in first.items()
    ]  # fmt: skip


# -- sets, queues, counters, max registers, ids, banks


def legal_set(rows: Sequence[Row]) -> bool:
    values = {row["value"] for row in rows} - {None}
    return all(linearizable(of_element(rows, value), False, element) for value in values)


def legal_exact_set(rows: Sequence[Row]) -> bool:
    """Whether each read shows the whole set at some moment."""
    shown: defaultdict[int, set[int]] = defaultdict(set)
    for row in rows:
        if row["kind"] == "set-read" and row["value"] is not None:
            shown[row["op"]].add(row["value"])

    def step(state: frozenset[int], row: Row) -> frozenset[int]:
        if row["kind"] == "set-add":
            return state | {row["value"]}
        if row["kind"] == "set-remove":
            return state - {row["value"]}
        if shown[row["op"]] != state:
            raise Impossible
        return state

    return linearizable(list({row["op"]: row for row in rows}.values()), frozenset[int](), step)


def growing(key: str, rng: random.Random, first: int) -> list[Row]:
    """A value that is changed and read by three processes, one after the other."""
    value, rows = 0, []
    for number in range(rng.randint(2, 12)):
        outcome = rng.choice(("ok", "ok", "ok", "fail"))
        kind = rng.choice(("monotonic-add", "monotonic-read", "monotonic-read"))
        value += kind == "monotonic-add" and outcome == "ok"
        known = None if rng.random() < 0.1 and kind == "monotonic-add" else value
        given: dict[str, Any] = {"value": known, "outcome": outcome, "process": number % 3}
        rows.append(effect(first + number, 0, kind, key, 3 * number, 3 * number + rng.randint(1, 2), **given))
    return rows


def legal_growing(rows: Sequence[Row]) -> bool:
    """Whether no process saw the value fall. Different processes may see it at different moments."""
    seen = [row for row in rows if row["outcome"] == "ok" and row["value"] is not None]
    return not any(
        one["process"] == other["process"] and one["call"] < other["call"] and one["value"] > other["value"]
        for one in seen
        for other in seen
    )


def growing_together(key: str, rng: random.Random, first: int) -> list[Row]:
    """Three values that are read together."""
    values, rows = {f"{key}/{name}": 0 for name in "xyz"}, list[Row]()
    for number in range(rng.randint(2, 12)):
        shown = rng.sample(sorted(values), rng.choice((1, 3, 3)))
        kind = rng.choice(("monotonic-add", "monotonic-read"))
        for sub, name in enumerate(shown[:1] if kind == "monotonic-add" else shown):
            values[name] += kind == "monotonic-add"
            span = 3 * number, 3 * number + rng.randint(1, 1 + 5 * (len(shown) == 1))
            rows.append(effect(first + number, sub, kind, name, *span, value=values[name], process=number % 4))
    return rows


def legal_growing_together(rows: Sequence[Row]) -> bool:
    """Whether no operations come before each other in a circle, by all that they saw and by their times."""
    ops = sorted({row["op"] for row in rows})
    before = {
        (one["op"], other["op"])
        for one in rows
        for other in rows
        if (one["key"] == other["key"] and one["value"] < other["value"]) or one["ret"] < other["call"]
    }
    for middle in ops:
        before |= {(one, other) for one in ops for other in ops if {(one, middle), (middle, other)} <= before}
    return not any((op, op) in before for op in ops)


def starts(key: str, rng: random.Random, first: int) -> list[Row]:
    """Log starts as nodes report them; the log of each node begins at an offset of its own."""
    begin, rows = {"n1": 0, "n2": 0}, []
    if rng.random() < 0.9:
        rows.append(effect(first + 99, 0, "append", key, 0, 1, value=1, position=99, process=99))
    for number in range(rng.randint(2, 10)):
        node = rng.choice(("n1", "n2"))
        begin[node] += rng.choice((0, 0, 1, 3))
        epoch, incarnation = rng.choice((None, 1, 1, 1, 2)), rng.choice((1, 1, 1, 2))
        given: dict[str, Any] = {"position": begin[node], "node": node, "leader_epoch": epoch, "process": number,
                                 "incarnation": incarnation}  # fmt: skip
        rows.append(effect(first + number, 0, "start", key, 3 * number, 3 * number + rng.randint(1, 6), **given))
    return rows


def queue(key: str, rng: random.Random, first: int) -> list[Row]:
    """Each operation is of a process of its own."""
    return [{**row, "process": row["op"] - first} for row in object_histories.queue(key, rng, first)]


def legal_queue(rows: Sequence[Row], *, exact: bool) -> bool:
    rows = [dict(row) for row in rows]
    moved = [row for row in rows if row["kind"] != "queue-drained"]
    return (
        queue_losses(rows) == 0
        and not queue_wrong(rows)
        and queue_unexplained(rows) == 0
        and (not exact or bag_linearizable(moved))
    )


def ids(key: str, rng: random.Random, first: int) -> list[Row]:
    """Each id is given out once; of an answer that failed or was lost, the id may be that of another one."""
    rows = object_histories.some_ids(key, rng, first)
    fresh = iter(range(100))
    for row in rows:
        if row["outcome"] == "ok":
            number = next(fresh)
            row.update({"value": number} if row["value"] is not None else {"name": f"n-{number}"})
    return rows


def legal_ids(rows: Sequence[Row]) -> bool:
    given = [(row["value"], row["name"]) for row in rows if row["outcome"] == "ok"]
    return len(set(given)) == len(given)


def bank(key: str, rng: random.Random, first: int) -> list[Row]:
    """Makes banks, of which some name only the sum of all accounts, or may not have been opened."""
    outcome, split = rng.choice(("ok", "ok", "ok", "info")), rng.random() < 0.7
    return bank_histories.at_random(
        rng.randrange(10**9), wrong=False, key=key, first=first, outcome=outcome, split=split
    ).rows


def legal_bank(rows: Sequence[Row]) -> bool:
    """Whether some order of transfers explains each read. No account may be below zero.

    If only the sum of all accounts is known, the first read may show any balances with this sum.
    """
    by_op: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_op[row["op"]].append(row)
    steps = []
    opened: dict[str, int] | None = None
    total = 0
    for parts in by_op.values():
        if parts[0]["kind"] == "bank-open":
            total = sum(row["value"] or 0 for row in parts)
            if parts[0]["owner"] is not None:
                opened = {row["owner"]: row["value"] for row in parts}
            continue
        changes = {row["owner"]: row["value"] * (1 if row["kind"] == "bank-deposit" else -1) for row in parts}
        shown = {row["owner"]: row["value"] for row in parts}
        steps.append({**parts[0], "changes": changes, "shown": shown})

    def step(state: tuple[tuple[str, int], ...] | None, row: Row) -> tuple[tuple[str, int], ...] | None:
        if row["kind"] == "bank-read":
            is_right = sum(row["shown"].values()) == total if state is None else row["shown"] == dict(state)
            if not is_right or min(row["shown"].values()) < 0:
                raise Impossible
            return tuple(sorted(row["shown"].items()))
        if state is None:
            return None
        balances = dict(state)
        for owner, change in row["changes"].items():
            balances[owner] += change
        return tuple(sorted(balances.items()))

    return linearizable(steps, None if opened is None else tuple(sorted(opened.items())), step)


# -- registers, groups, leases


def register(key: str, rng: random.Random, first: int, *, versions: bool) -> list[Row]:
    return SimulatedRegister(key, rng, first, versions=versions).run(rng.randint(4, 10))


def of_model(model: type[Model], key: str, rng: random.Random, first: int) -> list[Row]:
    return model(first // OPS, None, rng).history(rng.randint(10, 60))


class LeaseModel(Model):
    """A lock, which a client loses if it is silent. With ``tokens``, each holder gets a number above all earlier ones.

    Without tokens, only the lock of a client that has ended expires.
    """

    tokens = True

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        super().__init__(number, bug, rng)
        self.holder: int | None = None
        self.token = rng.choice((-1, 0, 4))
        self.held: dict[int, int] = {}
        """The token of each process that has one."""

    def draw(self, process: int) -> Pending:
        kind = "acquire" if process not in self.held else self.rng.choice(("guarded", "guarded", "renew", "release"))
        given = {"owner": f"owner-{process}", "process": process, "number": self.held.get(process)}
        if kind == "release":
            del self.held[process]
        return Pending(kind, self.now, given)

    def apply(self, pending: Pending) -> None:
        process, number = pending.given["process"], pending.given["number"]
        if pending.kind == "acquire":
            silent = self.tokens and self.rng.random() < 0.3
            if self.holder is not None and self.holder in self.processes and not silent:
                pending.outcome = "fail"
                return
            self.token, self.holder = self.token + 1, process
            self.held[process] = pending.given["number"] = self.token
        elif number != self.token or self.holder != process:
            pending.outcome, pending.given["error"] = "fail", "stale-epoch"
            self.held.pop(process, None)
        elif pending.kind == "release":
            self.holder = None

    def effects(self, pending: Pending, outcome: str) -> list[dict[str, Any]]:
        given = dict(pending.given)
        number = given.pop("number")
        known = None if pending.kind == "acquire" and outcome != "ok" else number
        given |= {"assignment": known, "token": known if self.tokens else None}
        if outcome != "fail":
            given.pop("error", None)
        return [{"kind": pending.kind, **given}]


class LockModel(LeaseModel):
    tokens = False


class OffsetModel(Model):
    """The offset of a group with one partition. Only its owner commits, and only upwards."""

    def __init__(self, number: int, bug: str | None, rng: random.Random) -> None:
        super().__init__(number, bug, rng)
        self.committed = 0
        self.owner: int | None = None
        self.at: dict[int, int] = {}

    def draw(self, process: int) -> Pending:
        given: dict[str, Any] = {"key": f"{self.key}/t-0", "group": self.key, "process": process}
        if process not in self.at or self.rng.random() < 0.3:
            return Pending("resume", self.now, given)
        self.at[process] += self.rng.randint(0, 2)
        return Pending("advance", self.now, {**given, "position": self.at[process]})

    def apply(self, pending: Pending) -> None:
        process = pending.given["process"]
        if pending.kind == "resume":
            self.owner = process
            self.at[process] = pending.given["position"] = self.committed
        elif self.owner == process and pending.given["position"] >= self.committed:
            self.committed = pending.given["position"]
        else:
            pending.outcome = "fail"

    def effects(self, pending: Pending, outcome: str) -> list[dict[str, Any]]:
        shown = dict(pending.given)
        if pending.kind == "resume" and outcome != "ok":
            shown.pop("position", None)
        return [{"kind": pending.kind, **shown}]


def legal_offsets(rows: Sequence[Row]) -> bool:
    def step(state: int, row: Row) -> int:
        if row["kind"] == "resume" and row["position"] != state:
            raise Impossible
        if row["kind"] == "advance" and row["outcome"] == "ok" and row["position"] < state:
            raise Impossible
        return int(row["position"])

    return linearizable([row for row in rows if row["kind"] == "advance" or row["outcome"] == "ok"], 0, step)


def group(key: str, rng: random.Random, first: int) -> list[Row]:
    """Makes groups, of which some begin with generation 0."""
    less = rng.randint(0, 1)
    rows = of_model(GroupModel, key, rng, first)
    return [row if row["generation"] is None else {**row, "generation": row["generation"] - less} for row in rows]


def legal_leases(rows: Sequence[Row]) -> bool:
    rows = list(rows)
    return not fencing_histories.violations(rows, False) and not _is_shared(rows)


def _is_shared(rows: Sequence[Row]) -> bool:
    """Whether two owners got one token."""
    given = [row for row in rows if row["kind"] == "acquire" and row["outcome"] == "ok"]
    return any(one["token"] == other["token"] and one["owner"] != other["owner"] for one in given for other in given)


def legal_locks(rows: Sequence[Row]) -> bool:
    """Instant by instant."""
    rows = [{**row, "group": row["group"] or ""} for row in rows]
    return not hold_histories.overlapping(rows, [])


def legal_group(rows: Sequence[Row]) -> bool:
    return group_possible.possible([row for row in rows if row["kind"] in ("acquire", "commit", "fetched")])


def members(key: str, rng: random.Random, first: int) -> list[Row]:
    """Members of one group that hold its log one after the other, each of which reads and commits for a while."""
    log, register, committed, rows = f"{key}-0", f"{key}/{key}-0", -1, list[Row]()

    def add(number: int, *said: tuple[str, int | None], **given: Any) -> None:
        for sub, (kind, position) in enumerate(said):
            where = register if kind in ("fetched", "commit") else log
            given = {"outcome": "ok", "group": key, **given}
            span = 3 * number, 3 * number + 2
            rows.append(effect(first + number, sub, kind, where, *span, position=position, **given))

    for offset in range(30):
        add(0, ("append", offset), group=None, process=99)
        rows[-1].update(value=offset, sub=offset)
    number = 1
    for process in range(rng.randint(1, 3)):
        mine = {"process": process, "assignment": 10 * process, "owner": f"m-{process}", "generation": process}
        place = max(committed, 0)
        add(number, ("acquire", None), ("fetched", committed), ("seek", place), **mine)
        number += 1
        for _ in range(rng.randint(1, 5)):
            outcome = rng.choice(("ok", "ok", "ok", "fail"))
            if rng.random() < 0.6:
                end = place + (rng.randint(0, 3) if outcome == "ok" else 0)
                shown = [("observe", at) for at in range(place, end)]
                add(number, ("observe-begin", place), *shown, ("observe-end", end), outcome=outcome, **mine)
                for row in rows:
                    if row["kind"] == "observe":
                        row["value"] = row["position"]
                place = end
            else:
                committed = rng.choice((place, max(committed, place - 1)))
                add(number, ("commit", committed), value=number, **mine)
            number += 1
        add(number, (rng.choice(("release", "lost")), rng.choice((place, place, None))), **mine)
        number += 1
    return rows


def legal_members(rows: Sequence[Row]) -> bool:
    """Whether each member begins at what was committed, commits no more than it read, and reads nothing afterwards."""
    reads = ("seek", "observe-begin", "observe", "observe-end")
    said = [row for row in rows if row["kind"] in (*reads, "commit")]
    return (
        not commit_histories.beyond(said)
        and not start_histories.misplaced([row for row in rows if row["kind"] in ("acquire", "fetched", "seek")], [])
        and not any(
            one["kind"] in ("release", "lost") and one["position"] is not None and row["kind"] == "observe-end"
            and row["assignment"] == one["assignment"] and row["call"] >= one["call"]
            and row["position"] > one["position"]
            for one in rows for row in rows
        )
    )  # fmt: skip


def views(key: str, rng: random.Random, first: int) -> list[Row]:
    """Claims by views that are at least as new as those of all claims before."""
    rows, version = list[Row](), 20
    for number in range(rng.randint(2, 8)):
        version += rng.choice((0, 10))
        shares = {name: rng.choice(view_histories.MEMBERS[:2]) for name in view_histories.KEYS[:1]}
        one = rng.choice(list(shares.values()))
        rows += view_histories.claim(first + number, one, seen=version, made=100 + number, shares=shares, group=key)
    return [{**row, "call": 3 * row["op"], "ret": 3 * row["op"] + 2} for row in rows]


def kept(key: str, rng: random.Random, first: int) -> list[Row]:
    rows = expiry_histories.kept_history(key, rng, first, broken=False)
    return [{**row, "call": row["call"] // STEP, "ret": row["ret"] and row["ret"] // STEP} for row in rows]


def legal_kept(rows: Sequence[Row]) -> bool:
    return not expiry_histories.wrong(list(rows))


# -- logs


def small_log(key: str, rng: random.Random, first: int) -> list[Row]:
    rows = LogModel(key, rng, first).history(22)
    for row in rows:
        row["call"], row["ret"] = row["call"] // 10**6, row["ret"] and row["ret"] // 10**6
    return with_epochs(rows, rng)


def long_log(key: str, rng: random.Random, first: int) -> list[Row]:
    """With gaps, seeks, retention, polls that break off, and sends that are sent again."""
    rows = SimulatedLog(key, rng, first).run(rng.randint(30, 90))
    for row in rows:
        if row["kind"] in ("append", "observe"):
            row["timestamp"] = None if row["value"] % 5 == 0 else 1_000 + row["value"]
    return with_epochs(rows, rng)


def with_epochs(rows: list[Row], rng: random.Random) -> list[Row]:
    for row in rows:
        if row["kind"] in ("append", "observe", "end"):
            row["leader_epoch"] = rng.choice((None, 1, 1, 1, 2))
    return rows


def legal_log(rows: Sequence[Row], *, ends: bool, dense: bool = False) -> bool:
    """Decides by the definitions of the anomalies, by looking at each pair."""
    witness = Witness([dict(row) for row in rows], linearizable_ends=ends)
    found = {name for name, _ in witness.found() | witness.statements()}
    return not found - ({"unseen"} if dense else {"offset-hole", "unseen"})


def legal_dense_log(rows: Sequence[Row]) -> bool:
    """Decides by search as well, which looks at the first offset of each send only."""
    return log_possible.possible([dict(row) for row in rows]) and legal_log(rows, ends=False, dense=True)


def looked_up(key: str, rng: random.Random, first: int) -> list[Row]:
    """A log that is asked which offset a time has, and for its end. Create times do not follow the order of offsets."""
    times: list[int] = []
    places, rows = [0, 0], list[Row]()
    for number in range(rng.randint(8, 20)):
        kind = rng.choice(("append", "observe", "observe", "look-up", "look-up", "end"))
        span = 3 * number, 3 * number + rng.randint(1, 2 if kind == "observe" else 6)

        def add(kind: str, at: int | None, number: int = number, span: tuple[int, int] = span, **given: Any) -> None:
            sub = sum(row["op"] == first + number for row in rows)
            rows.append(effect(first + number, sub, kind, key, *span, position=at, **{"process": number, **given}))

        if kind == "append":
            for _ in range(rng.randint(1, 2)):
                times.append(rng.randint(1_000, 1_020))
                add(kind, len(times) - 1, value=len(times), timestamp=times[-1], request=first + number)
        elif kind == "observe":
            reader = rng.randrange(2)
            shown: dict[str, Any] = {"process": 50 + reader, "assignment": reader}
            begin, end = places[reader], min(len(times), places[reader] + 2)
            add("observe-begin", begin, **shown)
            for at in range(begin, end):
                add("observe", at, value=at + 1, timestamp=times[at], **shown)
            add("observe-end", end, **shown)
            places[reader] = end
        elif kind == "look-up":
            asked = rng.randint(1_000, 1_022)
            add(kind, next((at for at, time in enumerate(times) if time >= asked), None), timestamp=asked)
        else:
            add(kind, len(times))
    return rows


def legal_looked_up(rows: Sequence[Row]) -> bool:
    """Whether no poll of a place that was known is answered that it is not there, and nothing else is wrong."""
    known = [row for row in rows if row["kind"] in ("append", "observe")]
    return legal_log(rows, ends=True) and not any(
        row["kind"] == "out-of-range" and one["ret"] < row["call"] and one["position"] >= row["position"] - 1
        for row in rows
        for one in known
    )


def reports(key: str, rng: random.Random, first: int) -> list[Row]:
    """Sends, each with the reports of one callback or two."""
    rows = []
    for number in range(rng.randint(1, 6)):
        op, outcome = first + number, rng.choice(("ok", "ok", "fail", "info"))
        position = number if outcome == "ok" else None
        given: dict[str, Any] = {"value": number, "position": position, "outcome": outcome, "process": number}
        times = 3 * number, None if outcome == "info" else 3 * number + rng.randint(1, 6)
        rows.append(effect(op, 0, "append", key, *times, **given))
        for sub, source in enumerate(("callback", "account")[: rng.randint(1, 2)], start=1):
            rows.append(effect(op, sub, "reported", key, *times, source=source, **given))
    return rows


def legal_reports(rows: Sequence[Row]) -> bool:
    sent = {row["op"]: (row["outcome"], row["position"]) for row in rows if row["kind"] == "append"}
    return all(sent[row["op"]] == (row["outcome"], row["position"]) for row in rows if row["kind"] == "reported")


# -- transactions


def transactions(key: str, rng: random.Random, first: int, *, registers: bool = False) -> list[Row]:
    store = SimulatedStore(SERIALIZABLE, rng, first_op=first, name=f"{key}/", registers=registers)
    rows = [row for txn in store.run(rng.randint(3, 7)) for row in txn.rows()]
    return [
        {**row, "call": row["call"] - first * 1000, "ret": row["ret"] and row["ret"] - first * 1000} for row in rows
    ]


SCRIPTS: Final = (
    "wx rxry wy rxry", "wx! ry! wy rxry", "wxry wyrx", "wx! ry! rxwy", "wxwy wxwy rxry", "wy! wy! ry"
)  # fmt: skip
"""Transactions in their serial order: writes and reads of two keys. They overlap in time, unless they end in ``!``."""


def nearly_circles(key: str, rng: random.Random, first: int, *, registers: bool) -> list[Row]:
    """Makes legal transactions that are one edit away from a circle."""
    state: defaultdict[str, list[int]] = defaultdict(list)
    ended: dict[int, int] = {}
    rows: list[Row] = []
    for number, script in enumerate(rng.choice(SCRIPTS).split()):
        micros: list[tuple[str, str, Any]] = []
        for verb, name in zip(script[::2], script[1::2], strict=False):
            if verb == "w":
                state[name].append(rng.randrange(10**6))
                micros.append(("w" if registers else "append", f"{key}/{name}", state[name][-1]))
            else:
                shown = ([None, *state[name]])[-1] if registers else list(state[name])
                micros.append(("r", f"{key}/{name}", shown))
        width = rng.randint(1, 4) if script.endswith("!") else rng.randint(50, 90)
        call, ret = 100 + 10 * number - width, 100 + 10 * number + width
        process = next((one for one, end in ended.items() if end < call), len(ended))
        ended[process] = ret
        rows += Txn(first + number, micros, call, ret, "ok", process).rows()
    return rows


def to_txns(rows: Sequence[Row]) -> list[Txn]:
    by_op: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_op[row["op"]].append(row)
    registers = any(row["kind"] == "txn-write" for row in rows)
    txns = []
    for op, parts in by_op.items():
        micros: list[tuple[str, str, Any]] = []
        for row in sorted(parts, key=lambda row: int(row["sub"])):
            if row["kind"] != "txn-read":
                micros.append((row["kind"].removeprefix("txn-")[:6].replace("write", "w"), row["key"], row["value"]))
            elif registers:
                micros.append(("r", row["key"], row["value"]))
            elif row["list_index"]:
                micros[-1][2].append(row["value"])
            else:
                micros.append(("r", row["key"], [] if row["value"] is None else [row["value"]]))
        first = parts[0]
        txns.append(Txn(op, micros, first["call"], first["ret"], first["outcome"], first["process"]))
    return txns


def legal_transactions(rows: Sequence[Row], *, order: str) -> bool:
    return txn_oracle.serializable(to_txns(rows), order=order)


def _promise(**fields: Any) -> Contract:
    return msgspec.structs.replace(CONTRACT, **fields)


QUEUE: Final = ("queue-lost", "queue-duplicate", "queue-phantom")
COMMITTED: Final = ("stale-read", "missing-writer", "future-read")
REGISTER: Final = (*COMMITTED, "lost-update")
GROUP: Final = (*COMMITTED, "double-ownership", "zombie-commit", "commit-mismatch", "refused-but-done")
VALUES: Final = ("garbage-read", "internal", "G1a", "G1b")
LIST_VALUES: Final = (*VALUES, "duplicate-elements", "incompatible-order")
CYCLES: Final = ("G1c", "G-single")
RARE_CYCLES: Final = ("G-nonadjacent", "G2-item")
"""Registers have no ``G0``, because they do not show the order of their versions."""
LOG: Final = (
    "lost-write", "vanished", "duplicate", "phantom", "aborted-read", "inconsistent-offset", "real-time-order",
    "nonmonotonic-send", "send-skip", "nonmonotonic-poll", "poll-skip", "position-jump", "misplaced-ack",
    "altered-record", "high-watermark-regression", "end-too-low",
)  # fmt: skip
ENDS: Final = ("real-time-order", "high-watermark-regression", "end-too-low")
DENSE_LOG: Final = (*(name for name in LOG if name != "aborted-read"), "offset-hole")
"""No send of that generator fails."""

KINDS: Final = (
    Kind("set", object_histories.some_set, legal_set, ("set-lost", "set-vanished", "set-stale", "set-phantom"),
         times=2),
    Kind("exact set", object_histories.some_set, legal_exact_set, ("set-fork",), _promise(linearizable_sets=True),
         times=4),
    Kind("growing value", growing, legal_growing, ("nonmonotonic-read",)),
    Kind("growing values", growing_together, legal_growing_together, ("monotonic-cycle", "monotonic-cycle-real-time"),
         _promise(transaction_order="real-time")),
    Kind("log start", starts, partial(legal_log, ends=False), ("log-start-regression",)),
    Kind("queue", queue, partial(legal_queue, exact=False), QUEUE),
    Kind("exact queue", partial(of_model, QueueModel), partial(legal_queue, exact=True), (*QUEUE, "queue-false-empty"),
         _promise(linearizable_queues=True)),
    Kind("counter", object_histories.counter, lambda rows: linearizable(rows, 0, count),
         ("counter-order", "counter-duplicate", "counter-phantom")),
    Kind("max register", object_histories.max_register, lambda rows: linearizable(rows, None, largest),
         ("max-order", "max-phantom")),
    Kind("ids", ids, legal_ids, ("id-duplicate",)),
    Kind("bank", bank, legal_bank, ("bank-total", "bank-negative", "bank-unaccounted")),
    Kind("register", partial(register, versions=False), register_oracle.linearizable, REGISTER),
    Kind("versioned register", partial(register, versions=True),
         lambda rows: register_oracle.linearizable(rows, versions=True), REGISTER),
    Kind("group", group, legal_group, GROUP, times=2),
    Kind("lease", partial(of_model, LeaseModel), legal_leases, ("double-ownership", "fencing-violation"),
         times=3),
    Kind("lock", partial(of_model, LockModel), legal_locks, ("double-ownership",)),
    Kind("offset", partial(of_model, OffsetModel), legal_offsets, ("offset-regression",), times=2),
    Kind("members", members, legal_members, ("commit-beyond-log", "misplaced-start", "read-after-release"), times=2),
    Kind("views", views, lambda rows: not view_histories.split(list(rows)), ("split-brain",)),
    Kind("kept offset", kept, legal_kept, ("early-expiry", "revived-offset")),
    Kind("dense log", small_log, legal_dense_log, DENSE_LOG, _promise(dense_offsets=True),
         partial(legal_log, ends=False, dense=True)),
    Kind("log", long_log, partial(legal_log, ends=False), LOG),
    Kind("log with exact ends", long_log, partial(legal_log, ends=True), ENDS, _promise(linearizable_ends=True)),
    Kind("look-ups", looked_up, legal_looked_up,
         ("time-look-up", "look-up-order", "answer-beyond-log", "false-out-of-range"),
         _promise(linearizable_ends=True, retention_ms=-1, retention_bytes=-1)),
    Kind("reports", reports, legal_reports, ("contradicted-outcome",)),
    *(
        Kind(
            f"{what} in {order} order", partial(make, registers=registers), partial(legal_transactions, order=order),
            (*names, *cycles, *(f"{name}-{order}" for name in (*ordered, *cycles))),
            _promise(transaction_order=order), times=4,
        )
        for order in ("process", "real-time")
        for what, make, registers, names, cycles, ordered in (
            ("lists", transactions, False, LIST_VALUES, CYCLES, ("G0",)),
            ("registers", transactions, True, VALUES, CYCLES, ()),
            ("circles of lists", nearly_circles, False, (), ("G0", *RARE_CYCLES), ()),
            ("circles of registers", nearly_circles, True, (), RARE_CYCLES, ()),
        )
    ),
)  # fmt: skip
