"""Levels by hand: the histories that separate them, unknown outcomes, doubts, certificates and explanations."""

from __future__ import annotations

import gc
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

import pytest

from assay.checkers.isolation import clocks, level_check, scheduler
from assay.checkers.isolation.certificate import find_flaw
from assay.checkers.isolation.clocks import order_by_time
from assay.checkers.isolation.explain import describe, find_class, find_term
from assay.checkers.isolation.level_check import LevelResult, check_level
from assay.checkers.isolation.levels import LEVELS, Level, Order, Rule, add_real_time, find_level
from assay.checkers.isolation.refutation import Split, Step, iterate_step_cycles
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict

from helpers.isolation_oracle import draw_history, satisfies, to_rows
from helpers.txn_histories import SERIALIZABLE, SNAPSHOT, SimulatedStore, Store


def judged(store: Store, level: str, seconds: float = 60.0) -> LevelResult:
    return check_level(make_history(to_rows(store.txns)), find_level(level), seconds)


def store(*txns: tuple[str, ...], **options: str) -> Store:
    made = Store()
    for number, micros in enumerate(txns):
        made.add(*micros, outcome=options.get(f"t{number}", "ok"))
    return made


WRITE_SKEW = store(("wx1", "wy1"), ("rx=1", "wy2"), ("ry=1", "wx2"))
READ_SKEW = store(("wx1", "wy1"), ("wx2", "wy2"), ("rx=1", "ry=2"))
LOST_UPDATE = store(("wx1",), ("rx=1", "wx2"), ("rx=1", "wx3"))
STALE = store(("wx1",), ("wx2",), ("rx=1",))
LONG_FORK = store(("wx1",), ("wy1",), ("rx=1", "ry"), ("rx", "ry=1"))
CIRCULAR = store(("wx1", "ry=1"), ("wy1", "rx=1"))
UNREPEATABLE = store(("wx1",), ("wx2",), ("rx=1", "rx=2"))


UNUSED_READS = store(("wx1",), ("wx2",), ("rx=1", "rx=2", "ry=1", "wz1"), ("rz=1", "wy1"))
"""The third transaction reads two versions of x. Its circle with the fourth one does not use these reads."""


def empty_of(made: Store) -> Store:
    """Returns the store with reads of empty lists as reads of registers."""
    for txn in made.txns:
        txn.micros = [(f, key, None if value == [] else value) for f, key, value in txn.micros]
    return made


@pytest.mark.parametrize(
    ("made", "passes", "fails", "term"),
    [
        (WRITE_SKEW, "snapshot-isolation", "serializable", "write skew"),
        (READ_SKEW, "read-committed", "read-atomic", "a fractured read"),
        (READ_SKEW, "axiomatic-read-committed", "snapshot-isolation", "a fractured read"),
        (LOST_UPDATE, "causal", "snapshot-isolation", "a lost update"),
        (LOST_UPDATE, "read-committed", "repeatable-read", "a lost update"),
        (STALE, "serializable", "strict-serializable", "a stale read"),
        (STALE, "snapshot-isolation", "strong-snapshot-isolation", "a stale read"),
        (empty_of(LONG_FORK), "causal", "snapshot-isolation", "a long fork"),
        (CIRCULAR, "read-uncommitted", "read-committed", "circular information flow"),
        (UNREPEATABLE, "read-committed", "read-atomic", "a non-repeatable read"),
        (UNUSED_READS, "read-uncommitted", "read-committed", "circular information flow"),
    ],
)
def test_an_anomaly_passes_one_level_and_fails_the_next(made: Store, passes: str, fails: str, term: str) -> None:
    assert judged(made, passes).verdict is Verdict.PASS
    result = judged(made, fails)
    assert result.verdict is Verdict.FAIL
    assert result.refutation is not None
    history = make_history(to_rows(made.txns))
    assert find_term(history, result.refutation) == term
    claim = describe(history, result.refutation)
    assert re.fullmatch(r"\d transactions go round in a circle, .+: .+; .+\.", claim), claim
    assert satisfies(made.txns, find_level(passes))
    assert not satisfies(made.txns, find_level(fails))


def test_the_definitions_of_read_committed_differ() -> None:
    """The third transaction sees y of the second one and then an older x. The fourth sees x in the other order."""
    made = store(("wx1",), ("wx2", "wy2"), ("ry=2", "rx=1"), ("rx=1", "rx=2"))
    assert judged(made, "read-committed").verdict is Verdict.PASS
    assert judged(made, "axiomatic-read-committed").verdict is Verdict.FAIL


CASE_SPLIT = store(
    ("wx1", "ws1"), ("wx2", "wt1"),
    ("wy1", "wp1"), ("wy2", "wq1"), ("rx=1", "rp=1", "rq=1"), ("rt=1", "ry=1"), ("rt=1", "ry=2"),
    ("wz1", "wu1"), ("wz2", "wv1"), ("rx=2", "ru=1", "rv=1"), ("rs=1", "rz=1"), ("rs=1", "rz=2"),
)  # fmt: skip
"""If the first writer of x is before the second one, both writers of y are before both readers of y, which differ. In
the other case this holds for z."""


@pytest.mark.parametrize("level", ["serializable", "snapshot-isolation"])
def test_only_a_case_split_refutes_some_histories(level: str) -> None:
    history = make_history(to_rows(CASE_SPLIT.txns))
    result = check_level(history, find_level(level))
    assert isinstance(result.refutation, Split)
    circles = list(iterate_step_cycles(result.refutation))
    assert len(circles) == 2
    assert all(any(step.decided for step in _all_steps(circle.steps)) for circle in circles)
    claim = describe(history, result.refutation)
    assert claim.startswith("No order is possible, because each of 2 cases has a circle: if transaction ")
    assert find_class(history, result.refutation) in ("G-single", "G-nonadjacent", "G2-item")


@pytest.mark.parametrize("missing", range(len(CASE_SPLIT.txns)))
def test_no_transaction_of_the_case_split_is_superfluous(missing: int) -> None:
    left = [txn for txn in CASE_SPLIT.txns if txn.op != missing]
    shown = {(key, value) for txn in left for f, key, value in txn.micros if f != "r"}
    rows = [row for row in to_rows(left) if row[4] != "txn-read" or (row[3], row[6]) in shown]
    assert check_level(make_history(rows), find_level("serializable")).verdict is Verdict.PASS


def _all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        yield from _all_steps(step.because)


def test_a_transaction_of_unknown_outcome_counts_if_its_write_was_read() -> None:
    unread = store(("wx1", "wy1"), ("wx2", "wy2"), ("rx=1", "ry=1"), t1="info")
    read = store(("wx1", "wy1"), ("wx2", "wy2"), ("rx=2", "ry=1"), t1="info")
    assert judged(unread, "strict-serializable").verdict is Verdict.PASS
    assert len(make_history(to_rows(unread.txns))) == 2
    assert judged(read, "read-atomic").verdict is Verdict.FAIL


def test_reads_of_aborted_and_intermediate_writes_refute_read_committed_only() -> None:
    for made, name in (
        (store(("wx1",), ("rx=1",), t0="fail"), "G1a"),
        (store(("wx1", "wx2"), ("rx=1",)), "G1b"),
        (store(("wx1",), ("rx=7",)), "garbage-read"),
    ):
        result = judged(made, "read-committed")
        assert [one.name for one in result.anomalies] == [name]
        assert result.verdict is Verdict.FAIL
        uncommitted = judged(made, "read-uncommitted")
        assert uncommitted.verdict is (Verdict.FAIL if name == "garbage-read" else Verdict.PASS)


def test_values_that_are_not_unique_are_named_and_leave_other_findings() -> None:
    twice = [("wx1",), ("wx1",), ("rx=1",)]
    result = judged(store(*twice), "serializable")
    assert result.verdict is Verdict.UNKNOWN
    assert "1 was written to x twice, so reads of it have no single writer" in result.reasons[0]
    skewed = judged(store(*twice, ("wy1", "wz1"), ("ry=1", "wz2"), ("rz=1", "wy2")), "serializable")
    assert skewed.verdict is Verdict.FAIL


def test_an_element_that_was_appended_twice_may_be_read_twice() -> None:
    result = judged(store(("ax1",), ("ax1",), ("rx11",)), "serializable")
    assert (result.verdict, result.anomalies) == (Verdict.UNKNOWN, ())


@pytest.mark.parametrize("prefix", ["", "strong-session-", "strong-"])
def test_a_read_of_a_write_of_unknown_outcome_shows_no_commit_where_dirty_reads_are_allowed(prefix: str) -> None:
    writes, reads = ("ax1", "ay1"), (("ax2", "ay2"), ("rx12", "ry21"))
    unknown = judged(store(writes, *reads, t0="info"), f"{prefix}read-uncommitted")
    assert unknown.verdict is Verdict.UNKNOWN
    assert "this level allows reads of aborted writes" in unknown.reasons[0]
    assert judged(store(writes, *reads, t0="info"), f"{prefix}read-committed").verdict is Verdict.FAIL
    assert judged(store(writes, *reads), f"{prefix}read-uncommitted").verdict is Verdict.FAIL
    other = store(writes, *reads, ("az1", "au1"), ("az2", "au2"), ("rz12", "ru21"), t0="info")
    assert judged(other, f"{prefix}read-uncommitted").verdict is Verdict.FAIL


def test_the_time_limit_makes_the_level_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_TIME_STEP", 1)
    result = judged(WRITE_SKEW, "serializable", seconds=0.0)
    assert result.verdict is Verdict.UNKNOWN
    assert "reached its time limit of 0 s" in result.reasons[0]


def test_a_wrong_certificate_is_rejected() -> None:
    history, level = make_history(to_rows(STALE.txns)), find_level("serializable")
    assert find_flaw(history, level, [0, 2, 1]) is None
    assert find_flaw(history, level, [0, 1, 2]) == "transaction 2 does not find what it read of x"
    assert find_flaw(history, level, [0, 2]) == "some event is missing, or is there twice"
    strict = find_level("strict-serializable")
    assert (
        find_flaw(history, strict, [0, 2, 1])
        == "transaction 1 returned before transaction 2 was called, but comes after 2"
    )


_VERSIONS: Final = store(("ax1",), ("ax2",), ("rx12",))
_READ: Final = store(("wx1",), ("rx=1",))
_SEEN: Final = store(("wx1", "wy1"), ("wx2",), ("ry=1", "rx=2"))
_CAUSE: Final = store(("wx1",), ("rx=1", "wy1"), ("wx2",), ("ry=1", "rx=2"))
_REPLACED: Final = store(("wx1",), ("rx=1",), ("wx2",))
SWAPPED: Final = {
    Rule.READ_UNCOMMITTED: (_VERSIONS, (1, 0, 2), "two versions of a list are in the wrong order"),
    Rule.READ_COMMITTED: (_READ, (1, 0), "a read comes before its write"),
    Rule.AXIOMATIC_READ_COMMITTED: (_SEEN, (1, 0, 2), "transaction 2 sees a later version of x than it read"),
    Rule.READ_ATOMIC: (_SEEN, (1, 0, 2), "transaction 2 sees a later version of x than it read"),
    Rule.CAUSAL: (_CAUSE, (2, 0, 1, 3), "transaction 3 sees a later version of x than it read"),
    Rule.REPEATABLE_READ: (_REPLACED, (0, 2, 1), "transaction 1 does not find what it read of x"),
    Rule.SNAPSHOT_ISOLATION: (_REPLACED, (0, 2, 1), "transaction 1 does not find what it read of x"),
    Rule.SERIALIZABLE: (_REPLACED, (0, 2, 1), "transaction 1 does not find what it read of x"),
}
"""By rule, a history in the order of its numbers, an order that is wrong for one reason, and this reason."""


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_an_order_with_two_transactions_swapped_is_rejected_at_each_level(level: Level) -> None:
    made, swapped, reason = SWAPPED[level.rule]
    history = make_history(to_rows(made.txns))
    events = 2 if level.rule is Rule.SNAPSHOT_ISOLATION else 1
    right, wrong = (
        [events * number + event for number in order for event in range(events)]
        for order in (range(len(history)), swapped)
    )
    assert find_flaw(history, level, right) is None
    flaw = find_flaw(history, level, wrong)
    assert flaw is not None
    assert flaw == reason or level.order is Order.REAL_TIME


@pytest.mark.parametrize("level", ["serializable", "snapshot-isolation", "strict-serializable"])
def test_a_store_keeps_its_level_and_the_scheduler_finds_an_order(level: str) -> None:
    kind = SNAPSHOT if level == "snapshot-isolation" else SERIALIZABLE
    for seed in range(3):
        txns = SimulatedStore(kind, random.Random(seed), registers=True).run(250, clients=5)
        result = check_level(make_history(to_rows(txns)), find_level(level), 60)
        assert result.verdict is Verdict.PASS, result.reasons


def test_levels_are_named_and_imply_each_other() -> None:
    assert find_level("strong-serializable") is LEVELS["strict-serializable"]
    assert add_real_time(find_level("causal")).name == "strong-causal"
    assert {level.order for level in LEVELS.values()} == set(Order)
    with pytest.raises(ValueError, match="no isolation level 'strongest'; there are read-uncommitted, "):
        find_level("strongest")


def test_a_contract_names_a_level() -> None:
    contract = Contract().isolate("read-uncommitted")
    assert (contract.transaction_level, contract.transaction_order) == ("read-uncommitted", "none")
    assert contract.tolerates("G1a")
    assert contract.tolerates("internal")
    strict = Contract().isolate("strong-snapshot-isolation", seconds=5)
    assert (strict.transaction_order, strict.transaction_seconds, strict.tolerated) == ("real-time", 5, ())
    assert Contract.from_json(strict.to_json()) == strict


@pytest.mark.parametrize("level", ["serializable", "snapshot-isolation", "strong-session-serializable"])
def test_clocks_need_no_closure_to_find_the_order_of_a_store(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("assay.checkers.isolation.saturation.Saturation._close")
    txns = SimulatedStore(SERIALIZABLE, random.Random(7), registers=True).run(1000, clients=10)
    assert check_level(make_history(to_rows(txns)), find_level(level), 60).verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("is_snapshot", [False, True], ids=["serializable", "snapshot"])
def test_clocks_derive_what_every_order_has(is_snapshot: bool) -> None:
    """Clocks find a contradiction only in wrong histories, and what they derive never refutes a right one."""
    level = find_level("strong-snapshot-isolation" if is_snapshot else "strict-serializable")
    rng = random.Random(3)
    answers: Counter[bool] = Counter()
    for _ in range(300):
        txns = draw_history(rng, 4 if is_snapshot else 5)
        history = make_history(to_rows(txns))
        found = order_by_time(history, snapshot=is_snapshot)
        result = check_level(history, level)
        if result.order is None:
            answers[found is None] += result.refutation is not None
            continue
        assert found is not None, txns
        if not is_snapshot:
            legal = [order for order in permutations(range(len(history))) if find_flaw(history, level, order) is None]
            assert all(order.index(first) < order.index(second) for order in legal for first, second in found.pairs)
    assert answers[True] > 20


def test_clocks_are_left_out_if_too_many_transactions_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_MOST_COPIES", 1000)
    rows = [(op, 0, op, "x", "txn-write", None, op + 1, op, 1000 + op, "ok") for op in range(100)]
    reads = [(100 + op, 0, 100 + op, "x", "txn-read", None, op + 1, 900, 2000, "ok") for op in range(100)]
    found = order_by_time(make_history([*rows, *reads]), snapshot=False)
    assert found is not None
    assert check_level(make_history([*rows, *reads]), find_level("serializable"), 60).verdict is Verdict.PASS


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_pauses_while_a_weak_level_is_judged(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would visit all edges again and again, which made the time of large histories more than linear."""
    during = []
    list_edges = level_check.list_demanded_edges
    monkeypatch.setattr(
        level_check, "list_demanded_edges", lambda *given: during.append(gc.isenabled()) or list_edges(*given)
    )
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        judged(CIRCULAR, "read-committed")
        assert (during, gc.isenabled()) == ([False], enabled)
    finally:
        (gc.enable if before else gc.disable)()
