"""A controller epoch is claimed by one process.

The epoch rises with the claim, in one write, so no two elections return the same. Brokers could not distinguish two
controllers of one epoch, and would obey both.
"""

from collections.abc import Iterator

from assay.system_under_test.invariants.invariant import EventLine, InvariantViolation


class OneControllerPerEpoch:
    """Checks ``became-controller`` events."""

    name = "one-controller"

    def __init__(self) -> None:
        self.looks = 0
        self._known: dict[int, tuple[str, int]] = {}

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event != "became-controller" or line.controller_epoch is None:
            return
        self.looks += 1
        epoch = line.controller_epoch
        first, incarnation = self._known.setdefault(epoch, (node, line.incarnation))
        if (first, incarnation) == (node, line.incarnation):
            return
        who = first if first != node else f"an earlier process of {node}"
        yield InvariantViolation(self.name, f"{node} became controller in epoch {epoch}, as {who} had.", node)
