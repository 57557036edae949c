"""Result of the search of one key, which can be sent between processes and machines."""

import time
from dataclasses import dataclass
from typing import Final

from assay.checkers.judging.verdict import Finding
from assay.checkers.linearizability.encode import KeyHistory, describe_key
from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.model import ModelError

NONLINEARIZABLE: Final = "nonlinearizable"
MEANING: Final = "no order of the operations is legal for the model and agrees with their times"


@dataclass(frozen=True)
class KeyResult:
    """Result for one key: a finding, a reason for ``unknown``, or an error of the model. If it has none of them, there
    is a legal order."""

    operations: int = 0
    """Number of operations that count."""
    finding: Finding | None = None
    unknown: str | None = None
    model_error: str | None = None
    """The error of the model, if it contradicted itself or its code failed."""
    largest: int = 0
    """Maximum number of configurations at one return."""
    bytes: int = 0
    """Peak memory of the search."""
    seconds: float = 0.0
    """Wall-clock time."""
    out_of_memory: bool = False
    out_of_time: bool = False
    decided_by_zones: bool = False
    """Whether the zones of its values (``zones``) decided the result, without a search."""


def search_history(history: KeyHistory, limits: Limits) -> KeyResult:
    """Searches for a legal order. The result does not depend on the process or machine."""
    from assay.checkers.linearizability.explain import to_finding
    from assay.checkers.linearizability.searcher import MEMORY, TIME, search_key

    begun = time.perf_counter()
    try:
        found = search_key(history, limits)
    except ModelError as error:
        return KeyResult(len(history), model_error=str(error))
    return KeyResult(
        operations=len(history),
        finding=None if found.why is None else to_finding(NONLINEARIZABLE, history, found.why),
        unknown=found.unknown,
        largest=found.largest,
        bytes=found.bytes,
        seconds=time.perf_counter() - begun,
        out_of_memory=found.spent == MEMORY,
        out_of_time=found.spent == TIME,
    )


def to_lost_result(key: str | None, operations: int, how: str) -> KeyResult:
    """Returns the result for a key whose process died during the search."""
    return KeyResult(operations, unknown=f"{describe_key(key)}: the process that searched it {how}")
