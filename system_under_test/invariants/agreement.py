"""Replicas hold the same record, of the same leader epoch, at each offset that they know to be committed.

A replica knows by its high watermark: by its checkpoint, its events, and what clients learn of. A record that is below
it is entered into a ledger, and what any replica has there, now or later, below its own high watermark, must be the
same. Of compacted logs some offsets are gone. There are two ledgers for a partition:

- One for all replicas, since what is committed stays, for as long as nothing may have been lost rightly: to a loss of
  power, a wipe or a rollback of any node, as no log promises more than that of those who acknowledged enough keep it;
  to an unclean election, which the topic may grant. A follower of a later leader then cuts what it knew to be
  committed, and one that has not heard of that leader yet still has it.
- After that one for each leader epoch, for the replicas that have agreed in it: a follower's log is a prefix of its
  leader's from then on.

A replica is left out while its process is gone, stands still, or has not recovered its log in this life; while its log
is damaged; and for good where a fault wrote into its files. A log of a topic of the same name that was deleted is set
aside, and has a ledger of its own until then.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from assay.system_under_test.invariants.copies import Copy, Marks
from assay.system_under_test.invariants.invariant import Broken, Line
from assay.system_under_test.invariants.roles import Role, Roles

WHEN = ("high-watermark", "became-leader", "reconciled", "recovered", "isr-change")
"""Something new may be comparable: once a second for each partition in which records come, and at each change."""

Ledger = tuple[str, int | None, int | None]
"""Of a partition of a topic, and perhaps of one leader epoch."""


class _Entry(NamedTuple):
    """What was seen first at an offset."""

    crc: int
    epoch: int | None
    node: str


class Agreement:
    """``nodes``: the brokers', by name; ``data``: the folder of their logs."""

    name = "agreement"

    def __init__(self, roles: Roles, nodes: Mapping[str, Any], data: str) -> None:
        self.looks = 0
        self._roles = roles
        self._nodes = nodes
        self._marks = {name: Marks(node.disk, data) for name, node in nodes.items()}
        self._data = data
        self._copies: dict[tuple[str, str], Copy] = {}
        self._ledgers: dict[Ledger, dict[int, _Entry]] = {}
        self._entered: dict[tuple[Ledger, str], tuple[int, int]] = {}
        """Of a ledger and a node: how often the log had changed, and up to where it was compared."""
        self._pending: dict[str, tuple[str, Role]] = {}
        """Of a partition: the leader of whose log clients have learned something that is not entered yet."""
        self._terms: dict[tuple[str, int | None], int] = {}
        """Of a partition of a topic: the highest epoch in which anyone has led it."""
        self._newest: dict[str, int] = {}
        """Of a partition: the latest topic of that name that anyone has led it of."""

    def event(self, node: str, line: Line) -> Iterator[Broken]:
        if line.event == "became-leader" and line.key is not None and line.epoch is not None:
            place = line.key, line.topic_zxid
            self._terms[place] = max(line.epoch, self._terms.get(place, line.epoch))
            self._newest[line.key] = max(line.topic_zxid or 0, self._newest.get(line.key, 0))
        if line.event in WHEN and line.key is not None:
            yield from self._learned(line.key)
            for name, role in self._roles.all_of(line.key):
                yield from self._look(line.key, name, role)

    def acknowledged(self, key: str, position: int) -> None:
        """A client has learned that this offset of the partition is committed: its leader knew. The leader's log is
        looked at with the next event of the partition, before anyone else can lead. When it leads no more, only one of
        an earlier epoch, or of a topic that is no more, may still believe that it does, and that one did not know.
        """
        leaders = [
            (role.epoch, name, role)
            for name, role in self._roles.all_of(key)
            if role.leads
            and (role.topic_zxid or 0) >= self._newest.get(key, 0)
            and role.epoch >= self._terms.get((key, role.topic_zxid), role.epoch)
        ]
        if leaders:
            _, name, role = max(leaders, key=lambda one: one[:2])
            role.mark = max(role.mark, position + 1)
            self._pending[key] = name, role

    def _learned(self, key: str) -> Iterator[Broken]:
        """Enters what clients know to be committed, also of a leader that is gone by now."""
        name, role = self._pending.pop(key, (None, None))
        if name is not None and role is not None and not self._lost(key) and not role.damaged:
            yield from self._compare((key, role.topic_zxid, None), name, role)

    def _lost(self, key: str) -> bool:
        """May something that is committed be lost rightly?"""
        return key in self._roles.unclean or any(one.losses or one.damaged for one in self._nodes.values())

    def _look(self, key: str, name: str, role: Role) -> Iterator[Broken]:
        node = self._nodes.get(name)
        if node is None or not node.running or node.damaged or role.damaged:
            return
        if not self._lost(key):
            yield from self._compare((key, role.topic_zxid, None), name, role)
        elif role.agreed:
            yield from self._compare((key, role.topic_zxid, role.epoch), name, role)

    def _compare(self, which: Ledger, name: str, role: Role) -> Iterator[Broken]:
        key = which[0]
        mark = max(role.mark, self._marks[name].of(key))
        if not mark:
            return
        if (name, key) not in self._copies:
            self._copies[name, key] = Copy(self._nodes[name].disk, f"{self._data}/{key}")
        copy, ledger = self._copies[name, key], self._ledgers.setdefault(which, {})
        copy.refresh()
        changes, begin = self._entered.get((which, name), (0, 0))
        begin = max(begin if changes == copy.changes else 0, copy.start)
        end = begin
        for offset, crc in copy.between(begin, mark).items():
            self.looks += 1
            found = _Entry(crc, copy.epoch(offset), name)
            first = ledger.setdefault(offset, found)
            if first.crc != crc or (None not in (first.epoch, found.epoch) and first.epoch != found.epoch):
                yield self._broken(key, offset, first, found, mark)
                return
            end = max(end, offset + 1)
        self._entered[which, name] = copy.changes, end

    def _broken(self, key: str, offset: int, first: _Entry, found: _Entry, mark: int) -> Broken:
        claim = (
            f"{found.node} has a record with the CRC {found.crc:08x}, of leader epoch {found.epoch}, at offset "
            f"{offset} of {key}, below its high watermark {mark}; {first.node} had one with the CRC {first.crc:08x}, "
            f"of epoch {first.epoch}, below its own."
        )
        return Broken(self.name, claim, found.node, key, position=offset)
