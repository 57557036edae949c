"""The mixes of the broker's workloads: ``--workload-mix`` chooses among them, docs/mixes.md says what each is for."""

from __future__ import annotations

from typing import Final

from assay.cluster.system import System
from assay.harness.run.settings import Settings
from assay.harness.run.workload_mix import Shares, WorkloadMix
from assay.workloads.log_operations import glance


def _glances(system: System, settings: Settings) -> Shares:
    return [(10, glance(system.keys()))]


BACKLOGS: Final = WorkloadMix(
    "backlogs",
    "readers that look into the middle of logs of many small segments",
    adds=_glances,
    settings={"segment.bytes": ("512", "2048"), "index.interval.bytes": ("128", "1024")},
)

LOG_MIXES: Final = (BACKLOGS,)
"""For workloads whose clients do what is done to a log."""
