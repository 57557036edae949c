"""Tests that what a system says of itself goes into the contract, unless the contract says so itself."""

from types import SimpleNamespace

from assay.checkers.judging.contract import Contract, forbid
from assay.cluster.system import SupportsFailover
from assay.harness.run.systems import complete_contract
from assay.system_under_test.deployment import SESSION_TIMEOUT, Broker


def test_a_contract_learns_how_long_a_failover_takes_from_the_system_as_it_is_set_up() -> None:
    quick = Broker().with_setting(SESSION_TIMEOUT, "1000")
    assert isinstance(quick, SupportsFailover)
    assert complete_contract(Contract(), quick).failover == 1.5
    assert complete_contract(Contract(), Broker()).failover == 3.5
    assert complete_contract(Contract(failover=0.0), quick).failover == 0.0
    assert complete_contract(Contract(retention_ms=5), quick).retention_ms == 5


def test_what_a_setting_of_the_system_rules_out_is_forbidden_though_the_contract_tolerates_it_without() -> None:
    system = SimpleNamespace(rules_out=("G-single",))
    tolerant = forbid("G0").tolerate("G-single", "G2-item", because="it may")
    tolerant = tolerant.tolerate_under("G0", "G-single", faults=["wipe"], because="all is lost")
    contract = complete_contract(tolerant, system)  # type: ignore[arg-type]
    assert contract.forbids("G-single")
    assert contract.needs("G-single")
    assert contract.tolerates("G2-item")
    assert contract.reasons([]) == {"G2-item": "tolerated because it may"}
    assert contract.under(["wipe"]).tolerates("G-single")
    assert complete_contract(tolerant, SimpleNamespace(rules_out=())) == tolerant  # type: ignore[arg-type]
    nothing = complete_contract(forbid("G0"), system)  # type: ignore[arg-type]
    assert nothing == forbid("G0"), "what was not tolerated is not forbidden either"


def test_one_that_says_nothing_leaves_it_as_it_is() -> None:
    silent = type("Silent", (), {})()
    assert complete_contract(Contract(), silent) == Contract()
