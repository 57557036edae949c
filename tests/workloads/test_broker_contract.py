"""What the broker's contract knows of its clients."""

from assay.checkers.contract import Contract
from assay.harness.run.systems import with_limits
from assay.system_under_test.client.metadata import BACK_OFF
from assay.system_under_test.deployment import SESSION_TIMEOUT, ZOOKEEPER_TICK_MS, Broker
from assay.workloads import test_async_sends as async_sends
from assay.workloads import test_controller as controller
from assay.workloads import test_group as group
from assay.workloads import test_log as log
from assay.workloads import test_offsets as offsets
from assay.workloads import test_storage as storage
from assay.workloads import test_zookeeper_group as zookeeper_group
from assay.workloads.broker_contract import PATIENCE, promised
from assay.workloads.group_client import CALL_SECONDS
from assay.workloads.log_client import READ_SECONDS


def test_its_patience_is_that_of_a_call_and_of_looking_who_leads_then() -> None:
    assert max(READ_SECONDS, CALL_SECONDS) + BACK_OFF < PATIENCE < max(READ_SECONDS, CALL_SECONDS) + 0.5


def test_a_failover_is_the_session_that_the_run_has_and_the_patience_of_clients() -> None:
    for milliseconds in (1_000, 1_277, 3_000):
        system = Broker().with_setting(SESSION_TIMEOUT, str(milliseconds))
        seconds = with_limits(promised(Contract(forbidden=())), system).failing_over / 1e9
        assert round(seconds - PATIENCE, 3) == (milliseconds + ZOOKEEPER_TICK_MS) / 1000


def test_workloads_of_the_broker_know_the_patience_of_their_clients() -> None:
    for module in (async_sends, controller, group, log, offsets, storage, zookeeper_group):
        assert module.CONTRACT.patience == PATIENCE, module.__name__
