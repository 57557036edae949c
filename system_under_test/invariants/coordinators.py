"""A coordinator goes by the fold of its partition of the offsets topic: by the last record of each key.

- What it has loaded when it is ready is the fold of what former leaders left in the log, up to where its own term
  begins: groups, their generations, what they committed.
- It accepts a commit only once it is ready, and in the generation that is stored. By the record of the commit, in the
  log, no later generation of the group is, unless that was never in force: an election whose outcome is unknown leaves
  a record, and the group goes on in the generation before. One that this coordinator has announced, or loaded, was.
  Where compaction may have taken the record before it was seen nothing is said.
- An accepted commit is in its log, and in that of each member of the in-sync set (as for ``high-watermark``). Commits
  are looked at ten times a second, and when the term is over.

What it answers to a client that asks for offsets is in no log; clients find that out (``stale-read``). Committed
offsets may go back: a client may seek, an administrator may reset them, and they expire. Members of the KIP-848 draft
commit by epochs of their own, so that their groups' generations are left out.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoNodeError

from assay.system_under_test.config import OFFSETS_TOPIC
from assay.system_under_test.groups.records import GroupRecord, OffsetRecord, UnknownRecord, fingerprint, parse
from assay.system_under_test.groups.terms import partition_of
from assay.system_under_test.inspection import Inspection
from assay.system_under_test.invariants.copies import File, Files
from assay.system_under_test.invariants.invariant import Broken, Line
from assay.system_under_test.invariants.roles import Role, Roles
from assay.system_under_test.invariants.watermarks import Members
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import RecordError
from assay.system_under_test.zookeeper import paths
from assay.system_under_test.zookeeper.znodes import TopicAssignment

Record = GroupRecord | OffsetRecord
DRAFT = "draft-"
LATEST = 1 << 62
APART = 0.1
"""Seconds between two looks at commits: there are many, and a look at one costs as much as at all since the last."""


class Journal(Files[Record | None]):
    """A partition of the offsets topic on one node, with an index of what is asked of it. Positions rise in each.

    A leader adds to its log and cuts nothing, but compaction takes records of which there are later ones. So what has
    been seen of a term is kept until the next; and what was taken before it was seen has left a gap, since a leader
    gives every position to one record. Records of kinds that no one asks for are None.
    """

    def __init__(self, disk: Any, folder: str) -> None:
        super().__init__(disk, folder, self._take)
        self._fresh: list[tuple[int, Record | None]] = []
        self._records: dict[int, Record | None] = {}
        self._indexed: int | None = None
        """The changes of which the index knows."""
        self._term: tuple[int, int] | None = None
        self.whole = 0
        """Every record of the term below this position has been seen."""
        self.generations: dict[str, list[tuple[int, int | None]]] = {}
        """Of a group: at which positions which generation was stored; None: that the group is forgotten."""
        self.commits: dict[tuple[str, str, int], list[int]] = {}
        """Of a group, a partition and an offset: at which positions that was committed."""

    def look(self, role: Role) -> None:
        """Reads what is new in the log of a leader."""
        self.refresh()
        fresh, self._fresh = dict(self._fresh), []
        term = role.epoch, role.start
        if self.changes != self._indexed:
            seen = self._records if self._term == term else {}
            kept = {position: record for position, record in seen.items() if position >= role.start}
            fresh = dict(sorted((kept | self.between(0, LATEST)).items()))
            self._indexed, self._records, self.generations, self.commits = self.changes, {}, {}, {}
        if self._term != term:
            self._term, self.whole = term, role.start
        self._records |= fresh
        while self.whole in self._records:
            self.whole += 1
        for position, record in fresh.items():
            if isinstance(record, GroupRecord):
                generation = None if record.value is None else record.value.generation
                self.generations.setdefault(record.group, []).append((position, generation))
            elif record is not None and record.value is not None:
                what = record.group, f"{record.topic}-{record.partition}", record.value.offset
                self.commits.setdefault(what, []).append(position)

    @property
    def complete(self) -> bool:
        """Has every record of the term been seen?"""
        return self.whole > max(self._records, default=-1)

    def _take(self, file: File[Record | None], data: bytes) -> None:
        """Goes over the whole entries of what follows."""
        try:
            for position, size, _ in message_set.scan(data):
                for message in message_set.messages(data[position : position + size]):
                    record = None
                    with suppress(UnknownRecord):
                        record = parse(message.key, message.value)
                    file.records[message.offset] = record
                    self._fresh.append((message.offset, record))
                file.size += size
        except RecordError:
            file.broken = True


class Coordinators:
    """By ``groups-loaded``, ``group-generation`` and ``offset-commit``. ``nodes``: the brokers', by name."""

    name = "coordinator"

    def __init__(self, roles: Roles, members: Members, inspection: Inspection, nodes: Mapping[str, Any]) -> None:
        self.looks = 0
        self._roles = roles
        self._members = members
        self._inspection = inspection
        self._nodes = nodes
        self._journals: dict[tuple[str, str], Journal] = {}
        self._ready: dict[tuple[str, str], tuple[int, int]] = {}
        """Of a node and a partition: the life and the epoch in which it was ready last."""
        self._in_force: dict[str, dict[int, int]] = {}
        """Of a group: each generation that was in force, with the first leader epoch in which that was so."""
        self._waiting: dict[tuple[str, str], tuple[float, list[tuple[Line, int]]]] = {}
        """Of a node and a partition: when commits were looked at last, and those since, each with the leader epoch."""
        self._drafts: set[str] = set()
        self._partitions = 0
        """Of the offsets topic, which never change; 0: not known."""

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        if line.event.startswith(DRAFT) and line.key is not None:
            self._drafts.add(line.key)
        elif line.event == "groups-loaded":
            yield from self._loaded(node, line)
        elif line.event in ("group-generation", "group-forgotten", "offset-commit"):
            yield from self._of_group(node, line)
        elif line.event == "high-watermark" and (node, line.key) in self._waiting:
            key = line.key or ""
            role = self._roles.of(node, key)  # what ends a term is said after this
            if role is not None:
                yield from self._look(node, key, role, line.time)

    # -- what was loaded -----------------------------------------------------------------------------------------

    def _loaded(self, node: str, line: Line) -> Iterator[Broken]:
        key, epoch = line.key or "", -1 if line.epoch is None else line.epoch
        role = self._roles.of(node, key)
        self._ready[node, key] = line.incarnation, epoch
        if role is None or not role.leads or role.epoch != epoch or self._nodes[node].damaged:
            return
        last: dict[object, Record] = {}
        for record in self._journal(node, key, role).between(0, role.start).values():
            if record is not None:
                last[_key(record)] = record
        generations, offsets = _fold(list(last.values()))
        for group, generation in generations.items():
            self._in_force.setdefault(group, {}).setdefault(generation, epoch)
        self.looks += 1
        found = (line.detail or {}).get("fingerprint")
        if found is not None and found != fingerprint(generations, offsets):
            claim = (
                f"{node} coordinates the groups of {key} in leader epoch {epoch}, and did not load what its log has "
                f"below {role.start}: {len(generations)} groups with {len(offsets)} offsets."
            )
            yield Broken(self.name, claim, node, key, epoch=epoch)

    # -- what is accepted ----------------------------------------------------------------------------------------

    def _of_group(self, node: str, line: Line) -> Iterator[Broken]:
        group = line.key or ""
        if line.event == "group-forgotten":
            self._in_force.pop(group, None)  # its generations may begin again
            return
        key = self._partition(group)
        role = None if key is None else self._roles.of(node, key)
        if key is None or role is None or not role.leads or line.epoch is None:
            return
        if line.event == "group-generation":
            self._in_force.setdefault(group, {}).setdefault(line.epoch, role.epoch)
            return
        if self._ready.get((node, key)) != (line.incarnation, role.epoch):
            claim = f"{node} accepted a commit of the group {group} before it had loaded the groups of {key}."
            yield Broken(self.name, claim, node, key, epoch=role.epoch)
            return
        last, waiting = self._waiting.setdefault((node, key), (line.time, []))
        waiting.append((line, role.epoch))
        if line.time == last or line.time >= last + APART:
            yield from self._look(node, key, role, line.time)

    def _look(self, node: str, key: str, role: Role, time: float) -> Iterator[Broken]:
        """Looks at the commits that were accepted since the last look."""
        _, waiting = self._waiting.get((node, key), (time, []))
        self._waiting[node, key] = time, []
        accepted = [line for line, epoch in waiting if epoch == role.epoch and role.leads]
        if not accepted:
            return
        self.looks += len(accepted)
        journal, reached = self._journal(node, key, role), -1
        for line in accepted:
            for place, offset in (line.detail or {}).get("offsets", {}).items():
                position = yield from self._accepted(node, line, key, role, journal, place, offset)
                reached = max(reached, position)
        lacking = self._members.lacking(key, role.topic_zxid, role.epoch, role.committed | role.proposed, reached + 1)
        for member, has in lacking or ():
            claim = (
                f"{node} had accepted commits of the group {accepted[-1].key}, up to {reached} of {key}, when "
                f"{member}, a member of the in-sync set, {has}."
            )
            yield Broken(self.name, claim, member, key, position=reached)

    def _accepted(
        self, node: str, line: Line, key: str, role: Role, journal: Journal, place: str, offset: int
    ) -> Generator[Broken, None, int]:
        """Returns where in the log it is; -1 where that is not known."""
        group = line.key or ""
        commits = journal.commits.get((group, place, offset), ())
        # A client that commits it once more may have brought others, which are not accepted yet.
        position = next((at for at in commits if at >= role.start), None)
        what = f"the commit of {offset} for {place} by the group {group}"
        if position is None:
            if journal.complete and not journal.changes:  # else compaction may have taken it, as there was a later one
                yield Broken(self.name, f"{node} accepted {what}, which is not in its log {key}.", node, key)
            return -1
        if position >= journal.whole:  # the one that was accepted may be in the gap
            return -1
        if group in self._drafts or line.epoch is None or line.epoch < 0:
            return position
        stored = self._stored_at(journal, position, group, role.epoch)
        if stored is not None and stored > line.epoch:
            claim = f"{node} accepted {what}, in generation {line.epoch}, when {stored} was stored."
            yield Broken(self.name, claim, node, key, position=position)
        return position

    def _stored_at(self, journal: Journal, position: int, group: str, epoch: int) -> int | None:
        """The group's last generation that was in force and is in the log before this position."""
        known = self._in_force.get(group, {})
        for at, generation in reversed(journal.generations.get(group, ())):
            if at < position:
                if generation is None:
                    return None
                if known.get(generation, epoch + 1) <= epoch:
                    return generation
        return None

    # -- where things are ----------------------------------------------------------------------------------------

    def _partition(self, group: str) -> str | None:
        """The partition of the offsets topic that the group belongs to; None: there is no such topic."""
        if not self._partitions:
            try:
                assigned, _ = self._inspection.read(TopicAssignment, paths.topic(OFFSETS_TOPIC))
            except (NoNodeError, ValueError):
                return None
            self._partitions = len(assigned.partitions)
        return f"{OFFSETS_TOPIC}-{partition_of(group, self._partitions)}"

    def _journal(self, node: str, key: str, role: Role) -> Journal:
        """What is in the node's log."""
        if (node, key) not in self._journals:
            self._journals[node, key] = Journal(self._nodes[node].disk, f"{self._inspection.data}/{key}")
        journal = self._journals[node, key]
        journal.look(role)
        return journal


def _key(record: Record) -> object:
    return record.group if isinstance(record, GroupRecord) else (record.group, record.topic, record.partition)


def _fold(last: list[Record]) -> tuple[dict[str, int], dict[tuple[str, str, int], int]]:
    """Groups with their generations (0: none is stored), and committed offsets, by the last record of each key."""
    offsets = {
        (one.group, one.topic, one.partition): one.value.offset
        for one in last
        if isinstance(one, OffsetRecord) and one.value is not None
    }
    generations = {group: 0 for group, *_ in offsets}
    generations |= {one.group: one.value.generation for one in last if isinstance(one, GroupRecord) and one.value}
    return generations, offsets
