"""The in-sync set during one leader's term: the set in ZooKeeper, and the proposed set of a write in flight.

While a write is in flight, or its outcome is unknown, either set may be in ZooKeeper. So the high watermark waits for
the union of the old and the proposed set, and min.insync.replicas counts their intersection. Every acknowledged record
is then on all members of both sets, so it does not matter which set the controller reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay.system_under_test.zookeeper.znodes import PartitionState


@dataclass(frozen=True)
class InSyncMembers:
    """An in-sync set with the eligible leader replicas (ELR). The leader is always a member of ``isr``."""

    isr: tuple[int, ...]
    registrations: Mapping[int, int]
    """The registration (czxid) under which each member of ``isr`` and ``elr`` was admitted."""
    elr: tuple[int, ...] = ()

    @staticmethod
    def from_state(state: PartitionState) -> InSyncMembers:
        registrations = {int(member): epoch for member, epoch in state.isr_epochs.items()}
        return InSyncMembers(tuple(state.isr), registrations, tuple(state.elr))

    def without(self, leaving: Sequence[int], min_insync: int) -> InSyncMembers:
        """Removes members. If fewer than ``min_insync`` stay, the removed ones become eligible leaders (KIP-966).

        Eligible replicas have every acknowledged record, because the high watermark does not advance until the set is
        large enough again.
        """
        isr = tuple(member for member in self.isr if member not in leaving)
        elr: tuple[int, ...] = ()
        if len(isr) < min_insync:
            elr = (*self.elr, *(member for member in self.isr if member in leaving))
        return self._make(isr, elr)

    def with_member(self, joining: int, registration: int, min_insync: int) -> InSyncMembers:
        """Adds a member under its registration (czxid). Empties the ELR if there are ``min_insync`` members."""
        isr = (*(member for member in self.isr if member != joining), joining)
        elr = tuple(m for m in self.elr if m != joining) if len(isr) < min_insync else ()
        return replace(self, registrations={**self.registrations, joining: registration})._make(isr, elr)

    def _make(self, isr: tuple[int, ...], elr: tuple[int, ...]) -> InSyncMembers:
        members = {*isr, *elr}
        return InSyncMembers(isr, {m: e for m, e in sorted(self.registrations.items()) if m in members}, elr)

    def to_state(self, controller_epoch: int, leader: int, leader_epoch: int) -> PartitionState:
        return PartitionState(
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(self.isr),
            isr_epochs={str(member): epoch for member, epoch in sorted(self.registrations.items())},
            elr=list(self.elr),
        )


@dataclass
class InSyncSet:
    """The in-sync set during a term, with the write in flight."""

    committed: InSyncMembers
    zk_version: int
    proposed: InSyncMembers | None = None
    superseded: bool = False
    """Whether another process has changed the state. Nothing is acknowledged until the controller's next request."""
    maximal: frozenset[int] = field(init=False)
    """The union of the committed and the proposed set."""
    minimal: frozenset[int] = field(init=False)
    """Their intersection."""

    def __post_init__(self) -> None:
        self._refresh()

    def _refresh(self) -> None:
        committed = frozenset(self.committed.isr)
        proposed = committed if self.proposed is None else frozenset(self.proposed.isr)
        self.maximal = committed | proposed
        self.minimal = committed & proposed

    def propose(self, members: InSyncMembers) -> None:
        self.proposed = members
        self._refresh()

    def commit(self, members: InSyncMembers, zk_version: int) -> None:
        """Adopts the set that is known to be in ZooKeeper."""
        self.committed, self.zk_version, self.proposed = members, zk_version, None
        self._refresh()
