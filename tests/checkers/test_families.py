"""Tests that what is known of an anomaly is said by its check, once; pages and names of tables follow it."""

from __future__ import annotations

import re
from pathlib import Path

from assay.checkers.families import FAMILIES, list_meanings
from assay.checkers.linearizability.key_result import MEANING, NONLINEARIZABLE
from assay.checkers.transactions.family import TRANSACTION_ORDERS
from assay.checkers.workload_checks.catalog import CHECKS
from assay.harness.foreign import answers

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "anomalies.md").read_text(encoding="utf-8")
IN_ORDER = {anomaly for family in TRANSACTION_ORDERS for anomaly in family.anomalies}
OF_WORKLOADS = {anomaly: meaning for check in CHECKS.values() for anomaly, meaning in check.meanings.items()}
KNOWN = list_meanings(FAMILIES) | OF_WORKLOADS | {NONLINEARIZABLE: MEANING, answers.ANOMALY: answers.MEANING}


def test_each_anomaly_is_that_of_one_check() -> None:
    names = [anomaly for family in FAMILIES for anomaly in family.anomalies]
    assert sorted(names) == sorted(set(names))
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_each_table_of_violations_has_the_name_of_its_anomaly() -> None:
    for family in FAMILIES:
        for check in family.checks:
            assert check.found == f"found_{check.anomaly.lower().replace('-', '_')}"


def test_each_meaning_is_a_clause_that_a_reader_takes_in_at_a_glance() -> None:
    for anomaly, meaning in KNOWN.items():
        assert re.fullmatch(r"[a-z][^.;:|]*[a-z]", meaning), f"{anomaly}: {meaning}"
        assert len(meaning) < (160 if anomaly in IN_ORDER else 110), f"{anomaly}: {meaning}"


def test_the_page_of_anomalies_explains_each_that_a_check_finds() -> None:
    explained = {
        *re.findall(r"^### ([\w-]+)$", PAGE, re.MULTILINE),
        *(
            name
            for cell in re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) ", PAGE, re.MULTILINE)
            for name in re.findall(r"`([\w-]+)`", cell)
        ),
    }
    assert set(KNOWN) - IN_ORDER - explained == {NONLINEARIZABLE}, "an anomaly has neither a section nor a row"
    assert explained - set(KNOWN) == {"unknown"}, "a section or a row is about no anomaly that a check finds"
