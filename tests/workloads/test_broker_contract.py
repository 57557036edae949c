"""The broker's contract knows its clients, and no workload of ours leaves out a promise of the broker."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import workloads
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.harness.core.history.data_sets import KINDS
from assay.harness.run.experiment import Experiment, apply_mixes, find_experiment
from assay.harness.run.settings import Settings
from assay.harness.run.systems import complete_contract
from assay.system_under_test.client.metadata import BACK_OFF
from assay.system_under_test.deployment import SESSION_TIMEOUT, ZOOKEEPER_TICK_MS, Broker
from assay.workloads.broker.broker_contract import (
    ALWAYS_EXAMINED,
    FORBIDDEN_ANOMALIES,
    NOT_OFFERED,
    PATIENCE,
    build_contract,
)
from assay.workloads.broker.group_member import CALL_SECONDS
from assay.workloads.broker.verbs import READ_SECONDS

EXCEPTIONS = {
    (
        "test_unflushed",
        "unflushed-loss",
    ): "what it is about: the last few of a partition may go with all servers' power",
    ("test_own_broker", "duplicate"): "its client sends again by itself, however few retries it is given",
    ("test_zookeeper_group+classic", "split-brain"): "what it is about: members of the old design agree on nothing",
}
"""Anomalies that a workload, or one with a mix, tolerates in every run, with reasons. The contract has the others."""


def test_its_patience_is_that_of_a_call_and_of_looking_who_leads_then() -> None:
    assert max(READ_SECONDS, CALL_SECONDS) + BACK_OFF < PATIENCE < max(READ_SECONDS, CALL_SECONDS) + 0.5


def test_a_failover_is_the_session_that_the_run_has_and_the_patience_of_clients() -> None:
    for milliseconds in (1_000, 1_277, 3_000):
        system = Broker().with_setting(SESSION_TIMEOUT, str(milliseconds))
        seconds = complete_contract(build_contract(), system).failover_nanoseconds / 1e9
        assert round(seconds - PATIENCE, 3) == (milliseconds + ZOOKEEPER_TICK_MS) / 1000


def experiments() -> dict[str, Experiment]:
    """Returns those of the broker, by name: whatever the modules of the folder hold."""
    modules = [
        importlib.import_module(f"{workloads.__name__}.{one.name}") for one in pkgutil.iter_modules(workloads.__path__)
    ]
    found = [find_experiment(each) for module in modules for each in vars(module).values()]
    return {one.name: one for one in found if one is not None and isinstance(one.system, Broker)}


def contracts() -> Iterator[tuple[str, str, Contract]]:
    """Yields the contract of each experiment without a mix, and with each mix that it takes."""
    for name, experiment in experiments().items():
        yield name, "", experiment.contract
        for mix in experiment.mixes:
            yield name, mix.name, apply_mixes(experiment, Settings(seed=1, workload_mix=(mix.name,))).contract


OTHERS = {
    "test_zookeeper",
    "test_redis",
    "test_redis_cluster",
    "test_postgresql",
    "test_mariadb",
    "test_etcd",
    "test_nats",
    "test_patroni",
    "test_rabbitmq",
    "test_galera",
}
OF_OTHERS = {
    "bank",
    "etcd_gateway",
    "etcd_lock_client",
    "etcd_system",
    "galera_system",
    "kafka_log",
    "list_append",
    "locks",
    "long_fork",
    "mariadb_system",
    "monotonic",
    "nats_system",
    "patroni_system",
    "postgresql_primary",
    "postgresql_system",
    "queues",
    "rabbitmq_system",
    "redis_cluster_system",
    "redis_system",
    "registers",
    "resp",
    "sets",
    "sql",
    "unique_ids",
}
"""Modules that are about systems of others, and of no promise of the broker's."""
ALL = [pytest.param(*one, id="+".join(filter(None, one[:2]))) for one in contracts()]


def test_every_workload_of_ours_is_looked_at() -> None:
    tests = {path.stem for path in Path(workloads.__path__[0]).glob("test_*.py")} - OTHERS
    assert {experiment.body.__module__.rpartition(".")[2] for experiment in experiments().values()} == tests
    assert len(ALL) > 100


@pytest.mark.parametrize(("test", "mix", "contract"), ALL)
def test_what_the_broker_promises_is_forbidden_or_an_exception_with_a_reason(
    test: str, mix: str, contract: Contract
) -> None:
    promises = {name for family in FAMILIES if family not in NOT_OFFERED for name in family.anomalies}
    assert {name for name in promises if not contract.forbids(name)} == {
        anomaly for workload, anomaly in EXCEPTIONS if workload in (test, f"{test}+{mix}")
    }
    assert set(contract.tolerated) <= {name for where, name in EXCEPTIONS if where in (test, f"{test}+{mix}")}


@pytest.mark.parametrize(("test", "mix", "contract"), ALL)
def test_a_run_must_have_data_for_what_every_run_of_brokers_has(test: str, mix: str, contract: Contract) -> None:
    assert all(contract.needs(anomaly) for anomaly in ALWAYS_EXAMINED)
    assert {anomaly for anomaly in FORBIDDEN_ANOMALIES if contract.needs(anomaly)} > set(ALWAYS_EXAMINED), (
        "and for what it is about"
    )
    assert contract.patience == PATIENCE


def test_a_mix_adds_to_what_a_run_must_have_data_for_what_it_alone_brings() -> None:
    needs = {(test, mix): contract for test, mix, contract in contracts()}
    assert not needs["test_log", ""].needs("stuck-client")
    assert needs["test_log", "clinging"].needs("stuck-client")
    assert needs["test_offsets", "expiry"].needs("early-expiry")
    assert needs["test_group", ""].needs("generation-reuse")
    assert not needs["test_draft_group", ""].needs("generation-reuse")


def test_no_workload_makes_what_a_broker_has_not() -> None:
    """Else a finding there would be of an anomaly that no contract of ours names."""
    known = itertools.chain.from_iterable(KINDS.values())
    kinds = {kind for kind in known for family in NOT_OFFERED if f"'{kind}'" in family.applies}
    assert {"counter-add", "set-read", "queue-enqueue", "guarded", "register-cas", "txn-read"} <= kinds
    for path in Path(workloads.__path__[0]).glob("*.py"):
        if path.stem not in OTHERS | OF_OTHERS:
            assert not [kind for kind in kinds if f'"{kind}"' in path.read_text(encoding="utf-8")], path.name
