"""Many stored runs in one pass: of each what ``assay check`` says of it alone, whatever its neighbours are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.checkers.verdict import Judgement, Verdict
from assay.harness.cli.command import Exit
from assay.harness.cli.main import main
from assay.harness.run.judging import Opens
from assay.harness.stored import many
from assay.harness.stored.many import Judged, judge_many

from helpers.judging import without_times

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALL = sorted(path.parent for path in FIXTURES.glob("format_*/*/history"))
SOME = [
    FIXTURES / "format_1" / "synthetic-register-lost-update",
    FIXTURES / "format_2" / "synthetic-set-set-lost",
    FIXTURES / "format_3" / "log-pass-mixed",
    FIXTURES / "format_3" / "zookeeper_group-double-ownership",
    FIXTURES / "format_4" / "controller-pass",
]


def reported(judged: Judged) -> Any:
    return judged.path, None if judged.judgement is None else without_times(judged.judgement), judged.text


def judged(paths: list[Path], **options: Any) -> list[Judged]:
    with Engines("duckdb") as engines:
        return list(judge_many(paths, engines, (), **options))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The first page of its last part of effects is lost."""
    copy = tmp_path / "damaged"
    shutil.copytree(FIXTURES / "format_3" / "log-pass-mixed", copy)
    part = sorted((copy / "history" / "effects").glob("*.parquet"))[-1]
    whole = part.read_bytes()
    part.write_bytes(whole[:20] + bytes(100) + whole[120:])
    return copy


@pytest.mark.parametrize("paths", [SOME, pytest.param(ALL, marks=pytest.mark.long)], ids=["some", "all"])
def test_of_each_is_said_what_is_said_of_it_alone(paths: list[Path], damaged: Path) -> None:
    with_neighbour = [*paths[:2], damaged, *paths[2:]]
    steps: list[int] = []
    together = judged(with_neighbour, progress=steps.append)
    assert [reported(one) for one in together] == [reported(*judged([path])) for path in with_neighbour]
    assert {one.judgement and one.judgement.verdict for one in together} >= {Verdict.PASS, Verdict.FAIL, None}
    assert str(damaged / "history" / "effects") in together[2].text
    assert steps == list(range(1, len(with_neighbour) + 1))


def test_small_ones_share_a_database_and_others_have_their_own(monkeypatch: pytest.MonkeyPatch, damaged: Path) -> None:
    """Of the oldest format, damaged, or large: alone."""
    counts: list[int] = []
    together = many.opened_together

    def counted(histories: Any) -> Any:
        counts.append(len(histories))
        return together(histories)

    (one,) = judged([SOME[1]])
    assert one.judgement is not None
    monkeypatch.setattr(many, "judge_again", lambda *_: one.judgement)
    monkeypatch.setattr(many, "opened_together", counted)
    judged([*SOME, damaged])
    assert counts == [4]
    monkeypatch.setattr(many, "SMALL", 10_000)
    judged(SOME)
    assert counts[1:] == [3], "one has some 26,000 rows"
    monkeypatch.setattr(many, "ROWS", 4_000)
    judged(SOME)
    assert counts[2:] == [1, 1, 1], "those with some 1,500, 3,000 and 4,000 rows"
    monkeypatch.setattr(many, "TOGETHER", 3)
    monkeypatch.setattr(many, "ROWS", 500_000)
    judged(SOME)
    assert counts[5:] == [1, 2]


def test_what_goes_wrong_together_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [reported(*judged([path])) for path in SOME[1:4:2]]
    judge_again, refused = many.judge_again, []

    def judge(stored: Any, history: Any, engines: Opens, registry: Any) -> Judgement:
        if not isinstance(engines, Engines):
            refused.append(stored.history)
            raise many.EngineError("no room")
        return judge_again(stored, history, engines, registry)

    monkeypatch.setattr(many, "judge_again", judge)
    assert [reported(one) for one in judged(SOME[1:4:2])] == alone
    assert len(refused) == 2


def test_a_line_for_each_and_the_worst_of_them_is_the_exit_code(
    tmp_path: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passed, failed = FIXTURES / "format_4" / "controller-pass", FIXTURES / "format_2" / "synthetic-set-set-lost"
    (tmp_path / "latest").symlink_to(failed)
    (tmp_path / "nights").mkdir()
    paths = [passed, damaged, failed, tmp_path / "latest", tmp_path / "nights"]
    assert main(["check", *map(str, paths)]) == Exit.FAIL
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith(f"pass     {passed}  ")
    assert "operations" in lines[0]
    assert lines[1].startswith(f"error    {damaged}  ")
    assert "cannot be read" in lines[1]
    assert lines[2].startswith(f"FAIL     {failed}  set-lost: ")
    assert lines[3:] == [f"3 histories: 1 fail, 1 error, 1 pass; all that is said of one: assay check {failed}"]
    assert said.err.splitlines() == [
        f"assay: neither runs nor history folders, passed over: {tmp_path / 'nights'}",
    ]
    assert main(["check", str(passed), str(damaged)]) == Exit.USAGE


def test_as_json_there_is_an_object_for_each(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(SOME[1]), str(damaged)]) == Exit.FAIL
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["path"] == str(SOME[1])
    assert msgspec.convert(first["judgement"], Judgement).verdict is Verdict.FAIL
    assert second["path"] == str(damaged)
    assert "cannot be read" in second["problem"]


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
    assert main(["check", *map(str, SOME[:2]), *more]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_where_there_is_no_run_at_all_it_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert main(["check", *map(str, folders)]) == Exit.USAGE
    assert "none of the 2 paths is a run or a history folder" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.long
def test_spark_says_the_same_as_one_job(monkeypatch: pytest.MonkeyPatch, application: Any, damaged: Path) -> None:
    monkeypatch.setattr(many, "TOGETHER", 2)
    paths = [*SOME, damaged]
    here = judged(paths)
    engine = application.engine(effects=0)
    tracker = engine._session.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    with Engines("spark") as engines:
        monkeypatch.setattr(engines, "spark", lambda rows: engine)
        there = list(judge_many(paths, engines, ()))
    assert [reported(one) for one in there] == [reported(one) for one in here]
    assert set(tracker.getJobIdsForGroup(None)) == before, "no job but the one with a group"
