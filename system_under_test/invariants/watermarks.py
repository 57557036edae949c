"""Invariant: each in-sync member has all records below a leader's high watermark.

A leader emits its high watermark about once a second, and at the end of its term. Then the log end of each member must
be at the high watermark or above. This applies to the in-sync set that the leader knows to be in ZooKeeper, and to the
set that it has proposed since. With ``flush.messages=1`` the records must be durable. A member counts only under these
conditions:

- It is alive, and in sync under the registration by which it was admitted. A restarted broker may have lost unsynced
  records.
- It has not accepted a higher leader epoch. If it has, its log may be truncated to the next leader's, whose election
  must preserve the committed records.
- It is not paused. A process may change its disk before it is paused, and emit the event only when it continues.

Nothing is concluded about a topic whose deletion was requested, or that was deleted and created again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.invariant import EventLine, InvariantViolation
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import PartitionState


class InSyncMemberCheck:
    """Finds in-sync members that lack part of a partition's log. ``nodes``: the brokers' nodes, by id."""

    def __init__(self, roles: ObservedRoles, inspection: AcknowledgementInspection, nodes: Mapping[int, Any]) -> None:
        self._roles = roles
        self._inspection = inspection
        self._nodes = nodes

    def find_lacking(
        self, key: str, topic_zxid: int | None, epoch: int, members: frozenset[int], end: int
    ) -> Iterator[tuple[str, str]] | None:
        """Yields the node of each counting member whose log ends below ``end``, and a phrase about its log end.

        Returns None if nothing can be concluded about the topic.
        """
        topic, _, index = key.rpartition("-")
        try:
            state, _ = self._inspection.read(PartitionState, paths.partition_state(topic, int(index)))
            created = self._inspection.tree.get(paths.topic(topic))[1].czxid
            durably = self._inspection.is_flushed(topic)
        except (NoNodeError, ValueError):
            return None
        if created != topic_zxid or self._inspection.tree.exists(paths.delete_topic(topic)) is not None:
            return None
        counting = members.intersection(self._inspection.list_counted_members(state))
        return self._find_lacking(key, epoch, sorted(counting), end, durably=durably)

    def _find_lacking(
        self, key: str, epoch: int, counting: list[int], end: int, *, durably: bool
    ) -> Iterator[tuple[str, str]]:
        for member in counting:
            node = self._nodes[member]
            role = self._roles.find(node.name, key)
            if role is None or role.epoch > epoch or not node.running or node.damaged:
                continue
            own = max(0, self._inspection.read_log_end(node, key, durably=durably))  # a new partition may lack a file
            if own < end:
                yield node.name, f"held {'durably ' if durably else ''}only the records below {own}"


class AcknowledgedRecords:
    """Reports the violations that an inspection finds when a client gets an acknowledgement.

    See :mod:`assay.system_under_test.inspection`. ``nodes``: the brokers' nodes.
    """

    name = "acknowledged"

    def __init__(self, nodes: Collection[Any]) -> None:
        self.checks = 0
        self._nodes = nodes

    def check(self, key: str, position: int, seen: Sequence[Mapping[str, Any]]) -> Iterator[InvariantViolation]:
        """Yields a violation for each row that the inspection found (``seen``).

        Yields none after a fault that may lose unflushed records, or that has written into files.
        """
        if any(node.losses or node.damaged for node in self._nodes):
            return
        self.checks += 1
        for row in seen:
            what = "ended at" if row["what"] == "lacking" else "was durable up to"
            claim = (
                f"offset {position} of {key} was acknowledged, when the log of {row['node']}, a member of the in-sync "
                f"set, {what} {row['log_end']}."
            )
            yield InvariantViolation(self.name, claim, row["node"], key, position=position)

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        """Yields nothing: acknowledgements are not events."""
        yield from ()


class RaisedHighWatermarks:
    """Checks ``high-watermark`` events of leaders."""

    name = "high-watermark"

    def __init__(self, roles: ObservedRoles, members: InSyncMemberCheck) -> None:
        self.checks = 0
        self._roles = roles
        self._members = members

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event != "high-watermark" or line.key is None or line.epoch is None or line.high_watermark is None:
            return
        key, epoch, end = line.key, line.epoch, line.high_watermark
        role = self._roles.find(node, key)
        if role is None or not role.leads or role.epoch != epoch:
            return
        lacking = self._members.find_lacking(key, line.topic_zxid, epoch, role.committed_isr | role.proposed_isr, end)
        if lacking is None:
            return
        self.checks += 1
        for member, held in lacking:
            claim = (
                f"{node} had raised the high watermark of {key} to {end} in leader epoch {epoch}, when {member}, a "
                f"member of the in-sync set, {held}."
            )
            yield InvariantViolation(self.name, claim, member, key, epoch=epoch, position=end - 1)
