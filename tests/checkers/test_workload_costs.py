"""Checks of workloads take linear time, whatever a history repeats: claims, unknown outcomes, anomalies.

Each case is judged twice, with eight times as many operations the second time. Time that grows as the square of them
would be 64 times as long. It must stay below ``GROWTH`` times the first one, and ``ALLOWED`` seconds are no growth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.judging.verdict import MOST_OPERATIONS
from assay.checkers.workload_checks.catalog import CHECKS
from assay.checkers.workload_checks.counters import find_reachable_sums
from assay.checkers.workload_checks.kafka import _KafkaCheck, _Log
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.stored.effects_of_workload import make_bank_effects
from assay.harness.stored.set_and_queue_effects import make_set_effects

SMALL: Final = 1_000
LARGE: Final = 8 * SMALL
GROWTH: Final = 20
ALLOWED: Final = 0.6

Ops = Sequence[tuple[str, Any, Any, str]]
"""Verb, argument, result and outcome."""


def make_operations(rows: Ops) -> list[Completed]:
    """Makes operations that do not overlap, each with a process of its own."""
    return [
        Completed(
            index=index, process=index, worker="w", call=2 * index, ret=None if outcome == "info" else 2 * index + 1,
            operation=Operation(f, argument=argument), completion=Completion(Outcome(outcome), result),
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
    sends = [send(0, value) for value in range(2 * n)]
    return [sent(0, -1, 0), ("poll", [["poll"]], [["poll", {"0": [[0, -1]]}]], "ok"), ("txn", sends, None, "info")]


def make_log(n: int) -> Ops:
    return [sent(0, value) for value in range(n)]


def lose_values(n: int) -> Ops:
    """Polls of unknown outcome show the last value before the acknowledged poll does."""
    last = [["poll", {"0": [[n - 1, n - 1]]}]]
    return [*make_log(n), *[("poll", [["poll"]], last, "info")] * n, polled(n - 1)]


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
    writes: Ops = [("write", value + 1, None, "info") for value in range(2 * n)]
    reads: Ops = [("read", None, value, "ok") for value in range(2 * n)]
    return [*writes, *reads]


CASES: dict[Callable[[int], Ops], str] = {
    make_unknown_transaction: "kafka",
    lose_values: "kafka",
    read_below_bounds: "counter",
    add_equal_amounts: "final-sum",
    read_often: "final-sum",
    read_last_write: "causal-reverse",
    read_unknown_writes: "causal",
}
"""Functions that make operations, each with the check."""


def measure(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def require_linear(small: float, large: float) -> None:
    assert large < GROWTH * small + ALLOWED, f"{small:.2f} s, and {large:.2f} s for eight times as many"


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_check_takes_linear_time(make: Callable[[int], Ops]) -> None:
    small, large = (make_operations(make(n)) for n in (SMALL, LARGE))
    require_linear(*(measure(partial(CHECKS[CASES[make]].judge, done)) for done in (small, large)))


def test_circles_of_a_log_are_counted_in_linear_time() -> None:
    small, large = (_KafkaCheck(make_operations(make_log(n)), {}, False) for n in (2 * SMALL, 2 * LARGE))
    require_linear(*(measure(partial(check._expose_circles, set())) for check in (small, large)))


def test_many_values_at_one_offset_are_recorded_in_linear_time() -> None:
    def record(n: int) -> None:
        log = _Log()
        for value in range(n):
            log.record(5, value)

    require_linear(*(measure(partial(record, n)) for n in (3 * SMALL, 3 * LARGE)))


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


@pytest.mark.parametrize("size", [MOST_OPERATIONS, MOST_OPERATIONS + 1])
def test_only_a_circle_that_is_drawn_has_its_reasons(size: int) -> None:
    """Each operation polls the value that the next one sends. They overlap."""
    rows: Ops = [
        ("txn", [send(key, 1), ["poll"]],
         [["send", key, [0, 1]], ["poll", {str((key + 1) % size): [[0, 1]]}]], "ok")
        for key in range(size)
    ]  # fmt: skip
    done = [msgspec.structs.replace(one, call=0, ret=1) for one in make_operations(rows)]
    (finding,) = (one for one in CHECKS["kafka"].judge(done).findings if one.cycle)
    assert len(finding.reasons) == (size if size <= MOST_OPERATIONS else 0)


def test_banks_with_too_many_empty_accounts_are_refused() -> None:
    """Each read shows an account of its own, and lacks those of all other reads."""
    rows = [("read", None, {str(number): 1}, "ok") for number in range(3_000)]
    begun = time.process_time()
    with pytest.raises(HistoryError, match="lack 8,997,000 balances of its 3,000 accounts"):
        make_bank_effects(make_operations(rows), None)
    assert time.process_time() - begun < 5


@pytest.mark.slow
def test_amounts_with_too_many_sums_are_given_up_soon() -> None:
    begun = time.process_time()
    assert find_reachable_sums(0, [1_000_003, 7_000_001] * 20_000) is None
    powers = find_reachable_sums(0, [3**power for power in range(36)] * 20_000)
    assert powers is not None
    assert powers.intervals == [(0, 10_000 * (3**36 - 1))]
    assert find_reachable_sums(0, [1, *(1000 * number for number in range(1, 440))]) is None
    assert time.process_time() - begun < 30
