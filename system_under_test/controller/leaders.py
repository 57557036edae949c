"""Leader election: pure functions from the stored state and the live brokers to the state to write next.

- A member of the ISR or of the ELR (eligible leader replicas) counts only under the registration with which it was
  admitted. A broker with another czxid was restarted, even if the controller did not see it fail (KIP-903).
- A member that has restarted after a clean stop still has its whole log.
- A member that has restarted after an unclean stop may have lost records that were not on disk. It is elected only if
  all members have restarted in this way, all are alive, and its log is the longest (KIP-966). Members with an equally
  long log stay eligible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.zookeeper.znodes import NO_LEADER, PartitionState


@dataclass(frozen=True)
class BrokerIncarnation:
    """A registration as the controller read it; the pair (id, czxid) identifies it."""

    broker_id: int
    host: str
    port: int
    czxid: int
    clean_registrations: tuple[int, ...] = ()
    """The czxids of earlier registrations whose records are all still on the broker's disk."""


@dataclass(frozen=True)
class ElectionPolicy:
    """The topic's settings for elections."""

    min_insync: int
    unclean_election: bool


@dataclass(frozen=True)
class AskLogEnds:
    """A decision that needs the (last epoch, log end) of these brokers. All have restarted after unclean stops."""

    members: tuple[int, ...]


Brokers = Mapping[int, BrokerIncarnation]


def make_first_state(assignment: Sequence[int], brokers: Brokers, controller_epoch: int) -> PartitionState | None:
    """Returns a new partition's state: all live replicas are in sync. None if no replica is alive."""
    live = [member for member in assignment if member in brokers]
    if not live:
        return None
    members = InSyncMembers(tuple(live), {member: brokers[member].czxid for member in live})
    return members.to_state(controller_epoch, live[0], 0)


def has_live_leader(state: PartitionState, brokers: Brokers) -> bool:
    """Returns whether the leader is alive under the registration with which it was admitted."""
    leader = state.leader
    return leader in brokers and InSyncMembers.from_state(state).registrations.get(leader) == brokers[leader].czxid


def decide_next_state(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, policy: ElectionPolicy, controller_epoch: int
) -> PartitionState | AskLogEnds | None:
    """Returns the next state, given the live brokers; None if the current state must stay."""
    members = InSyncMembers.from_state(state)

    def is_same_registration(member: int) -> bool:
        return member in brokers and members.registrations.get(member) == brokers[member].czxid

    def kept_all_records(member: int) -> bool:
        """Returns whether the member still has all records of the time at which it joined the in-sync set.

        A clean stop of its last process is not enough: an earlier process may have lost records in an unclean stop.
        """
        return member in brokers and members.registrations.get(member) in brokers[member].clean_registrations

    if has_live_leader(state, brokers):
        failed = [member for member in state.isr if not is_same_registration(member)]
        if not failed:
            return None
        # If fewer than min.insync.replicas stay, `without` moves the failed members to the ELR.
        remaining = members.without(failed, policy.min_insync)
        return remaining.to_state(controller_epoch, state.leader, state.leader_epoch + 1)

    for group in (members.isr, members.elr):
        for has_all_records in (is_same_registration, kept_all_records):
            for candidate in assignment:
                if candidate in group and has_all_records(candidate):
                    staying = [
                        m for m in members.isr if m == candidate or (group is members.isr and is_same_registration(m))
                    ]
                    return _elect(candidate, staying, members, brokers, policy).to_state(
                        controller_epoch, candidate, state.leader_epoch + 1
                    )
    everyone = (*members.isr, *members.elr)
    if all(member in brokers for member in everyone):
        return AskLogEnds(everyone)
    live = [member for member in assignment if member in brokers]
    if policy.unclean_election and live:
        return elect_alone(live[0], brokers, state, controller_epoch)
    if state.leader != NO_LEADER:
        return replace_leader(state, NO_LEADER, controller_epoch)
    return None


def find_longest(ends: Mapping[int, tuple[int, int]], assignment: Sequence[int]) -> int:
    """Returns the member with the greatest (last epoch, log end); the first in the assignment among equals."""
    order = {member: position for position, member in enumerate(assignment)}
    return max(ends, key=lambda member: (ends[member], -order.get(member, len(order))))


def elect_longest(
    ends: Mapping[int, tuple[int, int]],
    assignment: Sequence[int],
    brokers: Brokers,
    state: PartitionState,
    policy: ElectionPolicy,
    controller_epoch: int,
) -> PartitionState:
    """Elects the member with the longest log.

    If min.insync.replicas is more than one, members with an equal log stay eligible. They have all of the leader's
    records, and nothing is acknowledged until the in-sync set is large enough.
    """
    leader = find_longest(ends, assignment)
    if policy.min_insync <= 1:
        return elect_alone(leader, brokers, state, controller_epoch)
    same = tuple(member for member in ends if member != leader and ends[member] == ends[leader])
    registrations = {member: brokers[member].czxid for member in (leader, *same)}
    return InSyncMembers((leader,), registrations, same).to_state(controller_epoch, leader, state.leader_epoch + 1)


def elect_alone(leader: int, brokers: Brokers, state: PartitionState, controller_epoch: int) -> PartitionState:
    """Makes this leader the only member, because the other replicas' logs may lack its records."""
    members = InSyncMembers((leader,), {leader: brokers[leader].czxid})
    return members.to_state(controller_epoch, leader, state.leader_epoch + 1)


def replace_leader(state: PartitionState, leader: int, controller_epoch: int) -> PartitionState:
    return InSyncMembers.from_state(state).to_state(controller_epoch, leader, state.leader_epoch + 1)


def remove_damaged(state: PartitionState, damaged: int, controller_epoch: int) -> PartitionState:
    """Removes a damaged replica from ISR and ELR, under a new epoch. If it was the leader, the result has no leader.

    - If the ISR becomes empty, the members of the ELR replace it, because each has all acknowledged records.
    - If both become empty, the damaged replica stays, and the result has no leader.
    """
    members = InSyncMembers.from_state(state)
    remaining = _remove_members(members, [damaged])
    if remaining.isr or remaining.elr:
        members = remaining if remaining.isr else InSyncMembers(remaining.elr, remaining.registrations)
    leader = NO_LEADER if damaged in (state.leader, *members.isr) else state.leader
    return members.to_state(controller_epoch, leader, state.leader_epoch + 1)


def renew_epoch(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """Returns the state under a new epoch, restricted to these replicas; None without a live leader among them.

    The new epoch informs the leader of a changed assignment.
    """
    members = InSyncMembers.from_state(state)
    if state.leader not in replicas or not _are_in_sync([state.leader], members, brokers):
        return None
    removed = [member for member in (*members.isr, *members.elr) if member not in replicas]
    return _remove_members(members, removed).to_state(controller_epoch, state.leader, state.leader_epoch + 1)


def _remove_members(members: InSyncMembers, removed: Sequence[int]) -> InSyncMembers:
    isr, elr = (tuple(m for m in group if m not in removed) for group in (members.isr, members.elr))
    return InSyncMembers(
        isr, {member: czxid for member, czxid in members.registrations.items() if member not in removed}, elr
    )


def elect_first_replica(
    state: PartitionState, assignment: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """Returns the state with the assignment's first replica as leader; None if it leads already or is not in sync."""
    members, first = InSyncMembers.from_state(state), assignment[0]
    if state.leader == first or not _are_in_sync([first], members, brokers):
        return None
    return members.to_state(controller_epoch, first, state.leader_epoch + 1)


def restrict_to_target(
    state: PartitionState, target: Sequence[int], brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """Returns the state restricted to the target replicas of a reassignment, one of which leads.

    Returns None until all of them and the leader are in sync. All other replicas are removed from ISR and ELR, because
    each target replica has all acknowledged records.
    """
    members = InSyncMembers.from_state(state)
    if not _are_in_sync([*target, state.leader], members, brokers):
        return None
    leader = state.leader if state.leader in target else target[0]
    staying = tuple(member for member in members.isr if member in target)
    registrations = {member: members.registrations[member] for member in staying}
    return InSyncMembers(staying, registrations).to_state(controller_epoch, leader, state.leader_epoch + 1)


def _are_in_sync(replicas: Sequence[int], members: InSyncMembers, brokers: Brokers) -> bool:
    """Returns whether all are in sync, and alive under the registration with which they were admitted."""
    return all(r in members.isr and r in brokers and members.registrations.get(r) == brokers[r].czxid for r in replicas)


def _elect(
    candidate: int, staying: Sequence[int], members: InSyncMembers, brokers: Brokers, policy: ElectionPolicy
) -> InSyncMembers:
    """Returns the members that stay, with the new leader under its current registration."""
    remaining = members.without([m for m in members.isr if m not in staying], policy.min_insync)
    if candidate not in remaining.isr:
        return remaining.with_member(candidate, brokers[candidate].czxid, policy.min_insync)
    return replace(remaining, registrations={**remaining.registrations, candidate: brokers[candidate].czxid})
