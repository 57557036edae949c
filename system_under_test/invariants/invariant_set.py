"""All invariants of one cluster, as testers use them: takes lines of event logs, and returns violations.

Two small invariants are defined here:

- At most one process claims a controller epoch. The claim and the new epoch are one write, so two elections cannot
  have the same epoch. Brokers could not distinguish two controllers of one epoch, and would obey both.
- At most one node appends in one leader epoch of a partition. Followers truncate their logs by epochs, and would treat
  two logs of one epoch as equal. A second node that only believes for a moment that it leads is harmless. Leader epochs
  of a topic that is deleted and created again restart, so topics are distinguished by their czxids.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.agreement import ReplicaAgreement
from assay.system_under_test.invariants.coordinators import CoordinatorFold
from assay.system_under_test.invariants.invariant import EventLine, Invariant, InvariantViolation
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.invariants.watermarks import AcknowledgedRecords, InSyncMemberCheck, RaisedHighWatermarks


class OneControllerPerEpoch:
    """Checks ``became-controller`` events."""

    name = "one-controller"

    def __init__(self) -> None:
        self.checks = 0
        self._first: dict[int, tuple[str, int]] = {}

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event != "became-controller" or line.controller_epoch is None:
            return
        self.checks += 1
        epoch = line.controller_epoch
        first, incarnation = self._first.setdefault(epoch, (node, line.incarnation))
        if (first, incarnation) == (node, line.incarnation):
            return
        who = first if first != node else f"an earlier process of {node}"
        yield InvariantViolation(self.name, f"{node} became controller in epoch {epoch}, as {who} had.", node)


class OneLeaderPerEpoch:
    """Checks ``first-append-in-epoch``, which a leader emits with the first record of its term."""

    name = "one-leader"

    def __init__(self) -> None:
        self.checks = 0
        self._first: dict[tuple[str, int, int], str] = {}

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event != "first-append-in-epoch" or line.key is None or line.topic_zxid is None or line.epoch is None:
            return
        self.checks += 1
        first = self._first.setdefault((line.key, line.topic_zxid, line.epoch), node)
        if first != node:
            claim = f"{node} appended to {line.key} in leader epoch {line.epoch}, in which {first} had appended."
            yield InvariantViolation(self.name, claim, node, line.key, epoch=line.epoch)


class InvariantSet:
    """The invariants of one run. ``inspection``: an inspection of the run's brokers that nothing else uses."""

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
        """Returns the violations that a node's new line shows, as rows of :class:`InvariantViolation`."""
        read = self._decoder.decode(line)
        self._roles.apply(node, read)
        return [vars(broken) for invariant in self._invariants for broken in invariant.event(node, read)]

    def acknowledged(self, key: str, position: int, found: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Returns the violations that a client's acknowledgement of this offset shows.

        ``found``: the result of the inspection at that moment. ``key``: ``topic-partition``, or
        ``topic#incarnation-partition``.
        """
        topic, _, index = key.rpartition("-")
        self._agreement.acknowledged(f"{topic.partition('#')[0]}-{index}", position)
        return [vars(broken) for broken in self._acknowledged.check(key, position, found)]

    def asserted(self) -> Mapping[str, int]:
        """Returns how often each invariant was checked, by name."""
        return {invariant.name: invariant.checks for invariant in self._invariants}
