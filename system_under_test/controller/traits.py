"""The behavior of a controller or registration that a historic defect replaces.

See ``assay.system_under_test.defects``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.system_under_test.controller import leaders
from assay.system_under_test.controller.leaders import AskLogEnds, Brokers, Policy
from assay.system_under_test.controller.partitions import Decide
from assay.system_under_test.controller.registration import Recognises, by_address, by_session
from assay.system_under_test.controller.term import Fence, Term
from assay.system_under_test.replication.insync import Members
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper.znodes import PartitionState


@dataclass(frozen=True)
class ControllerTraits:
    """The rules that defects change.

    They cover elections, writes, resignation after a replacement, the recognition of one's own registration, and its
    renewal after a deletion.
    """

    decide: Decide = leaders.next_state
    fence: Callable[[ZooKeeper, Term], Fence] = Fence
    resigns: bool = True
    recognises: Recognises = by_session
    stays_registered: bool = True


CORRECT = ControllerTraits()


def controller_traits(defects: Collection[str]) -> ControllerTraits:
    """Returns the traits of a build with these defects."""
    if "unclean-election" in defects:
        return ControllerTraits(decide=any_living)
    if "zombie-controller" in defects:
        return ControllerTraits(fence=NoFence, resigns=False)
    if "last-replica" in defects:
        return ControllerTraits(decide=as_if_clean)
    if "wiped-replica" in defects:
        return ControllerTraits(decide=in_any_life)
    if "lost-registration" in defects:
        return ControllerTraits(recognises=by_address, stays_registered=False)
    return CORRECT


def any_living(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Elects the first live replica if no in-sync one is left, even if it has missed records."""
    return leaders.next_state(state, assignment, brokers, Policy(policy.min_insync, True), controller_epoch)


def as_if_clean(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Trusts every returning replica to have its whole log, although it may have lost records that were not on disk."""
    lives = tuple(Members.of(state).epochs.values())
    trusted = {number: replace(broker, clean_lives=lives) for number, broker in brokers.items()}
    return leaders.next_state(state, assignment, trusted, policy, controller_epoch)


def in_any_life(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Counts a member as in sync under any registration, even if it returned with an empty disk."""
    members = Members.of(state)
    present = {m: brokers[m].czxid if m in brokers else epoch for m, epoch in members.epochs.items()}
    renamed = replace(members, epochs=present).state(state.controller_epoch, state.leader, state.leader_epoch)
    return leaders.next_state(renamed, assignment, brokers, policy, controller_epoch)


class NoFence(Fence):
    """Writes without checking who is controller."""

    async def write(self, operations: Sequence[Any]) -> list[Any]:
        return await self._zookeeper.multi(operations)
