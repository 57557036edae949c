"""The page's text: all text is text, data is inside its limits, and what is left out is said."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from datetime import date, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.harness.nightly.store_index import read_store
from assay.reports.index import page as module
from assay.reports.index.known import KnownFailures, Mark
from assay.reports.index.page import RenderedPage, render_page

from helpers.morning_store import HOSTILE, LAST, Made, cell, many, night, write

pytestmark = pytest.mark.slow

TODAY = KnownFailures(today=date(2026, 11, 24))


def made(root: Path, known: KnownFailures = TODAY, *, live: bool = False) -> RenderedPage:
    return render_page(read_store(root, {}), known, live=live)


def data(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_hostile_text_is_text_wherever_it_stands(tmp_path: Path) -> None:
    hostile = Made(
        verdict="fail", anomalies=(HOSTILE,), workload=HOSTILE.replace("/", "|"), system=HOSTILE, version=HOSTILE,
        command=f"{HOSTILE} 'x' \" onload=\u202e", reason=HOSTILE, replay=f"store/found/{HOSTILE.replace('/', '|')}",
        nemesis=HOSTILE, cluster=HOSTILE,
    )  # fmt: skip
    write(tmp_path, hostile)
    write(tmp_path, replace(hostile, defect=HOSTILE))
    write(tmp_path, replace(hostile, verdict="unknown", anomalies=()))
    night(tmp_path, LAST, [cell("test_log", "kill")], [])
    html = made(tmp_path).html
    assert html.count("<script") == 2, "the page's own, and its data"
    assert "<img" not in html
    assert "\u202e" not in html
    assert "&lt;/script&gt;&lt;img" in html
    assert "default-src 'none'" in unescape(html)


def test_the_order_is_new_open_not_seen_again_known(tmp_path: Path) -> None:
    many(tmp_path, 600)
    mark = Mark(system="broker", workload="test_register", anomalies=("stale-read",), reason="slow", expires=date.max)
    html = made(tmp_path, KnownFailures((mark,), TODAY.today)).html
    places = [html.index(f'<section id="{name}"') for name in ("new", "open", "quiet", "known", "unknown", "detection")]
    assert places == sorted(places)
    assert html[places[0] : places[1]].count("<article") == 1
    assert "zombie-commit" in html[places[0] : places[1]]
    assert "lost-write" in html[places[1] : places[2]]
    assert "no-recovery" in html[places[2] : places[3]]
    assert "known until 9999-12-31" in html[places[3] : places[4]]
    assert "no line for" in html[places[4] :]


def test_what_counts_is_what_no_mark_covers(tmp_path: Path) -> None:
    write(tmp_path, Made(verdict="fail", anomalies=("lost-write",)))
    mark = Mark(system="broker", workload="test_log", anomalies=("lost-write",), reason="r", expires=TODAY.today)
    assert [one.anomalies for one in made(tmp_path).counting] == [("lost-write",)]
    assert made(tmp_path, KnownFailures((mark,), TODAY.today)).counting == ()
    over = made(tmp_path, KnownFailures((mark,), date(2026, 11, 25)))
    assert len(over.counting) == 1
    assert "mark expired 2026-11-24" in over.html
    assert "A mark without a failure" not in over.html
    idle = Mark(system="broker", workload="test_log", anomalies=("vanished",), reason="r", expires=TODAY.today)
    assert (
        "A mark without a failure: broker, test_log, vanished"
        in made(tmp_path, KnownFailures((idle,), TODAY.today)).html
    )


def test_every_run_is_in_the_data_until_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path, 400)
    stored = read_store(tmp_path, {})
    html = made(tmp_path).html
    assert len(data(html)["runs"]) == len(stored.entries)
    assert f"All {len(stored.entries)} runs are listed" in html
    monkeypatch.setattr(module, "MOST_BYTES", 40_000)
    html = made(tmp_path).html
    rows = data(html)["runs"]
    assert 10 < len(rows) < len(stored.entries)
    assert f"The newest {len(rows)} of {len(stored.entries)} runs are listed" in html
    assert [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)


@pytest.mark.parametrize("other", ["reason", "workload"])
def test_the_limit_is_of_what_is_written_whatever_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """An opening bracket is six bytes in the page, and each run may be of a cell of its own."""
    for number in range(60):
        text = f"{number}" + "<" * 200
        made_of = {"workload": text} if other == "workload" else {"reason": text, "verdict": "unknown", "command": text}
        write(tmp_path, Made(LAST - timedelta(minutes=number), seed=number, **made_of))
    monkeypatch.setattr(module, "MOST_BYTES", 40_000)
    html = made(tmp_path).html
    found = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    assert len(found.group(1).encode()) < 42_000
    assert 3 < len(data(html)["runs"]) < 60
    left = 60 - len(data(html)["plots"])
    assert (f"{left} more cells, which failed longest ago" in html) is (other == "workload")


def test_problems_without_end_are_cut_and_counted(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / "nights" / f"broken-{number}").mkdir(parents=True)
        (tmp_path / "nights" / f"broken-{number}" / "night.json").write_text("{")
    html = made(tmp_path).html
    assert html.count("is not the record of a night") == 60
    assert "and 10 more problems" in html


def test_a_megabyte_of_random_bytes_and_names_from_right_to_left_are_cut_text(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(1_000_000).decode("latin-1")
    write(tmp_path, Made(verdict="fail", anomalies=(noise[:5_000],), version=noise, command=noise, replay=noise))
    write(tmp_path, Made(verdict="unknown", reason=noise, system=noise, cluster=noise))
    write(tmp_path, Made(verdict="fail", anomalies=("אבד",), workload="test_שלום", system="وسيط", nemesis="\u202ekill"))
    html = made(tmp_path).html
    assert len(html.encode()) < 200_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    assert "<bdi>test_שלום</bdi>" in html
    assert "\\u202ekill" in html


def test_a_command_comes_back_with_its_seed_whole(tmp_path: Path) -> None:
    for seed in (7, 2**63 - 1):
        write(tmp_path, Made(seed=seed))
    found = data(made(tmp_path).html)
    commands = {found["texts"][row[8]].replace("\0", str(row[9])) for row in found["runs"]}
    assert {command.rpartition("--seed=")[2] for command in commands} == {"7", str(2**63 - 1)}


def test_a_live_page_may_ask_its_server_and_a_file_no_one(tmp_path: Path) -> None:
    write(tmp_path, Made())
    assert "connect-src" not in made(tmp_path).html
    assert "connect-src 'self'" in unescape(made(tmp_path, live=True).html)


@pytest.mark.parametrize(
    ("seconds", "said"), [(90, "1.5 min"), (120, "2 min"), (1_800, "30 min"), (5_400, "90 min"), (28_800, "8 h")]
)
def test_a_budget_is_said_as_people_say_it(tmp_path: Path, seconds: float, said: str) -> None:
    folder = night(tmp_path, LAST, [cell("test_log", "kill")], [])
    folder.write(msgspec.structs.replace(folder.read(), budget_seconds=seconds))
    assert f"<dt>budget</dt><dd>{said}</dd>" in made(tmp_path).html


def test_an_empty_store_has_a_page(tmp_path: Path) -> None:
    assert "There is no run in this store." in made(tmp_path).html


def test_a_night_that_goes_on_or_broke_off_says_so(tmp_path: Path) -> None:
    night(tmp_path, LAST, [cell("test_log", "kill")], [], ended=False)
    html = made(tmp_path).html
    assert "did not end" in html
    assert "0 of 1" in html
