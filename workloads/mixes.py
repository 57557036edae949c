"""The mixes of the broker's workloads: ``--workload-mix`` chooses among them, docs/mixes.md says what each is for."""

from __future__ import annotations

from typing import Final

from assay.cluster.system import System
from assay.harness.core.generator import Source, stagger
from assay.harness.run.settings import Settings
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.system_under_test.deployment import Broker
from assay.workloads import topic_changes
from assay.workloads.log_operations import glance

EAGER: Final = 30
"""Weight of what keeps to a pace of its own."""


def _broker(system: System) -> Broker:
    assert isinstance(system, Broker), f"a mix of the broker's workloads, on {system.name}"
    return system


def _glances(system: System, settings: Settings) -> Shares:
    return [(10, glance(system.keys()))]


BACKLOGS: Final = WorkloadMix(
    "backlogs",
    "readers that look into the middle of logs of many small segments",
    adds=_glances,
    settings={"segment.bytes": ("512", "2048"), "index.interval.bytes": ("128", "1024")},
)


def _settings(system: System, settings: Settings) -> Shares:
    return [(EAGER, stagger(0.25, topic_changes.settings(_broker(system).topic)))]


def _look(system: System, settings: Settings) -> Source:
    return topic_changes.looks(_broker(system).topic)


SETTINGS: Final = WorkloadMix(
    "settings",
    "an administrator who changes settings under load, and asks for what must be rejected",
    adds=_settings,
    closes=_look,
)


def _handovers(system: System, settings: Settings) -> Shares:
    return [(EAGER, stagger(0.4, topic_changes.handovers(system.keys(), settings.nodes)))]


HANDOVERS: Final = WorkloadMix(
    "handovers",
    "partitions given to other replicas and other leaders, and taken back within a second",
    adds=_handovers,
    closes=_look,
)

LOG_MIXES: Final = (BACKLOGS, SETTINGS, HANDOVERS)
"""For workloads whose clients do what is done to a log."""
