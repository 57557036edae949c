"""The workloads for systems with transactions or counters, on a store in memory: what is wrong with one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core import transactions
from assay.harness.core.generator import simulate, split_phases
from assay.harness.core.operation import Operation
from assay.workloads.generic import bank, list_append, long_fork, monotonic

from helpers.in_memory import judged


class Store:
    """Each operation is done at once, when it ends. ``stale``: what is read is the state of so many writes ago."""

    def __init__(self, stale: int = 0) -> None:
        self._states: list[dict[Any, Any]] = [{}]
        self._stale = stale

    def _seen(self) -> dict[Any, Any]:
        return self._states[max(0, len(self._states) - 1 - self._stale)]

    def _write(self, **_: Any) -> dict[Any, Any]:
        self._states.append(dict(self._states[-1]))
        return self._states[-1]

    def __call__(self, operation: Operation) -> Any:
        argument = operation.argument
        match operation.f:
            case bank.OPEN:
                self._states = [dict.fromkeys(bank.ACCOUNTS, bank.BALANCE)] * (self._stale + 1)
            case bank.TRANSFER:
                source, target, amount = argument
                there, new = self._seen(), self._write()
                new[source], new[target] = there[source] - amount, there[target] + amount
            case bank.READ:
                return dict(self._states[-1])
            case list_append.TXN:
                there, done = dict(self._seen()), []
                for f, key, value in argument:
                    if f == "append":
                        new = self._write()
                        new[key] = [*new.get(key, []), value]
                        there[key] = [*there.get(key, []), value]
                    done.append([f, key, value if f == "append" else list(there.get(key, []))])
                return done
        return None


@pytest.mark.parametrize("level", bank.LEVELS)
def test_a_right_bank_passes(tmp_path: Path, level: str) -> None:
    judgement = judged(tmp_path, bank.traffic(), bank.effects, Store(), bank.build_contract(level))
    assert (judgement.verdict, judgement.anomalies, judgement.unknown) == (Verdict.PASS, {}, ())


@pytest.mark.slow
def test_a_bank_that_loses_updates_fails_and_read_committed_says_why_it_may(tmp_path: Path) -> None:
    for level in ("serializable", "snapshot isolation"):
        judgement = judged(tmp_path / level, bank.traffic(), bank.effects, Store(1), bank.build_contract(level))
        assert judgement.verdict is Verdict.FAIL
        assert {"bank-total", "bank-unaccounted"} <= judgement.anomalies.keys()
    judgement = judged(
        tmp_path / "loose", bank.traffic(), bank.effects, Store(1), bank.build_contract("read committed")
    )
    assert judgement.verdict is Verdict.PASS
    assert "lose one of their updates" in judgement.reasons["bank-total"]


class LostTable(Store):
    """Loses all accounts after the first transfer."""

    def __call__(self, operation: Operation) -> Any:
        if operation.f == bank.TRANSFER:
            self._states.append({})
            return None
        return super().__call__(operation)


def test_a_bank_that_loses_all_accounts_fails(tmp_path: Path) -> None:
    judgement = judged(tmp_path, bank.traffic(), bank.effects, LostTable(), bank.build_contract("serializable"))
    assert judgement.verdict is Verdict.FAIL
    assert "bank-total" in judgement.anomalies


@pytest.mark.parametrize("workload", [bank, long_fork])
def test_a_level_that_no_one_knows_excuses_nothing(workload: Any) -> None:
    with pytest.raises(ValueError, match=r"serialisable; use one of serializable, snapshot isolation,"):
        workload.build_contract("serialisable")


@pytest.mark.slow
@pytest.mark.parametrize("level", list_append.ALLOWED)
def test_right_lists_pass(tmp_path: Path, level: str) -> None:
    promised = list_append.build_contract(level)
    judgement = judged(tmp_path, list_append.traffic(), transactions.derive_effects, Store(), promised)
    assert (judgement.verdict, judgement.anomalies, judgement.unknown) == (Verdict.PASS, {}, ())


@pytest.mark.slow
def test_lists_that_are_read_as_they_were_fail_where_they_must_not(tmp_path: Path) -> None:
    found = {}
    for level in list_append.ALLOWED:
        promised = list_append.build_contract(level)
        judgement = judged(tmp_path / level, list_append.traffic(), transactions.derive_effects, Store(3), promised)
        found[level] = judgement.verdict, set(judgement.anomalies)
    assert found["serializable"][0] is Verdict.FAIL
    assert found["serializable"][1] & {"G-single", "G2-item"}
    assert found["read committed"][0] is Verdict.PASS


def test_no_transaction_reads_a_key_twice_or_after_an_append_to_it() -> None:
    keys = [
        [micro[1] for micro in event.operation.argument]
        for event in simulate(split_phases(list_append.traffic())[0], most=500)
        if event.completed is None
    ]
    assert len(keys) == 500
    assert all(len(set(one)) == len(one) > 0 for one in keys)


class Counters:
    """Reads show the state of so many adds ago: of one process, or of all."""

    def __init__(self, behind: int = 0) -> None:
        self._states: list[dict[str, int]] = [{}]
        self._behind = behind

    def __call__(self, operation: Operation) -> Any:
        if operation.f == monotonic.ADD:
            now = self._states[-1]
            self._states.append(now | {operation.key: now.get(str(operation.key), 0) + 1})
            return self._states[-1][str(operation.key)]
        there = self._states[max(0, len(self._states) - 1 - self._behind)]
        return {key: there[key] for key in operation.argument if key in there}


@pytest.mark.parametrize("real_time", [False, True])
def test_counters_that_grow_pass(tmp_path: Path, real_time: bool) -> None:
    promised = monotonic.build_contract(real_time=real_time)
    judgement = judged(tmp_path, monotonic.traffic(), monotonic.effects, Counters(), promised)
    assert (judgement.verdict, judgement.anomalies, judgement.unknown) == (Verdict.PASS, {}, ())


def test_counters_that_are_read_as_they_were_are_named(tmp_path: Path) -> None:
    """A process sees less than it has added itself."""
    judgement = judged(tmp_path, monotonic.traffic(), monotonic.effects, Counters(9), monotonic.build_contract())
    assert judgement.verdict is Verdict.FAIL
    assert judgement.anomalies["nonmonotonic-read"] > 5


class Sites:
    """Two of them, each of which learns of the other's writes only ``late`` operations after they were made."""

    def __init__(self, late: int) -> None:
        self._written: list[tuple[int, int, Any]] = []
        self._late, self._now = late, 0

    def __call__(self, operation: Operation) -> Any:
        self._now += 1
        ((f, key, _), *_) = operation.argument
        if f == "w":
            self._written.append((self._now, key, key % 2))
            return operation.argument
        site = self._now % 2
        there = {key for when, key, at in self._written if at == site or when + self._late < self._now}
        return [["r", key, 1 if key in there else None] for _, key, _ in operation.argument]


@pytest.mark.slow
def test_one_site_has_no_long_forks_and_two_have_some_where_they_may(tmp_path: Path) -> None:
    levels = ("serializable", "snapshot isolation", "parallel snapshot isolation")
    verdicts = {}
    for late in (0, 9):
        for level in levels:
            judgement = judged(tmp_path / f"{late}-{level}", long_fork.traffic(), transactions.derive_effects,
            Sites(late),
                               long_fork.build_contract(level))  # fmt: skip
            verdicts[late, level] = judgement.verdict
            assert set(judgement.anomalies) == ({"G-nonadjacent"} if late else set())
    assert [verdicts[0, level] for level in levels] == [Verdict.PASS] * 3
    assert [verdicts[9, level] for level in levels] == [Verdict.FAIL, Verdict.FAIL, Verdict.PASS]
