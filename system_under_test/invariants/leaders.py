"""At most one node appends in one leader epoch of a partition.

Followers truncate their logs by epochs, and would take two logs of one epoch for the same. Only appending by two
leaders does harm; it is harmless if another node believes for a moment that it leads. A topic that is deleted and
created again begins with the epochs of the former one, so the two are distinguished.
"""

from collections.abc import Iterator

from assay.system_under_test.invariants.invariant import EventLine, InvariantViolation


class OneLeaderPerEpoch:
    """Checks ``first-append-in-epoch``, which a leader emits with the first record of its term."""

    name = "one-leader"

    def __init__(self) -> None:
        self.looks = 0
        self._known: dict[tuple[str, int, int], str] = {}

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event != "first-append-in-epoch" or line.key is None or line.topic_zxid is None or line.epoch is None:
            return
        self.looks += 1
        first = self._known.setdefault((line.key, line.topic_zxid, line.epoch), node)
        if first != node:
            claim = f"{node} appended to {line.key} in leader epoch {line.epoch}, in which {first} had appended."
            yield InvariantViolation(self.name, claim, node, line.key, epoch=line.epoch)
