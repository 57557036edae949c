"""Elections: pure rules, and a model of a partition's life in which no acknowledged record may be lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.system_under_test.controller.assignments import merge_replicas
from assay.system_under_test.controller.leaders import (
    AskLogEnds,
    BrokerIncarnation,
    ElectionPolicy,
    decide_next_state,
    elect_first_replica,
    elect_longest,
    find_longest,
    make_first_state,
    remove_damaged,
    renew_epoch,
    restrict_to_target,
)
from assay.system_under_test.controller.traits import select_controller_traits
from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.zookeeper.znodes import NO_LEADER, PartitionState

from helpers.examples import some_of

ASSIGNMENT = (1, 2, 3)
EVERYBODY = (1, 2, 3, 4)
POLICY = ElectionPolicy(min_insync=2, unclean_election=False)


def broker(broker_id: int, czxid: int, clean_registrations: tuple[int, ...] = ()) -> BrokerIncarnation:
    return BrokerIncarnation(broker_id, f"host{broker_id}", 9092, czxid, clean_registrations)


def state(
    leader: int, isr: list[int], epochs: dict[int, int], elr: tuple[int, ...] = (), epoch: int = 4
) -> PartitionState:
    return PartitionState(1, leader, epoch, isr, {str(k): v for k, v in epochs.items()}, list(elr))


def test_nothing_is_written_while_all_members_live() -> None:
    live = {i: broker(i, i * 10) for i in ASSIGNMENT}
    assert decide_next_state(state(1, [1, 2, 3], {1: 10, 2: 20, 3: 30}), ASSIGNMENT, live, POLICY, 1) is None


def test_a_dead_leader_is_replaced_by_the_first_living_member_of_the_isr() -> None:
    live = {2: broker(2, 20), 3: broker(3, 30)}
    found = decide_next_state(state(1, [1, 3, 2], {1: 10, 2: 20, 3: 30}), ASSIGNMENT, live, POLICY, 7)
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr, found.leader_epoch, found.controller_epoch) == (2, [3, 2], 5, 7)


def test_a_leader_that_came_back_under_another_registration_has_failed() -> None:
    live = {1: broker(1, 99), 2: broker(2, 20), 3: broker(3, 30)}
    found = decide_next_state(state(1, [1, 2, 3], {1: 10, 2: 20, 3: 30}), ASSIGNMENT, live, POLICY, 1)
    assert isinstance(found, PartitionState)
    assert found.leader == 2
    assert 1 not in found.isr


def test_a_member_that_left_a_set_at_its_minimum_stays_eligible() -> None:
    live = {1: broker(1, 10)}
    shrunk = decide_next_state(state(1, [1, 2], {1: 10, 2: 20}), ASSIGNMENT, live, POLICY, 1)
    assert isinstance(shrunk, PartitionState)
    assert (shrunk.isr, shrunk.elr) == ([1], [2])
    later = decide_next_state(shrunk, ASSIGNMENT, {2: broker(2, 20)}, POLICY, 1)
    assert isinstance(later, PartitionState)
    assert (later.leader, later.isr, later.elr) == (2, [2], [1])


def test_outside_isr_and_elr_no_replica_is_elected() -> None:
    found = decide_next_state(state(1, [1, 2], {1: 10, 2: 20}), ASSIGNMENT, {3: broker(3, 30)}, POLICY, 1)
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr) == (NO_LEADER, [1, 2])


def test_unclean_election_takes_any_replica_when_the_topic_allows_it() -> None:
    found = decide_next_state(
        state(1, [1, 2], {1: 10, 2: 20}), ASSIGNMENT, {3: broker(3, 30)}, ElectionPolicy(2, True), 1
    )
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr) == (3, [3])


def test_unclean_starters_are_asked_only_when_all_are_back() -> None:
    gone = state(NO_LEADER, [1], {1: 10, 2: 20}, elr=(2,))
    assert decide_next_state(gone, ASSIGNMENT, {1: broker(1, 50)}, POLICY, 1) is None
    both = {1: broker(1, 50), 2: broker(2, 60)}
    assert decide_next_state(gone, ASSIGNMENT, both, POLICY, 1) == AskLogEnds((1, 2))
    assert find_longest({1: (4, 10), 2: (5, 3)}, ASSIGNMENT) == 2
    assert find_longest({2: (5, 3), 1: (5, 3)}, ASSIGNMENT) == 1


@pytest.mark.parametrize(("min_insync", "elr"), [(1, []), (2, [3])])
def test_those_with_the_same_log_as_the_longest_stay_eligible(min_insync: int, elr: list[int]) -> None:
    """A member was left out once. The killed leader then lost the tail that it had not replicated, and led again."""
    gone = state(NO_LEADER, [1, 3], {1: 10, 2: 20, 3: 30}, elr=(2,))
    back = {member: broker(member, 40 + member) for member in (1, 2, 3)}
    ends = {1: (4, 10), 2: (4, 9), 3: (4, 10)}
    found = elect_longest(ends, ASSIGNMENT, back, gone, ElectionPolicy(min_insync, False), 1)
    assert (found.leader, found.isr, found.elr) == (1, [1], elr)
    assert found.isr_epochs == {str(member): 40 + member for member in (1, *elr)}
    assert found.leader_epoch == gone.leader_epoch + 1


def test_a_clean_return_is_elected_without_asking() -> None:
    gone = state(NO_LEADER, [1], {1: 10, 2: 20}, elr=(2,))
    found = decide_next_state(gone, ASSIGNMENT, {1: broker(1, 50, (10,))}, POLICY, 1)
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr_epochs["1"]) == (1, 50)


def test_a_clean_stop_does_not_mend_what_an_unclean_start_before_it_had_lost() -> None:
    gone = state(NO_LEADER, [1], {1: 10, 2: 20}, elr=(2,))
    assert decide_next_state(gone, ASSIGNMENT, {1: broker(1, 50, (40,))}, POLICY, 1) is None


def test_an_older_copy_with_the_notes_of_a_clean_stop_is_not_elected() -> None:
    gone = state(NO_LEADER, [1], {1: 30, 2: 20}, elr=(2,))
    copied_in_its_second_life = {1: broker(1, 50, (10, 20))}
    assert decide_next_state(gone, ASSIGNMENT, copied_in_its_second_life, POLICY, 1) is None
    stopped_cleanly_since = {1: broker(1, 60, (10, 20, 50))}
    assert decide_next_state(gone, ASSIGNMENT, stopped_cleanly_since, POLICY, 1) is None


UNCLEAN = {1: broker(1, 50)}


@pytest.mark.parametrize(
    ("before", "live", "leader"),
    [
        (state(NO_LEADER, [1], {1: 10}, elr=()), UNCLEAN, 1),
        (state(NO_LEADER, [1], {1: 10, 2: 20}, elr=(2,)), UNCLEAN, 1),
        (state(NO_LEADER, [1, 2], {1: 10, 2: 20}), UNCLEAN, 1),
        (state(NO_LEADER, [2], {2: 20}), UNCLEAN, None),
        (state(NO_LEADER, [1], {1: 10, 2: 20}, elr=(2,)), {1: broker(1, 50, (10,))}, 1),
        (state(1, [1, 3, 2], {1: 10, 2: 20, 3: 30}), {2: broker(2, 20), 3: broker(3, 30)}, 2),
        (state(1, [1, 2], {1: 10, 2: 20}), {1: broker(1, 10), 2: broker(2, 20)}, None),
    ],
    ids=["sole member", "member at the minimum", "one of two", "outside", "clean return", "living members", "all live"],
)
def test_only_with_the_defect_a_member_leads_whose_machine_may_have_lost_its_tail(
    before: PartitionState, live: dict[int, BrokerIncarnation], leader: int | None
) -> None:
    """``leader``: with the defect, and without it where no return was unclean; there it waits, or asks for the ends."""
    defective = select_controller_traits(["last-replica"]).decide(before, ASSIGNMENT, live, POLICY, 1)
    assert (defective.leader if isinstance(defective, PartitionState) else None) == leader
    correct = select_controller_traits(()).decide(before, ASSIGNMENT, live, POLICY, 1)
    if live is UNCLEAN:
        assert not isinstance(correct, PartitionState)
    else:
        assert correct == defective


MEMBERS = {1: 10, 2: 20, 3: 30}
WIPED = {1: broker(1, 10), 2: broker(2, 20), 3: broker(3, 99)}
"""Broker 3 has come back since it was let in."""


@pytest.mark.parametrize(
    ("before", "live", "correct", "defective"),
    [
        (state(1, [1, 2, 3], MEMBERS), WIPED, (1, [1, 2]), None),
        (state(3, [1, 2, 3], MEMBERS), {3: WIPED[3]}, (NO_LEADER, [1, 2, 3]), (3, [3])),
        (state(1, [1, 2, 3], MEMBERS), {3: WIPED[3]}, (NO_LEADER, [1, 2, 3]), (3, [3])),
        (state(2, [2, 3], MEMBERS, elr=(1,)), {1: broker(1, 10), 3: WIPED[3]}, (1, [1]), (3, [3])),
        (state(1, [1, 2], {1: 10, 2: 20}), WIPED, None, None),
        (state(1, [1, 2, 3], MEMBERS), {1: WIPED[1], 2: WIPED[2]}, (1, [1, 2]), (1, [1, 2])),
        (state(1, [1, 2, 3], MEMBERS), {2: WIPED[2], 3: broker(3, 30)}, (2, [2, 3]), (2, [2, 3])),
    ],
    ids=["a member", "the leader", "alone", "before one that left", "no member", "dead", "the leader alone is dead"],
)
def test_only_with_the_defect_a_member_counts_in_a_life_in_which_it_was_not_let_in(
    before: PartitionState,
    live: dict[int, BrokerIncarnation],
    correct: tuple[int, list[int]] | None,
    defective: tuple[int, list[int]] | None,
) -> None:
    """Leader and in-sync set that follow; None: nothing is written, or the log ends are asked for."""
    for defects, expected in (((), correct), (["wiped-replica"], defective)):
        found = select_controller_traits(defects).decide(before, ASSIGNMENT, live, POLICY, 1)
        assert (None if not isinstance(found, PartitionState) else (found.leader, found.isr)) == expected


def test_a_move_ends_when_all_that_stay_are_in_sync_in_this_life() -> None:
    life = {1: broker(1, 10), 2: broker(2, 20), 3: broker(3, 30)}
    before = state(1, [1, 2, 3], {1: 10, 2: 20, 3: 30})
    after = restrict_to_target(before, [3, 2], life, 7)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.leader_epoch) == (3, [2, 3], [], before.leader_epoch + 1)
    assert restrict_to_target(before, [3, 2], {**life, 2: broker(2, 21)}, 7) is None
    assert restrict_to_target(before, [3, 2], {1: life[1], 3: life[3]}, 7) is None
    assert restrict_to_target(before, [3, 4], {**life, 4: broker(4, 40)}, 7) is None
    assert restrict_to_target(before, [3, 2], {2: life[2], 3: life[3]}, 7) is None, (
        "its leader is being replaced: that goes first"
    )


def test_a_move_forgets_who_was_eligible() -> None:
    """Else one might be elected whose files are about to go."""
    before = state(3, [3], {1: 10, 3: 30}, elr=(1,))
    after = restrict_to_target(before, [3], {3: broker(3, 30)}, 7)
    assert after is not None
    assert (after.isr, after.elr, after.isr_epochs) == ([3], [], {"3": 30})


def test_a_state_sent_again_has_only_replicas_among_its_members() -> None:
    life = {1: broker(1, 10), 2: broker(2, 20), 3: broker(3, 30)}
    before = state(2, [1, 2], {1: 10, 2: 20, 3: 30}, elr=(3,))
    after = renew_epoch(before, [2, 3], life, 7)
    assert after is not None
    assert (after.leader, after.isr, after.elr, after.isr_epochs) == (2, [2], [3], {"2": 20, "3": 30})
    assert after.leader_epoch == before.leader_epoch + 1
    assert renew_epoch(before, [1, 3], life, 7) is None
    assert renew_epoch(before, [1, 2, 3], {1: life[1], 2: broker(2, 21)}, 7) is None


def test_the_preferred_leader_leads_if_it_is_in_sync_in_this_life() -> None:
    life = {1: broker(1, 10), 2: broker(2, 20)}
    before = state(2, [2, 1], {1: 10, 2: 20})
    after = elect_first_replica(before, [1, 2], life, 7)
    assert after is not None
    assert (after.leader, after.isr, after.leader_epoch, after.controller_epoch) == (1, [2, 1], 5, 7)
    assert elect_first_replica(before, [2, 1], life, 7) is None, "it leads already"
    assert elect_first_replica(before, [3, 2, 1], life, 7) is None
    assert elect_first_replica(before, [1, 2], {**life, 1: broker(1, 11)}, 7) is None
    assert elect_first_replica(before, [1, 2], {2: life[2]}, 7) is None


@pytest.mark.parametrize(
    ("before", "leader", "isr", "elr"),
    [
        (state(1, [1, 2, 3], {1: 10, 2: 20, 3: 30}), NO_LEADER, [2, 3], []),
        (state(2, [1, 2], {1: 10, 2: 20}), 2, [2], []),
        (state(2, [2], {1: 10, 2: 20}, elr=(1,)), 2, [2], []),
        (state(2, [2, 3], {2: 20, 3: 30}), 2, [2, 3], []),  # it fetched, and may be about to be let in
        (state(1, [1], {1: 10, 2: 20, 3: 30}, elr=(3, 2)), NO_LEADER, [3, 2], []),
        (state(1, [1], {1: 10}), NO_LEADER, [1], []),
        (state(NO_LEADER, [1], {1: 10}), NO_LEADER, [1], []),
    ],
)
def test_no_one_counts_on_a_damaged_replica_but_the_last_stays(
    before: PartitionState, leader: int, isr: list[int], elr: list[int]
) -> None:
    after = remove_damaged(before, 1, 7)
    assert (after.leader, after.isr, after.elr) == (leader, isr, elr)
    assert (after.leader_epoch, after.controller_epoch) == (before.leader_epoch + 1, 7)
    assert set(after.isr_epochs) == {str(member) for member in (*isr, *elr)}


@dataclass
class Model:
    """A partition whose logs are lengths. A kill may lose the log's tail, as a power loss does; damage may take any
    part of one, of which the replica's own process knows. A copy that was made after a clean stop may be put back.
    """

    logs: dict[int, int] = field(default_factory=lambda: dict.fromkeys(EVERYBODY, 0))
    assignment: list[int] = field(default_factory=lambda: list(ASSIGNMENT))
    target: list[int] | None = None
    """The assignment that it moves to."""
    live: dict[int, BrokerIncarnation] = field(default_factory=dict)
    acknowledged: int = 0
    lives: int = 0
    clean_registrations: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Lives of servers whose last stop was clean."""
    copies: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """Log and clean lives of a server that had stopped cleanly."""
    damaged: set[int] = field(default_factory=set)
    """Servers that know that their logs are not whole."""
    broken: set[int] = field(default_factory=set)
    """Servers that have been damaged in this life."""
    offline: tuple[int, int, int] | None = None
    """The last member, which is damaged: its life, and the leader epoch."""
    lost: bool = False
    """All members lost their tails at once: beyond what is promised."""
    state: PartitionState | None = None

    def start(self, member: int) -> None:
        if member not in self.live:
            self.lives += 1
            self.broken.discard(member)
            self.live[member] = broker(member, self.lives, self.clean_registrations.pop(member, ()))
            self.control()

    def kill(self, member: int, keep: int) -> None:
        if member in self.live:
            del self.live[member]
            self.logs[member] = min(self.logs[member], keep)

    def stop_cleanly(self, member: int) -> None:
        stopped = self.live.pop(member, None)
        if stopped is not None and member not in self.broken:
            self.clean_registrations[member] = (*stopped.clean_registrations, stopped.czxid)

    def copy(self, member: int) -> None:
        if member in self.clean_registrations:
            self.copies[member] = self.logs[member], self.clean_registrations[member]

    def put_back(self, member: int) -> None:
        if member in self.copies and member not in self.live and member not in self.damaged:
            self.logs[member], self.clean_registrations[member] = self.copies[member]

    def damage(self, member: int, keep: int) -> None:
        if member in self.live:
            self.logs[member] = min(self.logs[member], keep)
            self.damaged.add(member)
            self.broken.add(member)
            self.control()

    def whole(self) -> dict[int, BrokerIncarnation]:
        if self.offline is None or self.state is None or self.state.leader_epoch != self.offline[2]:
            return self.live
        return {m: life for m, life in self.live.items() if (m, life.czxid) != self.offline[:2]}

    def report(self) -> bool:
        """A damaged replica with a role reports itself if others may count on it, and else starts over."""
        state = self.state
        for member in sorted(self.damaged & self.live.keys()):
            if state is None or member not in self.assignment or state.leader == NO_LEADER:
                continue
            if member in (state.leader, *state.isr, *state.elr):
                self.state = remove_damaged(state, member, 1)
                if member in self.state.isr:
                    self.offline = member, self.live[member].czxid, self.state.leader_epoch
                return True
            self.logs[member] = 0
            self.damaged.discard(member)
        return False

    def control(self) -> None:
        self.decide()
        while self.report():
            self.decide()

    def decide(self) -> None:
        while True:
            wanted = (
                make_first_state(self.assignment, self.live, 1)
                if self.state is None
                else decide_next_state(self.state, self.assignment, self.whole(), POLICY, 1)
            )
            if wanted is None:
                wanted = self.move()
            if wanted is None:
                return
            if isinstance(wanted, AskLogEnds):
                assert self.state is not None
                ends = {m: (-1, -1) if m in self.damaged else (0, self.logs[m]) for m in wanted.members}
                if max(ends.values()) == (-1, -1):
                    return
                leader = find_longest(ends, self.assignment)
                self.lost = self.logs[leader] < self.acknowledged
                self.acknowledged = min(self.acknowledged, self.logs[leader])
                wanted = elect_longest(ends, self.assignment, self.live, self.state, POLICY, 1)
                assert wanted.leader == leader
            elif wanted.leader != NO_LEADER and not (self.state is None or wanted.leader in self.damaged):
                assert self.logs[wanted.leader] >= self.acknowledged, f"elected {wanted} with {self.logs}"
            self.state = wanted
            if wanted.leader in self.damaged:
                return  # it refuses
            for member in self.assignment:  # followers cut what the leader has not
                if wanted.leader != NO_LEADER and member in self.live:
                    self.logs[member] = min(self.logs[member], self.logs[wanted.leader])

    def move(self) -> PartitionState | None:
        """Returns a step on the way to the target, if it can be taken now."""
        if self.state is None or self.target is None:
            return None
        if not set(self.target) <= set(self.assignment):
            wider = merge_replicas(self.assignment, self.target)
            wanted = renew_epoch(self.state, wider, self.live, 1)
            if wanted is not None:
                self.assignment = wider
            return wanted
        wanted = restrict_to_target(self.state, self.target, self.live, 1)
        if wanted is not None:
            for gone in set(self.assignment) - set(self.target):
                self.logs[gone] = 0
            self.assignment, self.target = self.target, None
        return wanted

    def lead_preferred(self) -> None:
        if self.state is not None:
            wanted = elect_first_replica(self.state, self.assignment, self.whole(), 1)
            if wanted is not None:
                assert self.logs[wanted.leader] >= self.acknowledged, f"elected {wanted} with {self.logs}"
                self.state = wanted

    def leader_works(self, appended: int, reachable: set[int]) -> None:
        state = self.state
        if state is None or state.leader not in self.live or state.leader in self.damaged:
            return
        members = InSyncMembers.from_state(state)
        if members.registrations.get(state.leader) != self.live[state.leader].czxid:
            return
        self.logs[state.leader] += appended
        end = self.logs[state.leader]
        for member in sorted(reachable):
            if member in self.live and member != state.leader and member in set(self.assignment) - self.damaged:
                self.logs[member] = end
                if member not in members.isr or members.registrations[member] != self.live[member].czxid:
                    members = members.with_member(member, self.live[member].czxid, POLICY.min_insync)
        behind = [m for m in members.isr if m != state.leader and (m not in self.live or m not in reachable)]
        members = members.without(behind, POLICY.min_insync)
        self.state = members.to_state(1, state.leader, state.leader_epoch)
        if len(members.isr) >= POLICY.min_insync:
            self.acknowledged = end


members = st.sampled_from(EVERYBODY)
steps = st.one_of(
    st.tuples(st.just("start"), members, st.just(0)),
    st.tuples(st.just("kill"), members, st.integers(0, 20)),
    st.tuples(st.just("stop"), members, st.just(0)),
    st.tuples(st.just("copy"), members, st.just(0)),
    st.tuples(st.just("put back"), members, st.just(0)),
    st.tuples(st.just("damage"), members, st.integers(0, 20)),
    st.tuples(st.just("control"), st.just(0), st.just(0)),
    st.tuples(st.just("work"), st.integers(1, 3), st.sets(members)),
    st.tuples(st.just("move"), st.just(0), st.lists(members, min_size=1, unique=True)),
    st.tuples(st.just("prefer"), st.just(0), st.just(0)),
)

PUT_BACK: list[tuple[str, int, object]] = [
    ("stop", 1, 0),
    ("copy", 1, 0),
    ("start", 1, 0),
    ("work", 1, {1, 3}),
    ("kill", 2, 20),
    ("kill", 3, 20),
    ("kill", 1, 20),
    ("put back", 1, 0),
    ("start", 1, 0),
]
"""A server comes back, after the others, with the copy of its files that was made when it had stopped cleanly."""


@pytest.mark.slow
@settings(max_examples=some_of(800), deadline=None)
@given(st.lists(steps, max_size=40))
@example([("work", 1, {2}), ("stop", 1, 0), ("kill", 2, 0), ("start", 2, 0), ("stop", 2, 0), ("start", 2, 0)])
@example(PUT_BACK)
@example([*PUT_BACK, ("stop", 1, 0), ("start", 1, 0)])
def test_the_elected_one_has_every_acknowledged_record(history: list[tuple[str, int, object]]) -> None:
    model = Model()
    for member in EVERYBODY:
        model.start(member)
    for what, who, how in history:
        if what == "start":
            model.start(who)
        elif what == "kill":
            model.kill(who, how)  # type: ignore[arg-type]
        elif what == "stop":
            model.stop_cleanly(who)
        elif what == "copy":
            model.copy(who)
        elif what == "put back":
            model.put_back(who)
        elif what == "damage":
            model.damage(who, how)  # type: ignore[arg-type]
        elif what == "control":
            model.control()
        elif what == "work":
            model.leader_works(who, how)  # type: ignore[arg-type]
        elif what == "move":
            model.target = how  # type: ignore[assignment]
            model.control()
        elif what == "prefer":
            model.lead_preferred()


@settings(max_examples=some_of(300))
@given(st.lists(members, min_size=1, unique=True), st.lists(members, unique=True))
def test_leaving_and_joining_keep_the_set_and_its_epochs_consistent(isr: list[int], leaving: list[int]) -> None:
    start = InSyncMembers(tuple(isr), {m: m * 10 for m in isr})
    left = start.without(leaving, 2)
    assert set(left.isr) == set(isr) - set(leaving)
    assert set(left.registrations) == set(left.isr) | set(left.elr)
    assert not set(left.isr) & set(left.elr)
    assert bool(left.elr) == (len(left.isr) < 2 and bool(set(isr) & set(leaving)))
    for member in leaving:
        left = left.with_member(member, member * 100, 2)
    assert set(isr) <= set(left.isr) | set(left.elr)
    assert len(left.isr) < 2 or not left.elr
