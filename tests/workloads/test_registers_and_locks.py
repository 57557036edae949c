"""The workloads of registers and locks, with clients of stores in memory: a right one passes, a wrong one is named."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay import REGISTER_ANOMALIES, SET_ANOMALIES, forbid
from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import MODELS, Limits
from assay.harness.core.generator import simulate, split_phases
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.stored.by_model import judge_by_model, open_stored_operations
from assay.workloads.generic import locks, registers, sets

from helpers.in_memory import judged, played
from helpers.judging import judge

KEYS = ("a", "b")


class Lost(Exception):
    """No answer came; what was asked was done."""


class Refused(Lost):
    """It was not done."""


class Values(registers.Registers):
    """``stale``: reads show what was there before the last change. Every ``loses``-th answer does not come."""

    errors, refusals = (Lost,), (Refused,)

    def __init__(self, *, stale: bool = False, loses: int = 10**9) -> None:
        self._held: dict[str, list[int | None]] = defaultdict(lambda: [None, None])
        self._stale, self._loses, self._asked = stale, loses, 0

    def read(self, key: str) -> int | None:
        self._answer()
        return self._held[key][0 if self._stale else 1]

    def write(self, key: str, value: int) -> None:
        self._held[key] = [self._held[key][1], value]
        self._answer()

    def cas(self, key: str, expected: int, new: int) -> bool:
        if self._held[key][1] != expected:
            raise Refused
        self.write(key, new)
        return True

    def _answer(self) -> None:
        self._asked += 1
        if self._asked % self._loses == 0:
            raise Lost


@pytest.mark.parametrize(
    ("store", "verdict"),
    [
        (Values(), Verdict.PASS), (Values(loses=7), Verdict.PASS), (Values(stale=True), Verdict.FAIL),
    ],
    ids=["right", "answers are lost", "stale"],
)  # fmt: skip
def test_registers_by_value_are_judged_by_a_model(tmp_path: Path, store: Values, verdict: Verdict) -> None:
    with HistoryWriter(tmp_path / "history") as writer:
        for completed in played(registers.few_values(KEYS), store.invoke):
            writer.completed(completed)
    ops = open_stored_operations(tmp_path / "history")
    with Engines("duckdb") as engines:
        judgement = judge_by_model(ops, MODELS["cas-register"], engines, lambda *_: None, Limits())
    assert judgement.verdict is verdict


class Versioned(registers.VersionedRegisters):
    """``careless``: a compare-and-set does not look at the version. Reads come from a copy that is ``behind``."""

    errors, refusals = (Lost,), (Refused,)

    def __init__(self, *, careless: bool = False, behind: int = 0) -> None:
        self._states: dict[str, list[dict[str, Any]]] = defaultdict(lambda: [{"value": None, "version": 0}])
        self._careless, self._behind = careless, behind

    def read(self, key: str) -> dict[str, Any]:
        states = self._states[key]
        return states[max(0, len(states) - 1 - self._behind)]

    def write(self, key: str, value: int, version: int | None = None) -> dict[str, Any]:
        now = self._states[key][-1]["version"]
        if version is not None and version != now and not self._careless:
            raise Refused
        self._states[key].append({"value": value, "version": now + 1})
        return self._states[key][-1]


@pytest.mark.parametrize(
    ("store", "anomalies"),
    [
        (Versioned(), set()),
        (Versioned(behind=1), {"stale-read"}),
        (Versioned(careless=True, behind=1), {"stale-read", "lost-update"}),
    ],
    ids=["right", "reads are stale", "and versions are not looked at"],
)
def test_registers_with_versions_are_judged_by_their_effects(
    tmp_path: Path, store: Versioned, anomalies: set[str]
) -> None:
    traffic, contract = registers.unique_values(KEYS), forbid(*REGISTER_ANOMALIES)
    judgement = judged(tmp_path, traffic, registers.VersionedRegisters.effects, store.invoke, contract)
    assert set(judgement.anomalies) == anomalies
    assert judgement.verdict is (Verdict.FAIL if anomalies else Verdict.PASS)


class Shared:
    """Storage of a set, and the holder of its lock."""

    def __init__(self) -> None:
        self.stored, self.holder, self.given, self.released = list[int](), 0, 0, list[int]()


class Elements(locks.LockedSet):
    """The next one that asks for the lock gets it: the holder's lease is over by then."""

    errors = (Lost,)

    def __init__(self, shared: Shared, *, fenced: bool) -> None:
        self.shared, self.fenced = shared, fenced

    def acquire(self) -> int:
        self.shared.given += 1
        self.shared.holder = self.shared.given
        return self.shared.given

    def release(self, lock: int) -> None:
        self.shared.released.append(lock)

    def load(self) -> list[int]:
        return self.shared.stored

    def store(self, elements: list[int], lock: int | None) -> bool:
        if lock is not None and lock != self.shared.holder:
            return False
        self.shared.stored = elements
        return True


@pytest.mark.parametrize(
    ("fenced", "sleeps", "anomalies"),
    [(False, False, {}), (False, True, {"set-lost": 1}), (True, True, {})],
    ids=["none sleeps", "one sleeps", "one sleeps, and is fenced"],
)
def test_a_holder_that_sleeps_undoes_what_the_next_one_did_unless_it_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fenced: bool, sleeps: bool, anomalies: dict[str, int]
) -> None:
    """While the first adds 6, the second adds 100, from the lock to its release."""
    shared = Shared()
    first, second = (Elements(shared, fenced=fenced) for _ in range(2))
    done: list[tuple[int, Operation, Completion, int, int]] = []
    now = 0

    def perform(process: int, client: Elements, operation: Operation) -> None:
        nonlocal now
        call = now = now + 1
        completion = client.invoke(operation)
        now += 1
        done.append((process, operation, completion, call, now))

    def asleep(seconds: float) -> None:
        if sleeps and shared.given == 6:
            perform(1, second, Operation(sets.ADD, sets.KEY, 100))

    monkeypatch.setattr(locks.time, "sleep", asleep)
    for element in range(1, 13):
        perform(0, first, Operation(sets.ADD, sets.KEY, element))
    perform(0, first, Operation(sets.READ, sets.KEY))
    with HistoryWriter(tmp_path) as writer:
        for index, (process, operation, completion, call, ret) in enumerate(sorted(done, key=lambda one: one[3])):
            completed = Completed(index, process, f"w{process}", operation, completion, call, ret)
            writer.completed(completed, locks.LockedSet.effects(completed))
    assert shared.released == [*range(1, 6), *([7, 6] if sleeps else [6]), *range(7 + sleeps, 13 + sleeps)]
    judgement = judge(tmp_path, forbid(*SET_ANOMALIES))
    assert judgement.anomalies == anomalies
    assert [one.error for _, _, one, _, _ in done if one.outcome is Outcome.FAIL] == ["lock-lost"] * fenced


def test_a_lock_that_does_not_come_changes_nothing_and_a_write_without_an_answer_may_have() -> None:
    class Failing(Elements):
        def acquire(self) -> int:
            raise Lost

    class Silent(Elements):
        def store(self, elements: list[int], lock: int | None) -> bool:
            raise Lost

    add = Operation(sets.ADD, sets.KEY, 1)
    assert Failing(Shared(), fenced=False).invoke(add) == Completion(Outcome.FAIL, error="Lost")
    silent = Silent(Shared(), fenced=False)
    assert silent.invoke(add) == Completion(Outcome.INFO, error="Lost")


def test_who_may_still_write_does_not_give_up_the_lock() -> None:
    """Another would read, and write over, what this write then undoes: the client's fault and not that of the lock."""

    class Slow(Elements):
        late: list[int] | None = None

        def store(self, elements: list[int], lock: int | None) -> bool:
            if self.late is None:
                self.late = elements
                raise Lost
            return super().store(elements, lock)

    slow = Slow(Shared(), fenced=False)
    assert slow.invoke(Operation(sets.ADD, sets.KEY, 1)).outcome is Outcome.INFO
    assert (slow.shared.holder, slow.shared.released) == (1, [])
    assert slow.invoke(Operation(sets.ADD, sets.KEY, 2)).outcome is Outcome.OK
    assert slow.shared.released == [2]


class Giver:
    """Gives a lock to the next one when its holder has had it for ``PATIENCE`` operations of any client.

    ``blind``: what is guarded accepts every token. ``again``: a token is given out twice. ``knowing``: what is guarded
    knows at once what is given out, and so the contract may say.
    """

    PATIENCE = 6

    def __init__(self, *, blind: bool = False, again: bool = False, knowing: bool = False) -> None:
        self.blind, self.again, self.knowing = blind, again, knowing
        self.token = self.since = self.now = self.seen = 0
        self.free = True


class Lease(locks.Leases):
    errors = (Lost,)

    def __init__(self, giver: Giver) -> None:
        self.giver = giver

    def acquire(self, name: str) -> int | None:
        giver = self.giver
        if not giver.free and giver.now - giver.since < giver.PATIENCE:
            return None
        giver.token += not (giver.again and giver.token == 5)
        giver.again = giver.again and giver.token <= 5
        giver.since, giver.free = giver.now, False
        giver.seen = giver.token if giver.knowing else giver.seen
        return giver.token

    def act(self, name: str, token: int, argument: Any) -> bool:
        if token < self.giver.seen and not self.giver.blind:
            return False
        self.giver.seen = max(self.giver.seen, token)
        return True

    def release(self, name: str, token: int) -> None:
        self.giver.free = self.giver.free or token == self.giver.token


def leased(folder: Path, giver: Giver) -> Judgement:
    clients = defaultdict[int, Lease](lambda: Lease(giver))
    traffic, chance, index = locks.traffic("lock"), random.Random(3), 0
    with HistoryWriter(folder) as writer:
        for number, part in enumerate(split_phases(traffic)):
            events = simulate(part, workers=4, respond=lambda *_: (chance.randint(1, 9), Outcome.OK),
                              most=400 if number == 0 else 100)  # fmt: skip
            for event in events:
                if (done := event.completed) is None:
                    continue
                giver.now += 1
                completion = clients[done.process].invoke(done.operation)
                call = 10 * index
                completed = Completed(index, done.process, done.worker, done.operation, completion, call, call + 5)
                writer.completed(completed, locks.Leases.effects(completed))
                index += 1
    contract = forbid("fencing-violation", "double-ownership")
    return judge(folder, msgspec.structs.replace(contract, fenced_by_requests=not giver.knowing))


@pytest.mark.parametrize(
    ("giver", "anomalies"),
    [
        (Giver, set()),
        (lambda: Giver(knowing=True), set()),
        (lambda: Giver(knowing=True, blind=True), {"fencing-violation"}),
        (lambda: Giver(blind=True), {"fencing-violation"}),
        (lambda: Giver(again=True), {"double-ownership"}),
    ],
    ids=["right", "right, and knowing", "knowing, and accepts all", "accepts every token", "a token is given twice"],
)
def test_leases_are_judged_by_their_tokens(tmp_path: Path, giver: Callable[[], Giver], anomalies: set[str]) -> None:
    judgement = leased(tmp_path, giver())
    assert set(judgement.anomalies) == anomalies
    assert judgement.verdict is (Verdict.FAIL if anomalies else Verdict.PASS), judgement.unknown


def test_what_a_lease_says_of_a_rejection_and_of_one_that_is_not_held() -> None:
    giver = Giver()
    client = Lease(giver)
    assert client.invoke(Operation(locks.GUARDED, "l", 1)) == Completion(Outcome.FAIL, error="not-held")
    assert client.invoke(Operation(locks.ACQUIRE, "l")) == Completion(Outcome.OK, {"token": 1})
    assert client.invoke(Operation(locks.ACQUIRE, "l")) == Completion(Outcome.FAIL, error="has-a-token")
    assert Lease(giver).invoke(Operation(locks.ACQUIRE, "l")) == Completion(Outcome.FAIL, error="held")
    giver.seen = 2
    rejected = client.invoke(Operation(locks.GUARDED, "l", 1))
    assert rejected == Completion(Outcome.FAIL, {"token": 1}, error="stale-epoch")
    completed = Completed(0, 7, "w", Operation(locks.GUARDED, "l", 1), rejected, 0, 1)
    assert [(one.kind, one.token, one.owner, one.outcome) for one in locks.Leases.effects(completed)] == [
        ("guarded", 1, "process-7", None), ("lost", 1, "process-7", Outcome.OK),
    ]  # fmt: skip
