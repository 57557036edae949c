"""What a controller, or a registration, does differently when a historic defect is built in; see
``assay.system_under_test.defects``.
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
    """How it elects, how it writes, whether it gives up when it has been replaced, whose registration is mine, and
    whether a registration that was deleted is made again.
    """

    decide: Decide = leaders.next_state
    fence: Callable[[ZooKeeper, Term], Fence] = Fence
    resigns: bool = True
    recognises: Recognises = by_session
    stays_registered: bool = True


CORRECT = ControllerTraits()


def controller_traits(defects: Collection[str]) -> ControllerTraits:
    """Of the build with these defects."""
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
    """The first living replica leads when none in sync is left, even if it has missed records."""
    return leaders.next_state(state, assignment, brokers, Policy(policy.min_insync, True), controller_epoch)


def as_if_clean(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Each that comes back has all that it had, although its disk may have lost what was not yet on it."""
    lives = tuple(Members.of(state).epochs.values())
    trusted = {number: replace(broker, clean_lives=lives) for number, broker in brokers.items()}
    return leaders.next_state(state, assignment, trusted, policy, controller_epoch)


def in_any_life(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Who was let into the in-sync set is in it, also when it has come back since, with a disk that has nothing."""
    members = Members.of(state)
    present = {m: brokers[m].czxid if m in brokers else epoch for m, epoch in members.epochs.items()}
    renamed = replace(members, epochs=present).state(state.controller_epoch, state.leader, state.leader_epoch)
    return leaders.next_state(renamed, assignment, brokers, policy, controller_epoch)


class NoFence(Fence):
    """Writes without a look at who is controller."""

    async def write(self, operations: Sequence[Any]) -> list[Any]:
        return await self._zookeeper.multi(operations)
