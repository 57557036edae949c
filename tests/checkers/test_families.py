"""Tests that what is known of an anomaly is said by its check, once; pages and names of tables follow it."""

from __future__ import annotations

import re
from pathlib import Path

from assay.checkers.families import FAMILIES, meanings
from assay.checkers.linearizability.key_result import MEANING, NONLINEARIZABLE
from assay.checkers.transactions.family import TRANSACTION_ORDERS

PAGE = (Path(__file__).parents[2] / "docs" / "anomalies.md").read_text(encoding="utf-8")
IN_ORDER = {anomaly for family in TRANSACTION_ORDERS for anomaly in family.anomalies}
KNOWN = meanings(FAMILIES) | {NONLINEARIZABLE: MEANING}


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


def test_the_page_of_anomalies_lists_each_check_once_with_its_meaning_and_nothing_else() -> None:
    table = PAGE.partition("\n## All of them\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", table, re.MULTILINE)
    assert sorted(rows) == sorted((name, meaning) for name, meaning in KNOWN.items() if name not in IN_ORDER)


def test_the_page_of_anomalies_explains_each_that_it_lists() -> None:
    text = PAGE.partition("\n## All of them\n")[2].partition("\n## ")[2]
    explained = {
        *re.findall(r"^### ([\w-]+)$", text, re.MULTILINE),
        *re.findall(r"^\| `([\w-]+)` ", text, re.MULTILINE),
    }
    assert set(KNOWN) - IN_ORDER - explained == {NONLINEARIZABLE}, "an anomaly has neither a section nor a row"
    assert explained - set(KNOWN) == {"unknown"}, "a section or a row is about no anomaly that a check finds"
