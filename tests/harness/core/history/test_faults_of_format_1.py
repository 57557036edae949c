"""Rows of faults written before they said what a fault does: what they said by name and in JSON comes as columns."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from assay.harness.core.history import SCHEMAS, HistoryReader, format_1, format_4
from assay.nemesis.faults.impact import Impact
from assay.nemesis.schedule.catalogue import Catalogue

from helpers.log_histories import write

OWN = Catalogue.standard()
OF_THAT_TIME = sorted({"move-replicas"}.union(*format_1.IMPACTS.values()))
ROW = {"id": 1, "fault": "kill", "targets": "[]", "phase": "injected", "time": 5, "detail": "{}", "bit": None}


def read(folder: Path, *rows: dict[str, object]) -> list[dict[str, object]]:
    found = HistoryReader(write(folder, [], faults=[ROW | row for row in rows], format=1))
    return list(found.table("faults").to_pylist())


def test_what_a_fault_declares_are_columns() -> None:
    declared = {field.name for field in fields(Impact)}
    assert declared <= set(SCHEMAS["faults"].names)
    assert declared == {*format_1.IMPACTS, *format_4.CAME[6]["faults"]}


@pytest.mark.parametrize("name", OF_THAT_TIME)
def test_a_fault_of_the_project_did_what_it_declares_today(tmp_path: Path, name: str) -> None:
    (row,) = read(tmp_path / "history", {"fault": name})
    assert {field.name: row[field.name] for field in fields(Impact)} == asdict(OWN[name].impact)


def test_what_a_fault_from_elsewhere_did_is_not_known(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "history", {"fault": "meteor"})
    assert {row[field.name] for field in fields(Impact)} == {None}


def test_what_json_said_are_columns(tmp_path: Path) -> None:
    second = 1_000_000_000
    meant, healed, failed, other = read(
        tmp_path / "history",
        {"phase": "intended", "time": 7, "detail": json.dumps({"what": "kill one", "at": 12.75})},
        {"phase": "healed", "time": 8, "bit": True, "targets": '["client1"]'},
        {"phase": "failed", "time": 9, "detail": '{"stage":"bite","reason":"it did nothing"}', "targets": '["n1"]'},
        {"phase": "failed", "time": 10, "detail": "no JSON"},
    )
    assert [row["not_before"] for row in (meant, healed)] == [7 + 12 * second, None]
    assert [row["took_effect"] for row in (meant, healed)] == [None, True]
    assert [row["on_clients"] for row in (meant, healed, failed)] == [False, True, False]
    assert [row["stage"] for row in (meant, failed, other)] == [None, "effect", None]
