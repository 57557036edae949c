"""Small nights: cells whose command is a script that ends as it is asked to, in place of pytest."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.harness.nightly import night_record, night_runner
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import AttemptResult, CellKind, MatrixCell, Night

FAKE = Path(__file__).with_name("fake_pytest.py")
PROGRAM = (sys.executable, str(FAKE))
DRIVER = """\
import sys
from pathlib import Path
from assay.harness.nightly import night_record, night_runner
store = Path(sys.argv[1])
one = night_runner.find_resumable_night(store, None)
path = night_record.night_folder(store, one.folder_name)
night_runner.NightRunner(store, path, one, 100.0, program=sys.argv[2:], grace=20.0).run()
"""
"""Goes on with the newest night, in a process that a test can kill."""


def cell(*acts: str, name: str = "", **fields: Any) -> MatrixCell:
    """Does these acts of ``fake_pytest.py``, one after the other."""
    given: dict[str, Any] = {
        "name": name or "-".join(acts), "kind": CellKind.RUN, "workload": "test_log", "system": "broker",
        "nemesis": "none", "cluster": "sim", "arguments": acts, "timeout": 60.0, **fields,
    }  # fmt: skip
    return MatrixCell(**given)


def begun(store: Path, cells: Sequence[MatrixCell], name: str | None = None) -> Night:
    return night_runner.begin_night(store, name, cells, 100.0, store.parent, None)


def performed(
    store: Path, cells: Sequence[MatrixCell], name: str | None = None, budget: float = 100.0, **fields: Any
) -> list[AttemptResult]:
    return gone_on_with(store, begun(store, cells, name), budget, **fields)


def gone_on_with(store: Path, one: Night, budget: float = 100.0, **fields: Any) -> list[AttemptResult]:
    path = night_record.night_folder(store, one.folder_name)
    return night_runner.NightRunner(store, path, one, budget, program=PROGRAM, grace=5.0, **fields).run()


def result(cell: str, outcome: Outcome, **fields: Any) -> AttemptResult:
    given: dict[str, Any] = {
        "cell": cell, "attempt": 1, "seed": 7, "command": "pytest", "started": "2026-11-21T02:00:00+00:00",
        "seconds": 1.0, "outcome": outcome, **fields,
    }  # fmt: skip
    return AttemptResult(**given)


def recorded(store: Path, name: str, results: Sequence[AttemptResult], **fields: Any) -> None:
    """A night that is over."""
    given: dict[str, Any] = {
        "folder_name": name, "started": f"{name}T02:00:00+00:00", "budget_seconds": 60.0, "seed": 1, "version": None,
        "host": "h", "cells": (), **fields,
    }  # fmt: skip
    path = night_record.night_folder(store, name)
    path.write(Night(**given))
    for one in results:
        path.append_result(one)


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def environment() -> dict[str, str]:
    """For ``DRIVER``."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def as_json(result: AttemptResult) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(result)
    return found
