"""assay: a correctness tester for distributed systems that lives in pytest.

Everything that a test of your own system needs is imported from here::

    from assay import Completed, Completion, Effect, Generator, Operation, System, experiment, forbid

The parts behind it are folders, each with a map in its ``__init__``:

- ``assay.harness``: operations, generators, the interpreter, histories; runs, pytest, the command
- ``assay.cluster``: nodes in containers, by SSH and in the simulation; the protocols of a system
- ``assay.nemesis``: faults, their schedules and targets
- ``assay.checkers``: from a history to a verdict
- ``assay.reports``: the page of a run, and the text of a failure
- ``assay.workloads``: tests of the broker, one pytest module per promise
- ``assay.system_under_test``: the broker

Names are imported on first use. A process on a node, which has few packages, imports ``assay.system_under_test`` or
``assay.harness.remote`` and loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.checkers.check import Check, Family, View
    from assay.checkers.engine import Engine, Row
    from assay.checkers.groups.family import CONSUMER_ANOMALIES, GROUP_ANOMALIES
    from assay.checkers.judging.contract import Contract, Toleration, forbid, linearizable
    from assay.checkers.linearizability import Action, Call, Model, ModelError, Values
    from assay.checkers.liveness.family import LIVENESS_ANOMALIES
    from assay.checkers.log.epochs import REPLICATION_ANOMALIES
    from assay.checkers.log.family import LOG_ANOMALIES
    from assay.checkers.log.replicas import REPLICA_ANOMALIES
    from assay.checkers.objects.banks import BANK_ANOMALIES
    from assay.checkers.objects.counters import COUNTER_ANOMALIES
    from assay.checkers.objects.ids import ID_ANOMALIES
    from assay.checkers.objects.max_registers import MAX_REGISTER_ANOMALIES
    from assay.checkers.objects.monotonic import MONOTONIC_ANOMALIES
    from assay.checkers.objects.queues import QUEUE_ANOMALIES
    from assay.checkers.objects.sets import SET_ANOMALIES
    from assay.checkers.register.family import REGISTER_ANOMALIES
    from assay.checkers.servers.leadership import OWNERSHIP_ANOMALIES
    from assay.checkers.transactions.family import TRANSACTION_ANOMALIES
    from assay.cluster.compose.system import Compose
    from assay.cluster.node import (
        Cluster,
        CommandResult,
        Exhaustion,
        Flow,
        Node,
        NodeError,
        Part,
        ProcessState,
        ProcessStatus,
        Slowed,
        SupportsClockShift,
        SupportsDataRestore,
        SupportsDiskFull,
        SupportsFreezing,
        SupportsMemoryLimit,
        SupportsPacketShaping,
        SupportsParts,
        SupportsPowerLoss,
        SupportsSlowDisk,
        Traffic,
        by_role,
    )
    from assay.cluster.runtime import Runtime
    from assay.cluster.sidecars import Sidecar, SupportsSidecars
    from assay.cluster.system import (
        CLIENT_ROLE,
        ZOOKEEPER_PORT,
        ZOOKEEPER_ROLE,
        Defect,
        DeploymentError,
        Inspector,
        Invariants,
        MembershipState,
        NodeCounts,
        SeenAtRest,
        Software,
        StoredRecord,
        SupportsClientRoles,
        SupportsClientSessions,
        SupportsClientSoftware,
        SupportsCodePackages,
        SupportsDataFiles,
        SupportsDataFolder,
        SupportsDefectDescriptions,
        SupportsDefects,
        SupportsFailover,
        SupportsGroups,
        SupportsHandover,
        SupportsHold,
        SupportsInspection,
        SupportsInvariants,
        SupportsLockFiles,
        SupportsMembership,
        SupportsMove,
        SupportsNodeCounts,
        SupportsReplicas,
        SupportsRetention,
        SupportsSettings,
        SupportsSnapshots,
        SupportsSoftware,
        SupportsSoleReplica,
        SupportsStandalone,
        SupportsStopSignal,
        SupportsStrikePoints,
        SupportsStrongerPromises,
        SupportsTurningPoints,
        SupportsZooKeeperClient,
        System,
        zookeeper_servers,
    )
    from assay.harness.core.blocking import BlockingClient
    from assay.harness.core.client import Client, Endpoint
    from assay.harness.core.generator import (
        EXHAUSTED,
        NOTHING,
        PENDING,
        Answer,
        Context,
        Exhausted,
        Generator,
        Invoke,
        OperationEvent,
        Pending,
        Source,
        as_generator,
        by_key,
        each_process,
        in_phase,
        keyed,
        limit,
        mix,
        on_event,
        once,
        phases,
        rate,
        repeat,
        reserve,
        sequence,
        simulate,
        stagger,
        time_limit,
        transform,
        unfold,
        until,
        until_ok,
    )
    from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
    from assay.harness.run.experiment import experiment
    from assay.harness.run.settings import Settings
    from assay.harness.run.workload_mix import WorkloadMix
    from assay.nemesis.faults.abilities import Ability
    from assay.nemesis.faults.fault import Census, Fault, Impact, Injection, Proof, Scope, on_each
    from assay.nemesis.faults.process import ServerFault, draw_target, evidence_of, probe_processes, proved
    from assay.nemesis.schedule.schedule import Parameter, ScheduleError
    from assay.nemesis.schedule.target import Target, servers

_HOMES = {
    "assay.checkers.check": "Check Family View",
    "assay.checkers.engine": "Engine Row",
    "assay.checkers.groups.family": "CONSUMER_ANOMALIES GROUP_ANOMALIES",
    "assay.checkers.servers.leadership": "OWNERSHIP_ANOMALIES",
    "assay.checkers.judging.contract": "Contract Toleration forbid linearizable",
    "assay.checkers.linearizability": "Action Call Model ModelError Values",
    "assay.checkers.liveness.family": "LIVENESS_ANOMALIES",
    "assay.checkers.log.epochs": "REPLICATION_ANOMALIES",
    "assay.checkers.log.family": "LOG_ANOMALIES",
    "assay.checkers.log.replicas": "REPLICA_ANOMALIES",
    "assay.checkers.objects.banks": "BANK_ANOMALIES",
    "assay.checkers.objects.counters": "COUNTER_ANOMALIES",
    "assay.checkers.objects.ids": "ID_ANOMALIES",
    "assay.checkers.objects.max_registers": "MAX_REGISTER_ANOMALIES",
    "assay.checkers.objects.monotonic": "MONOTONIC_ANOMALIES",
    "assay.checkers.objects.queues": "QUEUE_ANOMALIES",
    "assay.checkers.objects.sets": "SET_ANOMALIES",
    "assay.checkers.register.family": "REGISTER_ANOMALIES",
    "assay.checkers.transactions.family": "TRANSACTION_ANOMALIES",
    "assay.cluster.compose.system": "Compose",
    "assay.cluster.node": (
        "Cluster CommandResult Exhaustion Flow Node NodeError Part ProcessState ProcessStatus Slowed "
        "SupportsClockShift SupportsDataRestore SupportsDiskFull SupportsFreezing SupportsMemoryLimit "
        "SupportsPacketShaping SupportsParts SupportsPowerLoss SupportsSlowDisk Traffic by_role"
    ),
    "assay.cluster.runtime": "Runtime",
    "assay.cluster.sidecars": "Sidecar SupportsSidecars",
    "assay.cluster.system": (
        "CLIENT_ROLE Defect DeploymentError Inspector Invariants MembershipState NodeCounts SeenAtRest Software "
        "StoredRecord SupportsClientRoles SupportsClientSessions SupportsClientSoftware SupportsCodePackages "
        "SupportsDataFiles SupportsDataFolder SupportsDefectDescriptions SupportsDefects SupportsFailover "
        "SupportsGroups SupportsHandover SupportsHold SupportsInspection SupportsInvariants SupportsLockFiles "
        "SupportsMembership SupportsMove SupportsNodeCounts SupportsReplicas SupportsRetention SupportsSettings "
        "SupportsSnapshots SupportsSoftware SupportsSoleReplica SupportsStandalone SupportsStopSignal "
        "SupportsStrikePoints SupportsStrongerPromises SupportsTurningPoints SupportsZooKeeperClient System "
        "ZOOKEEPER_PORT ZOOKEEPER_ROLE zookeeper_servers"
    ),
    "assay.harness.core.blocking": "BlockingClient",
    "assay.harness.core.client": "Client Endpoint",
    "assay.harness.core.generator": (
        "Answer Context EXHAUSTED Exhausted Generator Invoke NOTHING OperationEvent PENDING Pending Source "
        "as_generator by_key each_process in_phase keyed limit mix on_event once phases rate repeat reserve "
        "sequence simulate stagger time_limit transform unfold until until_ok"
    ),
    "assay.harness.core.operation": "Completed Completion Effect Operation Outcome Phase",
    "assay.harness.run.experiment": "experiment",
    "assay.harness.run.settings": "Settings",
    "assay.harness.run.workload_mix": "WorkloadMix",
    "assay.nemesis.faults.abilities": "Ability",
    "assay.nemesis.faults.fault": "Census Fault Impact Injection Proof Scope on_each",
    "assay.nemesis.faults.process": "ServerFault draw_target evidence_of probe_processes proved",
    "assay.nemesis.schedule.schedule": "Parameter ScheduleError",
    "assay.nemesis.schedule.target": "Target servers",
}
"""Module -> the names that come from it: the imports above, as data. A test compares the two."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022 - in ASCII order
    "Ability", "Action", "Answer", "BANK_ANOMALIES", "BlockingClient", "CLIENT_ROLE", "CONSUMER_ANOMALIES",
    "COUNTER_ANOMALIES", "Call", "Census", "Check", "Client", "Cluster", "CommandResult", "Completed", "Completion",
    "Compose", "Context", "Contract", "Defect", "DeploymentError", "EXHAUSTED", "Effect", "Endpoint", "Engine",
    "Exhausted", "Exhaustion", "Family", "Fault", "Flow", "GROUP_ANOMALIES", "Generator",
    "ID_ANOMALIES", "Impact", "Injection", "Inspector", "Invariants", "Invoke", "LIVENESS_ANOMALIES",
    "LOG_ANOMALIES", "MAX_REGISTER_ANOMALIES", "MONOTONIC_ANOMALIES", "MembershipState", "Model", "ModelError",
    "NOTHING", "Node", "NodeCounts", "NodeError", "OWNERSHIP_ANOMALIES", "Operation", "OperationEvent", "Outcome",
    "PENDING", "Parameter", "Part", "Pending", "Phase", "ProcessState", "ProcessStatus", "Proof", "QUEUE_ANOMALIES",
    "REGISTER_ANOMALIES", "REPLICATION_ANOMALIES", "REPLICA_ANOMALIES", "Row", "Runtime", "SET_ANOMALIES",
    "ScheduleError", "Scope", "SeenAtRest", "ServerFault", "Settings", "Sidecar", "Slowed", "Software", "Source",
    "StoredRecord", "SupportsClientRoles", "SupportsClientSessions", "SupportsClientSoftware", "SupportsClockShift",
    "SupportsCodePackages", "SupportsDataFiles", "SupportsDataFolder", "SupportsDataRestore",
    "SupportsDefectDescriptions", "SupportsDefects", "SupportsDiskFull", "SupportsFailover", "SupportsFreezing",
    "SupportsGroups", "SupportsHandover", "SupportsHold", "SupportsInspection", "SupportsInvariants",
    "SupportsLockFiles", "SupportsMembership", "SupportsMemoryLimit", "SupportsMove", "SupportsNodeCounts",
    "SupportsPacketShaping",
    "SupportsParts", "SupportsPowerLoss", "SupportsReplicas", "SupportsRetention", "SupportsSettings",
    "SupportsSidecars", "SupportsSlowDisk", "SupportsSnapshots", "SupportsSoftware", "SupportsSoleReplica",
    "SupportsStandalone", "SupportsStopSignal", "SupportsStrikePoints", "SupportsStrongerPromises",
    "SupportsTurningPoints", "SupportsZooKeeperClient", "System", "TRANSACTION_ANOMALIES", "Target", "Toleration",
    "Traffic", "Values", "View", "WorkloadMix", "ZOOKEEPER_PORT", "ZOOKEEPER_ROLE", "as_generator", "by_key",
    "by_role", "draw_target", "each_process", "evidence_of", "experiment", "forbid", "in_phase", "keyed", "limit",
    "linearizable", "mix", "on_each", "on_event", "once", "phases", "probe_processes", "proved", "rate", "repeat",
    "reserve", "sequence", "servers", "simulate", "stagger", "time_limit", "transform", "unfold", "until", "until_ok",
    "zookeeper_servers",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
