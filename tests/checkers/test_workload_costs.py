"""Checks of workloads take linear time, whatever a history repeats: claims, unknown outcomes, anomalies.

Each case is judged twice, with four times as many operations the second time. Processor time that grows as their square
would grow sixteenfold. The larger one must stay below ten times the smaller one, and ``ALLOWED`` seconds are no growth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from assay.checkers.workload_checks.catalog import CHECKS
from assay.checkers.workload_checks.counters import find_reachable_sums
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.stored.effects_of_workload import make_bank_effects
from assay.harness.stored.set_and_queue_effects import make_set_effects

SMALL: Final = 2_000
GROWTH: Final = 10
ALLOWED: Final = 0.6

Ops = Sequence[tuple[str, Any, Any, str]]
"""Verb, argument, result and outcome."""


def make_operations(rows: Ops, processes: int = 0) -> list[Completed]:
    """Makes operations that do not overlap. ``processes``: their number; 0: each operation has its own process."""
    return [
        Completed(
            index=index, process=index % (processes or len(rows)), worker="w", call=2 * index,
            operation=Operation(f, argument=argument), completion=Completion(Outcome(outcome), result),
            ret=None if outcome == "info" else 2 * index + 1,
        )
        for index, (f, argument, result, outcome) in enumerate(rows)
    ]  # fmt: skip


def send(key: int, value: int) -> list[Any]:
    return ["send", key, value]


def sent(key: int, value: int, offset: int | None = None) -> tuple[str, Any, Any, str]:
    return "send", [send(key, value)], [["send", key, [value if offset is None else offset, value]]], "ok"


def polled(*values: int) -> tuple[str, Any, Any, str]:
    return "poll", [["poll"]], [["poll", {"0": [[value, value] for value in values]}]], "ok"


def make_unknown_transaction(n: int) -> Ops:
    """Many sends of one transaction, none of which was polled."""
    sends = [send(0, value) for value in range(10 * n)]
    return [sent(0, -1, 0), ("poll", [["poll"]], [["poll", {"0": [[0, -1]]}]], "ok"), ("txn", sends, None, "info")]


def make_log(n: int) -> Ops:
    return [sent(0, value) for value in range(2 * n)]


def put_all_at_one_offset(n: int) -> Ops:
    return [sent(0, value, 5) for value in range(2 * n)]


def lose_values(n: int) -> Ops:
    """Polls of unknown outcome show the last value before the acknowledged poll does."""
    last = [["poll", {"0": [[n - 1, n - 1]]}]]
    return [*make_log(n // 2), *[("poll", [["poll"]], last, "info")] * n, polled(n - 1)]


def skip_values(n: int) -> Ops:
    return [*make_log(n), *[polled(0, 2 * n - 1)] * (2 * n)]


def read_below_bounds(n: int) -> Ops:
    return [("add", 5, None, "ok"), *[("add", 3, None, "fail")] * n, *[("read", None, 0, "ok")] * n]


def add_equal_amounts(n: int) -> Ops:
    return [*[("add", 2, None, "info")] * (3 * n), ("read", None, 1, "ok")]


def read_often(n: int) -> Ops:
    adds: Ops = [("add", 2 * value, None, "ok") for value in range(n)]
    reads: Ops = [("read", None, n * (n - 1) + 2 * value, "ok") for value in range(n)]
    return [*adds, *[("add", 2, None, "info")] * n, *reads]


def read_last_write(n: int) -> Ops:
    writes: Ops = [("write", value, None, "ok") for value in range(n)]
    return [*writes, *[("read", None, [n - 1], "ok")] * n]


def read_unknown_writes(n: int) -> Ops:
    writes: Ops = [("write", value + 1, None, "info") for value in range(n)]
    reads: Ops = [("read", None, value, "ok") for value in range(n)]
    return [*writes, *reads]


CASES: dict[Callable[[int], Ops], tuple[str, int]] = {
    make_unknown_transaction: ("kafka", 0),
    make_log: ("kafka", 0),
    put_all_at_one_offset: ("kafka", 0),
    lose_values: ("kafka", 0),
    skip_values: ("kafka", 2),
    read_below_bounds: ("counter", 0),
    add_equal_amounts: ("final-sum", 0),
    read_often: ("final-sum", 0),
    read_last_write: ("causal-reverse", 0),
    read_unknown_writes: ("causal", 0),
}
"""Functions that make operations, each with the check and the number of processes (0: each operation has its own)."""


def measure(check: str, done: Sequence[Completed]) -> float:
    begun = time.process_time()
    CHECKS[check].judge(done)
    return time.process_time() - begun


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_check_takes_linear_time(make: Callable[[int], Ops]) -> None:
    check, processes = CASES[make]
    small, large = (measure(check, make_operations(make(n), processes)) for n in (SMALL, 4 * SMALL))
    assert large < GROWTH * small + ALLOWED, f"{small:.2f} s, and {large:.2f} s for four times as many"


@pytest.mark.parametrize("shown", ["nothing", "all but one"])
def test_elements_that_are_missing_for_a_while_take_linear_time(shown: str) -> None:
    """The number of effects is that of the elements in the file, and not the product of elements and reads."""
    n = 2_000
    reads = n if shown == "nothing" else 20
    elements = [] if shown == "nothing" else list(range(1, n))
    rows = [*[("add", value, None, "ok") for value in range(n)], *[("read", None, elements, "ok")] * reads,
            ("read", None, list(range(n)), "ok")]  # fmt: skip
    begun = time.process_time()
    made = make_set_effects(make_operations(rows), final_only=False, allows_stale=True)
    assert time.process_time() - begun < 5
    assert sum(len(effects) for _, effects in made.rows) <= 3 * n + reads * (len(elements) + 1)
    assert made.note.startswith(f"{n} elements" if shown == "nothing" else "1 element")


def test_banks_with_too_many_empty_accounts_are_refused() -> None:
    """Each read shows an account of its own, and lacks those of all other reads."""
    rows = [("read", None, {str(number): 1}, "ok") for number in range(3_000)]
    begun = time.process_time()
    with pytest.raises(HistoryError, match="lack 8,997,000 balances of its 3,000 accounts"):
        make_bank_effects(make_operations(rows), None)
    assert time.process_time() - begun < 5


def test_amounts_with_too_many_sums_are_given_up_soon() -> None:
    begun = time.process_time()
    assert find_reachable_sums(0, [1_000_003, 7_000_001] * 20_000) is None
    powers = find_reachable_sums(0, [3**power for power in range(36)] * 20_000)
    assert powers is not None
    assert powers.intervals == [(0, 10_000 * (3**36 - 1))]
    assert find_reachable_sums(0, [1, *(1000 * number for number in range(1, 440))]) is None
    assert time.process_time() - begun < 30
