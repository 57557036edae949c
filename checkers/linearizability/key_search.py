"""Judges one key by the algorithm that fits its model and its operations.

| model | operations | algorithm |
|---|---|---|
| set | no removals | layers of reads and elements (``set_order``) |
| set | removals, but no reads of the whole set | each element alone (``set_elements``) |
| set | both | each element alone, which may find a contradiction; then the search |
| FIFO queue | no value enqueued twice | pairs of values (``queue_order``) |
| unordered queue | no value enqueued twice, or no answer that it is empty | each value alone (``queue_order``) |
| any | any | the search (``searcher``) |

Registers with unique values are judged before, for all keys at once (``zones``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from assay.checkers.linearizability.encode import KeyHistory
from assay.checkers.linearizability.key_result import NONLINEARIZABLE, KeyResult
from assay.checkers.linearizability.limits import Deadline, Limits, OutOfTime
from assay.checkers.linearizability.model import ModelError, find_exact_algorithm
from assay.checkers.linearizability.queue_order import (
    find_queue_contradiction,
    find_unordered_contradiction,
    has_distinct_values,
    has_empty_answers,
)
from assay.checkers.linearizability.queues import QUEUE, UNORDERED
from assay.checkers.linearizability.set_elements import judge_elements
from assay.checkers.linearizability.set_order import find_set_contradiction, has_removals
from assay.checkers.linearizability.sets import SET

LAYERS: Final = "layers of elements"
PAIRS: Final = "pairs of values"
VALUES: Final = "values"
"""Values of ``KeyResult.method`` for the algorithms of this module."""


def search_history(history: KeyHistory, limits: Limits) -> KeyResult:
    """Judges a key by the algorithm for its model, or by the search of states if none fits its operations.

    The result does not depend on the process or machine.
    """
    from assay.checkers.linearizability.explain import to_finding
    from assay.checkers.linearizability.searcher import MEMORY, TIME, search_key

    deadline = Deadline(limits)
    try:
        if (direct := judge_directly(history, deadline)) is not None:
            return replace(direct, seconds=deadline.elapsed)
        found = search_key(history, deadline.get_remaining_limits())
    except ModelError as error:
        return KeyResult(len(history), model_error=str(error))
    except OutOfTime as over:
        why = deadline.describe(history.name, str(over))
        return KeyResult(len(history), unknown=why, seconds=deadline.elapsed, out_of_time=True)
    return KeyResult(
        operations=len(history),
        finding=None if found.why is None else to_finding(NONLINEARIZABLE, history, found.why),
        unknown=found.unknown,
        most_configurations=found.most_configurations,
        bytes=found.bytes,
        seconds=deadline.elapsed,
        out_of_memory=found.spent == MEMORY,
        out_of_time=found.spent == TIME,
    )


def judge_directly(history: KeyHistory, deadline: Deadline) -> KeyResult | None:
    """Returns the result without a search of the whole history, or None if the key needs the search.

    Raises ``OutOfTime``.
    """
    name = find_exact_algorithm(history.model)
    if name is None or history.model.initial:  # the algorithms begin with an empty object
        return None
    return ALGORITHMS[name](history, deadline)


def _judge_set(history: KeyHistory, deadline: Deadline) -> KeyResult | None:
    if has_removals(history):
        return judge_elements(history, deadline)
    found = find_set_contradiction(history, deadline)
    finding = None if found is None else found.to_finding(NONLINEARIZABLE, history)
    return KeyResult(len(history), finding=finding, method=LAYERS)


def _judge_queue(history: KeyHistory, deadline: Deadline) -> KeyResult | None:
    if not has_distinct_values(history):
        return None
    found = find_queue_contradiction(history, deadline)
    finding = None if found is None else found.to_finding(NONLINEARIZABLE, history)
    return KeyResult(len(history), finding=finding, method=PAIRS)


def _judge_unordered(history: KeyHistory, deadline: Deadline) -> KeyResult | None:
    if has_empty_answers(history) and not has_distinct_values(history):
        return None
    found = find_unordered_contradiction(history, deadline)
    finding = None if found is None else found.to_finding(NONLINEARIZABLE, history)
    return KeyResult(len(history), finding=finding, method=VALUES)


ALGORITHMS: Final[Mapping[str, Callable[[KeyHistory, Deadline], KeyResult | None]]] = {
    SET: _judge_set,
    QUEUE: _judge_queue,
    UNORDERED: _judge_unordered,
}
"""The algorithms by the name in ``Model.exact``."""
