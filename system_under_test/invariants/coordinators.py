"""Invariant: a group coordinator's state equals the fold of its partition of the offsets topic.

The fold of a log consists of the last record of each key.

- *Loading*: After a coordinator has loaded, its state is the fold of the log up to the start of its own term: groups,
  their generations, and committed offsets.
- *Accepting*: It accepts a commit only after it has loaded, and only in the generation in force. A generation is in
  force once this coordinator has announced or loaded it. So no generation that was in force and is stored before the
  commit is later than the commit's own. The log may also have generations that were never in force: if the write of a
  generation has an unknown outcome, the group may continue in the earlier one.
- *Storing*: An accepted commit is in the coordinator's log, and in the log of each in-sync member that counts. Such a
  member is alive, not paused, and still under the same registration (see ``watermarks``). Commits are checked ten times
  a second, and at the end of a term.

If compaction may have removed a record before it was seen, nothing is concluded from its absence.

Responses to OffsetFetch are in no log; the check ``stale-read`` judges them from the history. Committed offsets may
decrease: a client may seek, an administrator may reset them, and they expire. Groups of the earlier draft keep their
generations in ZooKeeper, so only their commits are checked.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoNodeError

from assay.system_under_test.config import OFFSETS_TOPIC
from assay.system_under_test.groups.records import GroupRecord, OffsetRecord, UnknownRecord, compute_fingerprint, parse
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.copies import RecordDict, ReplicaLog, SegmentFile
from assay.system_under_test.invariants.invariant import EventLine, InvariantViolation
from assay.system_under_test.invariants.roles import ObservedRole, ObservedRoles
from assay.system_under_test.invariants.watermarks import InSyncMemberCheck
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import RecordError
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import TopicAssignment

Record = GroupRecord | OffsetRecord
DRAFT_EVENTS = "draft-"
"""Prefix of the events of draft groups."""
LOG_END = 1 << 62
"""A number above every offset."""
CHECK_INTERVAL = 0.1
"""Seconds between two checks of commits.

A check of one commit costs as much as a check of all commits since the last check, so commits are checked in batches.
"""


class GroupJournal(ReplicaLog[Record | None]):
    """A partition of the offsets topic on one node, with indexes of groups and commits.

    A position is an offset in this log; positions rise in each index. Compaction removes records that later ones
    replace, so records seen in a term are kept until the next term. A record that was removed before it was seen leaves
    a gap in the positions. None stands for a record of an irrelevant kind.
    """

    def __init__(self, disk: Any, folder: str) -> None:
        super().__init__(disk, folder, self._parse_entries, RecordDict)
        self._new_records: list[tuple[int, Record | None]] = []
        self._records: dict[int, Record | None] = {}
        self._indexed: int | None = None
        """The log's ``rewrites`` when the indexes were built."""
        self._term: tuple[int, int] | None = None
        """The leader epoch, and the log end when it began."""
        self.seen_below = 0
        """Every record of the term below this position has been seen."""
        self.generations: dict[str, list[tuple[int, int | None]]] = {}
        """By group: the positions and generations of its records; generation None: the group was deleted."""
        self.commits: dict[tuple[str, str, int], list[int]] = {}
        """By group, partition and offset: the positions of its commits."""

    def read_new(self, role: ObservedRole) -> None:
        """Reads new records in the log of a leader."""
        self.refresh()
        new, self._new_records = dict(self._new_records), []
        term = role.epoch, role.term_start
        if self.rewrites != self._indexed:
            seen = self._records if self._term == term else {}
            kept = {position: record for position, record in seen.items() if position >= role.term_start}
            new = dict(sorted((kept | self.between(0, LOG_END)).items()))
            self._indexed, self._records, self.generations, self.commits = self.rewrites, {}, {}, {}
        if self._term != term:
            self._term, self.seen_below = term, role.term_start
        self._records |= new
        while self.seen_below in self._records:
            self.seen_below += 1
        for position, record in new.items():
            if isinstance(record, GroupRecord):
                generation = None if record.value is None else record.value.generation
                self.generations.setdefault(record.group, []).append((position, generation))
            elif record is not None and record.value is not None:
                commit = record.group, f"{record.topic}-{record.partition}", record.value.offset
                self.commits.setdefault(commit, []).append(position)

    @property
    def complete(self) -> bool:
        """Whether every record of the term has been seen."""
        return self.seen_below > max(self._records, default=-1)

    def _parse_entries(self, file: SegmentFile[Record | None], data: bytes) -> None:
        """Parses the whole entries at the beginning of ``data``."""
        try:
            for position, size, _ in message_set.scan(data):
                for message in message_set.iterate_messages(data[position : position + size]):
                    record = None
                    with suppress(UnknownRecord):
                        record = parse(message.key, message.value)
                    file.records[message.offset] = record
                    self._new_records.append((message.offset, record))
                file.size += size
        except RecordError:
            file.broken = True


class CoordinatorFold:
    """Checks ``groups-loaded``, ``group-generation`` and ``offset-commit`` events. ``nodes``: the brokers, by name."""

    name = "coordinator"

    def __init__(
        self,
        roles: ObservedRoles,
        members: InSyncMemberCheck,
        inspection: AcknowledgementInspection,
        nodes: Mapping[str, Any],
    ) -> None:
        self.checks = 0
        self._roles = roles
        self._members = members
        self._inspection = inspection
        self._nodes = nodes
        self._journals: dict[tuple[str, str], GroupJournal] = {}
        self._loaded_in: dict[tuple[str, str], tuple[int, int]] = {}
        """By node and partition: the incarnation and the leader epoch in which the node last finished loading."""
        self._in_force: dict[str, dict[int, int]] = {}
        """By group: each generation that was in force, with the leader epoch in which it was first in force."""
        self._waiting: dict[tuple[str, str], tuple[float, list[tuple[EventLine, int]]]] = {}
        """By node and partition: the time of the last check, and the commits since, each with the leader epoch."""
        self._drafts: set[str] = set()
        """The groups that are known to have had members of the draft."""
        self._partitions = 0
        """The offsets topic's number of partitions, which never changes; 0: not known."""

    def event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        if line.event.startswith(DRAFT_EVENTS) and line.key is not None:
            self._drafts.add(line.key)
        elif line.event == "groups-loaded":
            yield from self._check_loaded(node, line)
        elif line.event in ("group-generation", "group-forgotten", "offset-commit"):
            yield from self._check_group_event(node, line)
        elif line.event == "high-watermark" and (node, line.key) in self._waiting:
            key = line.key or ""
            role = self._roles.find(node, key)  # this event may end the term, but the role is still that of the term
            if role is not None:
                yield from self._check_commits(node, key, role, line.time)

    # -- loading -------------------------------------------------------------------------------------------------

    def _check_loaded(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        key, epoch = line.key or "", -1 if line.epoch is None else line.epoch
        role = self._roles.find(node, key)
        self._loaded_in[node, key] = line.incarnation, epoch
        if role is None or not role.leads or role.epoch != epoch or self._nodes[node].damaged:
            return
        last: dict[object, Record] = {}
        for record in self._read_journal(node, key, role).between(0, role.term_start).values():
            if record is not None:
                last[_to_key(record)] = record
        generations, offsets = _fold(list(last.values()))
        for group, generation in generations.items():
            self._in_force.setdefault(group, {}).setdefault(generation, epoch)
        self.checks += 1
        found = (line.detail or {}).get("fingerprint")
        if found is not None and found != compute_fingerprint(generations, offsets):
            claim = (
                f"{node} coordinates the groups of {key} in leader epoch {epoch}, and did not load what its log has "
                f"below {role.term_start}: {len(generations)} groups with {len(offsets)} offsets."
            )
            yield InvariantViolation(self.name, claim, node, key, epoch=epoch)

    # -- accepting and storing -----------------------------------------------------------------------------------

    def _check_group_event(self, node: str, line: EventLine) -> Iterator[InvariantViolation]:
        group = line.key or ""
        if line.event == "group-forgotten":
            self._in_force.pop(group, None)  # its generations may start again
            return
        key = self._find_partition(group)
        role = None if key is None else self._roles.find(node, key)
        if key is None or role is None or not role.leads or line.epoch is None:
            return
        if line.event == "group-generation":
            self._in_force.setdefault(group, {}).setdefault(line.epoch, role.epoch)
            return
        if self._loaded_in.get((node, key)) != (line.incarnation, role.epoch):
            claim = f"{node} accepted a commit of the group {group} before it had loaded the groups of {key}."
            yield InvariantViolation(self.name, claim, node, key, epoch=role.epoch)
            return
        last, waiting = self._waiting.setdefault((node, key), (line.time, []))
        waiting.append((line, role.epoch))
        if line.time == last or line.time >= last + CHECK_INTERVAL:
            yield from self._check_commits(node, key, role, line.time)

    def _check_commits(self, node: str, key: str, role: ObservedRole, time: float) -> Iterator[InvariantViolation]:
        """Checks the commits accepted since the last check."""
        _, waiting = self._waiting.get((node, key), (time, []))
        self._waiting[node, key] = time, []
        accepted = [line for line, epoch in waiting if epoch == role.epoch and role.leads]
        if not accepted:
            return
        self.checks += len(accepted)
        journal, highest = self._read_journal(node, key, role), -1
        for line in accepted:
            for partition, offset in (line.detail or {}).get("offsets", {}).items():
                position = yield from self._check_commit(node, line, key, role, journal, partition, offset)
                highest = max(highest, position)
        lacking = self._members.find_lacking(
            key, role.topic_zxid, role.epoch, role.committed_isr | role.proposed_isr, highest + 1
        )
        for member, held in lacking or ():
            claim = (
                f"{node} had accepted commits of the group {accepted[-1].key}, up to {highest} of {key}, when "
                f"{member}, a member of the in-sync set, {held}."
            )
            yield InvariantViolation(self.name, claim, member, key, position=highest)

    def _check_commit(
        self,
        node: str,
        line: EventLine,
        key: str,
        role: ObservedRole,
        journal: GroupJournal,
        partition: str,
        offset: int,
    ) -> Generator[InvariantViolation, None, int]:
        """Checks an accepted commit; returns its position in the log, or -1 if that is unknown."""
        group = line.key or ""
        commits = journal.commits.get((group, partition, offset), ())
        # Later records of the same offset may be of further commits that are not accepted yet, so take the first.
        position = next((at for at in commits if at >= role.term_start), None)
        what = f"the commit of {offset} for {partition} by the group {group}"
        if position is None:
            if journal.complete and not journal.rewrites:  # otherwise compaction may have removed it
                yield InvariantViolation(
                    self.name, f"{node} accepted {what}, which is not in its log {key}.", node, key
                )
            return -1
        if position >= journal.seen_below:  # the accepted record may be in the gap
            return -1
        if group in self._drafts or line.epoch is None or line.epoch < 0:
            return position
        stored = self._find_generation_before(journal, position, group, role.epoch)
        if stored is not None and stored > line.epoch:
            claim = f"{node} accepted {what}, in generation {line.epoch}, when {stored} was stored."
            yield InvariantViolation(self.name, claim, node, key, position=position)
        return position

    def _find_generation_before(self, journal: GroupJournal, position: int, group: str, epoch: int) -> int | None:
        """Returns the group's last generation in force that the log has before this position."""
        known = self._in_force.get(group, {})
        for at, generation in reversed(journal.generations.get(group, ())):
            if at < position:
                if generation is None:
                    return None
                if known.get(generation, epoch + 1) <= epoch:
                    return generation
        return None

    # -- look-ups ------------------------------------------------------------------------------------------------

    def _find_partition(self, group: str) -> str | None:
        """Returns the group's partition of the offsets topic; None if there is no offsets topic."""
        if not self._partitions:
            try:
                assigned, _ = self._inspection.read(TopicAssignment, paths.topic(OFFSETS_TOPIC))
            except (NoNodeError, ValueError):
                return None
            self._partitions = len(assigned.partitions)
        return f"{OFFSETS_TOPIC}-{find_partition(group, self._partitions)}"

    def _read_journal(self, node: str, key: str, role: ObservedRole) -> GroupJournal:
        """Returns the up-to-date journal of the node's log."""
        if (node, key) not in self._journals:
            self._journals[node, key] = GroupJournal(self._nodes[node].disk, f"{self._inspection.data}/{key}")
        journal = self._journals[node, key]
        journal.read_new(role)
        return journal


def _to_key(record: Record) -> object:
    return record.group if isinstance(record, GroupRecord) else (record.group, record.topic, record.partition)


def _fold(last: list[Record]) -> tuple[dict[str, int], dict[tuple[str, str, int], int]]:
    """Returns the groups' generations (0: none stored) and the committed offsets, from each key's last record."""
    offsets = {
        (record.group, record.topic, record.partition): record.value.offset
        for record in last
        if isinstance(record, OffsetRecord) and record.value is not None
    }
    generations = {group: 0 for group, *_ in offsets}
    generations |= {
        record.group: record.value.generation for record in last if isinstance(record, GroupRecord) and record.value
    }
    return generations, offsets
