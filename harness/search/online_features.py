"""Features of a run while it goes on: they decide at which moments a search may branch.

They equal the features of ``coverage_features``, as far as the past alone determines them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from assay.harness.search.coverage_features import to_bucket


class OnlineFeatures:
    """Feature extractor for one run. Events must come in the order that the harness reads."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
        self._in_force: dict[int, str] = {}

    def fault(self, number: int, name: str, phase: str) -> None:
        """Takes a phase of a fault: it comes into force, or is over."""
        if phase == "injected":
            self._in_force[number] = name
        elif phase == "healed":
            self._in_force.pop(number, None)

    def event(self, node: str, event: str, key: str | None, epoch: int | None, value: int | None) -> Iterator[str]:
        """Yields the features of one line of a node's event log."""
        self._times[event] += 1
        yield f"{event} x{to_bucket(self._times[event])}"
        for column, number in (("epoch", epoch), ("value", value)):
            if number is not None:
                yield f"{event} {column} {to_bucket(number)}"
        before = self._last[node, key] = (*self._last[node, key], event)[-3:]
        yield " > ".join(before[-2:])
        yield " > ".join(before)
        yield f"{event} during {'+'.join(sorted(set(self._in_force.values()))) or 'nothing'}"
