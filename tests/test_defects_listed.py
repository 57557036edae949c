"""Tests that what the list of defects names exists: the anomalies, and the files of the runs that catch them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import NO_RECOVERY
from assay.harness.run.faults import list_fault_combinations, read_replay
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.system_under_test.defects import DEFECTS, Defect

ROOT = Path(__file__).parent.parent
ANOMALIES = {NO_RECOVERY, *(name for family in FAMILIES for name in family.anomalies)}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
def test_its_anomalies_are_those_of_checks(defect: Defect) -> None:
    assert defect.anomalies
    assert not set(defect.anomalies) - ANOMALIES


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
def test_its_run_has_a_workload_and_faults_that_exist(defect: Defect) -> None:
    test, *options = shlex.split(defect.run)
    assert test.startswith("workloads/test_")
    assert (ROOT / test).is_file()
    for option in options:
        name, _, value = option.partition("=")
        if name == "--replay":
            assert read_replay(ROOT / value, FaultCatalogue.standard()).steps
        elif name == "--nemesis":
            assert list_fault_combinations([value], FaultCatalogue.standard())
