"""In one leader epoch of a partition one node appends, at most.

That is what epochs are for: followers cut their logs by them, and would take two logs of one epoch for the same. It is
by appending that two leaders do harm; that another node holds itself for the leader for a moment is none. A topic that
is deleted and made again begins with the epochs of the one before, so it counts which of the two it is.
"""

from collections.abc import Iterator

from assay.system_under_test.invariants.invariant import Broken, Line


class OneLeader:
    """By ``first-append-in-epoch``, which a leader writes with the first record of its term."""

    name = "one-leader"

    def __init__(self) -> None:
        self.looks = 0
        self._known: dict[tuple[str, int, int], str] = {}

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        if line.event != "first-append-in-epoch" or line.key is None or line.topic_zxid is None or line.epoch is None:
            return
        self.looks += 1
        first = self._known.setdefault((line.key, line.topic_zxid, line.epoch), node)
        if first != node:
            claim = f"{node} appended to {line.key} in leader epoch {line.epoch}, in which {first} had appended."
            yield Broken(self.name, claim, node, line.key, epoch=line.epoch)
