"""Arguments of pytest that do a stored run again: fields of the run, and no option or file that loads other code."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import pytest

from assay.harness.cli.main import main
from assay.harness.core.history import HistoryError
from assay.harness.run import store
from assay.harness.run.command_line import RECORDED_OPTIONS, make_repeat_command
from assay.harness.run.settings import Settings
from assay.harness.search import shrink_run
from assay.harness.stored import replay
from assay.harness.stored.repeat_arguments import build_repeat_arguments, find_test
from assay.nemesis.schedule.schedule import FaultSchedule, encode_schedule

TEST = "tests/test_it.py::test_it"
SETTINGS = Settings(seed=7, nemesis=("kill",), rate=50.0, configuration=("flush.messages=1",))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "project"
    (here / "tests").mkdir(parents=True)
    (here / "tests" / "test_it.py").write_text("def test_it(): ...")
    monkeypatch.chdir(here)
    return here


def stored(project: Path, test: str = TEST, settings: Settings = SETTINGS, more: str = "") -> Path:
    run = project / "store" / "t" / "20260101T000000.000Z"
    run.mkdir(parents=True)
    info = store.RunInfo(
        test=f"{test}[kill]", status=store.FINISHED, started="2026-01-01T00:00:00+00:00", owner="", seed=7,
        cluster="sim", nemesis="kill", command=make_repeat_command(test, settings) + more, digest="0" * 32,
    )  # fmt: skip
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    (run / "settings.json").write_bytes(store.encode_json({"settings": asdict(settings)}))
    verdict = {
        "verdict": "fail", "anomalies": {"lost-write": 1}, "forbidden": ["lost-write"], "tolerated": [], "findings": [],
        "examined": [], "unknown": [], "operations": 1, "effects": 1, "seconds": 0.1, "engine": "sqlite",
    }  # fmt: skip
    (run / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    (run / "schedule.json").write_bytes(encode_schedule(FaultSchedule(1, ())))
    return run


def arguments(run: Path) -> list[str]:
    info = store.read_run(run)
    assert info is not None
    return build_repeat_arguments(run, info)


def test_a_run_of_this_project_is_done_again_by_the_command_that_it_printed(project: Path) -> None:
    assert arguments(stored(project)) == shlex.split(make_repeat_command(TEST, SETTINGS))[1:]


def test_every_option_of_a_command_is_one_that_may_be_repeated() -> None:
    full = Settings(
        seed=9, cluster="ssh", nodes=5, role_nodes=("server=5",), zookeepers=3, hosts=Path("hosts.toml"),
        nemesis=("kill",), nemesis_interval=3.0, nemesis_target="one", time_limit=7.0, rate=3.0, operation_timeout=9.0,
        concurrency=11, defect="x", configuration=("a=b",), nemesis_trigger="after:3", client_nodes=2,
        workload_mix=("m",), invariants="on", drain_limit=99.0,
    )  # fmt: skip
    every = [full, replace(full, watch=True), replace(full, fail_fast=True), replace(full, replay=Path("s.json"))]
    words = {word.partition("=")[0] for one in every for word in shlex.split(make_repeat_command("t.py::t", one))[2:]}
    assert words == RECORDED_OPTIONS


@pytest.mark.parametrize(
    "word", ["-p evil", "-pevil", "-c evil.ini", "-o python_files=*", "--rootdir=/tmp", "--confcutdir=/", "-k x",
             "--pyargs", "other.py", "--store=/etc", "@arguments", "--import-mode=importlib"]
)  # fmt: skip
def test_a_command_with_an_option_that_loads_code_is_refused(project: Path, word: str) -> None:
    run = stored(project, more=f" {word}")
    with pytest.raises(HistoryError, match="could load other code"):
        arguments(run)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("/tmp/evil.py::test_it", "outside of this project"),
        ("../evil.py::test_it", "outside of this project"),
        ("tests/../../evil.py::test_it", "outside of this project"),
        ("store/t/20260101T000000.000Z/evil.py::test_it", "among stored runs"),
        ("store/evil.py::test_it", "among stored runs"),
        ("-pevil.py::test_it", "no test"),
        ("@evil.py::test_it", "no test"),
        ("test_log-explore", "no test"),
        ("", "no test"),
        ("tests/gone.py::test_it", "there is no file tests/gone.py"),
    ],
)
def test_a_test_that_is_not_of_this_project_is_refused(project: Path, test: str, said: str) -> None:
    run = stored(project, test)
    (project / "store" / "evil.py").write_text("")
    (run / "evil.py").write_text("")
    info = store.read_run(run)
    assert info is not None
    with pytest.raises(HistoryError, match=said):
        find_test(run, info)


def linked_store(project: Path, run: Path) -> str:
    """A link of the project leads to the store that the run lies in."""
    (run / "evil.py").write_text("")
    (project / "link").symlink_to(project / "store")
    return f"link/{run.parent.name}/{run.name}/evil.py"


def linked_foreign_store(project: Path, run: Path) -> str:
    (place := project.parent / "foreign" / "t" / "r").mkdir(parents=True)
    (place / "evil.py").write_text("")
    (project / "link").symlink_to(project.parent / "foreign")
    return "link/t/r/evil.py"


def other_store(project: Path, run: Path) -> str:
    (place := project / "other" / "t" / "r").mkdir(parents=True)
    (place / "run.json").write_text("{}")
    (place / "evil.py").write_text("")
    return "other/t/r/evil.py"


def root_of_another_store(project: Path, run: Path) -> str:
    (project / "other").mkdir()
    (project / "other" / "latest").symlink_to("gone")
    (project / "other" / "evil.py").write_text("")
    return "other/evil.py"


def linked_file(project: Path, run: Path) -> str:
    (run / "evil.py").write_text("")
    (project / "tests" / "test_link.py").symlink_to(run / "evil.py")
    return "tests/test_link.py"


@pytest.mark.parametrize("place", [linked_store, linked_foreign_store, other_store, root_of_another_store, linked_file])
def test_a_test_that_a_link_takes_among_stored_runs_is_refused(
    project: Path, place: Callable[[Path, Path], str]
) -> None:
    run = stored(project)
    test = f"{place(project, run)}::test_it"
    shutil.rmtree(run)
    run = stored(project, test)
    if not (project / test.partition("::")[0]).exists():
        (run / "evil.py").write_text("")
    info = store.read_run(run)
    assert info is not None
    with pytest.raises(HistoryError, match=r"among stored runs|outside of this project"):
        find_test(run, info)


def test_a_store_that_is_named_by_a_link_is_a_store_all_the_same(project: Path) -> None:
    stored(project, "store/evil.py::test_it")
    (project / "store" / "evil.py").write_text("")
    (project / "link").symlink_to(project / "store")
    run = project / "link" / "t" / "20260101T000000.000Z"
    info = store.read_run(run)
    assert info is not None
    with pytest.raises(HistoryError, match="among stored runs"):
        find_test(run, info)


@pytest.mark.parametrize("given", [{"replay": Path("/etc/schedule.json")}, {"hosts": Path("../hosts.toml")}])
def test_files_outside_of_the_project_are_refused(project: Path, given: dict[str, Path]) -> None:
    with pytest.raises(HistoryError, match="lies outside of this project"):
        arguments(stored(project, settings=replace(SETTINGS, **given)))  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [linked_store, other_store, root_of_another_store])
def test_machines_that_a_stored_run_brings_along_are_refused(project: Path, place: Callable[[Path, Path], str]) -> None:
    """Faults run commands on these machines. They could be machines of the user that no file of the project names."""
    file = Path(place(project, stored(project)))
    shutil.rmtree(project / "store" / "t")
    run = stored(project, settings=replace(SETTINGS, cluster="ssh", hosts=file))
    file.write_text("")
    with pytest.raises(HistoryError, match="among stored runs"):
        arguments(run)


def test_machines_in_the_folder_of_a_run_outside_of_the_project_are_refused(project: Path, tmp_path: Path) -> None:
    run = stored(project).rename(tmp_path / "run")
    hosts = run / "hosts.toml"
    (run / "settings.json").write_bytes(store.encode_json({"settings": asdict(replace(SETTINGS, hosts=hosts))}))
    with pytest.raises(HistoryError, match="lies outside of this project"):
        arguments(run)


def test_machines_of_the_project_and_of_compose_are_named_again(project: Path) -> None:
    for hosts in ("hosts.toml", "compose:shop"):
        run = stored(project, settings=replace(SETTINGS, cluster="attach", hosts=Path(hosts)))
        assert f"--hosts={hosts}" in arguments(run)
        shutil.rmtree(project / "store")


def test_a_schedule_in_the_store_of_the_run_is_of_the_project(project: Path) -> None:
    schedule = project / "store" / "shrinking" / "run-1.json"
    assert f"--replay={schedule}" in arguments(stored(project, settings=replace(SETTINGS, replay=schedule)))


def test_a_run_without_settings_is_refused(project: Path) -> None:
    run = stored(project)
    (run / "settings.json").unlink()
    with pytest.raises(HistoryError, match="does not say how the run was made"):
        arguments(run)


@pytest.mark.parametrize("verb", ["replay", "shrink"])
def test_without_a_terminal_and_without_yes_nothing_is_executed(
    project: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored(project)
    started: list[object] = []
    for module in (replay, shrink_run):
        monkeypatch.setattr(module, "run_pytest", lambda *given, **options: started.append(given))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main([verb, str(run)]) == 2
    assert "--yes agrees" in capsys.readouterr().err
    assert not started


@pytest.mark.slow
def test_replay_does_not_import_what_a_changed_run_names(project: Path) -> None:
    """Before, ``-p evil`` of the recorded command was given to pytest."""
    (project / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()")
    run = stored(project, more=" -p evil")
    command = [sys.executable, "-m", "assay.harness.cli.main", "replay", str(run), "--yes"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 64
    assert "-p" in ended.stderr
    assert not (project / "executed").exists()
