"""The cells over the nights: the engines' rows against plain Python's, and from them what a page is given."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from assay.harness.cli.main import main
from assay.harness.nightly import trends as module
from assay.harness.nightly.dataset import lock_dataset, pack, store_run
from assay.harness.nightly.dataset_schema import NONE, UNKNOWN, RunRow
from assay.harness.nightly.trends import RECENT_NIGHTS, SHOWN_NIGHTS, compute_trends, compute_trends_on, make_trends
from assay.reports.index.entry import CellKey
from assay.reports.index.trends import Trends, read_trends

from helpers.night_runs import ZOO, random_run

LAST = date(2026, 11, 24)
KILL = CellKey("broker", "log", "kill", "sim", "")

Night = tuple[str, RunRow]


def measured(chance: random.Random) -> RunRow:
    """With or without what later versions keep."""
    run = random_run(chance)
    return msgspec.structs.replace(
        run,
        system=chance.choice((None, "broker")),
        version=chance.choice((None, "v1")),
        started=f"2026-11-21T02:00:{chance.randrange(60):02}+00:00",
        rate=chance.choice((None, chance.random())),
        median_ms=chance.choice((None, chance.random())),
        p99_ms=None,
        recovery_seconds=chance.choice((None, chance.random())),
    )


def middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return pytest.approx(median(known), abs=0.0006) if known else None  # type: ignore[no-any-return]


def detected(run: RunRow) -> float | None:
    times = [
        one.time / 1e9
        for one in run.findings
        if run.verdict == "fail" and one.forbidden and one.time is not None
        if run.defect != NONE and (run.defect not in ZOO or one.anomaly in ZOO[run.defect])
    ]
    return min(times, default=None)


def plain(runs: Sequence[Night]) -> dict[CellKey, dict[str, list[Any]]]:
    groups: dict[CellKey, dict[str, list[RunRow]]] = defaultdict(lambda: defaultdict(list))
    for night, run in runs:
        defect = "" if run.defect == NONE else run.defect
        cell = CellKey(run.system or UNKNOWN, run.workload, run.nemesis, run.cluster or UNKNOWN, defect)
        groups[cell][night].append(run)
    return {
        cell: {
            night: [
                *(sum(run.verdict == verdict for run in some) for verdict in ("fail", "unknown", None, "pass")),
                middle([run.operations for run in some]), middle([run.median_ms for run in some]),
                middle([run.p99_ms for run in some]), middle([run.recovery_seconds for run in some]),
                middle([detected(run) for run in some]) if cell.defect else None,
            ]
            for night, some in nights.items()
        }
        for cell, nights in groups.items()
    }  # fmt: skip


def drawn(found: Trends) -> dict[CellKey, dict[str, list[Any]]]:
    return {one.cell: {found.nights[int(row[0] or 0)]: row[1:] for row in one.rows} for one in found.cells}


def test_the_rows_are_those_of_plain_python_packed_or_not_and_added_again(tmp_path: Path) -> None:
    chance = random.Random(5)
    runs = [((LAST - timedelta(days=chance.randrange(4))).isoformat(), measured(chance)) for _ in range(40)]
    model = {run.run: (night, run) for night, run in runs}
    for night, run in model.values():
        store_run(tmp_path, date.fromisoformat(night), run)
    found = compute_trends(tmp_path, ZOO)
    assert without_detection(drawn(found)) == without_detection(plain(list(model.values())))
    with lock_dataset(tmp_path, exclusive=True):
        pack(tmp_path)
    assert compute_trends(tmp_path, ZOO) == found
    for night, run in runs[:10]:
        again = msgspec.structs.replace(measured(chance), run=run.run)
        other = LAST if night == runs[0][0] else date.fromisoformat(night)
        store_run(tmp_path, other, again)
        model[run.run] = (other.isoformat(), again)
    found = compute_trends(tmp_path, ZOO)
    assert without_detection(drawn(found)) == without_detection(plain(list(model.values())))
    with_defect = {cell: rows for cell, rows in drawn(found).items() if cell.defect}
    assert with_defect == {cell: rows for cell, rows in plain(list(model.values())).items() if cell.defect}


@pytest.mark.spark
def test_spark_computes_the_same_trends(application: Any, tmp_path: Path) -> None:
    chance = random.Random(6)
    for number in range(30):
        store_run(tmp_path, LAST - timedelta(days=number % 4), measured(chance))
    with application.engine(effects=0) as engine:
        assert compute_trends_on(engine, tmp_path, ZOO) == compute_trends(tmp_path, ZOO)


def without_detection(rows: dict[CellKey, dict[str, list[Any]]]) -> dict[CellKey, dict[str, list[Any]]]:
    """A run without a defect that fails has a time of detection too, which ``plain`` leaves out."""
    return {cell: {night: row[:8] for night, row in nights.items()} for cell, nights in rows.items()}


def night(day: int, cell: CellKey = KILL, **figures: Any) -> dict[str, Any]:
    """A row of so many days before the last."""
    return {
        **cell._asdict(), "night": (LAST - timedelta(days=day)).isoformat(), "version": f"v{day // 10}", "failed": 0,
        "unknown": 0, "without": 0, "passed": 1, "caught": 0, "operations": 100, "rate": 50.0, "median_ms": 2.0,
        "p99_ms": 8.0, "recovery": None, "detection": None, **figures,
    }  # fmt: skip


def test_a_cell_that_got_slower_is_said_with_its_nights_and_versions() -> None:
    rows = [night(day, median_ms=3.0 if day < 10 else 2.0 + day / 1_000) for day in reversed(range(70))]
    found = make_trends(rows)
    (worse,) = found.worse
    assert (worse.cell, worse.figure, worse.unit, worse.since) == (KILL, "median latency", "ms", rows[-10]["night"])
    assert (worse.before, worse.now) == (pytest.approx(2.0, abs=0.1), 3.0)
    assert (worse.last_version, worse.first_version) == ("v1", "v0")
    assert found.asked == 5, "rate, two latencies, failures, no answers; of recovery there is nothing"
    assert len(found.nights) == len(found.cells[0].rows) == SHOWN_NIGHTS


def test_the_share_of_runs_without_an_answer_is_of_all_runs() -> None:
    rows = [night(day, unknown=int(day < 10)) for day in reversed(range(40))]
    (worse,) = make_trends(rows).worse
    assert (worse.figure, worse.before, worse.now) == ("runs without an answer", 0.0, 50.0)


@pytest.mark.parametrize(
    ("changed", "figure"),
    [
        ({"rate": 20.0}, "operations that succeed"),
        ({"p99_ms": 20.0}, "99 % latency"),
        ({"failed": 1, "passed": 0}, "runs that fail"),
        ({"without": 1, "passed": 0}, "runs without an answer"),
        ({"unknown": 1, "passed": 0}, "runs without an answer"),
    ],
)
def test_every_figure_is_watched_each_its_way(changed: dict[str, Any], figure: str) -> None:
    rows = [night(day, **(changed if day < 10 else {})) for day in reversed(range(70))]
    assert [worse.figure for worse in make_trends(rows).worse] == [figure]
    better = [night(day, **(changed if day >= 10 else {})) for day in reversed(range(70))]
    assert make_trends(better).worse == ()


def test_a_defect_that_is_missed_and_found_later_is_worse() -> None:
    cell = KILL._replace(defect="forgetful")
    caught = {"failed": 1, "passed": 0, "caught": 1, "detection": 1.0}
    rows = [night(day, cell, **(caught if day >= 10 else {})) for day in reversed(range(70))]
    (worse,) = make_trends(rows).worse
    assert (worse.figure, worse.before, worse.now) == ("runs that miss the defect", 0.0, 100.0)
    later = [night(day, cell, **caught | {"detection": 9.0 if day < 10 else 1.0}) for day in reversed(range(70))]
    assert [worse.figure for worse in make_trends(later).worse] == ["time to detection"]


@pytest.mark.parametrize(("idle", "listed"), [(RECENT_NIGHTS - 1, 1), (RECENT_NIGHTS, 0)])
def test_a_cell_that_is_not_run_any_more_is_not_listed(idle: int, listed: int) -> None:
    """Another goes on."""
    slow = [night(day, p99_ms=9e9 if day < idle + 10 else 8.0) for day in reversed(range(idle, 74))]
    other = [night(day, KILL._replace(workload="other")) for day in reversed(range(74))]
    assert len(make_trends([*slow, *other]).worse) == listed


def test_the_command_prints_writes_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = make_trends([night(day, p99_ms=99.0 if day < 10 else 8.0) for day in reversed(range(70))])
    monkeypatch.setattr(module, "compute_trends", lambda place, zoo, master: slow)
    given = ["nights", "trends", str(tmp_path), "--spark-master=local[1]"]
    assert main([*given, "--check", f"--out={tmp_path / 'trends.json'}"]) == 1
    assert "99 % latency" in capsys.readouterr().out
    assert read_trends(tmp_path / "trends.json") == slow
    assert main([*given, "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=Trends) == slow
    monkeypatch.setattr(module, "compute_trends", lambda place, zoo, master: msgspec.structs.replace(slow, worse=()))
    assert main([*given, "--check"]) == 0
    assert "0 of 5 figures" in capsys.readouterr().out
    assert main([*given, f"--out={tmp_path / 'no' / 'trends.json'}"]) == 64
    assert main([*given, f"--out={tmp_path / 'trends.json'}"]) == 0, "its own file is replaced"
    (tmp_path / "notes.json").write_text("{}")
    assert main([*given, f"--out={tmp_path / 'notes.json'}"]) == 64
    assert (tmp_path / "notes.json").read_text() == "{}"
