"""A relay: one leader after another, with a majority up nearly all the time."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.fault import Census
from assay.nemesis.relay import OVERLAP, PAUSE, relay
from assay.nemesis.target import Kind

from helpers.nemesis_fakes import FAULTS

CENSUS = Census(3, 1, ("orders-0", "orders-1"), 2)


@given(st.integers(0, 2**32), st.floats(4.0, 30.0))
def test_strikes_follow_each_other_on_the_one_that_leads_a_key(seed: int, end: float) -> None:
    steps = relay(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, end)
    FAULTS.check(type("Drawn", (), {"steps": steps})())
    assert len({step.target for step in steps}) <= 1
    assert all(step.target.kind is Kind.LEADER and step.until <= end for step in steps)
    for one, two in itertools.pairwise(steps):
        assert -OVERLAP <= two.at - one.until <= PAUSE + 0.002


def test_most_have_several_strikes_and_some_are_of_more_than_one_kind() -> None:
    drawn = [relay(random.Random(seed), sorted(FAULTS), FAULTS, CENSUS, 2.0, 20.0) for seed in range(200)]
    assert all(2 <= len(steps) <= 4 for steps in drawn)
    kinds = [{step.fault for step in steps} for steps in drawn]
    assert 20 < sum(len(names) > 1 for names in kinds) < 180
    assert set().union(*kinds) == {"kill", "stop", "freeze", "partition-one"}


def test_there_is_none_where_no_key_has_a_leader_or_two_servers_would_be_struck_in_turn() -> None:
    for census in (Census(3, 1, ()), Census(2, 1, ("orders-0",))):
        assert relay(random.Random(1), sorted(FAULTS), FAULTS, census, 2.0, 20.0) == []
    assert relay(random.Random(1), ["clock"], FAULTS, CENSUS, 2.0, 20.0) == []
