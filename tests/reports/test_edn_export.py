"""Jepsen's tools read what a report downloads: every operation, its order in real time, and values as they were."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.history import HistoryReader
from assay.harness.foreign.edn import EdnReader, Keyword, Map
from assay.reports import edn_export
from assay.reports.history_db import HistoryDatabase

from helpers.run_folders import ordinary, write_run

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


def plain(value: Any) -> Any:
    """EDN as the JSON that it was: keywords as texts."""
    match value:
        case tuple():
            return [plain(one) for one in value]
        case Map(pairs):
            return {plain(key): plain(one) for key, one in pairs}
        case Keyword(name):
            return name
    return value


def read(text: str) -> list[Any]:
    return [plain(one) for _, one in EdnReader(Path("history.edn"), [text]).iterate_values()]


@given(PLAIN)
def test_every_value_is_read_as_it_was(value: Any) -> None:
    (found,) = read("{:value " + edn_export.convert_json(json.dumps(value)) + "}")
    assert found == {"value": value}


def test_a_history_is_invocations_and_completions_in_the_order_of_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", None, ordinary())
    with HistoryDatabase(HistoryReader(run / "history")) as recording:
        packed = edn_export.compress_history(recording)
        rows = recording.rows("select index, call, ret, outcome from ops order by index")
    assert packed is not None
    lines = read(gzip.decompress(packed).decode())
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    begun = {line["op"]: line["time"] for line in lines if line["type"] == "invoke"}
    ended = {line["op"]: (line["time"], line["type"]) for line in lines if line["type"] != "invoke"}
    assert begun == {row["index"]: row["call"] for row in rows}
    assert ended == {row["index"]: (row["ret"], row["outcome"]) for row in rows if row["ret"] is not None}
    assert all(line["key"].startswith("orders-") for line in lines if line["f"] in ("send", "poll"))


def test_what_no_page_can_hold_is_left_out(tmp_path: Path, monkeypatch: Any) -> None:
    run = write_run(tmp_path / "run", None, ordinary())
    with HistoryDatabase(HistoryReader(run / "history")) as recording:
        monkeypatch.setattr(edn_export, "MOST_OPERATIONS", 59)
        assert edn_export.compress_history(recording) is None
        monkeypatch.setattr(edn_export, "MOST_OPERATIONS", 60)
        assert edn_export.compress_history(recording) is not None
        with monkeypatch.context() as short:
            short.setattr(edn_export, "MOST_CHARACTERS", 100)
            assert edn_export.compress_history(recording) is None
        monkeypatch.setattr(edn_export, "MOST_BYTES", 100)
        assert edn_export.compress_history(recording) is None
