"""Failures at once, again and again, are followed by longer and longer rests; anything else ends them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.operation import Outcome
from assay.harness.core.worker import FREE_FAILURES, IMMEDIATE_NS, MAX_DELAY, Backoff


@given(st.integers(0, 100), st.lists(st.sampled_from([Outcome.FAIL, Outcome.INFO]), max_size=60))
def test_the_first_are_free_and_no_rest_is_longer_than_the_longest(number: int, outcomes: list[Outcome]) -> None:
    rest = Backoff(number)
    pauses = [rest.delay_after(outcome, 0) for outcome in outcomes]
    assert not any(pauses[:FREE_FAILURES])
    assert all(0 < pause <= MAX_DELAY for pause in pauses[FREE_FAILURES:])
    assert all(pause >= MAX_DELAY / 2 for pause in pauses[FREE_FAILURES + 8 :])


@pytest.mark.parametrize(("outcome", "took"), [(Outcome.OK, 0), (Outcome.FAIL, IMMEDIATE_NS + 1)], ids=["ok", "slow"])
def test_one_that_succeeds_or_takes_its_time_ends_them(outcome: Outcome, took: int) -> None:
    rest = Backoff(3)
    assert [rest.delay_after(Outcome.FAIL, IMMEDIATE_NS) for _ in range(FREE_FAILURES + 1)][-1] > 0
    assert rest.delay_after(outcome, took) == 0
    assert not any(rest.delay_after(Outcome.FAIL, 0) for _ in range(FREE_FAILURES))


def test_workers_that_fail_together_do_not_come_back_together() -> None:
    rests = [Backoff(number) for number in range(10)]
    last = [[rest.delay_after(Outcome.FAIL, 0) for _ in range(40)][-1] for rest in rests]
    assert len({round(pause, 3) for pause in last}) > 8
