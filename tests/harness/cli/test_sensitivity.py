"""Tests ``assay sensitivity``: its output, the file that it writes, and its exit codes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.sensitivity import Sensitivity
from assay.cluster.owner import current_owner
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run import store
from assay.harness.sensitivity import measure as measuring

pytestmark = pytest.mark.slow

SETS = msgspec.structs.replace(forbid("set-lost", "set-phantom").forbid_also("set-stale"), minimum_operations=1)
STEP = 1_000_000


def run_folder(root: Path, contract: Contract = SETS, *, lose: int | None = None) -> Path:
    """Returns a run that adds twelve elements one after the other, and reads the set."""
    folder = store.create_run_folder(root, "t.py::t[none]", datetime(2026, 1, 1, tzinfo=UTC))
    with HistoryWriter(folder.history) as writer:
        for index in range(13):
            shown = [value for value in range(12) if value != lose]
            effects = [Effect("set-add", "s", value=index)]
            if index == 12:
                effects = [Effect("set-read", "s", value=value) for value in shown]
            completion = Completion(Outcome.OK, None if index < 12 else shown)
            call = (2 * index + 1) * STEP
            operation = Operation("add" if index < 12 else "read", "s", index)
            writer.completed(Completed(index, 0, "w0", operation, completion, call, call + STEP), effects)
    folder.write_json("settings.json", {"contract": msgspec.to_builtins(contract)})
    folder.write_run(
        store.RunInfo(
            test="t.py::t[none]", status=store.FINISHED, started="2026-01-01T00:00:00+00:00",
            owner=str(current_owner()), seed=3, cluster="sim", nemesis="none", command="pytest t.py --seed=3",
        )
    )  # fmt: skip
    folder.publish()
    return folder.path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_prints_the_shares_and_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    before = contents(run)
    assert main(["sensitivity", str(tmp_path / "latest")]) == ExitCode.PASS
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert " ".join(lines[0]) == "set-lost 100 % of 12 (76 to 100 %) 12 of 12 claims exposed"
    assert "not planted, because it is about the whole run, not about an object: no-recovery" in printed.out
    after = contents(run)
    assert after.keys() - before.keys() == {"sensitivity.json"}
    assert {name: after[name] for name in before} == before
    written = msgspec.json.decode(after["sensitivity.json"], type=Sensitivity)
    assert [share.anomaly for share in written.shares] == ["set-lost", "set-stale", "set-phantom"]
    assert "assay report" in printed.err


def test_json_is_the_content_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    assert main(["sensitivity", str(run), "--json"]) == ExitCode.PASS
    assert capsys.readouterr().out.encode() == (run / "sensitivity.json").read_bytes() + b"\n"


def test_a_file_of_others_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    (run / "sensitivity.json").write_text('{"notes": "mine"}')
    assert main(["sensitivity", str(run)]) == ExitCode.PASS
    assert "this command did not make this file" in capsys.readouterr().err
    assert (run / "sensitivity.json").read_text() == '{"notes": "mine"}'


def test_the_result_is_printed_though_its_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path)
    (run / "sensitivity.json").mkdir()
    assert main(["sensitivity", str(run)]) == ExitCode.PASS
    printed = capsys.readouterr()
    assert printed.out.startswith("set-lost")
    assert f"not written: {run / 'sensitivity.json'}: " in printed.err


def test_a_part_of_the_anomalies_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the report would show that part as if it were everything."""
    run = run_folder(tmp_path)
    before = contents(run)
    assert main(["sensitivity", str(run), "--anomaly=set-lost", "--anomaly=set-stale", "--json"]) == ExitCode.PASS
    printed = msgspec.json.decode(capsys.readouterr().out, type=Sensitivity)
    assert [share.anomaly for share in printed.shares] == ["set-lost", "set-stale"]
    assert contents(run) == before


def test_plants_and_seed_reach_the_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    assert main(["sensitivity", str(run), "--plants=4", "--seed=9", "--json"]) == ExitCode.PASS
    printed = msgspec.json.decode(capsys.readouterr().out, type=Sensitivity)
    assert printed.seed == 9
    assert {share.anomaly: share.planted for share in printed.shares} == {
        "set-lost": 4,
        "set-stale": 4,
        "set-phantom": 1,
    }


def test_a_history_without_a_run_is_measured_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path)
    before = contents(run)
    assert main(["sensitivity", str(run / "history"), "--anomaly=set-lost"]) == ExitCode.PASS
    assert contents(run) == before
    assert capsys.readouterr().out.startswith("set-lost")


@pytest.mark.parametrize(
    ("lose", "options", "said"),
    [
        (7, [], "did not pass (its verdict is fail)"),
        (None, ["--anomaly=stale-read"], "the run does not forbid stale-read; it forbids "),
        (None, ["--plants=0"], "--plants"),
    ],
)
def test_wrong_usage_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lose: int | None, options: list[str], said: str
) -> None:
    run = run_folder(tmp_path, lose=lose)
    before = contents(run)
    try:
        code = main(["sensitivity", str(run), *options])
    except SystemExit as ended:  # argparse
        code = ExitCode(ended.code)
    assert code == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert contents(run) == before


def test_a_missing_path_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensitivity", str(tmp_path / "nothing")]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing" in line


def test_a_violation_that_no_check_finds_is_a_defect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "find_violated", lambda *given: {})
    assert main(["sensitivity", str(run_folder(tmp_path))]) == ExitCode.FAIL
    assert "NOT CAUGHT, though exposed: s: element " in capsys.readouterr().out
