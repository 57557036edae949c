"""Tests that what the list of defects names exists: the anomalies, and the files of the runs that catch them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import NO_RECOVERY
from assay.harness.run.faults import combinations, replayed
from assay.nemesis.schedule.catalogue import Catalogue
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
            assert replayed(ROOT / value, Catalogue.standard()).steps
        elif name == "--nemesis":
            assert combinations([value], Catalogue.standard())


def test_the_page_of_the_defects_names_each() -> None:
    page = (ROOT / "docs" / "defects.md").read_text()
    assert not set(DEFECTS) - set(re.findall(r"`([\w-]+)`", page))


CELLS = re.compile(r"^\| `([\w-]+)`[^|]* \| (.+) \|$", re.MULTILINE)


def test_the_table_of_the_page_is_what_the_list_says() -> None:
    page = (ROOT / "docs" / "defects.md").read_text()
    table = page.partition("| the run that catches it |")[2].partition("\n\n")[0]
    rows = {name: rest.split(" | ") for name, rest in CELLS.findall(table)}
    said = {one.name: [", ".join(one.anomalies), f"`{one.run}`"] for one in DEFECTS.values()}
    assert list(rows.items()) == list(said.items())


TABLES = re.compile(r"^\| defect \|([^\n]+)\|\n\|[-|]+\n((?:\|[^\n]+\n)+)", re.MULTILINE)


def test_each_figure_of_the_page_names_an_anomaly_that_the_list_demands() -> None:
    """In the tables that say what was found with the defect, not only how often."""
    page = (ROOT / "docs" / "defects.md").read_text()
    found = []
    for header, rows in TABLES.findall(page.partition("## What was measured")[2]):
        columns = [title.strip() for title in header.split("|")]
        figures = [(name, rest.split(" | ")) for name, rest in CELLS.findall(rows)]
        assert {name for name, _ in figures} - set(DEFECTS) == set()
        assert not [name for name, cells in figures if len(cells) != len(columns)]
        if "found, with the defect" in columns:
            found += [(name, cells[columns.index("found, with the defect")]) for name, cells in figures]
    assert len(found) > 20
    assert not [name for name, text in found if not any(one in text for one in DEFECTS[name].anomalies)]
