"""The record of a night: what is written is read, whatever a process that died has left of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core import files
from assay.harness.nightly import night_record
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.harness.nightly.night_record import (
    AttemptResult,
    Night,
    NightError,
    NightFolder,
    group_by_cell,
    is_failed,
    needs_attention,
)
from assay.harness.run import store

from helpers.night_cells import as_json, cell, recorded, result

RESULTS = st.builds(
    AttemptResult, cell=st.text(max_size=8), attempt=st.integers(1, 9), seed=st.integers(0, 2**32),
    command=st.text(max_size=8), started=st.just("2026-11-21T02:00:00+00:00"), seconds=st.floats(0, 1e6),
    outcome=st.sampled_from(Outcome), detail=st.text(max_size=20),
    runs=st.lists(st.text(max_size=5), max_size=2).map(tuple), log=st.text(max_size=5),
)  # fmt: skip


@given(st.lists(RESULTS, max_size=4), RESULTS, st.data())
def test_what_was_appended_is_read_and_half_a_line_harms_no_other(
    before: list[AttemptResult], after: AttemptResult, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = NightFolder(Path(place))
        for one in before:
            folder.append_result(one)
        assert folder.read_results() == before
        lines = folder.path / "cells.jsonl"
        whole = lines.read_bytes() if lines.exists() else b""
        left = whole[: data.draw(st.integers(0, len(whole)))]
        lines.write_bytes(left)
        # A line that lacks nothing but its end of line is whole.
        complete = [
            one for number, one in enumerate(before, 1) if len(left) >= len(b"\n".join(whole.split(b"\n")[:number]))
        ]
        assert folder.read_results() == complete
        folder.append_result(after)
        assert folder.read_results() == [*complete, after]


def test_the_files_have_the_keys_that_readers_know(tmp_path: Path) -> None:
    recorded(tmp_path, "2026-11-21", [result("a", Outcome.NO_DISK, runs=("t/1",))], cells=(cell("pass"),))
    folder = night_record.night_folder(tmp_path, "2026-11-21").path
    written = json.loads((folder / "night.json").read_text())
    assert written["format"] == 1
    assert {"night", "started", "budget_seconds", "seed", "version", "host", "cells"} <= set(written)
    assert "ended" not in written
    assert {"name", "kind", "workload", "system", "nemesis", "cluster", "defect"} <= set(written["cells"][0])
    assert set(json.loads((folder / "cells.jsonl").read_text())) == {
        "cell", "attempt", "seed", "command", "started", "seconds", "outcome", "detail", "runs", "log",
    }  # fmt: skip
    assert as_json(result("a", Outcome.NO_DISK))["outcome"] == "no-disk"


def test_a_night_is_read_as_it_was_written_and_one_of_another_format_is_not(tmp_path: Path) -> None:
    one = Night(folder_name="n", started="s", budget_seconds=1.0, seed=2, version="v", host="h", cells=(cell("pass"),))
    folder = NightFolder(tmp_path / "n")
    folder.write(one)
    assert folder.read() == one
    folder.write(msgspec.structs.replace(one, ended="e"))
    assert folder.read().ended == "e"
    folder.write(msgspec.structs.replace(one, format=2))
    with pytest.raises(NightError, match="format 2"):
        folder.read()
    with pytest.raises(NightError, match="not the record of a night"):
        NightFolder(tmp_path / "other").read()


@pytest.mark.parametrize("is_late", [False, True], ids=["before the check", "after the check"])
def test_no_line_is_appended_through_a_link(tmp_path: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    folder = NightFolder(tmp_path / "n")
    folder.path.mkdir()
    (folder.path / "cells.jsonl").symlink_to(target)
    if is_late:  # as if the link were made between the check and the opening
        monkeypatch.setattr(files, "reject_links", lambda path: None)
    with pytest.raises(OSError, match=r"symbolic link"):
        folder.append_result(result("a", Outcome.PASS))
    assert target.read_text() == "mine"


@pytest.mark.parametrize(("part", "parts"), [(1, 10**12), (10**12, 10**12), (1, 0), (0, 1), (3, 2), (1, 10_001)])
def test_a_night_of_impossible_parts_is_damaged(tmp_path: Path, part: int, parts: int) -> None:
    """Each missing part is a line of the summary, so a damaged number would take hours and all memory."""
    recorded(tmp_path, "n", [])
    recorded(tmp_path, "m", [])
    path = tmp_path / "nights" / "n" / "night.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"part": part, "parts": parts}))
    with pytest.raises(NightError, match=r"not the record of a night: .*part"):
        night_record.night_folder(tmp_path, "n").read()
    assert [one.folder_name for _, one in night_record.read_nights(tmp_path)] == ["m"]
    assert len(night_record.find_unreadable(tmp_path)) == 1


def test_the_records_of_nights_are_no_runs_of_the_store(tmp_path: Path) -> None:
    recorded(tmp_path, "2026-11-21", [])
    assert store.list_runs(tmp_path) == []
    assert [one.folder_name for _, one in night_record.read_nights(tmp_path)] == ["2026-11-21"]


def test_an_interrupted_attempt_gives_way_to_the_one_that_does_it_again() -> None:
    results = [
        result("a", Outcome.INTERRUPTED),
        result("b", Outcome.PASS),
        result("a", Outcome.PASS),
    ]
    assert group_by_cell(results) == {"a": [results[2]], "b": [results[1]]}


@pytest.mark.parametrize(
    ("outcomes", "fails", "trouble"),
    [
        ([Outcome.PASS, Outcome.SKIPPED], False, False),
        ([Outcome.PASS, Outcome.FAIL], True, True),
        ([Outcome.MISSED, Outcome.DETECTED], False, False),
        ([Outcome.MISSED, Outcome.MISSED], True, True),
        ([Outcome.PASS, Outcome.CRASHED], False, True),
        ([Outcome.UNKNOWN], False, True),
        ([Outcome.INTERRUPTED], False, False),
    ],
)
def test_one_failure_is_enough_and_of_a_canary_one_detection(
    outcomes: list[Outcome], fails: bool, trouble: bool
) -> None:
    assert (is_failed(outcomes), needs_attention(outcomes)) == (fails, trouble)
