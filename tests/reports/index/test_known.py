"""The file of known failures: strictly read, and a mark that is over counts no longer."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from assay.reports.index.known import KnownFailures, KnownFailuresError, read_known

TODAY = date(2026, 11, 24)
ENTRY = """\
[[failure]]
system = "broker"
workload = "test_log"
anomalies = ["vanished", "lost-write"]
reason = "being repaired"
expires = 2026-11-24
"""


def read(tmp_path: Path, text: str, today: date = TODAY) -> KnownFailures:
    path = tmp_path / "known-failures.toml"
    path.write_text(text)
    return read_known(path, today)


def test_a_mark_is_found_by_its_set_of_anomalies(tmp_path: Path) -> None:
    known = read(tmp_path, ENTRY)
    mark = known.find_mark("broker", "test_log", ("lost-write", "vanished"))
    assert mark is not None
    assert mark.reason == "being repaired"
    assert known.find_mark("broker", "test_log", ("lost-write",)) is None
    assert known.find_mark("broker", "test_group", ("lost-write", "vanished")) is None
    assert known.find_mark("other", "test_log", ("lost-write", "vanished")) is None


@pytest.mark.parametrize(("day", "over"), [(23, False), (24, False), (25, True)])
def test_a_mark_counts_through_its_last_day(tmp_path: Path, day: int, over: bool) -> None:
    known = read(tmp_path, ENTRY, date(2026, 11, day))
    assert known.is_expired(known.marks[0]) is over


def test_a_mark_without_a_failure_is_reported(tmp_path: Path) -> None:
    known = read(tmp_path, ENTRY)
    assert known.unused_marks([]) == list(known.marks)
    assert known.unused_marks([known.marks[0].key]) == []


def test_an_empty_file_marks_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "").marks == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('reason = "being repaired"', 'reason = " "'), "reason"),
        (('reason = "being repaired"\n', ""), "reason"),
        (('"broker"', "7"), "system"),
        (('["vanished", "lost-write"]', "[]"), "anomalies"),
        (('["vanished", "lost-write"]', '["vanished", "vanished"]'), "twice"),
        (("2026-11-24", '"2026-11-24"'), "without quotes"),
        (("2026-11-24", "2026-11-24T00:00:00Z"), "without quotes"),
        (("expires = 2026-11-24", ""), "expires"),
        (("reason", "reasons"), "reason"),
        (("[[failure]]", "[[failures]]"), "failures"),
        (("[[failure]]", "[failure]"), "failure"),
        (("[[failure]]", "[[failure"), "failure"),
        ((ENTRY, ENTRY + ENTRY), "number 2"),
        ((ENTRY, f"x = {'[' * 5000}{']' * 5000}"), "nested too deep"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    assert change[0] in ENTRY
    with pytest.raises(KnownFailuresError, match=rf"(?s)known-failures\.toml.*{named}"):
        read(tmp_path, ENTRY.replace(*change))
