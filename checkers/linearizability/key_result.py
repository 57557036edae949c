"""Result for one key, which can be sent between processes and machines."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from assay.checkers.judging.verdict import MOST_OPERATIONS, Finding
from assay.checkers.linearizability.encode import FOREVER, KeyHistory, describe_key

NONLINEARIZABLE: Final = "nonlinearizable"
SEARCH: Final = "search"
ZONES: Final = "zones"
"""Methods of ``KeyResult``: the search of states, and the algorithm for registers with unique values (``zones``)."""
MEANING: Final = "no order of the operations is legal for the model and agrees with their times"
UNCLAIMED: Final = "the code of a model decides which answers can contradict others; assay sensitivity measures it"
"""Why the check counts no claims: a clause."""


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
    most_configurations: int = 0
    """Maximum number of configurations (``core``) at the return of an operation."""
    bytes: int = 0
    """Peak memory of the search."""
    seconds: float = 0.0
    """Wall-clock time."""
    out_of_memory: bool = False
    out_of_time: bool = False
    method: str = SEARCH
    """How the result was found: by the search, or by an algorithm that judges keys of one model without a search."""


class Contradiction(NamedTuple):
    """Operations that contradict each other, found without a search.

    ``claim`` is a sentence. ``rows`` are the operations; those that contradict each other come first.
    """

    claim: str
    rows: tuple[int, ...]

    def to_finding(self, anomaly: str, history: KeyHistory) -> Finding:
        """Returns the contradiction as a finding. ``rows`` are those of ``history``."""
        first = self.rows[0]
        ended = int(history.ret[first])
        return Finding(
            anomaly=anomaly,
            key=history.key,
            claim=self.claim if history.key is None else f"In {history.key}: {self.claim}",
            operations=tuple(int(history.index[row]) for row in self.rows[:MOST_OPERATIONS]),
            omitted=max(0, len(self.rows) - MOST_OPERATIONS),
            time=int(history.call[first]) if ended == FOREVER else ended,
        )


def to_unfinished_result(key: str | None, found: KeyResult, first_look: float) -> KeyResult:
    """Returns the result for a key that was searched only for the first seconds (``Limits.first_look``), because
    another key is wrong."""
    why = f"{describe_key(key)}: not decided within {first_look:g} s; as another key is wrong, it got no more time"
    return replace(found, unknown=f"{why} (--all-keys gives it)")


def to_lost_result(key: str | None, operations: int, how: str) -> KeyResult:
    """Returns the result for a key whose process died during the search."""
    return KeyResult(operations, unknown=f"{describe_key(key)}: the process that searched it {how}")
