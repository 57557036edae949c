"""All invariants of one cluster, as testers take them: lines of event logs go in, and what is broken comes out."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from assay.system_under_test.invariants.controllers import OneController
from assay.system_under_test.invariants.invariant import Invariant, Line
from assay.system_under_test.invariants.leaders import OneLeader


class Asserted:
    """Of one run."""

    def __init__(self) -> None:
        self._invariants: Sequence[Invariant] = (OneController(), OneLeader())
        self._decoder = msgspec.json.Decoder(Line)

    def event(self, node: str, line: str) -> Sequence[Mapping[str, Any]]:
        """What is broken, now that a node has written this line: ``invariant``, ``claim`` and what that is about."""
        read = self._decoder.decode(line)
        return [vars(broken) for one in self._invariants for broken in one.event(node, read)]

    def asserted(self) -> Mapping[str, int]:
        """How often each was looked at, by name."""
        return {one.name: one.looks for one in self._invariants}
