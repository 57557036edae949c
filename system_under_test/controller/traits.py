"""Traits of the controller and the registration: the functions and flags that a historic defect replaces.

See ``assay.system_under_test.defects``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.leaders import AskLogEnds, Brokers, ElectionPolicy
from assay.system_under_test.controller.partitions import Decide
from assay.system_under_test.controller.registration import RegistrationMatcher, matches_address, matches_session
from assay.system_under_test.controller.term import ControllerTerm, FencedWriter
from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper.znodes import PartitionState


@dataclass(frozen=True)
class ControllerTraits:
    """The rules that defects change. The defaults are correct."""

    decide: Decide = leaders.decide_next_state
    """Decides the next state of a partition."""
    writer: Callable[[ZooKeeper, ControllerTerm], FencedWriter] = FencedWriter
    """Makes the writer of a term."""
    resigns: bool = True
    """Whether a controller ends its term when it is replaced."""
    recognises_registration: RegistrationMatcher = matches_session
    """Decides whether a registration is this process's own."""
    stays_registered: bool = True
    """Whether a broker registers again after its registration was deleted."""


CORRECT = ControllerTraits()


def select_controller_traits(defects: Collection[str]) -> ControllerTraits:
    """Returns the traits of a build with these defects."""
    if "unclean-election" in defects:
        return ControllerTraits(decide=elect_any_live_replica)
    if "zombie-controller" in defects:
        return ControllerTraits(writer=UnfencedWriter, resigns=False)
    if "last-replica" in defects:
        return ControllerTraits(decide=elect_as_if_clean)
    if "wiped-replica" in defects:
        return ControllerTraits(decide=elect_under_any_registration)
    if "lost-registration" in defects:
        return ControllerTraits(recognises_registration=matches_address, stays_registered=False)
    return CORRECT


def elect_any_live_replica(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: ElectionPolicy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Elects the first live replica if no in-sync one is left, even if it has missed records."""
    return leaders.decide_next_state(
        state, assignment, brokers, ElectionPolicy(policy.min_insync, True), controller_epoch
    )


def elect_as_if_clean(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: ElectionPolicy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Trusts every restarted replica to have its whole log, although it may have lost records that were not on disk."""
    registrations = tuple(InSyncMembers.from_state(state).registrations.values())
    trusted = {number: replace(broker, clean_registrations=registrations) for number, broker in brokers.items()}
    return leaders.decide_next_state(state, assignment, trusted, policy, controller_epoch)


def elect_under_any_registration(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: ElectionPolicy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Counts a member as in sync under any registration, even if it has restarted with an empty disk."""
    members = InSyncMembers.from_state(state)
    present = {m: brokers[m].czxid if m in brokers else epoch for m, epoch in members.registrations.items()}
    renamed = replace(members, registrations=present).to_state(state.controller_epoch, state.leader, state.leader_epoch)
    return leaders.decide_next_state(renamed, assignment, brokers, policy, controller_epoch)


class UnfencedWriter(FencedWriter):
    """A writer that does not check whether its term is over."""

    async def write(self, operations: Sequence[Any]) -> list[Any]:
        return await self._zookeeper.multi(operations)
