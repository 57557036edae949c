"""The tables of both engines against the same tables in plain Python, over random runs."""

from __future__ import annotations

import csv
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.engine import DuckDB, Engine
from assay.harness.cli import nights
from assay.harness.cli.main import main
from assay.harness.nightly import tables
from assay.harness.nightly.dataset import DataSetError, list_parts, store_run
from assay.harness.nightly.dataset_schema import NONE, SCHEMAS, RunRow
from assay.harness.nightly.table_output import to_json
from assay.harness.nightly.tables import DefectAnomalies, NightTables, compute_tables, compute_tables_on
from assay.system_under_test.defects import DEFECTS

from helpers.night_runs import ZOO, random_run
from helpers.standalone import WORKERS, Cluster

Night = tuple[str, RunRow]
Rows = list[dict[str, Any]]
NIGHTS = ("2026-11-19", "2026-11-20", "2026-11-21")


def grouped(rows: Iterable[Any], key: Any) -> list[tuple[Any, list[Any]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return sorted(groups.items())


def percentile(values: Sequence[float], share: float) -> float | None:
    """Between the two nearest, in proportion."""
    if not values:
        return None
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def hits(run: RunRow, zoo: DefectAnomalies) -> list[Any]:
    if run.verdict != "fail" or run.defect == NONE:
        return []
    wanted = zoo.get(run.defect)
    return [one for one in run.findings if one.forbidden and (wanted is None or one.anomaly in wanted)]


def verdicts(runs: Sequence[Night]) -> Rows:
    rows = []
    for (night, workload, nemesis, defect), some in grouped(runs, lambda n: (n[0], *cell(n[1]))):
        recorded = [run.verdict for _, run in some]
        faults = [fault for _, run in some for fault in run.faults]
        rows.append({
            "night": night, "workload": workload, "nemesis": nemesis, "defect": defect, "runs": len(some),
            "pass": recorded.count("pass"), "fail": recorded.count("fail"), "unknown": recorded.count("unknown"),
            "unjudged": recorded.count(None), "pass_share": recorded.count("pass") / len(recorded),
            "fail_share": recorded.count("fail") / len(recorded),
            "unknown_share": recorded.count("unknown") / len(recorded),
            "operations": sum(run.operations or 0 for _, run in some), "faults_meant": len(faults),
            "faults_injected": sum(fault.injected is not None for fault in faults),
            "faults_took_effect": sum(fault.took_effect for fault in faults),
        })  # fmt: skip
    return rows


def cell(run: RunRow) -> tuple[str, str, str]:
    return run.workload, run.nemesis, run.defect


def first(times: Iterable[int | None]) -> float | None:
    known = [time for time in times if time is not None]
    return min(known) / 1e9 if known else None


def detection(runs: Sequence[Night], zoo: DefectAnomalies) -> Rows:
    rows = []
    broken = [run for _, run in runs if run.defect != NONE]
    for (defect, workload, nemesis), some in grouped(broken, lambda r: (r.defect, r.workload, r.nemesis)):
        found = [hits(run, zoo) for run in some]
        times = [t for one in found if (t := first(hit.time for hit in one)) is not None]
        since = [t for one in found if (t := first(hit.since_fault for hit in one)) is not None]
        caught = sum(bool(one) for one in found)
        rows.append({
            "defect": defect, "workload": workload, "nemesis": nemesis, "runs": len(some), "caught": caught,
            "rate": caught / len(some),
            "failed_otherwise": sum(run.verdict == "fail" and not one for run, one in zip(some, found, strict=True)),
            "unjudged": sum(run.verdict is None for run in some),
            "reported": ", ".join(sorted({one.anomaly for run in some for one in run.findings})),
            "seconds_min": min(times, default=None), "seconds_median": percentile(times, 0.5),
            "seconds_max": max(times, default=None), "since_fault_median": percentile(since, 0.5),
        })  # fmt: skip
    return rows


def defects(runs: Sequence[Night], zoo: DefectAnomalies, newest: str) -> Rows:
    rows = []
    for defect in sorted({*zoo, *(run.defect for _, run in runs)} - {NONE}):
        mine = [run for night, run in runs if night == newest and run.defect == defect]
        caught = sum(bool(hits(run, zoo)) for run in mine)
        rows.append({
            "defect": defect, "expected": ", ".join(zoo[defect]) if defect in zoo else None, "runs": len(mine),
            "caught": caught, "state": "caught" if caught else "missed" if mine else "not run",
        })  # fmt: skip
    return rows


def recovery(runs: Sequence[Night]) -> Rows:
    times = [
        (night, back.fault, what, took)
        for night, run in runs
        if run.defect == NONE
        for back in run.returns
        for what, took in ((back.change, back.changed), (back.look, back.looked))
    ]
    rows: Rows = []
    for (night, fault, what), some in grouped(times, lambda t: t[:3]):
        known = [took / 1e9 for *_, took in some if took is not None]
        earlier = [
            row["median"]
            for row in rows
            if (row["fault"], row["what"]) == (fault, what) and row["median"] is not None
        ]  # fmt: skip
        median, before = (
            percentile(known, 0.5),
            sum(earlier) / len(earlier) if earlier else None,
        )
        rows.append({
            "night": night, "fault": fault, "what": what, "times": len(some), "never": len(some) - len(known),
            "median": median, "p95": percentile(known, 0.95), "longest": max(known, default=None),
            "mean_before": before, "trend": median / before if before and median is not None else None,
        })  # fmt: skip
    return rows


def changes(runs: Sequence[Night], newest: str, before: str | None) -> Rows:
    if before is None:
        return []
    rows = []
    cells = sorted({cell(run) for night, run in runs if night in (newest, before)})
    for one in cells:
        now, then = ([run for night, run in runs if night == n and cell(run) == one] for n in (newest, before))
        fresh = {f.anomaly for r in now for f in r.findings} - {f.anomaly for r in then for f in r.findings}
        if worst(now) != worst(then) or fresh:
            rows.append({
                "workload": one[0], "nemesis": one[1], "defect": one[2], "was": worst(then), "is_now": worst(now),
                "new_anomalies": ", ".join(sorted(fresh)),
            })  # fmt: skip
    return rows


def worst(runs: Sequence[RunRow]) -> str:
    recorded = {run.verdict or "unjudged" for run in runs}
    return next(
        (one for one in ("fail", "unjudged", "unknown", "pass") if one in recorded),
        "not run",
    )


def unjudged(runs: Sequence[Night]) -> Rows:
    return [
        {"night": night, "folder": run.folder, "workload": run.workload, "nemesis": run.nemesis, "defect": run.defect,
         "status": run.status, "problem": run.problem or ""}
        for night, run in sorted(runs, key=lambda n: (n[0], n[1].folder, n[1].run))
        if run.verdict is None
    ]  # fmt: skip


def stored(place: Path, runs: Sequence[Night]) -> Path:
    for night, run in runs:
        store_run(place, date.fromisoformat(night), run)
    return place


def some_runs(seed: int, number: int, nights: Sequence[str] = NIGHTS) -> list[Night]:
    chance = random.Random(seed)
    return [(chance.choice(nights), random_run(chance)) for _ in range(number)]


def assert_equal(table: pa.Table, expected: Rows, name: str) -> None:
    rows = table.to_pylist()
    assert len(rows) == len(expected), (name, rows, expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert list(row) == list(wanted), name
        assert row == pytest.approx(wanted, nan_ok=False), (name, row, wanted)


SOME = some_runs(1, 40)


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    opened = DuckDB() if request.param == "duckdb" else request.getfixturevalue("application").engine(effects=0)
    with opened as running:
        yield running


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> NightTables:
    """The tables of ``SOME``, of a folder whose name looks like a pattern."""
    with DuckDB() as engine:
        return compute_tables_on(engine, stored(tmp_path_factory.mktemp("computed") / "[nights]", SOME), ZOO)


def test_the_tables_are_those_of_plain_python(computed: NightTables) -> None:
    check_tables(computed, SOME)


@pytest.mark.spark
def test_spark_computes_the_same_tables(application: Any, tmp_path: Path) -> None:
    with application.engine(effects=0) as engine:
        check_tables(compute_tables_on(engine, stored(tmp_path / "nights", SOME), ZOO), SOME)


@pytest.mark.parametrize(
    ("seed", "number", "nights"),
    [(2, 12, NIGHTS), (3, 9, NIGHTS[:1])],
)
def test_the_tables_of_few_runs_are_those_of_plain_python(
    engine: Engine, tmp_path: Path, seed: int, number: int, nights: tuple[str, ...]
) -> None:
    runs = some_runs(seed, number, nights)
    check_tables(compute_tables_on(engine, stored(tmp_path / "nights", runs), ZOO), runs)


def test_a_defect_of_which_no_anomaly_is_demanded_is_never_caught(engine: Engine, tmp_path: Path) -> None:
    runs, zoo = some_runs(5, 30), {"acks-early": (), "homemade": ("duplicate", "lost-write")}
    check_tables(compute_tables_on(engine, stored(tmp_path / "nights", runs), zoo), runs, zoo)


def check_tables(computed: NightTables, runs: Sequence[Night], zoo: DefectAnomalies = ZOO) -> None:
    newest, before = [*sorted({night for night, _ in runs}, reverse=True), None][:2]
    assert newest is not None
    assert (computed.night, computed.before) == (newest, before)
    expected = {
        "verdicts": verdicts(runs),
        "detection": detection(runs, zoo),
        "defects": defects(runs, zoo, newest),
        "recovery": recovery(runs),
        "changes": changes(runs, newest, before),
        "unjudged": unjudged(runs),
    }
    assert list(computed.tables) == list(expected)
    for name, rows in expected.items():
        assert_equal(computed.tables[name], rows, name)
    assert computed.missed == [row["defect"] for row in expected["defects"] if row["state"] != "caught"]


def test_added_in_another_order_and_twice_and_with_columns_of_other_names_the_tables_are_the_same(
    tmp_path: Path, computed: NightTables
) -> None:
    """Half of the parts are from before, when a column had another name."""
    place = stored(tmp_path / "mixed", [*SOME[5:], *reversed(SOME)])
    for part in sorted(place.glob("*/*.parquet"))[::2]:
        rows = pq.read_table(part).to_pylist()
        for fault in rows[0]["faults"]:
            fault["bit"] = fault.pop("took_effect")
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[-1]), part)
    with DuckDB() as engine:
        assert compute_tables_on(engine, place, ZOO) == computed


def test_the_command_tells_writes_and_requires(
    tmp_path: Path,
    computed: NightTables,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a Spark, which the command would start."""
    asked = []

    def compute(place: Path, zoo: DefectAnomalies, master: str | None) -> NightTables:
        assert (set(zoo), master) == (set(DEFECTS), "local[1]")
        asked.append(place)
        return computed

    monkeypatch.setattr(tables, "compute_tables", compute)
    place, out = stored(tmp_path / "nights", SOME[:3]), tmp_path / "out"
    given = ["nights", "show", str(place), "--spark-master=local[1]"]
    assert main([*given, "--json", f"--out={out}"]) == 0
    recorded = json.loads(capsys.readouterr().out)
    assert recorded == json.loads(to_json(computed))
    assert "never-run" in recorded["missed"]
    for name, rows in recorded["tables"].items():
        assert pq.ParquetFile(out / f"{name}.parquet").read().to_pylist() == rows
        with (out / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == len(rows)
    assert not list(out.glob(".*"))
    assert main([*given, "--json", f"--out={out}"]) == 0, "its own tables are replaced"
    capsys.readouterr()

    for name, content in (("verdicts.csv", b"mine\n1\n"), ("changes.parquet", b"mine"), ("defects.csv", b"\xff")):
        other = tmp_path / name.replace(".", "-")
        other.mkdir()
        (other / name).write_bytes(content)
        assert main([*given, f"--out={other}"]) == 64
        line = f"assay: {other / name} is no table of this command: move it away, or give another folder by --out"
        assert capsys.readouterr().err.splitlines() == [line]
        assert [(path.name, path.read_bytes()) for path in other.iterdir()] == [(name, content)]
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "verdicts.csv").symlink_to(out / "verdicts.csv")
    assert main([*given, f"--out={linked}"]) == 64
    capsys.readouterr()
    asked.clear()

    assert main([*given, "--require-detection"]) == 1
    shown = capsys.readouterr()
    assert f"{recorded['night']} did not catch" in shown.err
    assert "never-run" in shown.err
    assert f"verdicts of {recorded['night']}" in shown.out
    assert "acks-early" in shown.out
    assert "…" not in shown.out
    assert asked == [place]

    monkeypatch.undo()
    good = stored(tmp_path / "good", [("2026-11-21", sound())])
    assert main(["nights", "show", str(good), "--json"]) == 0
    recorded = json.loads(capsys.readouterr().out)
    assert (recorded["night"], recorded["before"], recorded["tables"]["changes"]) == ("2026-11-21", None, [])
    monkeypatch.setattr(nights, "read_defects", lambda arguments: {})
    assert main(["nights", "show", str(good), "--require-detection"]) == 0
    (good / "night=2026-11-21").rename(good / "night=2999-11-21")
    capsys.readouterr()
    for command in (["show", "--require-detection"], ["trends", "--check"]):
        assert main(["nights", command[0], str(good), *command[1:]]) == 64
        assert "assay: the newest night is 2999-11-21, which is in the future or no date" in capsys.readouterr().err
    assert main(["nights", "show", str(good)]) == 0, "it asks for no verdict"


@pytest.mark.spark
@pytest.mark.long
def test_a_standalone_cluster_computes_the_same_tables_on_all_its_workers(tmp_path: Path, cluster: Cluster) -> None:
    place = stored(tmp_path / "nights", some_runs(7, 60))
    code, recorded, done = cluster.asked("nights", "show", str(place))
    here = compute_tables(place, {defect.name: defect.anomalies for defect in DEFECTS.values()})
    assert code == 0
    assert json.loads(recorded) == json.loads(to_json(here))
    assert len(done) == WORKERS, done


def sound() -> RunRow:
    return next(run for seed in range(100) if (run := random_run(random.Random(seed))).defect == NONE)


def test_a_damaged_part_is_named_instead_of_what_the_engine_says(tmp_path: Path) -> None:
    place = stored(tmp_path / "nights", some_runs(6, 3))
    part = list_parts(place)[0]
    whole = part.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    part.write_bytes(whole[:4] + bytes(len(whole) - 4 - footer) + whole[-footer:])
    with pytest.raises(DataSetError, match=f"{part.name}: its content is damaged"):
        compute_tables(place, ZOO)


@pytest.mark.spark
@pytest.mark.long
def test_the_name_of_a_night_is_never_executed(application: Any, tmp_path: Path) -> None:
    """Folders of a data set may come from elsewhere, and Spark's SQL can call any method of Java."""
    runs = some_runs(7, 4, NIGHTS[:1])
    place = stored(tmp_path / "nights", runs)
    called = "reflect('java.lang.System', 'setProperty', 'assay.called', 'yes') is not null"
    name = f"z' or {called} or night = 'z"
    stored(tmp_path / "more", [(NIGHTS[1], run) for _, run in some_runs(8, 1)])
    (tmp_path / "more" / f"night={NIGHTS[1]}").rename(place / f"night={name}")
    for opened in (DuckDB(), application.engine(effects=0)):
        with opened as engine:
            found = compute_tables_on(engine, place, ZOO)
            assert (found.night, found.before) == (name, NIGHTS[0])
    jvm = application.session(effects=0).sparkContext._jvm
    assert jvm.java.lang.System.getProperty("assay.called") is None
