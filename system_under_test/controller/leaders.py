"""Who leads a partition: pure functions from what is written and who lives to what must be written next.

A member of the ISR or of ``elr`` counts only in the life in which it was admitted: registered under another czxid, it
has failed, whether the controller saw it or not (KIP-903). A member that came back after a clean stop still has all it
had; one that came back otherwise may have lost what its disk had not taken, and is elected only when all members came
back that way and its log is the longest (KIP-966). Those that turn out to have the same log stay eligible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.system_under_test.replication.insync import Members
from assay.system_under_test.zookeeper.znodes import NO_LEADER, PartitionState


@dataclass(frozen=True)
class BrokerLife:
    """A registration as the controller read it; the pair (id, czxid) is one life of a broker."""

    broker_id: int
    host: str
    port: int
    czxid: int
    clean_lives: tuple[int, ...] = ()
    """Former lives of which it still has everything; none after an unclean start."""


@dataclass(frozen=True)
class Policy:
    """What the topic allows."""

    min_insync: int
    unclean_election: bool


@dataclass(frozen=True)
class AskLogEnds:
    """No decision without the (last epoch, log end) of these brokers, who all came back uncleanly."""

    members: tuple[int, ...]


Brokers = Mapping[int, BrokerLife]


def first_state(assignment: Sequence[int], brokers: Brokers, controller_epoch: int) -> PartitionState | None:
    """Of a new partition: all live replicas are in sync, since there is nothing yet; None when none is alive."""
    live = [member for member in assignment if member in brokers]
    if not live:
        return None
    members = Members(tuple(live), {member: brokers[member].czxid for member in live})
    return members.state(controller_epoch, live[0], 0)


def led(state: PartitionState, brokers: Brokers) -> bool:
    """Does its leader live, in the life in which it was admitted?"""
    leader = state.leader
    return leader in brokers and Members.of(state).epochs.get(leader) == brokers[leader].czxid


def next_state(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: Policy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """What follows from who is alive; None when the state is right as it is."""
    members = Members.of(state)

    def same_life(member: int) -> bool:
        return member in brokers and members.epochs.get(member) == brokers[member].czxid

    def came_back_clean(member: int) -> bool:
        """It still has everything of the life in which it was admitted. That the last one ended cleanly is not enough:
        a life that began uncleanly, was never admitted again, and then stopped cleanly has not got back what was lost.
        """
        return member in brokers and members.epochs.get(member) in brokers[member].clean_lives

    if led(state, brokers):
        failed = [member for member in state.isr if not same_life(member)]
        if not failed:
            return None
        left = members.without(failed, policy.min_insync)
        return left.state(controller_epoch, state.leader, state.leader_epoch + 1)

    for group in (members.isr, members.elr):
        for alive in (same_life, came_back_clean):
            for candidate in assignment:
                if candidate in group and alive(candidate):
                    stay = [m for m in members.isr if m == candidate or (group is members.isr and same_life(m))]
                    return _led_by(candidate, stay, members, brokers, policy).state(
                        controller_epoch, candidate, state.leader_epoch + 1
                    )
    everyone = (*members.isr, *members.elr)
    if all(member in brokers for member in everyone):
        return AskLogEnds(everyone)
    live = [member for member in assignment if member in brokers]
    if policy.unclean_election and live:
        return alone(live[0], brokers, state, controller_epoch)
    if state.leader != NO_LEADER:
        return replace_leader(state, NO_LEADER, controller_epoch)
    return None


def longest(ends: Mapping[int, tuple[int, int]], assignment: Sequence[int]) -> int:
    """The member with the greatest (last epoch, log end); the first in the assignment among equals."""
    order = {member: position for position, member in enumerate(assignment)}
    return max(ends, key=lambda member: (ends[member], -order.get(member, len(order))))


def by_length(
    ends: Mapping[int, tuple[int, int]],
    assignment: Sequence[int],
    brokers: Brokers,
    state: PartitionState,
    policy: Policy,
    controller_epoch: int,
) -> PartitionState:
    """Led by the member with the longest log. Those whose logs are the same are eligible as long as it is too few
    alone: they have all that it has, and nothing is acknowledged until then.
    """
    leader = longest(ends, assignment)
    if policy.min_insync <= 1:
        return alone(leader, brokers, state, controller_epoch)
    same = tuple(member for member in ends if member != leader and ends[member] == ends[leader])
    epochs = {member: brokers[member].czxid for member in (leader, *same)}
    return Members((leader,), epochs, same).state(controller_epoch, leader, state.leader_epoch + 1)


def alone(leader: int, brokers: Brokers, state: PartitionState, controller_epoch: int) -> PartitionState:
    """This leader alone: the others' logs are not known to hold what it holds."""
    members = Members((leader,), {leader: brokers[leader].czxid})
    return members.state(controller_epoch, leader, state.leader_epoch + 1)


def replace_leader(state: PartitionState, leader: int, controller_epoch: int) -> PartitionState:
    return Members.of(state).state(controller_epoch, leader, state.leader_epoch + 1)


def without_damaged(state: PartitionState, damaged: int, controller_epoch: int) -> PartitionState:
    """The same, under a new epoch, in which no one counts on this replica; what it led no one leads.

    Where no one is left in the ISR, those of ``elr`` are: each has all that was acknowledged. Where no one is left at
    all, the damaged one stays.
    """
    members = Members.of(state)
    left = _without(members, [damaged])
    if left.isr or left.elr:
        members = left if left.isr else Members(left.elr, left.epochs)
    leader = NO_LEADER if damaged in (state.leader, *members.isr) else state.leader
    return members.state(controller_epoch, leader, state.leader_epoch + 1)


def renewed(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """The same, among these replicas, under a new epoch, so that the leader learns of an assignment that has changed;
    None without a leader.
    """
    members = Members.of(state)
    if state.leader not in replicas or not _in_sync([state.leader], members, brokers):
        return None
    left = [member for member in (*members.isr, *members.elr) if member not in replicas]
    return _without(members, left).state(controller_epoch, state.leader, state.leader_epoch + 1)


def _without(members: Members, left: Sequence[int]) -> Members:
    isr, elr = (tuple(m for m in group if m not in left) for group in (members.isr, members.elr))
    return Members(isr, {member: epoch for member, epoch in members.epochs.items() if member not in left}, elr)


def preferred(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """The first of the assignment takes over; None when it leads already, or is not in sync."""
    members, first = Members.of(state), assignment[0]
    if state.leader == first or not _in_sync([first], members, brokers):
        return None
    return members.state(controller_epoch, first, state.leader_epoch + 1)


def moved(
    state: PartitionState, target: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """Only these replicas, led by one of them; None until all of them, and the leader, are alive and in sync.

    Each that is left out may go, also out of ``elr``: each of those that stay has everything that is acknowledged.
    """
    members = Members.of(state)
    if not _in_sync([*target, state.leader], members, brokers):
        return None
    leader = state.leader if state.leader in target else target[0]
    stay = tuple(member for member in members.isr if member in target)
    epochs = {member: members.epochs[member] for member in stay}
    return Members(stay, epochs).state(controller_epoch, leader, state.leader_epoch + 1)


def _in_sync(replicas: Sequence[int], members: Members, brokers: Brokers) -> bool:
    """Are they all in sync, and alive in the life in which they were admitted?"""
    return all(r in members.isr and r in brokers and members.epochs.get(r) == brokers[r].czxid for r in replicas)


def _led_by(candidate: int, stay: Sequence[int], members: Members, brokers: Brokers, policy: Policy) -> Members:
    left = members.without([m for m in members.isr if m not in stay], policy.min_insync)
    if candidate not in left.isr:
        return left.with_member(candidate, brokers[candidate].czxid, policy.min_insync)
    return replace(left, epochs={**left.epochs, candidate: brokers[candidate].czxid})
