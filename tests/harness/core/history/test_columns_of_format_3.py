"""Rows of formats 2 and 3, whose columns had several meanings: each comes as the column that means it today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.engine import SQLite
from assay.checkers.judging.history_views import register_history
from assay.harness.core.history import FORMAT, SCHEMAS, HistoryReader, format_3, format_4, translation

from helpers.log_histories import write

MOVED = ("leader_epoch", "generation", "token", "tombstone", "timestamp", "retention_ms", "name", "source", "client",
         "value", "expected", "empty", "waited_ms", "max_wait_ms")  # fmt: skip
SEEN = ("wall_ms", "unsettled", "settings", "broker", "leader", "members", "removing", "high_watermark", "log_end",
        "position", "acknowledgements", "base_offset", "end_offset", "timestamp", "size")  # fmt: skip
LOOK = {"look": 1, "time": 5, "ended": 6}

WAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an append": (
        {"kind": "append", "epoch": 3, "value": 7, "timestamp": 1_700},
        {"leader_epoch": 3, "value": 7, "timestamp": 1_700, "tombstone": False},
    ),
    "a tombstone": (
        {"kind": "append", "value": 7, "timestamp": 7}, {"value": 7, "timestamp": 7, "tombstone": True},
    ),
    "an append without a time": ({"kind": "append", "value": 7}, {"value": 7}),
    "a record read": ({"kind": "observe", "value": 7, "timestamp": 7}, {"value": 7, "timestamp": 7}),
    "a log's end": ({"kind": "end", "epoch": 3}, {"leader_epoch": 3}),
    "a log's start": ({"kind": "start", "epoch": 3, "group": "g"}, {"leader_epoch": 3}),
    "a look-up": ({"kind": "look-up", "timestamp": 1_700}, {"timestamp": 1_700}),
    "a member's partition": ({"kind": "acquire", "epoch": 3, "group": "g"}, {"generation": 3}),
    "a member's loss": ({"kind": "lost", "epoch": 3, "group": "g"}, {"generation": 3}),
    "a commit": ({"kind": "commit", "epoch": 3, "value": 7, "group": "g"}, {"generation": 3, "value": 7}),
    "a commit that is kept": (
        {"kind": "keep", "epoch": 3, "value": 7, "timestamp": 500, "group": "g"},
        {"generation": 3, "value": 7, "retention_ms": 500},
    ),
    "a lease": ({"kind": "acquire", "epoch": 3}, {"token": 3}),
    "a lease given up": ({"kind": "release", "epoch": 3}, {"token": 3}),
    "a lease prolonged": ({"kind": "renew", "epoch": 3}, {"token": 3}),
    "something done under a lease that has a group": ({"kind": "guarded", "epoch": 3, "group": "g"}, {"token": 3}),
    "a fetch that waited": (
        {"kind": "waited", "value": 40, "expected": 1500, "name": "nothing"},
        {"waited_ms": 40, "max_wait_ms": 1500, "empty": True},
    ),
    "a fetch that was worth waiting": (
        {"kind": "waited", "value": 40, "expected": 1500, "name": "records"},
        {"waited_ms": 40, "max_wait_ms": 1500, "empty": False},
    ),
    "a report": ({"kind": "reported", "value": 7, "name": "callback"}, {"value": 7, "source": "callback"}),
    "no report": ({"kind": "unreported", "value": 7, "name": "account"}, {"value": 7, "source": "account"}),
    "a try": ({"kind": "tried", "name": "newcomer"}, {"client": "newcomer"}),
    "a setting": ({"kind": "setting", "name": "retention.ms", "value": 5}, {"name": "retention.ms", "value": 5}),
    "a compare-and-set": ({"kind": "register-cas", "value": 5, "expected": 4}, {"value": 5, "expected": 4}),
}  # fmt: skip
LOOKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "look": ({"value": 1_700, "size": 2}, {"wall_ms": 1_700, "unsettled": 2}),
    "broker": ({"value": 3}, {"broker": 3}),
    "topic": ({"value": 99}, {"settings": 99}),
    "partition": ({"value": -1, "members": "1,2"}, {"leader": -1, "members": "1,2"}),
    "move": ({"members": "3"}, {"removing": "3"}),
    "routed": ({"value": 2, "members": "1,2"}, {"leader": 2, "members": "1,2"}),
    "role": ({"value": 99, "position": 8, "log_end": 9}, {"settings": 99, "high_watermark": 8, "log_end": 9}),
    "inspected": ({"size": 40}, {"acknowledgements": 40}),
    "lacking": ({"position": 8, "log_end": 7}, {"position": 8, "log_end": 7}),
    "segment": (
        {"position": 5, "log_end": 9, "timestamp": 1_700, "size": 80},
        {"base_offset": 5, "end_offset": 9, "timestamp": 1_700, "size": 80},
    ),
}


def row(**given: Any) -> dict[str, Any]:
    return {"op": 1, "sub": 0, "process": 0, "key": "k", "call": 1, "ret": 2, "outcome": "ok", "phase": "main", **given}


def known(found: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: found[name] for name in columns if found[name] is not None}


@pytest.mark.parametrize("what", WAS)
def test_an_effect_has_each_meaning_in_a_column_of_its_own(tmp_path: Path, what: str) -> None:
    then, now = WAS[what]
    reader = HistoryReader(write(tmp_path / "history", [row(**then)], format=3))
    (found,) = reader.table("effects").to_pylist()
    assert known(found, MOVED) == now


@pytest.mark.parametrize("what", LOOKED)
def test_what_was_seen_at_rest_has_each_meaning_in_a_column_of_its_own(tmp_path: Path, what: str) -> None:
    then, now = LOOKED[what]
    reader = HistoryReader(write(tmp_path / "history", [], looks=[LOOK | {"what": what} | then], format=3))
    (found,) = reader.table("looks").to_pylist()
    assert known(found, SEEN) == now


def test_every_column_that_came_or_changed_is_translated() -> None:
    for name in ("effects", "looks"):
        later = {column for columns in format_4.CAME.values() for column in columns.get(name, ())}
        came = set(SCHEMAS[name].names) - set(format_3.COLUMNS[name].split()) - later
        assert came <= set(format_3.MEANINGS[name]) <= set(SCHEMAS[name].names)


def test_rows_of_format_1_go_through_both_steps(tmp_path: Path) -> None:
    first = row(kind="append", epoch=3, owner="m", value=7)
    reader = HistoryReader(write(tmp_path / "history", [first, row(kind="add", sub=1, value=8)], format=1))
    append, add = reader.table("effects").to_pylist()
    assert (append["leader_epoch"], append["message_key"], append["owner"]) == (3, "m", None)
    assert (add["kind"], add["value"]) == ("add", 8), "nothing says of which object"


def test_a_data_set_without_other_columns_is_read_as_it_is(tmp_path: Path) -> None:
    reader = HistoryReader(write(tmp_path / "history", [row(kind="end", epoch=3)], format=3))
    assert {name: bool(reader.translation(name)) for name in SCHEMAS} == {
        "ops": False, "effects": True, "faults": True, "events": False, "replicas": False, "looks": True,
    }  # fmt: skip
    assert not any(translation.texts(name, FORMAT) for name in SCHEMAS)


def test_parts_of_both_formats_in_one_history_are_each_understood(tmp_path: Path) -> None:
    """As a run has them whose files were brought together from two."""
    folder = write(tmp_path / "history", [row(kind="acquire", epoch=3, group="g")], format=3)
    later = write(tmp_path / "later", [row(kind="acquire", generation=4, group="g", op=2)])
    part = pq.read_table(later / "effects" / "part-000000.parquet")
    pq.write_table(part, folder / "effects" / "part-000001.parquet")
    reader = HistoryReader(folder)
    assert [one["generation"] for one in reader.table("effects").to_pylist()] == [3, 4]
    with SQLite() as engine:
        register_history(engine, folder)
        assert [one["generation"] for one in engine.rows("select generation from effects order by op")] == [3, 4]


def test_the_digest_of_a_history_of_format_3_is_over_the_rows_as_they_are() -> None:
    for folder in sorted((Path(__file__).parents[3] / "fixtures" / "format_3").iterdir()):
        reader = HistoryReader(folder / "history")
        assert reader.digest() == json.loads((folder / "history" / "closed.json").read_text())["digest"]
        assert isinstance(reader.table("effects"), pa.Table)
