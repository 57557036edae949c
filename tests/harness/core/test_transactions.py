"""Micro-operations become effects; what is none is reported."""

from __future__ import annotations

from typing import Any

import pytest

from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.transactions import derive_effects


def completed(argument: Any, outcome: Outcome, result: Any = None) -> Completed:
    operation = Operation("txn", None, argument)
    return Completed(7, 1, "w", operation, Completion(outcome, result), 1, None if outcome is Outcome.INFO else 2)


def test_lists_and_registers_are_told_apart_by_list_indexes() -> None:
    done = [["append", "x", 1], ["r", "x", [3, 1]], ["r", "y", []], ["w", 5, 2], ["r", 5, 2], ["r", "z", None]]
    called = [[f, key, None if f == "r" else value] for f, key, value in done]
    assert derive_effects(completed(called, Outcome.OK, done)) == [
        Effect("txn-append", "x", value=1),
        Effect("txn-read", "x", value=3, list_index=0),
        Effect("txn-read", "x", value=1, list_index=1),
        Effect("txn-read", "y"),
        Effect("txn-write", "5", value=2),
        Effect("txn-read", "5", value=2),
        Effect("txn-read", "z"),
    ]


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INFO])
def test_of_what_did_not_end_well_only_its_writes_are_known(outcome: Outcome) -> None:
    assert derive_effects(completed([["r", "x", None], ["append", "x", 1]], outcome)) == [
        Effect("txn-append", "x", value=1)
    ]


@pytest.mark.parametrize(
    "result", [None, "r", [["cas", "x", 1]], [["w", "x", None]], [["r", "x", ["a"]]], [["r", "x"]]]
)
def test_anything_else_is_refused_by_name(result: Any) -> None:
    with pytest.raises(ValueError, match="operation 7: "):
        derive_effects(completed(result, Outcome.OK, result))


@pytest.mark.parametrize(
    "result",
    [
        [],
        [["append", "x", 1]],
        [["append", "x", 1], ["append", "x", 1], ["r", "z", 5]],
        [["append", "x", 1], ["append", "y", 2], ["r", "z", 5], ["append", "z", 3]],
        [["append", "x", 1], ["append", "w", 2], ["r", "z", 5]],
        [["append", "x", 1], ["w", "y", 2], ["r", "z", 5]],
        [["append", "y", 2], ["append", "x", 1], ["r", "z", 5]],
        [["append", "x", 1], ["append", "y", 2], ["append", "z", 5]],
        [["append", "x", 1], ["append", "y", 2], ["r", "y", 5]],
    ],
    ids=["none", "too few", "value", "too many", "key", "function", "order", "write for read", "key of read"],
)
def test_a_result_with_other_micro_operations_than_the_call_is_rejected(result: Any) -> None:
    called = [["append", "x", 1], ["append", "y", 2], ["r", "z", None]]
    assert len(derive_effects(completed(called, Outcome.OK, (*called[:2], ("r", "z", 5))))) == 3
    with pytest.raises(ValueError, match=r"operation 7 .* which of them took effect is unknown"):
        derive_effects(completed(called, Outcome.OK, result))
