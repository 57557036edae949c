"""A store that is damaged, or reached through links, never looks better than it is, and loses nothing by ``gc``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.cluster.owner import current_owner
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run import store

from helpers.morning_store import Made, write
from helpers.stored_runs import TODAY

PASSED = TODAY / "offsets-pass"
FAILED = TODAY / "offsets-stale-read"
TIMES = ("20260101T000000.000Z", "20260102T000000.000Z")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a run that passed, and one that failed in another folder, ``elsewhere``."""
    for source, target in ((PASSED, tmp_path / "store" / "t"), (FAILED, tmp_path / "elsewhere" / "u")):
        shutil.copytree(source, target / TIMES[0], ignore=shutil.ignore_patterns("report.html"))
    return tmp_path / "store"


def damage_run_json(run: Path) -> None:
    (run / "run.json").unlink()


def lose_all_but_its_name(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def lose_history(run: Path) -> None:
    shutil.rmtree(run / "history")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (damage_run_json, (ExitCode.UNKNOWN, ExitCode.USAGE, ExitCode.FAIL)),
        (lose_history, (ExitCode.USAGE,)),
        (lose_all_but_its_name, (ExitCode.USAGE,)),
    ],
)
def test_what_is_left_of_a_run_is_named_and_no_pass(
    root: Path, damage: Callable[[Path], None], code: tuple[ExitCode, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    run = root / "u" / TIMES[0]
    shutil.copytree(FAILED, run)
    damage(run)
    for path in (root, run.parent):
        assert main(["check", str(path)]) in code
        assert str(run) in "".join(capsys.readouterr())
    assert main(["check", str(root)]) in code
    assert "2 histories" in capsys.readouterr().out


def link_test(root: Path) -> Path:
    (root / "u").symlink_to(root.parent / "elsewhere" / "u")
    return root / "u" / TIMES[0]


def link_run(root: Path) -> Path:
    (root / "t" / TIMES[1]).symlink_to(root.parent / "elsewhere" / "u" / TIMES[0])
    return root / "t" / TIMES[1]


def link_run_in_place_of_a_test(root: Path) -> Path:
    (root / "best").symlink_to(root.parent / "elsewhere" / "u" / TIMES[0])
    return root / "best"


@pytest.mark.parametrize("link", [link_test, link_run, link_run_in_place_of_a_test])
def test_a_linked_run_is_judged(root: Path, link: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = link(root)
    assert main(["check", str(root)]) == ExitCode.FAIL
    out = capsys.readouterr().out
    assert f"FAIL     {run}  " in out
    assert out.splitlines()[-1].startswith("2 histories: 1 fail, 1 pass")


@pytest.mark.parametrize("place", ["u", "t/20260102T000000.000Z"])
def test_a_link_that_leads_nowhere_is_no_pass(root: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / place).symlink_to(root / "gone")
    assert main(["check", str(root)]) == ExitCode.USAGE
    assert str(root / place) in capsys.readouterr().out

    other = root.parent / "other"
    run = write(other, Made())
    assert main(["index", str(other), "--check"]) == ExitCode.PASS
    link = other / "u" if place == "u" else run.parent / TIMES[1]
    link.symlink_to(other / "gone")
    capsys.readouterr()
    assert main(["index", str(other), "--check"]) == ExitCode.UNKNOWN
    assert f"{link.parent.name}/{link.name}" in capsys.readouterr().err
    assert main(["nights", "add", str(other), f"--into={root.parent / 'nights'}"]) == ExitCode.PASS
    assert f"{link.parent.name}/{link.name} has no verdict (damaged)" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["u", "t/20260102T000000.000Z", "latest", "t/latest"])
def test_a_link_to_itself_stops_no_command(root: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / place).symlink_to(root / place)
    named = not place.endswith("latest")
    assert main(["check", str(root)]) == (ExitCode.USAGE if named else ExitCode.PASS)
    assert (str(root / place) in capsys.readouterr().out) is named
    into, nights = root.parent / "into", root.parent / "nights"
    for command in (["gc", "--dry-run"], ["index"], ["carry", f"--into={into}"]):
        assert main([command[0], str(root), *command[1:]]) == ExitCode.PASS
    assert main(["nights", "add", str(root), f"--into={nights}"]) == ExitCode.PASS


def test_links_within_a_store_count_no_run_twice(root: Path) -> None:
    run = root / "t" / TIMES[0]
    (root / "latest").symlink_to(run)
    (root / "t" / "latest").symlink_to(run)
    before = store.list_runs(root)
    assert before == [run]
    (root / "best").symlink_to(run)
    (root / "t" / "best").symlink_to(run)
    (root / "s").symlink_to(root / "t")
    (root / "loop").symlink_to(root)
    (root / "t" / "loop").symlink_to(root)
    (root / ".latest.7").symlink_to(run)
    assert store.list_runs(root) == before
    assert store.list_runs_below(root) == before
    assert store.list_runs_below(root / "t") == before
    assert store.list_runs_below(run) == []


def fail(root: Path) -> Path:
    return write(root, Made(workload="test_queue", verdict="fail", anomalies=("lost-write",)))


def unlink(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).unlink()


def cut(name: str) -> Callable[[Path], None]:
    return lambda run: os.truncate(run / name, 20)


@pytest.mark.parametrize("damage", [unlink("run.json"), cut("run.json"), unlink("verdict.json"), cut("verdict.json")])
def test_a_page_that_is_checked_names_a_damaged_run(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, Made())
    run = fail(tmp_path)
    assert main(["index", str(tmp_path), "--check"]) == ExitCode.FAIL
    damage(run)
    assert main(["index", str(tmp_path)]) == ExitCode.PASS
    capsys.readouterr()
    assert main(["index", str(tmp_path), "--check"]) == ExitCode.UNKNOWN
    assert f"cannot be read, and may have failed: {run.parent.name}/{run.name}" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount: run as root")
def test_gc_keeps_a_run_in_which_something_is_mounted(tmp_path: Path) -> None:
    run = write(tmp_path / "store", Made())
    (run / "logs").mkdir(exist_ok=True)
    (mine := tmp_path / "mine").mkdir()
    (mine / "file").touch()
    gc = f"{sys.executable} -m assay.harness.cli.main gc {tmp_path}/store --keep=0 --yes"
    command = f"mount --bind {mine} '{run}/logs' && {gc}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=True)
    assert f"kept: {run}, because something is mounted in it" in done.stderr
    assert (mine / "file").exists()
    store.delete_runs([run])
    assert not run.exists()


@pytest.mark.parametrize("of_test", [False, True])
def test_a_page_that_is_checked_knows_a_linked_run(tmp_path: Path, of_test: bool) -> None:
    write(tmp_path / "store", Made())
    run = fail(tmp_path / "elsewhere")
    (link := run if not of_test else run.parent)
    target = tmp_path / "store" / (link.relative_to(tmp_path / "elsewhere"))
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(link)
    assert main(["index", str(tmp_path / "store"), "--check"]) == ExitCode.FAIL


def test_a_run_whose_owner_is_no_process_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path, Made())
    found = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**found, "status": "running", "owner": "ci-7"}))
    assert main(["gc", str(tmp_path), "--keep=0", "--dry-run"]) == ExitCode.PASS
    assert capsys.readouterr().out.splitlines() == [str(run)]
    assert main(["watch", str(tmp_path)]) == ExitCode.USAGE
    assert "no run goes on" in capsys.readouterr().err


def test_gc_keeps_a_run_that_has_other_runs_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path, Made())
    inner = write(run / "again", Made())
    found = json.loads((inner / "run.json").read_text())
    (inner / "run.json").write_text(json.dumps({**found, "status": "running", "owner": str(current_owner())}))
    assert main(["gc", str(tmp_path), "--keep=0", "--yes"]) == ExitCode.PASS
    assert f"kept: {run}, because there are other runs in it" in capsys.readouterr().err
    assert inner.is_dir()
    store.delete_runs([run])
    assert inner.is_dir()


@pytest.mark.parametrize("of_test", [False, True])
def test_gc_keeps_what_a_link_leads_to_and_the_link(
    tmp_path: Path, of_test: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fail(tmp_path / "elsewhere")
    mine = write(tmp_path / "store", Made())
    link = tmp_path / "store" / run.parent.name if of_test else mine.parent / run.name
    link = link if of_test else link.with_name("linked")
    link.symlink_to(run.parent if of_test else run)
    assert main(["gc", str(tmp_path / "store"), "--keep=0", "--yes"]) == ExitCode.PASS
    assert f"kept: {link}, because it is a symbolic link" in capsys.readouterr().err
    assert link.is_symlink()
    assert run.is_dir()
    assert not mine.exists()


def test_a_run_that_goes_on_without_an_operation_is_passed_over(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = store.create_run_folder(root, "t.py::going", datetime(2026, 1, 1, tzinfo=UTC))
    made.write_run(
        store.RunInfo(test="t.py::going", status=store.RUNNING, started="2026-01-01T00:00:00+00:00",
                      owner=str(current_owner()), seed=1, cluster="sim", nemesis="none", command="pytest")
    )  # fmt: skip
    assert main(["check", str(root)]) in (ExitCode.PASS, ExitCode.UNKNOWN)
    assert f"skipped: {made.path}" in capsys.readouterr().err
