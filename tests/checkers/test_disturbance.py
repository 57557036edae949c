"""Tests what must succeed while faults are in force, and what need not: neighbours on both sides of each line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.disturbance import Disturbance, FaultTimes, find_disturbances, find_silences, parse_detail

MS = 1_000_000
CONTRACT = Contract(failover=1.5)
Span = tuple[int, int]
"""From one millisecond to another."""


def fault(begin: int, end: int | None, *, number: int = 1, name: str = "kill") -> FaultTimes:
    healed = None if end is None else end * MS
    return FaultTimes(number, name, begin * MS, healed, failed=False, took_effect=True)


def faults(*spans: Span) -> list[FaultTimes]:
    return [fault(begin, end, number=number) for number, (begin, end) in enumerate(spans, 1)]


def reasons(
    known: Sequence[FaultTimes], successes: Sequence[Span], tries: Sequence[Span] = ((0, 99_000),),
    contract: Contract = CONTRACT,
) -> list[str]:  # fmt: skip
    """``tries``: operations that did not succeed; by default one that waits all the time."""
    return find_silences(
        known,
        contract,
        lambda begin, end: sum(begin <= call * MS and ret * MS <= end for call, ret in successes),
        lambda begin, end: sum(call * MS <= end and ret * MS >= begin for call, ret in (*successes, *tries)),
    )


WAITING = msgspec.structs.replace(CONTRACT, patience=2.0)
"""Clients that wait for two seconds for a server that is silent."""
ELSEWHERE = (20_000, 22_000)
"""A fault during which something succeeds: a run of which the rest is judged one by one."""
THERE = (20_500, 20_600)


@pytest.mark.parametrize(("lasting", "known"), [(1_499, False), (1_500, True)])
def test_a_fault_needs_a_success_from_the_length_of_a_failover_on(lasting: int, known: bool) -> None:
    found = reasons(faults((2_000, 2_000 + lasting), ELSEWHERE), [(2_000 + lasting, 6_000), THERE])
    assert ["only 0 operations succeeded during fault 1 (kill" in reason for reason in found] == [True][:known]


@pytest.mark.parametrize(("lasting", "known"), [(3_499, False), (3_500, True)])
def test_what_clients_wait_for_a_silent_server_comes_on_top_of_that(lasting: int, known: bool) -> None:
    found = reasons(faults((2_000, 2_000 + lasting), ELSEWHERE), [(2_000 + lasting, 6_000), THERE], contract=WAITING)
    assert ["only 0 operations succeeded during fault 1 (kill" in reason for reason in found] == [True][:known]


def test_clients_that_wait_need_something_to_succeed_under_some_fault_all_the_same() -> None:
    short = faults((2_000, 5_000), (12_000, 15_000))
    assert reasons(short, [(1_000, 1_500), (8_000, 8_500)], contract=WAITING)
    assert not reasons(short, [(1_000, 1_500), (13_000, 14_500)], contract=WAITING)


def test_a_system_that_says_nothing_of_failovers_must_show_a_success_in_each_fault() -> None:
    silent = msgspec.structs.replace(WAITING, failover=None)
    assert reasons(faults((2_000, 2_001), ELSEWHERE), [(3_000, 3_001), THERE], contract=silent)


@pytest.mark.parametrize("call", [1_999, 2_000])
@pytest.mark.parametrize("ret", [6_000, 6_001])
def test_a_success_is_called_and_returned_in_it(call: int, ret: int) -> None:
    inside = call >= 2_000 and ret <= 6_000
    assert bool(reasons(faults((2_000, 6_000)), [(call, ret)])) is not inside


def test_single_strikes_of_a_relay_need_none_but_all_of_it_does() -> None:
    strikes = faults((2_000, 2_900), (3_000, 3_900), (4_000, 5_400))
    assert not reasons(strikes, [(2_950, 2_990)])
    (reason,) = reasons(strikes, [(5_400, 5_500)])
    assert all(f"fault {number} (kill" in reason for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("begins", "successes", "known"),
    [
        (4_499, [], False),
        (4_500, [], True),
        (4_499, [(3_100, 3_200)], True),
        (4_499, [(2_900, 3_100), (4_400, 4_600)], False),
    ],
    ids=["while all come back", "too late for that", "after a success", "successes that are not in between"],
)
def test_what_strikes_while_all_come_back_from_what_may_stall_goes_on_with_that(
    begins: int, successes: Sequence[Span], known: bool
) -> None:
    contract = msgspec.structs.replace(CONTRACT, may_stall=("outage",))
    known_faults = [fault(2_000, 3_000, name="outage"), *faults((begins, 9_000), ELSEWHERE)]
    found = reasons(known_faults, [*successes, THERE], contract=contract)
    assert ["only 0 operations succeeded during fault 1 (kill" in reason for reason in found] == [True][:known]


@pytest.mark.parametrize(
    ("span", "known"),
    [
        ((2_000, 9_000), False),
        ((1_999, 9_000), True),
        ((3_000, 9_000), False),
        ((3_001, 9_000), True),
        ((2_500, 7_000), False),
        ((2_500, 33_000), False),
        ((2_500, 33_001), True),
    ],
    ids=[
        "as it begins", "before it", "until its heal", "after its heal", "in the middle", "until the deadline", "longer"
    ],
)  # fmt: skip
@pytest.mark.parametrize("failover", [None, 1.5])
def test_what_strikes_under_an_active_fault_that_may_stall_everything_needs_no_success(
    span: Span, known: bool, failover: float | None
) -> None:
    """The clock of a server that a disk error has ended, and that starts again only at the heal."""
    contract = msgspec.structs.replace(CONTRACT, failover=failover, may_stall=("disk-error",))
    stalled = [fault(2_000, 3_000, name="disk-error"), fault(*span, number=2, name="clock")]
    elsewhere = fault(60_000, 62_000, number=3)
    found = reasons([*stalled, elsewhere], [(61_000, 61_100)], contract=contract)
    expected = known and not (failover and span[0] == 3_001)  # then it begins soon after the heal
    assert ["only 0 operations succeeded during fault 2 (clock" in reason for reason in found] == [True][:expected]


def test_a_run_in_which_no_fault_has_a_success_is_unknown_though_none_needs_one() -> None:
    known = faults((2_000, 3_000), (8_000, 9_000))
    between = [(1_000, 1_100), (4_000, 4_100), (9_100, 9_200)]
    assert len(reasons(known, between)) == 1
    assert not reasons(known, [*between, (8_500, 8_600)])


@pytest.mark.parametrize(
    ("success", "known"),
    [((8_000, 9_000), False), ((7_999, 9_000), True), ((8_000, 9_001), True), ((4_000, 4_100), True)],
)
def test_a_success_under_what_may_stall_everything_is_one_under_a_fault(success: Span, known: bool) -> None:
    contract = msgspec.structs.replace(CONTRACT, may_stall=("power-loss",))
    both = [fault(2_000, 3_000), fault(8_000, 9_000, number=2, name="power-loss")]
    assert len(reasons(both, [success], contract=contract)) == known
    assert len(reasons(both[:1], [success], contract=contract)) == 1


def test_a_success_under_what_may_stall_does_not_stand_for_one_in_a_long_fault() -> None:
    contract = msgspec.structs.replace(CONTRACT, may_stall=("power-loss",))
    both = [fault(2_000, 6_000), fault(8_000, 9_000, number=2, name="power-loss")]
    assert reasons(both, [(8_100, 8_200)], contract=contract)


def test_a_short_fault_in_which_no_client_is_at_work_is_unknown() -> None:
    known, successes = faults((2_000, 3_000), ELSEWHERE), [(3_100, 3_200), THERE]
    assert reasons(known, successes, tries=[(1_000, 1_999), (3_001, 3_100)])
    assert not reasons(known, successes, tries=[(1_000, 2_000)])
    assert not reasons(known, successes, tries=[(3_000, 3_900)])


@pytest.mark.parametrize("recovers", [True, False])
def test_a_disturbance_lasts_until_clients_succeed_again(recovers: bool) -> None:
    """Each is short; but without a success in between both are one that is as long as a failover."""
    known = faults((2_000, 2_500), (4_000, 4_500), ELSEWHERE)
    assert bool(reasons(known, [THERE, *([(2_400, 3_900)] if recovers else [])])) is not recovers


def test_what_is_not_healed_or_may_stall_everything_is_not_asked_for() -> None:
    known = [fault(2_000, None), fault(9_000, 20_000, number=2, name="power-loss")]
    assert not reasons(known, [], contract=Contract(may_stall=("power-loss",)))
    assert reasons(known, [])


spans = st.tuples(st.integers(0, 400), st.integers(0, 60)).map(lambda pair: (pair[0] * 50, sum(pair) * 50))
many = st.lists(spans, max_size=8)


def inside(success: Span, disturbance: Disturbance) -> bool:
    return disturbance.begin <= success[0] * MS and success[1] * MS <= disturbance.end


@given(st.lists(spans, min_size=1, max_size=6), many)
def test_a_run_without_a_success_under_any_fault_never_passes(struck: list[Span], successes: list[Span]) -> None:
    known = faults(*struck)
    assert reasons(
        known, [one for one in successes if not any(inside(one, each) for each in find_disturbances(known, ()))]
    )


@given(st.lists(spans, max_size=6), many, st.integers(0, 5))
def test_a_fault_as_long_as_a_failover_without_a_success_in_its_disturbance_never_passes(
    struck: list[Span], successes: list[Span], at: int
) -> None:
    known = faults(*struck, (6_000 + at * 50, 7_500 + at * 50))
    whole = next(one for one in find_disturbances(known, ()) if any(each.id == len(known) for each in one.faults))
    assert reasons(known, [one for one in successes if not inside(one, whole)])


@given(st.lists(spans, max_size=6), many, spans)
def test_a_success_more_is_no_reason_more(struck: list[Span], successes: list[Span], more: Span) -> None:
    known = faults(*struck)
    if not reasons(known, successes):
        assert not reasons(known, [*successes, more])


@given(st.lists(spans, max_size=6), many)
def test_it_asks_for_no_more_than_a_success_in_each_disturbance(struck: list[Span], successes: list[Span]) -> None:
    known = faults(*struck)
    each = all(any(inside(success, one) for success in successes) for one in find_disturbances(known, ()))
    strict = msgspec.structs.replace(CONTRACT, failover=0.0)
    assert (not reasons(known, successes, contract=strict)) is each
    if each:
        assert not reasons(known, successes)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"reason": ' + "[" * 100_000, "no JSON", "7", None])
def test_a_detail_that_is_no_object_is_empty(text: str | None) -> None:
    assert parse_detail(text) == {}
