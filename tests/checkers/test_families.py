"""Tests that what is known of an anomaly is said by its check, once; pages and names of tables follow it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from assay.checkers.families import FAMILIES, list_meanings
from assay.checkers.judging.contract import NO_RECOVERY
from assay.checkers.judging.coverage import NO_RECOVERY_UNCLAIMED
from assay.checkers.linearizability.key_result import MEANING, NONLINEARIZABLE, UNCLAIMED
from assay.checkers.transactions.family import TRANSACTION_ORDERS
from assay.checkers.workload_checks.catalog import CHECKS, list_anomalies
from assay.harness.foreign import answers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "anomalies.md").read_text(encoding="utf-8")
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


UNCLAIMED_BECAUSE: Final = {NONLINEARIZABLE: UNCLAIMED, NO_RECOVERY: NO_RECOVERY_UNCLAIMED}
"""Anomalies whose checks count no claims, with the reason."""
WITHOUT_CLAIMS: Final = {
    ("checkers/judging/judge.py", "NO_RECOVERY"): "see UNCLAIMED_BECAUSE",
    ("checkers/linearizability/summary.py", "NONLINEARIZABLE"): "see UNCLAIMED_BECAUSE",
    ("checkers/judging/judge.py", "check.anomaly"): "the check was not run",
    ("checkers/judging/judge.py", "name"): "the history has no data for the check",
    ("checkers/judging/judge.py", "anomaly"): "the check is not available",
    ("harness/stored/by_workload.py", "f'workload {workload.name}'"): "the row has the question, and is no check",
    ("harness/stored/check_path.py", "f'reading {format}'"): "the row has what was read, and is no check",
}
"""Rows of what was checked that count no claims, by module and name, with the reason."""


def find_rows_without_claims() -> set[tuple[str, str]]:
    found = set()
    for folder in ("checkers", "harness"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "CheckCoverage(" in text else ():
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "CheckCoverage":
                    given = {one.arg: one.value for one in node.keywords}
                    if "claims" not in given:
                        found.add((str(path.relative_to(ROOT)), ast.unparse(given["check"])))
    return found


def test_each_row_of_what_was_checked_counts_its_claims_or_has_a_reason() -> None:
    assert find_rows_without_claims() == WITHOUT_CLAIMS.keys(), "count claims and exposed claims, or give a reason"


def test_each_anomaly_declares_its_claims_or_why_it_has_none() -> None:
    by_workloads = {name for name, one in list_anomalies().items() if one.claims and one.exposed}
    assert set(OF_WORKLOADS) == by_workloads
    by_families = {anomaly for family in FAMILIES for anomaly in family.anomalies}
    assert set(KNOWN) == by_families | by_workloads | {answers.ANOMALY} | UNCLAIMED_BECAUSE.keys()
    for family in FAMILIES:
        for check in family.checks:
            assert check.exposure is None or (check.exposure.nouns and check.exposure.observed), check.anomaly
    for text in (answers.CLAIMS, answers.EXPOSED, *UNCLAIMED_BECAUSE.values()):
        assert re.fullmatch(r"[a-z][^.:|]*[a-z]", text)
