"""All invariants of one cluster, as testers use them: takes lines of event logs, and returns violations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from assay.system_under_test.inspection import Inspection
from assay.system_under_test.invariants.agreement import Agreement
from assay.system_under_test.invariants.controllers import OneController
from assay.system_under_test.invariants.coordinators import Coordinators
from assay.system_under_test.invariants.invariant import Invariant, Line
from assay.system_under_test.invariants.leaders import OneLeader
from assay.system_under_test.invariants.roles import Roles
from assay.system_under_test.invariants.watermarks import Acknowledged, Members, RaisedMarks


class Asserted:
    """The invariants of one run. ``inspection`` is of the run's brokers, for these invariants alone."""

    def __init__(self, inspection: Inspection) -> None:
        nodes = inspection.brokers
        by_name = {node.name: node for node in nodes.values()}
        self._roles = Roles(by_name)
        members = Members(self._roles, inspection, nodes)
        self._acknowledged = Acknowledged(nodes.values())
        self._agreement = Agreement(self._roles, by_name, inspection.data)
        self._invariants: Sequence[Invariant] = (
            OneController(),
            OneLeader(),
            RaisedMarks(self._roles, members),
            Coordinators(self._roles, members, inspection, by_name),
            self._acknowledged,
            self._agreement,
        )
        self._decoder = msgspec.json.Decoder(Line)

    def event(self, node: str, line: str) -> Sequence[Mapping[str, Any]]:
        """Returns the violations shown by a node's new line, each with ``invariant``, ``claim`` and its subject."""
        read = self._decoder.decode(line)
        self._roles.note(node, read)
        return [vars(broken) for one in self._invariants for broken in one.event(node, read)]

    def acknowledged(self, key: str, position: int, found: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Returns the violations shown by a client's acknowledgement of a partition up to this offset.

        ``found`` is the inspection's result. ``key`` is the history's.
        """
        topic, _, index = key.rpartition("-")
        self._agreement.acknowledged(f"{topic.partition('#')[0]}-{index}", position)
        return [vars(broken) for broken in self._acknowledged.found(key, position, found)]

    def asserted(self) -> Mapping[str, int]:
        """Returns how often each invariant was checked, by name."""
        return {one.name: one.looks for one in self._invariants}
