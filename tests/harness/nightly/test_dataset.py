"""Tests what a run's folder becomes, and that the data set is the same however it was put together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.judging.contract import NO_RECOVERY, Contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.cli.main import main
from assay.harness.core.files import SpecialFileError
from assay.harness.nightly.dataset import DataSetError, add_stores, list_parts, read_runs
from assay.harness.nightly.dataset_schema import SCHEMA, RunRow
from assay.harness.nightly.run_row import make_row
from assay.harness.run import store
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.experiment import Experiment
from assay.harness.run.settings import Settings
from assay.workloads.broker.log_drain import drain
from assay.workloads.broker.log_operations import traffic

from helpers.night_runs import SECOND, finding, run_folder

BEGAN = datetime(2026, 11, 21, 2, 17, tzinfo=UTC)


def content(dataset: Path) -> dict[str, pa.Table]:
    """Every file that a reader sees, by its path in the data set."""
    return {str(part.relative_to(dataset)): pq.ParquetFile(part).read() for part in list_parts(dataset)}


def quietly(run: RunRow) -> None:
    assert run.run


def build(into: Path, orders: Sequence[Sequence[Path]]) -> dict[str, pa.Table]:
    for stores in orders:
        add_stores(stores, into, None, quietly)
    return content(into)


def test_a_run_is_one_row_with_its_faults_findings_and_times_of_recovery(tmp_path: Path) -> None:
    folder = run_folder(
        tmp_path, BEGAN, defect="acks-early", verdict=Verdict.FAIL, anomalies={"lost-write": 3, "duplicate": 1},
        forbidden=("lost-write",), unknown=("too little happened",), operations=4,
        findings=(finding("lost-write", 5 * SECOND), finding("lost-write", 4 * SECOND), finding("duplicate", SECOND)),
    )  # fmt: skip
    run = make_row(folder.path)
    assert (run.workload, run.nemesis, run.defect, run.cluster, run.seed) == (
        "test_log",
        "kill",
        "acks-early",
        "sim",
        7,
    )
    assert (run.status, run.verdict, run.problem, run.run_seconds, run.operations) == ("finished", "fail", None, 9.0, 4)
    assert run.unknown == ("too little happened",)
    duplicate, lost = run.findings
    assert (duplicate.anomaly, duplicate.forbidden, duplicate.instances) == ("duplicate", False, 1)
    assert (duplicate.time, duplicate.since_fault) == (SECOND, -SECOND), "it was there before the fault"
    assert (lost.anomaly, lost.forbidden, lost.instances) == ("lost-write", True, 3)
    assert (lost.time, lost.since_fault) == (4 * SECOND, 2 * SECOND)
    (fault,) = run.faults
    assert (fault.fault, fault.targets, fault.took_effect, fault.failed) == ("kill", ("n1",), True, False)
    assert (fault.intended, fault.injected, fault.healed) == (1, 2 * SECOND, 3 * SECOND)
    (back,) = run.returns
    assert (back.key, back.change, back.changed, back.looked) == ("orders-0", "send", 50_001_000, None)


def test_what_is_added_in_any_order_in_parts_or_twice_is_the_same_data_set(tmp_path: Path) -> None:
    one, two, three = stores = [tmp_path / name for name in ("one", "two", "three")]
    for number, root in enumerate(stores):
        run_folder(root, BEGAN + timedelta(hours=12 * number))
    run_folder(one, BEGAN, status=store.ERROR, judged=False)
    (run_folder(two, BEGAN).path / "run.json").write_bytes(b"{")
    expected = build(tmp_path / "all", [stores])
    assert len(expected) == 5
    assert {path.partition("/")[0] for path in expected} == {"night=2026-11-21", "night=2026-11-22"}
    assert build(tmp_path / "parts", [[three], [one, two], [two, three, three]]) == expected
    assert build(tmp_path / "all", [[two, one]]) == expected


def test_a_run_has_one_place_wherever_its_store_lies_and_whatever_night_it_is_put_under(tmp_path: Path) -> None:
    run_folder(tmp_path / "here", BEGAN).publish()
    shutil.copytree(tmp_path / "here", tmp_path / "elsewhere")  # makes folders of the links called latest
    add_stores([tmp_path / "here", tmp_path / "elsewhere"], tmp_path / "nights", None, quietly)
    add_stores([tmp_path / "elsewhere"], tmp_path / "nights", date(2026, 11, 20), quietly)
    (path,) = content(tmp_path / "nights")
    assert path.startswith("night=2026-11-20/")


def test_runs_of_two_machines_at_one_instant_are_two(tmp_path: Path) -> None:
    for machine in ("a", "b"):
        folder = run_folder(tmp_path / machine, BEGAN)
        recorded = msgspec.json.decode((folder.path / "run.json").read_bytes())
        folder.write_json("run.json", recorded | {"owner": f"12.345.{machine}.4026531836"})
    assert len(build(tmp_path / "nights", [[tmp_path / "a", tmp_path / "b"]])) == 2


def spoil_verdict(folder: Path) -> None:
    (folder / "verdict.json").write_bytes(b'{"verdict": "pa')


def contradict_verdict(folder: Path) -> None:
    path = folder / "verdict.json"
    path.write_bytes(path.read_bytes().replace(b'"verdict": "unknown"', b'"verdict": "pass"'))


def spoil_settings(folder: Path) -> None:
    (folder / "settings.json").write_bytes(b"[]")


def spoil_history(folder: Path) -> None:
    for part in (folder / "history" / "effects").iterdir():
        part.write_bytes(b"PAR1")


def lose_history(folder: Path) -> None:
    shutil.rmtree(folder / "history")


def spoil_run(folder: Path) -> None:
    (folder / "run.json").write_bytes(b"")


def undate_run(folder: Path) -> None:
    recorded = msgspec.json.decode((folder / "run.json").read_bytes())
    (folder / "run.json").write_bytes(msgspec.json.encode(recorded | {"started": "yesterday"}))


@pytest.mark.parametrize(
    "spoil",
    [spoil_verdict, contradict_verdict, spoil_settings, spoil_history, lose_history, spoil_run, undate_run],
)
def test_a_damaged_run_is_there_without_a_verdict_and_says_why(tmp_path: Path, spoil: Any) -> None:
    folder = run_folder(tmp_path, BEGAN).path
    assert make_row(folder).verdict == "unknown"
    spoil(folder)
    run = make_row(folder)
    assert (run.status, run.verdict) == ("damaged", None)
    assert run.problem


@pytest.mark.parametrize(
    ("status", "judged", "recorded", "problem"),
    [
        (store.ERROR, False, "error", "it did not end"),
        (store.RUNNING, False, "running", "it did not end"),
        (store.FINISHED, False, "finished", "it was not judged"),
        (store.INTERRUPTED, True, "damaged", "says pass, and run.json that the run is interrupted"),
    ],
)
def test_a_run_that_did_not_end_well_is_never_a_pass(
    tmp_path: Path, status: str, judged: bool, recorded: str, problem: str
) -> None:
    run = make_row(run_folder(tmp_path, BEGAN, status=status, judged=judged, verdict=Verdict.PASS).path)
    assert (run.status, run.verdict) == (recorded, None)
    assert problem in str(run.problem)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", {"started": "9999-12-31T23:59:59.999999-14:00"}),
        ("run.json", {"started": "0001-01-01T00:00:00+14:00"}),
        ("run.json", {"seed": 2**63}),
        ("verdict.json", {"operations": 2**63}),
        ("verdict.json", {"effects": -(2**70)}),
    ],
)
def test_a_run_with_a_value_that_no_run_has_is_damaged_and_the_others_are_added(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    odd, _ = run_folder(tmp_path / "store", BEGAN), run_folder(tmp_path / "store", BEGAN + timedelta(hours=1))
    recorded = msgspec.json.decode((odd.path / name).read_bytes())
    (odd.path / name).write_text(json.dumps(recorded | content))
    runs: list[RunRow] = []
    add_stores([tmp_path / "store"], tmp_path / "nights", None, runs.append)
    assert [(run.status, run.verdict) for run in runs] == [("damaged", None), ("finished", "unknown")]
    assert str(runs[0].problem).startswith("its files have values that no run has: ")
    assert read_runs(tmp_path / "nights")


def test_a_run_whose_folder_has_any_name_is_added(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/store/foreign/\xff"
    os.makedirs(place)
    with open(place + b"/run.json", "w") as file:
        file.write("{")
    runs: list[RunRow] = []
    add_stores([tmp_path / "store"], tmp_path / "nights", None, runs.append)
    assert [(run.status, run.folder) for run in runs] == [("damaged", "foreign/\\udcff")]


def test_a_run_that_its_session_still_judges_goes_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, BEGAN, judged=False)
    recorded = msgspec.json.decode((folder.path / "run.json").read_bytes())
    folder.write_json("run.json", recorded | {"in_use": True})
    run = make_row(folder.path)
    assert (run.status, run.verdict, run.problem) == (
        "running", None, "it has ended, and its session may still judge it"
    )  # fmt: skip


def test_a_run_whose_process_is_dead_was_abandoned_and_its_defect_is_known_without_settings(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c",
                            "from assay.cluster.owner import current_owner; print(current_owner())"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    folder = run_folder(
        tmp_path, BEGAN, status=store.RUNNING, judged=False, settings=False, defect="acks-early",
        test="workloads/test_log.py::test_log[kill]",
    )  # fmt: skip
    recorded = msgspec.json.decode((folder.path / "run.json").read_bytes())
    folder.write_json("run.json", recorded | {"owner": ended.stdout.strip()})
    run = make_row(folder.path)
    assert (run.status, run.verdict, run.workload, run.defect) == ("abandoned", None, "test_log", "acks-early")


def test_what_was_cut_off_while_being_written_is_not_seen(tmp_path: Path) -> None:
    run_folder(tmp_path / "store", BEGAN)
    before = build(tmp_path / "nights", [[tmp_path / "store"]])
    (tmp_path / "nights" / "night=2026-11-21" / ".cut.parquet.77").write_bytes(b"PAR1")
    assert content(tmp_path / "nights") == before


def test_the_command_names_what_has_no_verdict_and_what_is_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, into = tmp_path / "store", tmp_path / "nights"
    folder = run_folder(root, BEGAN, status=store.ERROR, judged=False)
    assert main(["nights", "add", str(root), f"--into={into}"]) == 0
    recorded = capsys.readouterr()
    assert recorded.out == f"1 run added to {into}\n"
    assert f"{folder.path.parent.name}/{folder.path.name} has no verdict (error)" in recorded.err
    assert main(["nights", "add", str(tmp_path / "no"), f"--into={into}"]) == 64
    assert "no store with runs in it" in capsys.readouterr().err
    assert main(["nights", "add", str(root), f"--into={root}"]) == 64
    assert "holds something else" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="64"):
        main(["nights", "add", str(root), f"--into={into}", "--night=today"])
    assert "is not a date; give one such as" in capsys.readouterr().err


def test_a_data_set_that_is_none_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match="holds no runs; `assay nights add"):
        list_parts(tmp_path / "nights")
    run_folder(tmp_path / "store", BEGAN)
    add_stores([tmp_path / "store"], tmp_path / "nights", None, quietly)
    (part,) = list_parts(tmp_path / "nights")
    whole = part.read_bytes()
    part.write_bytes(whole[:4] + bytes(60) + whole[64:])
    with pytest.raises(DataSetError, match=f"{part.name}: its content is damaged; delete it, and add its run again"):
        read_runs(tmp_path / "nights")
    part.write_bytes(b"")
    with pytest.raises(DataSetError, match="it is not a Parquet file"):
        list_parts(tmp_path / "nights")
    pq.write_table(pa.table({"run": ["x"]}), part)
    with pytest.raises(DataSetError, match="other columns than a run"):
        list_parts(tmp_path / "nights")
    pq.write_table(SCHEMA.empty_table(), part)
    assert list_parts(tmp_path / "nights") == [part]
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(SpecialFileError, match=rf"{part.name}: this is a FIFO, and reading it may never end"):
        list_parts(tmp_path / "nights")


@pytest.mark.slow
def test_a_real_run_is_recorded_as_it_was_judged(toy: ModuleType, tmp_path: Path) -> None:
    """The verdict's own words about recovery say the same as the rows."""
    keys = ("orders-0", "orders-1")
    made = Experiment(
        "test_toy", toy.ToySystem(), toy.ToyClient, Contract(minimum_during_fault=0),
        lambda settings: traffic(keys) | drain(keys, seconds=10),
    )  # fmt: skip
    settings = Settings(seed=4, nodes=1, nemesis=("stop",), nemesis_interval=2, time_limit=8, rate=40, store=tmp_path)
    attempt = Attempt(made, settings, "toy.py::test_toy[stop]", "pytest toy.py", reports=ReportPolicy.NEVER)
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    run = make_row(attempt.folder.path)
    judgement = attempt.judgement
    assert isinstance(judgement, Judgement)
    assert (run.verdict, run.operations, run.digest) == (str(judgement.verdict), judgement.operations, attempt.digest)
    assert (run.workload, run.nemesis, run.status) == ("test_toy", "stop", "finished")
    assert run.faults
    assert all(fault.fault == "stop" and fault.targets for fault in run.faults)
    note = next(one.note for one in judgement.examined if one.check == NO_RECOVERY)
    for fault in run.faults:
        mine = [back for back in run.returns if back.fault_id == fault.id]
        assert {back.key for back in mine} == set(keys)
        slowest = [back.changed for back in mine if back.changed is not None]
        assert f"fault {fault.id} (stop): send {max(slowest) / SECOND:.3f} s" in str(note)
