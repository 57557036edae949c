"""A stored history as it would have been stored had the run been interrupted earlier."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from assay.harness.core.history import SCHEMAS, HistoryReader

Row = dict[str, Any]

_OF_A_PLACE: Final = ("position", "leader_epoch")
_OF_A_HOLD: Final = ("position", "leader_epoch", "generation", "token")
CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "append": _OF_A_PLACE,
    "register-write": (),
    "register-cas": (),
    "counter-add": (),
    "max-write": (),
    "set-add": (),
    "set-remove": (),
    "queue-enqueue": (),
    "queue-dequeue": ("value",),
    "txn-append": (),
    "txn-write": (),
    "commit": (),
    "advance": (),
    "keep": ("generation", "owner"),
    "acquire": _OF_A_HOLD,
    "renew": (),
    "release": (),
    "guarded": (),
    "topic-create": (),
    "topic-delete": (),
    "partitions-add": (),
    "setting": (),
    "move": (),
}
"""Kinds that an operation under way may have brought about, and the columns that are known from its answer alone; what
it would have seen is not known.
"""


def cut_short(
    history: HistoryReader, at: int, folder: Path, there: Callable[[str, Row], bool] = lambda name, row: True
) -> Path:
    """Keeps the rows until ``at`` (nanoseconds); operations under way then have no known outcome.

    The disks, which are read after a run's end, are left out, as in every interrupted run. ``there`` selects the
    other rows that exist by then, by their data set.
    """
    for name, schema in SCHEMAS.items():
        rows: list[Row] = [] if name == "replicas" else history.table(name).to_pylist()
        if name in ("ops", "effects"):
            rows = [kept for row in rows if row["call"] <= at and (kept := seen_until(row, at)) is not None]
        else:
            rows = [row for row in rows if row["time"] <= at or row.get("phase") == "intended"]
            rows = [row for row in rows if there(name, row)]
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name / "part-000000.parquet")
    return folder


def moments(history: HistoryReader, count: int) -> list[int]:
    """So many instants of the run, all over it, and just after each phase of a fault."""
    calls = sorted(row["call"] for row in history.table("ops").select(["call"]).to_pylist())
    spread = [calls[len(calls) * number // (count + 1)] for number in range(1, count + 1)]
    faults = [row["time"] + 50_000_000 for row in history.table("faults").to_pylist() if row["phase"] != "intended"]
    return sorted({*spread, *faults[:count]})


def seen_until(row: Row, at: int) -> Row | None:
    """Returns what was known of an operation, or one of its effects, at that instant; None: nothing."""
    if row["ret"] is not None and row["ret"] <= at:
        return row
    unknown = {"ret": None, "outcome": "info", "error": "interrupted"}
    if "kind" not in row:
        return {**row, **unknown, "result": None}
    if row["kind"] not in CHANGES:
        return None
    return {**row, **unknown, "version": None, "node": None, **dict.fromkeys(CHANGES[row["kind"]])}


def passing(fixtures: Path) -> list[Path]:
    """Folders of stored runs that kept every promise."""
    expected = sorted(fixtures.glob("format_*/*/expected.json"))
    return [path.parent for path in expected if json.loads(path.read_text())["judgement"]["verdict"] == "pass"]
