"""Invariant: replicas have the same record, of the same leader epoch, at each offset that they know to be committed.

A replica knows the offsets below its high watermark to be committed. The high watermark is taken from the replica's
checkpoint, from its events, and from acknowledgements to clients. For each offset, the first such record of any replica
is the reference. Every other replica's record at that offset must be the same, if it is below that replica's own high
watermark. Compacted logs lack some offsets.

A partition has two kinds of reference logs:

- A single reference log for all replicas, because committed records must stay. It is used until committed records may
  be lost legitimately. This is so after a power loss, a wipe or a rollback of any node, and after an unclean election
  that the topic allows. After an unclean election, a follower of the new leader removes committed records, while a
  follower that does not know the new leader yet still has them.
- From then on, a reference log for each leader epoch. It applies to replicas that have reconciled in that epoch,
  because their logs are prefixes of the leader's.

A replica is left out in these cases:

- Its process is dead or paused, or has not recovered the log since its start.
- Its log is damaged.
- A fault has written into its files. It is then left out permanently.

If a topic was deleted and its name is used again, logs of the deleted topic have a reference log of their own. They are
compared with it until brokers set them aside.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from assay.system_under_test.invariants.copies import CrcTable, HighWatermarks, ReplicaCopy
from assay.system_under_test.invariants.invariant import EventLine, InvariantViolation
from assay.system_under_test.invariants.roles import ObservedRole, ObservedRoles

COMPARED_AFTER = ("high-watermark", "became-leader", "reconciled", "recovered", "isr-change")
"""Events after which a partition's replicas are compared. An active leader emits one about once a second."""

ReferenceId = tuple[str, int | None, int | None]
"""A partition, its topic's czxid, and the leader epoch; None for the reference log of all replicas."""


class _Entry(NamedTuple):
    """The first record seen at an offset."""

    crc: int
    epoch: int | None
    node: str


class _ReferenceLog:
    """The first record seen at each offset. Epoch and node are stored once for a run of records that share them."""

    def __init__(self) -> None:
        self._crcs = CrcTable()
        self._starts = array("q")
        self._runs: list[tuple[int | None, str]] = []
        self._end = 0
        self._late: dict[int, _Entry] = {}
        """Records below the end of the reference log when they were first seen."""

    def enter(self, offset: int, entry: _Entry) -> _Entry:
        """Enters a record, unless one is known at its offset, and returns the first record seen there."""
        if offset >= self._end:
            if not self._runs or self._runs[-1] != entry[1:]:
                self._starts.append(offset)
                self._runs.append((entry.epoch, entry.node))
            self._crcs[offset] = entry.crc
            self._end = offset + 1
            return entry
        crc = self._crcs.find(offset)
        if crc is None:
            return self._late.setdefault(offset, entry)
        return _Entry(crc, *self._runs[bisect_right(self._starts, offset) - 1])


class ReplicaAgreement:
    """Compares replicas. ``nodes``: the brokers' nodes, by name; ``data``: the folder of their logs."""

    name = "agreement"

    def __init__(self, roles: ObservedRoles, nodes: Mapping[str, Any], data: str) -> None:
        self.checks = 0
        self._roles = roles
        self._nodes = nodes
        self._high_watermarks = {name: HighWatermarks(node.disk, data) for name, node in nodes.items()}
        self._data = data
        self._copies: dict[tuple[str, str], ReplicaCopy] = {}
        self._references: dict[ReferenceId, _ReferenceLog] = {}
        self._compared: dict[tuple[ReferenceId, str], tuple[int, int]] = {}
        """By reference log and node: the log's ``rewrites``, and the offset up to which it was compared."""
        self._pending: dict[str, tuple[str, ObservedRole]] = {}
        """By partition: the leader whose acknowledged records are not entered yet."""
        self._latest_epochs: dict[tuple[str, int | None], int] = {}
        """By partition and topic czxid: the highest epoch with a leader."""
        self._latest_czxids: dict[str, int] = {}
        """By partition: the czxid of the latest topic of that name that had a leader."""

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event == "became-leader" and line.key is not None and line.epoch is not None:
            incarnation = line.key, line.topic_zxid
            self._latest_epochs[incarnation] = max(line.epoch, self._latest_epochs.get(incarnation, line.epoch))
            self._latest_czxids[line.key] = max(line.topic_zxid or 0, self._latest_czxids.get(line.key, 0))
        if line.event in COMPARED_AFTER and line.key is not None:
            yield from self._enter_acknowledged(line.key)
            for name, role in self._roles.find_all(line.key):
                yield from self._check_replica(line.key, name, role)

    def acknowledged(self, key: str, position: int) -> None:
        """Marks this offset as committed, because a client has got an acknowledgement from the leader.

        The leader's log is read with the partition's next event, before any other replica can lead. Leaders of an
        earlier epoch or of a deleted topic do not count, because they cannot have acknowledged the offset.
        """
        leaders = [
            (role.epoch, name, role)
            for name, role in self._roles.find_all(key)
            if role.leads
            and (role.topic_zxid or 0) >= self._latest_czxids.get(key, 0)
            and role.epoch >= self._latest_epochs.get((key, role.topic_zxid), role.epoch)
        ]
        if leaders:
            _, name, role = max(leaders, key=lambda leader: leader[:2])
            role.high_watermark = max(role.high_watermark, position + 1)
            self._pending[key] = name, role

    def _enter_acknowledged(self, key: str) -> Iterator[InvariantViolation]:
        """Enters the records that were acknowledged to clients, even if their leader has failed since."""
        name, role = self._pending.pop(key, (None, None))
        if name is not None and role is not None and not self._may_lose_committed(key) and not role.damaged:
            yield from self._compare((key, role.topic_zxid, None), name, role)

    def _may_lose_committed(self, key: str) -> bool:
        """Returns whether committed records may be lost legitimately.

        A node's ``losses`` are power losses, wipes and rollbacks; ``damaged`` means that a fault wrote into its files.
        """
        return key in self._roles.unclean or any(node.losses or node.damaged for node in self._nodes.values())

    def _check_replica(self, key: str, name: str, role: ObservedRole) -> Iterator[InvariantViolation]:
        node = self._nodes.get(name)
        if node is None or not node.running or node.damaged or role.damaged:
            return
        if not self._may_lose_committed(key):
            yield from self._compare((key, role.topic_zxid, None), name, role)
        elif role.is_prefix:  # the replica leads, or has reconciled in this epoch
            yield from self._compare((key, role.topic_zxid, role.epoch), name, role)

    def _compare(self, reference_id: ReferenceId, name: str, role: ObservedRole) -> Iterator[InvariantViolation]:
        key = reference_id[0]
        high_watermark = max(role.high_watermark, self._high_watermarks[name].find(key))
        if not high_watermark:
            return
        if (name, key) not in self._copies:
            self._copies[name, key] = ReplicaCopy(self._nodes[name].disk, f"{self._data}/{key}")
        copy, reference = self._copies[name, key], self._references.setdefault(reference_id, _ReferenceLog())
        copy.refresh()
        rewrites, begin = self._compared.get((reference_id, name), (0, 0))
        begin = max(copy.find_unchanged(rewrites, begin), copy.start)  # records compared before, unless rewritten since
        end = begin
        for offset, crc in copy.between(begin, high_watermark).items():
            self.checks += 1
            found = _Entry(crc, copy.epoch(offset), name)
            first = reference.enter(offset, found)
            if first.crc != crc or (None not in (first.epoch, found.epoch) and first.epoch != found.epoch):
                yield self._make_violation(key, offset, first, found, high_watermark)
                return
            end = max(end, offset + 1)
        self._compared[reference_id, name] = copy.rewrites, end

    def _make_violation(
        self, key: str, offset: int, first: _Entry, found: _Entry, high_watermark: int
    ) -> InvariantViolation:
        claim = (
            f"{found.node} has a record with the CRC {found.crc:08x}, of leader epoch {found.epoch}, at offset "
            f"{offset} of {key}, below its high watermark {high_watermark}; {first.node} had one with the CRC "
            f"{first.crc:08x}, of epoch {first.epoch}, below its own."
        )
        return InvariantViolation(self.name, claim, found.node, key, position=offset)
