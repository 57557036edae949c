"""When a leader has raised its high watermark to an offset, each member of its in-sync set has the log up to there.

A leader says its high watermark about once a second, and when its term is over. By then the members of the set that it
knew to be in ZooKeeper, and of the one that it had proposed since, must have their log end at that offset or above: on
their disk for sure in a topic with ``flush.messages=1``. Which of them count:

- Those that are alive, and in sync under the registration by which they were admitted: one that was started again may
  have lost what it had in memory.
- Those that obey no higher epoch: under the next leader a log is cut to that leader's, and it is by the election that
  what counts is kept.
- Those that do not stand still: what a process does to its disk before it is stopped may be ahead of what it says.

Nothing is said of a topic that is to be deleted, nor of one that has since been made again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from assay.system_under_test.inspection import Inspection
from assay.system_under_test.invariants.invariant import Broken, Line
from assay.system_under_test.invariants.roles import Roles
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import PartitionState


class Members:
    """Which members of an in-sync set lack something of a partition's log. ``nodes``: the brokers', by id."""

    def __init__(self, roles: Roles, inspection: Inspection, nodes: Mapping[int, Any]) -> None:
        self._roles = roles
        self._inspection = inspection
        self._nodes = nodes

    def lacking(
        self, key: str, topic_zxid: int | None, epoch: int, members: frozenset[int], end: int
    ) -> Iterator[tuple[str, str]] | None:
        """The node of each of those that count and have less than all below ``end``, and what it has, in words; None
        when nothing can be said of the topic.
        """
        topic, _, index = key.rpartition("-")
        try:
            state, _ = self._inspection.read(PartitionState, paths.state(topic, int(index)))
            created = self._inspection.tree.get(paths.topic(topic))[1].czxid
            durably = self._inspection.flushed(topic)
        except (NoNodeError, ValueError):
            return None
        if created != topic_zxid or self._inspection.tree.exists(paths.delete_topic(topic)) is not None:
            return None
        counting = members.intersection(self._inspection.members(state))
        return self._lacking(key, epoch, sorted(counting), end, durably=durably)

    def _lacking(
        self, key: str, epoch: int, counting: list[int], end: int, *, durably: bool
    ) -> Iterator[tuple[str, str]]:
        for member in counting:
            node = self._nodes[member]
            role = self._roles.of(node.name, key)
            if role is None or role.epoch > epoch or not node.running or node.damaged:
                continue
            has = max(
                0, self._inspection.end(node, key, durably=durably)
            )  # of a new partition there may be no file yet
            if has < end:
                yield node.name, f"had {'durably ' if durably else ''}what is below {has}"


class Acknowledged:
    """By what an inspection finds when a client learns of an acknowledgement (see
    :mod:`assay.system_under_test.inspection`). ``nodes``: the brokers'.
    """

    name = "acknowledged"

    def __init__(self, nodes: Collection[Any]) -> None:
        self.looks = 0
        self._nodes = nodes

    def found(self, key: str, position: int, seen: Sequence[Mapping[str, Any]]) -> Iterator[Broken]:
        """What is broken of that. Nothing once something may have been lost of what is not flushed, or a fault has
        written into files.
        """
        if any(node.losses or node.damaged for node in self._nodes):
            return
        self.looks += 1
        for one in seen:
            what = "ended at" if one["what"] == "lacking" else "was durable up to"
            claim = (
                f"offset {position} of {key} was acknowledged, when the log of {one['node']}, a member of the in-sync "
                f"set, {what} {one['log_end']}."
            )
            yield Broken(self.name, claim, one["node"], key, position=position)

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        """Nothing: no event says what a client has learned."""
        yield from ()


class RaisedMarks:
    """By ``high-watermark`` of a leader."""

    name = "high-watermark"

    def __init__(self, roles: Roles, members: Members) -> None:
        self.looks = 0
        self._roles = roles
        self._members = members

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        if line.event != "high-watermark" or line.key is None or line.epoch is None or line.high_watermark is None:
            return
        key, epoch, mark = line.key, line.epoch, line.high_watermark
        role = self._roles.of(node, key)
        if role is None or not role.leads or role.epoch != epoch:
            return
        lacking = self._members.lacking(key, line.topic_zxid, epoch, role.committed | role.proposed, mark)
        if lacking is None:
            return
        self.looks += 1
        for member, has in lacking:
            claim = (
                f"{node} had raised the high watermark of {key} to {mark} in leader epoch {epoch}, when {member}, a "
                f"member of the in-sync set, {has}."
            )
            yield Broken(self.name, claim, member, key, epoch=epoch, position=mark - 1)
