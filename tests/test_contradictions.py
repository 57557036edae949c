"""No pair of statements is forgotten, and no check is named that there is not."""

from __future__ import annotations

import re
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Final

from assay.checkers.families import FAMILIES
from assay.harness.core.history.data_sets import KINDS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs" / "contributing" / "contradictions.md").read_text()
SPAN: Final = re.compile(r"`([^`]+)`")
OF_LOGS: Final = ("log", "admin", "groups")
DATA: Final = {"replicas"}


def rows(heading: str) -> list[list[str]]:
    text = PAGE[PAGE.index(f"\n## {heading}\n") :]
    lines = text[1 : text.find("\n## ", 1) if "\n## " in text[1:] else None].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


STATEMENTS: Final = [name for name, _ in rows("Statements")]


def emitted() -> set[str]:
    """The events that the broker writes into its log."""
    text = "".join(path.read_text() for path in (ROOT / "system_under_test").rglob("*.py"))
    return set(re.findall(r"\bemit\(\s*\"([a-z-]+)\"", text))


def test_each_kind_of_effect_event_and_replica_is_a_statement_or_said_to_be_none() -> None:
    named = {kind for _, what in rows("Statements") for kind in SPAN.findall(what)}
    effects = {kind for family in OF_LOGS for kind in KINDS[family]}
    assert effects | DATA <= named
    silent = set(SPAN.findall(PAGE[PAGE.index("These events contradict") : PAGE.index("Registers, counters")]))
    assert emitted() <= named | silent
    assert not named & silent


def test_each_unordered_pair_has_one_row() -> None:
    paired = [tuple(sorted((one, other))) for one, others, _ in rows("Pairs") for other in others.split(", ")]
    assert sorted(paired) == sorted(tuple(sorted(pair)) for pair in combinations_with_replacement(STATEMENTS, 2))


def test_each_pair_names_checks_that_there_are_or_a_reason() -> None:
    anomalies = {check.anomaly for family in FAMILIES for check in family.checks}
    for one, others, found_by in rows("Pairs"):
        named = SPAN.findall(found_by)
        assert set(named) <= anomalies, (one, others)
        assert named or re.match(r"none: .{20,}", found_by), (one, others)
    assert set(SPAN.findall(PAGE[PAGE.index("Registers, counters") : PAGE.index("## Pairs")])) <= anomalies


def test_each_check_but_those_of_whole_objects_is_on_the_page() -> None:
    whole = (
        "register",
        "counter",
        "max-register",
        "set",
        "queue",
        "bank",
        "unique-ids",
        "monotonic",
        "transaction",
        "fencing",
    )
    anomalies = {check.anomaly for family in FAMILIES if not family.name.startswith(whole) for check in family.checks}
    assert not [anomaly for anomaly in sorted(anomalies) if f"`{anomaly}`" not in PAGE]
