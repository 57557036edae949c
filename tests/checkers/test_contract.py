"""Contracts are data: they survive JSON, and say what a found anomaly means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.contract import BROKEN_INVARIANT, DEADLINES, NO_RECOVERY, UNEXPECTED_EXIT, Contract, forbid
from assay.checkers.log.family import LOG_ANOMALIES

names = st.lists(st.sampled_from(LOG_ANOMALIES), unique=True)


@given(names, names, st.floats(0.001, 1e6), st.booleans(), st.integers(0, 100))
def test_json_round_trip(forbidden: list[str], tolerated: list[str], deadline: float, ends: bool, minimum: int) -> None:
    contract = Contract(
        forbidden=tuple(forbidden),
        recovery_deadline=deadline,
        linearizable_ends=ends,
        minimum_during_fault=minimum,
        compacted=("t-0",),
    ).tolerate(*tolerated)
    assert Contract.from_json(contract.to_json()) == contract


def test_forbid_includes_recovery_and_tolerate_takes_out() -> None:
    contract = forbid(*LOG_ANOMALIES, recovery_deadline=5.0).tolerate("duplicate", NO_RECOVERY)
    assert contract.forbids("lost-write")
    assert not contract.forbids("duplicate")
    assert contract.tolerates("duplicate")
    assert not contract.forbids(NO_RECOVERY)
    assert contract.deadline == 5_000_000_000
    assert forbid("lost-write").forbids(NO_RECOVERY)


def test_the_default_forbids_everything_but_what_it_tolerates() -> None:
    assert Contract().forbids("anything")
    assert not Contract().tolerate("duplicate").forbids("duplicate")
    assert Contract().tolerate("duplicate").forbids("lost-write")


def test_data_is_needed_for_all_that_is_forbidden_but_for_what_is_forbidden_also() -> None:
    contract = forbid("lost-write").forbid_also("duplicate", "lost-write")
    assert contract.forbids("duplicate")
    assert not contract.needs("duplicate")
    assert contract.needs("lost-write")
    assert contract.needs(NO_RECOVERY)
    assert Contract.from_json(contract.to_json()) == contract
    more = contract.need("duplicate", "phantom")
    assert all(more.forbids(name) and more.needs(name) for name in ("lost-write", "duplicate", "phantom"))
    assert more.forbidden == ("lost-write", NO_RECOVERY, UNEXPECTED_EXIT, BROKEN_INVARIANT, "duplicate", "phantom")
    tolerant = contract.tolerate("duplicate").forbid_also("duplicate").need("duplicate")
    assert tolerant.tolerates("duplicate")
    assert not tolerant.forbids("duplicate")
    assert not tolerant.needs("duplicate")
    assert Contract().forbid_also("duplicate").need("phantom") == Contract()
    assert forbid("phantom").need("duplicate").needs("duplicate")


def test_a_contradictory_contract_is_refused() -> None:
    with pytest.raises(ValueError, match="both forbid and tolerate duplicate"):
        Contract(forbidden=("duplicate",), tolerated=("duplicate",))
    with pytest.raises(ValueError, match="must be positive"):
        Contract(recovery_deadline=0)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e9])
@pytest.mark.parametrize("name", ["recovery_deadline", "reading_deadline", "move_deadline", "patience", "failover"])
def test_what_lasts_for_ever_is_refused_before_the_run(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {seconds} s; it .* shorter than 1000000000 s"):
        Contract(**{name: seconds})
    assert Contract(**{name: 1e8}).deadline > 0


def test_what_is_tolerated_in_any_run_may_have_a_reason() -> None:
    contract = forbid("split-brain", "lost-write").tolerate("split-brain", because="no one decides")
    assert Contract.from_json(contract.to_json()) == contract
    for injected in ((), ("kill",)):
        assert contract.under(injected) == contract
        assert contract.reasons(injected) == {"split-brain": "tolerated because no one decides"}
    assert contract.tolerates("split-brain")
    assert contract.forbids("lost-write")
    assert forbid("split-brain").tolerate("split-brain").reasons(()) == {}


def test_what_a_design_cannot_survive_is_tolerated_under_those_faults_alone() -> None:
    contract = forbid("double-ownership", "lost-write").tolerate_under(
        "double-ownership", faults=["stop", "freeze"], because="no one can tell one who sleeps"
    )
    assert Contract.from_json(contract.to_json()) == contract
    for injected in ((), ("kill",)):
        assert contract.under(injected) == contract
        assert contract.under(injected).forbids("double-ownership")
        assert contract.reasons(injected) == {}
    hit = contract.under(("kill", "stop"))
    assert hit.tolerates("double-ownership")
    assert not hit.forbids("double-ownership")
    assert hit.forbids("lost-write")
    assert contract.reasons(("kill", "stop")) == {
        "double-ownership": "tolerated in a run with stop, because no one can tell one who sleeps"
    }
    with pytest.raises(ValueError, match="none of them may be empty"):
        contract.tolerate_under("double-ownership", faults=[], because="x")


def test_a_rebalance_has_the_recoverys_time_unless_it_has_its_own() -> None:
    assert Contract(recovery_deadline=7).within("rebalance_deadline") == 7_000_000_000
    assert Contract(recovery_deadline=7, rebalance_deadline=0.5).within("rebalance_deadline") == 500_000_000
    for name in DEADLINES:
        with pytest.raises(ValueError, match=rf"{name} is 0 s; it must be positive"):
            Contract(**{name: 0})


def test_what_must_end_has_the_recoverys_time_unless_it_has_its_own() -> None:
    contract = Contract(recovery_deadline=8, move_deadline=0.5, deletion_deadline=20)
    assert {name: contract.within(name) / 1e9 for name in DEADLINES} == {
        "rebalance_deadline": 8,
        "move_deadline": 0.5,
        "rejoin_deadline": 8,
        "obedience_deadline": 8,
        "deletion_deadline": 20,
        "retention_deadline": 8,
        "group_deadline": 4,
    }
    assert contract.rest > 20e9, "until then a system is looked at"
