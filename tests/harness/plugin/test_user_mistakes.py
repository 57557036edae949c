"""A mistake of a user is an error that says what to do, and no traceback of the harness."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.owner import current_owner
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryError, HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run import store
from assay.harness.run.experiment import IncompleteError, experiment

from helpers.nightly import by_night

SIM = ("--cluster=sim", "--seed=7", "--time-limit=1", "--rate=100", "--nodes=1", "--reports=never")


def everything(result: pytest.RunResult) -> str:
    text = "\n".join([*result.outlines, *result.errlines])
    assert "INTERNALERROR" not in text
    return text


@pytest.mark.parametrize("place", ["file/store", "/proc/store", "x" * 300])
def test_a_store_that_cannot_be_written(toy_project: pytest.Pytester, place: str) -> None:
    (toy_project.path / "file").touch()
    result = toy_project.runpytest_inprocess(*SIM, f"--store={place}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = everything(result)
    assert f"{place} cannot be written (" in said
    assert "name another folder" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("place", "refused"), [("t", True), ("t/store", True), ("store", False), ("tt", False)])
def test_a_store_that_pytest_would_delete(toy_project: pytest.Pytester, place: str, refused: bool) -> None:
    earlier = toy_project.path / place / "test" / "run"
    earlier.mkdir(parents=True)
    (earlier / "kept").touch()
    result = toy_project.runpytest_inprocess(*SIM, f"--store={place}", "--basetemp=t")
    assert (earlier / "kept").exists()
    assert (result.ret == pytest.ExitCode.USAGE_ERROR) is refused
    assert ("is in the folder of --basetemp=" in everything(result)) is refused


def test_a_store_whose_path_is_not_utf8(toy_project: pytest.Pytester) -> None:
    place = os.fsdecode(b"st\xff\xfe")
    result = toy_project.runpytest_inprocess(*SIM, f"--store={place}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "st\\udcff\\udcfe is not UTF-8, and Parquet files cannot be there: name another folder" in everything(result)


@pytest.mark.parametrize("name", [by_night(b"test_a\xff.py"), b"d\xff/test_a.py"])
def test_a_test_file_whose_name_is_not_utf8(toy_project: pytest.Pytester, name: bytes) -> None:
    path = toy_project.path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    (toy_project.path / "test_file.py").rename(path)
    result = toy_project.runpytest_subprocess(*SIM, path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = everything(result)
    assert "\\udcff" in said
    assert "the name of its file or folder is not utf-8, the encoding of this session: rename it" in said
    assert "Traceback" not in said


def test_a_store_is_not_made_for_other_tests_or_by_a_look_at_what_there_is(toy_project: pytest.Pytester) -> None:
    toy_project.runpytest_inprocess(*SIM, "--collect-only")
    (toy_project.path / "test_file.py").unlink()
    toy_project.makepyfile(test_other="def test_other(): pass")
    toy_project.runpytest_inprocess().assert_outcomes(passed=1)
    assert not (toy_project.path / "store").exists()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "    async def ready(self, node: Node) -> bool:\n",
            "    async def ready(self, node: Node) -> bool:\n        return node.no_such_name\n",
            r"ready\(\) of n1 raised AttributeError: .* no attribute 'no_such_name' at toy_log.py:\d+",
        ),
        (
            "    async def ready(self, node: Node) -> bool:\n",
            "    def ready(self, node: Node) -> bool:\n        return True\n\n    async def was(self, node: Node):\n",
            r"ready\(\) of n1 returned True, which cannot be awaited: write `async def`",
        ),
    ],
    ids=["AttributeError", "not async"],
)
def test_a_ready_that_no_later_answer_mends_is_asked_once(
    toy_project: pytest.Pytester, before: str, after: str, said: str
) -> None:
    system = toy_project.path / "toy_log.py"
    system.write_text(system.read_text().replace(before, after, 1))
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    result = toy_project.runpytest_inprocess(*SIM)
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines([rf".*the cluster did not start: {said}"])
    result.stdout.no_fnmatch_line("*was not ready within*")


def test_a_system_is_an_instance_a_client_a_class_and_a_test_takes_settings(toy: ModuleType) -> None:
    given: dict[str, Any] = {"system": toy.ToySystem(), "client": toy.ToyClient, "contract": Contract()}

    def test_well(settings: Any) -> Any: ...

    def test_mine() -> None: ...

    def test_two(settings: Any, other: Any) -> None: ...

    bodies: dict[str, Any] = {"mine": test_mine, "two": test_two}
    experiment(**given)(test_well)
    with pytest.raises(IncompleteError, match=r"system=ToySystem is a class: give an instance of it, ToySystem\("):
        experiment(**given | {"system": toy.ToySystem})(test_well)
    with pytest.raises(IncompleteError, match=r"client=ToyClient\(...\) is an object: give the class, ToyClient;"):
        experiment(**given | {"client": toy.ToyClient()})(test_well)
    with pytest.raises(IncompleteError, match=r"test_mine\(\).* must take the settings .*def test_mine\(settings"):
        experiment(**given)(bodies["mine"])
    with pytest.raises(IncompleteError, match="missing a required argument: 'other'"):
        experiment(**given)(bodies["two"])


def completed(f: str, argument: object = None) -> Completed:
    return Completed(0, 0, "w0", Operation(f, "k", argument), Completion(Outcome.OK), 1, 2)


def test_a_number_of_101_bits_in_an_effect_is_named(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    effects = [Effect("append", "k", value=1), Effect("append", "k", value=2**100)]
    said = rf"column value .* takes int64, and one of its values is {2**100}"
    with pytest.raises(HistoryError, match=said), writer:
        writer.completed(completed("send"), effects)


def test_a_nul_in_a_verb_is_text_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HistoryWriter(tmp_path / "history") as writer:
        writer.completed(completed("a\0b", "\0"), [Effect("register-write", "k\0", value=1)])
    for engine in ("sqlite", "duckdb"):
        assert main(["check", str(tmp_path / "history"), f"--engine={engine}"]) == 2
    assert main(["check", str(tmp_path / "history"), "--model=register"]) in (2, 64)
    assert "Traceback" not in capsys.readouterr().err


def run_folder(root: Path) -> Path:
    folder = store.create_run_folder(root, "t.py::t[none]", datetime(2026, 1, 1, tzinfo=UTC))
    with HistoryWriter(folder.history) as writer:
        writer.completed(completed("sénd", "é"), [Effect("append", "k", position=0, value=1)])
    info = store.RunInfo(
        test="t.py::t[none]", status=store.FINISHED, started="2026-01-01T00:00:00+00:00", owner=str(current_owner()),
        seed=1,
        cluster="sim", nemesis="none", command="pytest t.py::t --seed=1",
    )  # fmt: skip
    folder.write_run(info)
    folder.write_json("settings.json", {"contract": {}})
    return folder.path


@pytest.mark.parametrize("column", ["call", "f"])
@pytest.mark.parametrize("verb", ["check", "report"])
def test_a_column_without_a_value_is_named(
    tmp_path: Path, column: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path)
    path = max((run / "history/ops").glob("*.parquet"))
    table = pq.read_table(path)
    number = table.schema.get_field_index(column)
    field = table.schema.field(number)
    pq.write_table(table.set_column(number, field.with_nullable(True), pa.nulls(1, field.type)), path)
    assert main([verb, str(run)]) == 64
    said = capsys.readouterr().err
    assert path.name in said
    assert column in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("verb", "name"), [("report", "report.html"), ("index", "index.html")])
def test_a_page_that_cannot_be_written(
    tmp_path: Path, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder lies at the page's path, because root may write everywhere else."""
    run = run_folder(tmp_path / "store")
    place = run if verb == "report" else tmp_path / "store"
    (place / name).mkdir()
    assert main([verb, str(place)]) == 64
    said = capsys.readouterr().err
    assert name in said
    assert "give a place that can be read and written" in said
    assert "Traceback" not in said


def test_output_that_takes_ascii_alone(tmp_path: Path) -> None:
    place = tmp_path / "störe"
    place.mkdir()
    command = [sys.executable, "-m", "assay.harness.cli.main", "index", str(place)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("st\\xf6re/index.html\n")
