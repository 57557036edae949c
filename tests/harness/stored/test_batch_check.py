"""Many stored runs in one pass: of each what ``assay check`` says of it alone, whatever its neighbours are."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history.live_manifest import read_manifest
from assay.harness.core.history.schema import SCHEMAS
from assay.harness.run.judging import SupportsOpen
from assay.harness.run.store import RunInfo
from assay.harness.stored import batch_check
from assay.harness.stored.batch_check import BatchResult, judge_many
from assay.harness.stored.by_contract import StoredHistory

from helpers.judging import without_times
from helpers.stored_runs import FIXTURES, TODAY

ALL = sorted(path.parent for path in FIXTURES.glob("format_*/*/history"))
RUN = RunInfo(
    test="t", status="finished", started="2026-11-20T00:00:00+00:00", owner="1:2@boot", seed=1, cluster="sim",
    nemesis="none", command="pytest",
)  # fmt: skip
SOME = [
    TODAY / "synthetic-register-lost-update",
    TODAY / "synthetic-set-set-lost",
    TODAY / "zookeeper_group-double-ownership",
    FIXTURES / "format_4" / "log-pass-strict",
]
"""Small runs of two formats, three kinds of objects, a log of messages, and verdicts of both sorts."""
LOG = SOME[3]


def reported(judged: BatchResult) -> Any:
    return judged.path, None if judged.judgement is None else without_times(judged.judgement), judged.text


def in_any_engine(judged: BatchResult) -> Any:
    """A task of Spark chooses SQLite for small histories; here DuckDB was asked for."""
    path, judgement, text = reported(judged)
    return path, None if judgement is None else msgspec.structs.replace(judgement, engine=""), text


def judged(paths: list[Path], **options: Any) -> list[BatchResult]:
    with Engines("duckdb") as engines:
        return list(judge_many(paths, engines, (), **options))


@functools.cache
def by_itself(path: Path) -> BatchResult:
    """Once for all tests: to be asked before anything is patched."""
    (one,) = judged([path])
    return one


def alone(path: Path) -> Any:
    return reported(by_itself(path))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The first page of its last part of effects is lost."""
    copy = tmp_path / "damaged"
    shutil.copytree(LOG, copy)
    part = sorted((copy / "history" / "effects").glob("*.parquet"))[-1]
    whole = part.read_bytes()
    part.write_bytes(whole[:20] + bytes(100) + whole[120:])
    return copy


@pytest.mark.parametrize("paths", [SOME, pytest.param(ALL, marks=pytest.mark.long)], ids=["some", "all"])
def test_of_each_is_said_what_is_said_of_it_alone(paths: list[Path], damaged: Path) -> None:
    with_neighbour = [*paths[:2], damaged, *paths[2:]]
    steps: list[int] = []
    together = judged(with_neighbour, progress=steps.append)
    assert [reported(one) for one in together] == list(map(alone, with_neighbour))
    assert {one.judgement and one.judgement.verdict for one in together} >= {Verdict.PASS, Verdict.FAIL, None}
    assert str(damaged / "history" / "effects") in together[2].text
    assert steps == list(range(1, len(with_neighbour) + 1))


def test_small_ones_share_a_database_and_others_have_their_own(monkeypatch: pytest.MonkeyPatch, damaged: Path) -> None:
    """A damaged or large history is judged alone."""
    counts: list[int] = []
    together = batch_check.open_together

    def counted(histories: Any, engines: Engines) -> Any:
        counts.append(len(histories))
        return together(histories, engines)

    one = by_itself(SOME[1])
    assert one.judgement is not None
    monkeypatch.setattr(batch_check, "judge_again", lambda *_: one.judgement)
    monkeypatch.setattr(batch_check, "explain", lambda *_: SimpleNamespace(text=""))
    monkeypatch.setattr(batch_check, "open_together", counted)
    judged([*SOME, damaged])
    assert counts == [4]
    monkeypatch.setattr(batch_check, "SMALL_ROWS", 3_500)
    judged(SOME)
    assert counts[1:] == [3], "one has some 3,600 rows"
    monkeypatch.setattr(batch_check, "SMALL_ROWS", 100_000)
    monkeypatch.setattr(batch_check, "BATCH_ROWS", 4_000)
    judged(SOME)
    assert counts[2:] == [2, 1, 1], "those with some 900, 1,500, 1,900 and 3,600 rows"
    monkeypatch.setattr(batch_check, "BATCH", 3)
    monkeypatch.setattr(batch_check, "BATCH_ROWS", 500_000)
    judged(SOME)
    assert counts[5:] == [3, 1]


def test_what_goes_wrong_together_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [alone(path) for path in SOME[1:4:2]]
    judge_again, refused = batch_check.judge_again, []

    def judge(stored: Any, history: Any, engines: SupportsOpen, registry: Any) -> Judgement:
        if not isinstance(engines, Engines):
            refused.append(stored.history)
            raise batch_check.EngineError("no room")
        return judge_again(stored, history, engines, registry)

    monkeypatch.setattr(batch_check, "judge_again", judge)
    assert [reported(one) for one in judged(SOME[1:4:2])] == expected
    assert len(refused) == 2


@pytest.mark.long
def test_a_line_for_each_and_the_worst_of_them_is_the_exit_code(
    tmp_path: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passed, failed = LOG, TODAY / "synthetic-set-set-lost"
    (tmp_path / "latest").symlink_to(failed)
    (tmp_path / "nights").mkdir()
    paths = [passed, damaged, failed, tmp_path / "latest", tmp_path / "nights"]
    assert main(["check", *map(str, paths)]) == ExitCode.FAIL
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith(f"pass     {passed}  ")
    assert "operations" in lines[0]
    assert lines[1].startswith(f"error    {damaged}  ")
    assert "cannot be read" in lines[1]
    assert lines[2].startswith(f"FAIL     {failed}  set-lost: ")
    assert lines[3:] == [f"3 histories: 1 fail, 1 error, 1 pass; for the details of one: assay check {failed}"]
    assert said.err.splitlines() == [
        f"assay: neither runs nor history folders, skipped: {tmp_path / 'nights'}",
    ]
    assert main(["check", str(passed), str(damaged)]) == ExitCode.USAGE


def test_one_that_cannot_be_read_keeps_no_other_from_being_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, waiting = TODAY / "synthetic-set-set-lost", tmp_path / "waiting"
    shutil.copytree(LOG, waiting)
    os.mkfifo(waiting / "history" / "ops" / "part-9.parquet")
    assert main(["check", str(waiting), str(failed)]) == ExitCode.FAIL
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"error    {waiting}  ")
    assert "this is a FIFO" in lines[0]
    assert lines[1].startswith(f"FAIL     {failed}  ")


def test_as_json_there_is_an_object_for_each(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(SOME[1]), str(damaged)]) == ExitCode.FAIL
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["path"] == str(SOME[1])
    assert msgspec.convert(first["judgement"], Judgement).verdict is Verdict.FAIL
    assert second["path"] == str(damaged)
    assert "cannot be read" in second["problem"]


@pytest.mark.parametrize("noted", [True, False], ids=["in a check", "elsewhere"])
def test_what_a_check_of_ones_own_has_wrong_is_said_of_the_history_and_ends_no_pass(
    noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the project's own does."""
    first = by_itself(SOME[1])

    def judge_again(stored: StoredHistory, *_: Any) -> Judgement:
        if SOME[1] in stored.history.parents:
            assert first.judgement is not None
            return first.judgement
        error = KeyError("late_op")
        if noted:
            error.add_note("in the check 'early-send'")
        raise error

    monkeypatch.setattr(batch_check, "judge_again", judge_again)
    monkeypatch.setattr(batch_check, "explain", lambda *_: SimpleNamespace(text="as ever"))
    if not noted:
        with pytest.raises(KeyError):
            judged([SOME[1], LOG])
        return
    one, other = judged([SOME[1], LOG])
    assert one.judgement == first.judgement
    assert (other.judgement, other.text) == (None, "in the check 'early-send': KeyError: 'late_op'")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model=kv"], "--model is for one history, and 2 paths were given"),
        (["--time-limit=5"], "--time-limit is for one history, and 2 paths were given"),
        (["--plugin=no_such_module"], "no_such_module"),
        (["no/such/run"], "no/such/run does not exist"),
    ],
)
def test_what_cannot_be_asked_of_many_is_an_error(
    more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *map(str, SOME[:2]), *more]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_where_there_is_no_run_at_all_it_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert main(["check", *map(str, folders)]) == ExitCode.USAGE
    said = f"there is no run or history folder, with ops/ or history/ops/ in it, at {folders[0]}, {folders[1]}"
    assert said in capsys.readouterr().err


def test_a_store_and_the_folder_of_a_test_stand_for_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are laid out: STORE/TEST/TIME, with links to the latest ones and folders that are no test's.

    All runs are the same one, which is judged once.
    """
    one = by_itself(SOME[1]).judgement
    monkeypatch.setattr(batch_check, "judge_again", lambda *_: one)
    store = tmp_path / "store"
    runs = [store / "test_a" / "1", store / "test_a" / "2", store / "test_b" / "1"]
    died = store / "test_b" / "2"
    for run in runs:
        shutil.copytree(SOME[1] / "history", run / "history")
    died.mkdir(parents=True)
    for run in (*runs, died):
        (run / "run.json").write_bytes(msgspec.json.encode(RUN))
    (store / "latest").symlink_to(runs[2])
    (store / "test_b" / "latest").symlink_to(runs[2])
    for other in ("searches", "nights"):
        (store / other / "one").mkdir(parents=True)

    def check(*asked: Path) -> tuple[list[str], str]:
        assert main(["check", *map(str, asked)]) == ExitCode.FAIL
        said = capsys.readouterr()
        return [line.split()[1] for line in said.out.splitlines()[:-1]], said.err

    assert check(store) == ([*map(str, runs), str(died)], "")
    assert check(store / "test_a") == (list(map(str, runs[:2])), "")
    spaced = store / "test c"
    (store / "test_b").rename(spaced)
    main(["check", str(spaced), "--plugin=helpers.extension"])
    ends = capsys.readouterr().out.splitlines()[-1]
    assert ends.endswith(f"for the details of one: assay check '{spaced / '1'}' --plugin=helpers.extension")
    spaced.rename(store / "test_b")
    each, _ = check(*sorted(store.iterdir()))
    assert sorted(each) == sorted([str(store / "latest"), *map(str, runs[:2]), str(died)])
    assert main(["check", str(store), "--model=kv"]) == ExitCode.USAGE
    assert f"--model is for one history, and {store} is a folder of runs" in capsys.readouterr().err


def test_text_that_is_not_utf_8_is_said_of_its_own_history_alone(tmp_path: Path) -> None:
    """Histories that share a database with it are judged as ever."""
    strange = tmp_path / "strange"
    shutil.copytree(LOG, strange)
    part = sorted((strange / "history" / "ops").glob("*.parquet"))[-1]
    rows = pq.read_table(part)
    texts = pa.array([b'"\xff"', *(b"0" for _ in range(rows.num_rows - 1))], pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    place = rows.schema.get_field_index("argument")
    pq.write_table(rows.set_column(place, rows.schema.field(place), column), part)
    first, second, third = judged([SOME[3], strange, SOME[1]])
    assert [reported(first), reported(third)] == [alone(SOME[3]), alone(SOME[1])]
    assert second.judgement is None
    assert second.text.startswith(f"{part}: row 1: argument does not fit string")


def _manifest(under_way: dict[str, str], **parts: int) -> bytes:
    return json.dumps({"number": 1, "parts": parts, "under_way": under_way}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        _manifest({}, **dict.fromkeys(SCHEMAS, 0) | {"ops": 2_000_000}),
        _manifest({}, **{name: 1 for name in SCHEMAS if name != "faults"}),
        _manifest({"opps": "ops-under-way-000001.parquet"}, **dict.fromkeys(SCHEMAS, 1)),
        _manifest({"ops": "../ops/part-000000.parquet"}, **dict.fromkeys(SCHEMAS, 1)),
    ],
    ids=["empty", "many parts", "without faults", "unknown data set", "another folder"],
)
def test_what_a_run_noted_of_how_far_it_was_may_be_damaged(tmp_path: Path, content: bytes) -> None:
    run = tmp_path / "run"
    shutil.copytree(SOME[3], run)
    (run / "history" / "closed.json").unlink()
    noted = run / "history" / ".unfinished" / "sealed.json"
    noted.parent.mkdir()
    noted.write_bytes(content)
    one, other = judged([run, SOME[1]])
    assert one.text.startswith(f"{noted} is damaged: ")
    assert "remove .unfinished/" in one.text
    assert other.judgement is not None


def test_a_manifest_of_before_a_later_data_set_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "history" / ".unfinished"
    folder.mkdir(parents=True)
    (folder / "sealed.json").write_bytes(_manifest({}, **{name: 1 for name in SCHEMAS if name != "looks"}))
    manifest = read_manifest(folder.parent)
    assert manifest is not None
    found = manifest.paths(folder.parent)
    assert (found["looks"], found["ops"]) == ([], [folder.parent / "ops" / "part-000000.parquet"])


def test_executors_get_whole_paths_and_what_they_say_has_those_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have a working folder of their own."""

    class Elsewhere:
        def map_arguments(self, function: Any, tasks: Any, progress: Any) -> list[bytes]:
            with monkeypatch.context() as there:
                there.chdir("/")
                return [function(task) for task in tasks]

    known = {path / "history": by_itself(path).judgement for path in (SOME[1], SOME[3])}
    monkeypatch.setattr(batch_check, "judge_again", lambda stored, *_: known[stored.history])
    monkeypatch.chdir(FIXTURES)
    paths = [path.relative_to(FIXTURES) for path in (SOME[1], SOME[3])]
    with Engines("duckdb") as engines:
        monkeypatch.setattr(engines, "spark", lambda rows: Elsewhere())
        there = list(judge_many(paths, engines, ()))
    assert [one.path for one in there] == paths
    assert [one.judgement and one.judgement.verdict for one in there] == [Verdict.FAIL, Verdict.PASS]


def test_large_histories_are_tasks_of_their_own_and_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [10, 70, 20, 90, 15]
    paths = [tmp_path / str(size) / "history" for size in sizes]
    for size, path in zip(sizes, paths, strict=True):
        (path / "ops").mkdir(parents=True)
        (path / "ops" / "part-000000.parquet").write_bytes(bytes(size))
    missing = tmp_path / "missing"
    monkeypatch.setattr(batch_check, "TASK_BYTES", 60)
    divide = batch_check._divide_among_tasks
    assert list(divide([*paths, missing])) == [[3], [1], [2, 4, 0, 5]]
    monkeypatch.setattr(batch_check, "BATCH", 2)
    assert list(divide([*paths, missing])) == [[3], [1], [2, 4], [0, 5]]


def test_results_of_tasks_come_in_the_order_of_the_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        def map_arguments(self, function: Any, tasks: Any, progress: Any) -> list[bytes]:
            progress(len(tasks))
            return [function(task) for task in tasks]

    known = {path / "history": by_itself(path).judgement for path in (SOME[1], SOME[3])}
    monkeypatch.setattr(batch_check, "judge_again", lambda stored, *_: known[stored.history])
    monkeypatch.setattr(batch_check, "TASK_BYTES", 1)
    done: list[int] = []
    for paths in ([SOME[1], SOME[3]], [SOME[3], SOME[1]]):
        with Engines("duckdb") as engines:
            monkeypatch.setattr(engines, "spark", lambda rows: Here())
            there = list(judge_many(paths, engines, (), done.append))
        assert [one.path for one in there] == paths
        assert [one.judgement for one in there] == [known[path / "history"] for path in paths]
    assert done == [2, 2]


@pytest.mark.spark
@pytest.mark.long
def test_spark_says_the_same_as_one_job(monkeypatch: pytest.MonkeyPatch, application: Any, damaged: Path) -> None:
    monkeypatch.setattr(batch_check, "BATCH", 2)
    paths = [*SOME, damaged]
    here = judged(paths)
    engine = application.engine(effects=0)
    tracker = engine._session.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    with Engines("spark") as engines:
        monkeypatch.setattr(engines, "spark", lambda rows: engine)
        there = list(judge_many(paths, engines, ()))
    assert [in_any_engine(one) for one in there] == [in_any_engine(one) for one in here]
    assert set(tracker.getJobIdsForGroup(None)) == before, "no job but the one with a group"
