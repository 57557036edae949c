"""Every command, given a run whose history was removed when it had passed: its work, or one clear line."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.nightly.dataset import read_runs
from assay.harness.run import store
from assay.harness.stored import replay

from helpers.commands import in_this_process

pytestmark = pytest.mark.slow

SIM = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--cluster=sim", "--nodes=1")
OPTIONS = (*SIM, "--time-limit=1", "--rate=50", "--store=store")
REASON = "its history was removed when the run had passed (--keep-history=failures); its verdict remains, and `assay "
SKIPPED = "not judged again, because they passed and their histories were removed (--keep-history=failures): "


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A place for the store of one session, which the first test fills."""
    return []


@pytest.fixture
def kept(toy_project: pytest.Pytester, made: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the store of two passed runs without their histories, played once for all tests."""
    if not made:
        place = tmp_path_factory.mktemp("session")
        result = toy_project.runpytest_inprocess(*OPTIONS, "--keep-history=failures", "--repeat=2")
        result.assert_outcomes(passed=2)
        lines = [line for line in result.outlines if "removed" in line]
        assert len(lines) == 1
        assert lines[0].startswith("assay: histories of 2 runs that passed removed, ")
        assert lines[0].endswith(" remain; `assay replay RUN` can repeat one")
        shutil.copytree(toy_project.path / "store", place / "store", symlinks=True)
        made.append(place / "store")
    shutil.rmtree(toy_project.path / "store", ignore_errors=True)
    shutil.copytree(made[0], toy_project.path / "store", symlinks=True)
    return toy_project.path / "store"


def first_run(root: Path) -> Path:
    return store.list_runs(root)[0]


@pytest.mark.parametrize(
    "command", [["check"], ["check", "--model=kv"], ["report"], ["watch"], ["sensitivity"]], ids=" ".join
)
def test_a_command_that_needs_the_history_says_where_it_is(
    kept: Path, capsys: pytest.CaptureFixture[str], command: Sequence[str]
) -> None:
    run = first_run(kept)
    name, *options = command
    assert main([name, str(run), *options]) == 64
    said = [line for line in capsys.readouterr().err.splitlines() if "watching" not in line]
    assert said == [f"assay: {run}: {REASON}replay {run}` repeats it"]


def test_a_store_of_such_runs_is_named_once(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(kept)]) == 64
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert SKIPPED in said[0]
    assert main(["check", str(first_run(kept)), str(first_run(kept))]) == 64
    assert "its history was removed" in capsys.readouterr().err


def test_other_runs_of_the_store_are_judged(
    kept: Path, toy_project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    toy_project.runpytest_inprocess(*OPTIONS, "--reports=never").assert_outcomes(passed=1)
    capsys.readouterr()
    assert main(["check", str(kept)]) == 0
    said = capsys.readouterr()
    assert "1 history: 1 pass" in said.out + said.err
    assert SKIPPED in said.err


def test_the_index_counts_it_as_a_pass(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(kept), "--check"]) == 0
    said = capsys.readouterr()
    assert "damaged" not in said.out + said.err


def test_a_data_set_of_nights_has_it_as_a_pass(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nights", "add", str(kept), f"--into={tmp_path / 'data'}"]) == 0
    assert "damaged" not in capsys.readouterr().err
    rows = [row for table in read_runs(tmp_path / "data") for row in table.to_pylist()]
    assert [(row["verdict"], row["problem"], row["faults"]) for row in rows] == [("pass", None, [])] * 2
    assert main(["nights", "show", str(tmp_path / "data")]) == 0


def test_it_is_carried_and_its_original_is_never_replaced(kept: Path, tmp_path: Path) -> None:
    assert main(["carry", str(kept), f"--into={tmp_path / 'past'}"]) == 0
    run = first_run(kept)
    copy = tmp_path / "past" / run.relative_to(kept)
    assert store.is_carried(copy)
    (copy / "verdict.json").write_text("{}")
    assert main(["carry", str(tmp_path / "past"), f"--into={kept}"]) == 0
    assert not (run / store.CARRIED).exists()
    assert (run / "verdict.json").read_text() != "{}"


def test_it_is_collected_like_any_run(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for link in (kept / store.LATEST, *kept.glob(f"*/{store.LATEST}")):
        link.unlink()
    before = store.list_runs(kept)
    assert main(["gc", str(kept), "--keep=0", "--yes"]) == 0
    assert len(before) == 2
    assert store.list_runs(kept) == []


def test_it_is_not_shrunk_because_it_passed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shrink", str(first_run(kept)), "--yes"]) == 64
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_it_is_repeated_exactly(
    kept: Path, monkeypatch: pytest.MonkeyPatch, toy_project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    in_this_process(toy_project, monkeypatch, replay, *SIM, "--reports=never")
    assert main(["replay", str(first_run(kept)), "--yes"]) == 0
    assert " is the same" in capsys.readouterr().out
