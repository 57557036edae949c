"""All invariants of one cluster, as testers use them: takes lines of event logs, and returns violations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.agreement import ReplicaAgreement
from assay.system_under_test.invariants.controllers import OneControllerPerEpoch
from assay.system_under_test.invariants.coordinators import CoordinatorFold
from assay.system_under_test.invariants.invariant import EventLine, Invariant
from assay.system_under_test.invariants.leaders import OneLeaderPerEpoch
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.invariants.watermarks import AcknowledgedRecords, InSyncMemberCheck, RaisedHighWatermarks


class InvariantSet:
    """The invariants of one run. ``inspection`` is of the run's brokers, for these invariants alone."""

    def __init__(self, inspection: AcknowledgementInspection) -> None:
        nodes = inspection.brokers
        by_name = {node.name: node for node in nodes.values()}
        self._roles = ObservedRoles(by_name)
        members = InSyncMemberCheck(self._roles, inspection, nodes)
        self._acknowledged = AcknowledgedRecords(nodes.values())
        self._agreement = ReplicaAgreement(self._roles, by_name, inspection.data)
        self._invariants: Sequence[Invariant] = (
            OneControllerPerEpoch(),
            OneLeaderPerEpoch(),
            RaisedHighWatermarks(self._roles, members),
            CoordinatorFold(self._roles, members, inspection, by_name),
            self._acknowledged,
            self._agreement,
        )
        self._decoder = msgspec.json.Decoder(EventLine)

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
