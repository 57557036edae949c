"""What a system says of itself goes into the contract, unless the contract says so itself."""

from assay.checkers.contract import Contract
from assay.cluster.system import FailingOver
from assay.harness.run.systems import with_limits
from assay.system_under_test.deployment import SESSION_TIMEOUT, Broker


def test_a_contract_learns_how_long_a_failover_takes_from_the_system_as_it_is_set_up() -> None:
    quick = Broker().with_setting(SESSION_TIMEOUT, "1000")
    assert isinstance(quick, FailingOver)
    assert with_limits(Contract(), quick).failover == 1.5
    assert with_limits(Contract(), Broker()).failover == 3.5
    assert with_limits(Contract(failover=0.0), quick).failover == 0.0
    assert with_limits(Contract(retention_ms=5), quick).retention_ms == 5


def test_one_that_says_nothing_leaves_it_as_it_is() -> None:
    silent = type("Silent", (), {})()
    assert with_limits(Contract(), silent) == Contract()
