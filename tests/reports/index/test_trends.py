"""Tests what many nights say, on the page: what got worse, and the nights that the store does not have any more."""

from __future__ import annotations

from datetime import date
from html import unescape
from pathlib import Path

import msgspec
import pytest

from assay.harness.cli.index import TRENDS
from assay.harness.cli.main import main
from assay.harness.nightly.store_index import read_store
from assay.reports.index.board import build_histories, list_nights
from assay.reports.index.entry import CellKey, Entry, NightEntry, RunVerdict, StoreContents
from assay.reports.index.known import KnownFailures
from assay.reports.index.page import render_page
from assay.reports.index.trends import Regression, Row, Trend, Trends, TrendsError, read_trends

from helpers.morning_store import HOSTILE, Made, write

KILL = CellKey("broker", "test_log", "kill", "sim", "")
OTHER = KILL._replace(workload="gone")


def row(night: int, passed: int = 1) -> Row:
    return [night, 0, 0, 0, passed, 100, 2.5, 9.0, None, None]


def stored(*days: int) -> StoreContents:
    """A run on each of these nights of November."""
    nights = tuple(NightEntry(name=f"2026-11-{day:02}", started=f"2026-11-{day:02}T01:00:00.000+00:00") for day in days)
    runs = [
        Entry(name=one.name, address=one.name, cell=KILL, night=one.name, started=one.started, verdict=RunVerdict.PASS,
              status="finished")
        for one in nights
    ]  # fmt: skip
    return StoreContents(name="store", entries=tuple(runs), nights=nights)


def worse(**changes: object) -> Regression:
    made = Regression(cell=KILL, figure="median latency", unit="ms", before=2.5, now=4.0, since="2026-11-02", nights=5,
        nights_before=60, probability=0.0012, last_version="v1", first_version="v2")  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def trends(*found: Regression, nights: tuple[str, ...] = ("2026-11-01", "2026-11-02", "2026-11-03")) -> Trends:
    cells = tuple(Trend(cell=cell, rows=tuple(map(row, range(len(nights))))) for cell in (KILL, OTHER))
    return Trends(nights=nights, cells=cells, worse=found, asked=10, level=0.01)


def test_trends_tell_the_nights_before_the_stores_own() -> None:
    assert list_nights(stored(3, 4), trends()) == ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"]
    rows = build_histories(stored(3, 4), trends())
    assert list(rows) == [KILL], "what the store does not have is not drawn"
    assert [one[:6] for one in rows[KILL]] == [
        [0, 0, 0, 0, 1, 100], [1, 0, 0, 0, 1, 100], [2, 0, 0, 0, 1, None], [3, 0, 0, 0, 1, None]
    ]  # fmt: skip


def test_only_the_newest_nights_are_drawn() -> None:
    many = tuple(f"2026-{month:02}-{day:02}" for month in (9, 10) for day in range(1, 31))
    rows = build_histories(stored(3), trends(nights=many))[KILL]
    assert [one[0] for one in rows] == list(range(60))
    assert rows[-1][5] is None


def test_what_got_worse_is_listed_with_its_level(tmp_path: Path) -> None:
    write(tmp_path, Made())
    made = unescape(
        render_page(read_store(tmp_path, {}), KnownFailures(today=date(2026, 11, 24)), trends(worse())).html
    )
    section = made[made.index('<section id="worse"') :].partition("</section>")[0]
    for text in ("median latency", "2.5 ms", "4 ms", "2026-11-02", "5 nights against 60", "v1", "v2", "0.001", "1 %"):
        assert text in section
    assert (
        'id="worse"'
        not in render_page(read_store(tmp_path, {}), KnownFailures(today=date(2026, 11, 24)), trends()).html
    )


def test_a_file_of_trends_is_read_as_text_alone(tmp_path: Path) -> None:
    hostile = trends(worse(cell=CellKey(*(HOSTILE,) * 5), figure=HOSTILE, since=HOSTILE, last_version="a\u202eb"))
    path = tmp_path / TRENDS
    path.write_bytes(msgspec.json.encode(hostile))
    write(tmp_path, Made())
    html = render_page(read_store(tmp_path, {}), KnownFailures(today=date(2026, 11, 24)), read_trends(path)).html
    assert html.count("<script") == 2
    assert "\u202e" not in html


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "create it with"),
        (b"[]", "create it with"),
        (msgspec.json.encode(msgspec.structs.replace(trends(), format=9)), "format 9"),
        (msgspec.json.encode(msgspec.structs.replace(trends(), nights=("2026-11-01",))), "missing night"),
        (msgspec.json.encode(trends()).replace(b"[0,", b"[-1,", 1), "missing night"),
    ],
)
def test_a_file_that_is_none_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / TRENDS
    path.write_bytes(content)
    with pytest.raises(TrendsError, match=says):
        read_trends(path)
    write(tmp_path, Made())
    assert main(["index", str(tmp_path)]) == 64
    assert str(path) in capsys.readouterr().err


def test_the_command_takes_the_stores_own_or_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, Made())
    assert main(["index", str(tmp_path)]) == 0
    assert 'id="worse"' not in (tmp_path / "index.html").read_text()
    (tmp_path / TRENDS).write_bytes(msgspec.json.encode(trends(worse())))
    assert main(["index", str(tmp_path)]) == 0
    assert 'id="worse"' in (tmp_path / "index.html").read_text()
    assert main(["index", str(tmp_path), f"--trends={tmp_path / 'none'}"]) == 64
    assert "none" in capsys.readouterr().err
