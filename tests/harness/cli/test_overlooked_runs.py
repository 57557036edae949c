"""A run in a wrong place of a store is named by each command that judges or counts all runs, and is no pass."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run import store

from helpers.morning_store import Made, write
from helpers.stored_runs import TODAY

PASSED = TODAY / "offsets-pass"
FAILED = TODAY / "offsets-stale-read"
FIRST, SECOND = "20260101T000000.000Z", "20260102T000000.000Z"
PLACES = (
    f"x/t/{SECOND}", f"x/y/t/{SECOND}", f"nights/{SECOND}", f"nights/t/{SECOND}", f"t/{FIRST}/{SECOND}", "t/latest",
    "latest", f"latest/{SECOND}",
)  # fmt: skip
WRONG_PLACE = "it is a run, but not at STORE/TEST/RUN: move it there"
WRONG_NAME = "it is a run, but latest is the name of a link: rename it, so that it is at STORE/TEST/RUN"


def get_reason(place: str) -> str:
    return WRONG_NAME if place.endswith("latest") else WRONG_PLACE


def copy(run: Path, target: Path) -> Path:
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("report.html"))
    return target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a run that passed."""
    copy(PASSED, tmp_path / "store" / "t" / FIRST)
    return tmp_path / "store"


@pytest.mark.parametrize("place", PLACES)
def test_check_names_an_overlooked_run_as_one_that_it_could_not_judge(
    root: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(FAILED, root / place)
    said = f"not judged: {get_reason(place)}, or give its path"
    assert main(["check", str(root)]) == ExitCode.USAGE
    passed, named, end = capsys.readouterr().out.splitlines()
    assert passed.startswith("pass ")
    assert named == f"error    {run}  {said}"
    assert end == f"2 histories: 1 error, 1 pass; for the details of one: assay check {run}"
    assert main(["check", str(root), "--json"]) == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"path": str(run), "problem": said}
    assert main(["check", str(root), str(run)]) == ExitCode.FAIL, "given by its own path, it is judged"
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 histories: 1 fail, 1 pass")


def test_check_of_a_folder_in_which_all_runs_are_overlooked_names_them(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = root / "t" / FIRST
    for paths in ([root.parent], [root.parent, root.parent]):
        assert main(["check", *map(str, paths)]) == ExitCode.USAGE
        assert f"error    {run}  not judged: {WRONG_PLACE}" in capsys.readouterr().out
    other = copy(FAILED, root.parent / "other" / "x" / "t" / FIRST)
    assert main(["check", str(root), str(other.parents[2])]) == ExitCode.USAGE
    assert f"error    {other}  not judged" in capsys.readouterr().out


def test_check_names_an_overlooked_run_beside_runs_without_a_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A history was removed after its run had passed. Given by its own store, such a run is not overlooked."""
    inner = tmp_path / "store" / "x"
    for made in (write(tmp_path / "store", Made()), write(inner, Made())):
        info = json.loads((made / "run.json").read_text())
        (made / "run.json").write_text(json.dumps({**info, "history_removed": 1}))
        shutil.rmtree(made / "history")
    assert main(["check", str(tmp_path / "store")]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert f"error    {made}  not judged: {WRONG_PLACE}" in said.out
    assert "their histories were removed" in said.err
    assert main(["check", str(tmp_path / "store"), str(inner)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "their histories were removed" in said.err


def test_check_of_the_folder_of_a_test_names_a_folder_called_latest(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(FAILED, root / "t" / "latest")
    assert main(["check", str(root / "t")]) == ExitCode.USAGE
    assert f"error    {run}  not judged: {WRONG_NAME}" in capsys.readouterr().out


@pytest.mark.parametrize("place", PLACES)
def test_commands_on_a_store_name_an_overlooked_run(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root, into = tmp_path / "store", tmp_path / "into"
    listed = write(root, Made())
    made = write(tmp_path / "elsewhere", Made(verdict="fail", anomalies=("lost-write",)))
    assert main(["index", str(root), "--check"]) == ExitCode.PASS
    assert main(["gc", str(root)]) == ExitCode.PASS
    assert main(["nights", "add", str(root), f"--into={into}"]) == ExitCode.PASS
    assert main(["carry", str(root), f"--into={tmp_path / 'past'}"]) == ExitCode.PASS
    assert WRONG_PLACE not in "".join(capsys.readouterr())

    place = place.replace(f"t/{FIRST}", str(listed.relative_to(root)))
    run, reason = copy(made, root / place), get_reason(place)
    assert main(["index", str(root), "--check"]) == ExitCode.UNKNOWN
    assert f"the following run is left out, and may have failed: {place}: {reason}\n" in capsys.readouterr().err
    assert f"<li>{place}: {reason}</li>" in (root / "index.html").read_text()
    assert main(["nights", "add", str(root), f"--into={into}"]) == ExitCode.PASS
    assert f"left out: {run}, because {reason}\n" in capsys.readouterr().err
    assert main(["carry", str(root), f"--into={tmp_path / 'past'}"]) == ExitCode.PASS
    assert f"not carried: {run}, because {reason}\n" in capsys.readouterr().err
    assert main(["watch", str(root)]) == ExitCode.USAGE
    assert f"; {run}: {reason}" in capsys.readouterr().err
    assert main(["gc", str(root), "--keep=0", "--yes"]) == ExitCode.PASS
    assert capsys.readouterr().err.count(f"kept: {run}, because {reason}\n") == 1
    assert (run / "run.json").is_file()


def test_gc_names_a_run_directly_in_the_store_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "elsewhere", Made())
    (run / "logs").mkdir(exist_ok=True)
    place = copy(run, tmp_path / "store" / SECOND)
    assert main(["gc", str(tmp_path / "store"), "--keep=0", "--yes"]) == ExitCode.PASS
    assert f"kept: {place}, because {WRONG_PLACE}\n" in capsys.readouterr().err
    assert place.is_dir()
    assert main(["index", str(tmp_path / "store"), "--check"]) == ExitCode.UNKNOWN


def test_a_copy_of_a_store_with_folders_instead_of_links_overlooks_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such copies are made by archives and by uploads in CI."""
    for link in (root / "latest", root / "t" / "latest"):
        link.symlink_to(root / "t" / FIRST)
    shutil.copytree(root, other := root.parent / "copy")
    assert not (other / "latest").is_symlink()
    assert main(["check", str(other)]) == ExitCode.PASS
    assert capsys.readouterr().out.splitlines()[-1] == "1 history: 1 pass"
    assert store.find_overlooked(other, store.list_runs(other)) == []
    shutil.rmtree(other / "t" / FIRST)  # the copies called latest are now the only ones
    found = store.find_overlooked(other, store.list_runs(other))
    assert [run for run, _ in found] == [other / "latest", other / "t" / "latest"]


def search(root: Path) -> list[Path]:
    return [run for run, _ in store.find_overlooked(root, store.list_runs(root))]


def test_what_a_store_itself_contains_is_not_overlooked(root: Path) -> None:
    run = root / "t" / FIRST
    for place in ("nights/n/shrinking/s/t", "nights/n/logs", f"t/{FIRST}/logs/n1", f"t/{FIRST}/history/x"):
        copy(PASSED, root / place / SECOND)
    copy(PASSED, root / "t" / f"{store.DELETED_PREFIX}{'0' * 16}-{SECOND}")
    (root / "nights" / "n" / "night.json").write_text("{}")
    (root / "t" / "latest").symlink_to(run)
    assert search(root) == []


def test_the_search_follows_no_links(root: Path) -> None:
    elsewhere = copy(FAILED, root.parent / "elsewhere" / "x" / "u" / FIRST)
    for link, target in {"y": elsewhere.parents[1], "t/y": elsewhere.parent, "loop": root, "t/loop": root}.items():
        (root / link).symlink_to(target)
    assert search(root) == []


def test_a_run_that_a_link_lists_is_not_overlooked(root: Path) -> None:
    run = copy(FAILED, root / "x" / "u" / FIRST)
    assert search(root) == [run]
    (root / "t" / "other").symlink_to(run)
    assert search(root) == []


def test_the_search_is_bounded(root: Path) -> None:
    run = copy(FAILED, root / "x" / "y" / "z" / FIRST)
    assert search(root) == [run]
    shutil.move(run, root / "x" / "y" / "z" / "w" / FIRST)
    assert search(root) == []


def refuse(path: Path, *_: object) -> NoReturn:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_the_search_reads_no_file_and_goes_on_beside_an_unreadable_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, unreadable = copy(FAILED, root / "x" / "u" / FIRST), copy(FAILED, root / "x" / "hidden" / FIRST).parent
    listed, list_entries = store.list_runs(root), os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) if path == unreadable else list_entries(path))
    monkeypatch.setattr(Path, "open", refuse)
    assert store.find_overlooked(root, listed) == [(run, WRONG_PLACE)]
