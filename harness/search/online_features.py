"""Words for the states that a run comes through, while it goes on: at what moments a search may leave it.

They are of the sort that ``states`` finds in a run that has ended, as far as the past alone says them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from assay.harness.search.coverage_features import bucket


class Passing:
    """Of one run. Events come in the order in which the harness reads them."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
        self._in_force: dict[int, str] = {}

    def fault(self, number: int, name: str, phase: str) -> None:
        """A fault has come into force, or is over."""
        if phase == "injected":
            self._in_force[number] = name
        elif phase == "healed":
            self._in_force.pop(number, None)

    def event(self, node: str, event: str, key: str | None, epoch: int | None, value: int | None) -> Iterator[str]:
        """The words for the state that a line of a node's event log has led to."""
        self._times[event] += 1
        yield f"{event} x{bucket(self._times[event])}"
        for column, number in (("epoch", epoch), ("value", value)):
            if number is not None:
                yield f"{event} {column} {bucket(number)}"
        before = self._last[node, key] = (*self._last[node, key], event)[-3:]
        yield " > ".join(before[-2:])
        yield " > ".join(before)
        yield f"{event} during {'+'.join(sorted(set(self._in_force.values()))) or 'nothing'}"
