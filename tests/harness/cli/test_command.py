"""The ``assay`` command: exit codes, output for machines and people, errors that say what to do."""

from __future__ import annotations

import argparse
import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.cluster.docker import built_images, software
from assay.cluster.owner import current_owner
from assay.cluster.system import System
from assay.harness.cli.command import ExitCode, confirm
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from assay.harness.run import store
from assay.workloads.broker.log_operations import effects

from helpers.nightly import by_night

KEY = "orders-0"
STEP = 1_000_000


def history(folder: Path, *, lose: int | None = None, sends: int = 20) -> None:
    """Sends one after the other, then a drain that shows them all but ``lose``."""
    with HistoryWriter(folder) as writer:
        done: list[Completed] = []

        def complete(operation: Operation, result: object) -> None:
            index = len(done)
            call = (2 * index + 1) * STEP
            completion = Completion(Outcome.OK, result)
            completed = Completed(index, 0, "w0", operation, completion, call, call + STEP)
            done.append(completed)
            writer.completed(completed, effects(completed))

        for offset in range(sends):
            complete(Operation("send", KEY, [offset]), {"offset": offset})
            complete(Operation("end", KEY), {"offset": offset + 1, "epoch": 0})
        complete(Operation("send", KEY, [-1], Phase.SENTINEL), {"offset": sends})
        values = [*range(sends), -1]
        records = [[offset, value] for offset, value in enumerate(values) if offset != lose]
        argument = {"start": "earliest", "seek": True, "until": sends}
        poll = {"begin": 0, "records": records, "end": sends + 1, "assignment": 1, "sought": True}
        complete(Operation("poll", KEY, argument, Phase.MAIN), poll)
        complete(Operation("poll", KEY, argument, Phase.DRAIN), poll | {"assignment": 2})


def run_folder(root: Path, contract: Contract, **kind: int | None) -> Path:
    folder = store.create_run_folder(root, "t.py::t[none]", datetime(2026, 1, 1, tzinfo=UTC))
    history(folder.history, **kind)  # type: ignore[arg-type]
    folder.write_json("settings.json", {"contract": msgspec.to_builtins(contract)})
    info = store.RunInfo(
        test="t.py::t[none]",
        status=store.FINISHED,
        started="2026-01-01T00:00:00+00:00",
        owner=str(current_owner()),
        seed=3,
        cluster="sim",
        nemesis="none",
        command="pytest t.py --seed=3",
    )
    folder.write_run(info)
    folder.publish()
    return folder.path


STRICT = forbid("lost-write", "inconsistent-offset", "duplicate")


def test_check_passes_a_good_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path, STRICT)
    code = main(["check", str(tmp_path / "latest")])
    assert (code, capsys.readouterr().out.splitlines()[0].partition(":")[0]) == (ExitCode.PASS, "PASS")


def test_check_fails_a_run_that_lost_a_write_with_its_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path, STRICT, lose=7)
    assert main(["check", str(run)]) == ExitCode.FAIL
    out = capsys.readouterr().out
    assert out.startswith("FAIL lost-write: value 7 at offset 7 of orders-0")
    assert "op 14: send [7] on orders-0 by process 0" in out
    assert "repeat: pytest t.py --seed=3" in out


def test_what_the_contract_tolerates_does_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path, forbid("duplicate").tolerate("lost-write"), lose=7)
    assert main(["check", str(run)]) == ExitCode.PASS
    assert "tolerated: lost-write 1" in capsys.readouterr().out


def test_check_json_is_one_judgement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path, STRICT, lose=7)
    assert main(["check", str(run), "--json"]) == ExitCode.FAIL
    judgement = msgspec.json.decode(capsys.readouterr().out, type=Judgement)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.anomalies["lost-write"] == 1


def test_a_run_without_operations_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with HistoryWriter(tmp_path / "bare"):
        pass
    assert main(["check", str(tmp_path / "bare")]) == ExitCode.UNKNOWN
    assert capsys.readouterr().out.startswith("UNKNOWN: ")


def test_a_run_that_was_killed_may_fail_and_never_passes(tmp_path: Path) -> None:
    good, bad = run_folder(tmp_path / "a", STRICT), run_folder(tmp_path / "b", STRICT, lose=7)
    for run in (good, bad):
        info = store.read_run(run)
        assert info is not None
        store.RunFolder(tmp_path, run).write_run(msgspec.structs.replace(info, status=store.RUNNING))
        (run / "history" / "closed.json").unlink()
    assert main(["check", str(good)]) == ExitCode.UNKNOWN
    assert main(["check", str(bad)]) == ExitCode.FAIL


def test_a_history_brought_along_is_judged_by_the_strictest_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history(tmp_path / "brought", lose=7)
    assert main(["check", str(tmp_path / "brought")]) == ExitCode.FAIL
    assert "repeat:" not in capsys.readouterr().out


def test_wrong_usage_is_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["check"], ["chekc", "x"], ["gc", "--keep=-1"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == ExitCode.USAGE, arguments
    assert "Try `assay" in capsys.readouterr().err


def test_unreadable_input_is_64_and_says_what_was_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path)]) == ExitCode.USAGE
    assert "there is no ops/ in it, nor history/ops/" in capsys.readouterr().err
    run = run_folder(tmp_path, STRICT)
    next((run / "history" / "effects").glob("*.parquet")).write_bytes(b"PAR1")
    assert main(["check", str(run)]) == ExitCode.USAGE
    assert "effects" in capsys.readouterr().err
    second = run_folder(tmp_path, STRICT)
    (second / "run.json").write_text("{")
    assert main(["check", str(second)]) == ExitCode.USAGE
    assert "run.json cannot be read" in capsys.readouterr().err


NO_UTF8 = os.fsdecode(b"st\xff\xfe")


@pytest.mark.parametrize("command", ["check", "report", "watch", "generate log --out", "nights add"])
def test_a_path_that_is_not_utf8_is_64_and_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / NO_UTF8
    root.mkdir()
    run = run_folder(tmp_path / "store", STRICT)
    verb, *rest = command.split()
    match verb:
        case "generate":
            rest.append(str(root / "new"))
        case "nights":
            rest += [str(tmp_path / "store"), f"--into={root}"]
        case _:
            rest.append(str(shutil.copytree(run, root / "store" / "t" / run.name)))
    assert main([verb, *rest]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "st\\udcff\\udcfe" in said
    assert "is not UTF-8" in said
    assert "Traceback" not in said


def test_a_path_that_the_system_refuses_is_64_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", "a" * 300]) == ExitCode.USAGE
    assert "Traceback" not in capsys.readouterr().err

    def refused(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/their/folder")

    monkeypatch.setattr("assay.harness.run.store.find_collectable", refused)
    assert main(["gc", str(tmp_path)]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "/their/folder: Permission denied; give a place that can be read and written" in said
    assert "Traceback" not in said


def test_a_plugin_that_ends_the_program_is_wrong_usage_and_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ending_script.py").write_text("raise SystemExit(0)")
    (tmp_path / "wrong_hook.py").write_text("def pytest_assay_models(of):\n    return ()\n")
    assert main(["check", str(run_folder(tmp_path, STRICT)), "--plugin=ending_script"]) == ExitCode.USAGE
    assert "--plugin=ending_script: ending_script cannot be imported: SystemExit: 0" in capsys.readouterr().err
    assert main(["check", str(run_folder(tmp_path, STRICT)), "--plugin=wrong_hook"]) == ExitCode.USAGE
    assert "--plugin=wrong_hook: pytest_assay_models failed: TypeError" in capsys.readouterr().err


def test_an_internal_error_is_70_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("assay.harness.stored.by_contract.judge_run", broken)
    assert main(["check", str(run_folder(tmp_path, STRICT))]) == ExitCode.INTERNAL
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


def test_a_report_needs_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history(tmp_path / "brought")
    assert main(["report", str(tmp_path / "brought")]) == ExitCode.USAGE
    assert "give --model or --workload, or the path of the run folder" in capsys.readouterr().err


@pytest.mark.parametrize(("shown", "verdict"), [(1, "pass"), (2, "fail")])
def test_a_bare_history_has_a_page_by_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: int, verdict: str
) -> None:
    folder = tmp_path / "brought"
    with HistoryWriter(folder) as writer:
        for index, (f, argument, result) in enumerate((("write", 1, None), ("read", None, shown))):
            call = 10 * index
            completion = Completion(Outcome.OK, result)
            writer.completed(Completed(index, 0, "w", Operation(f, None, argument), completion, call, call + 5), [])
    assert main(["report", str(folder), "--model=register"]) == ExitCode.PASS
    assert f"the verdict is {verdict}" in capsys.readouterr().err
    page = (tmp_path / "brought.html").read_text()
    assert "model=register" in page
    assert ("was observed by process 0" in page) == (verdict == "fail")
    assert main(["report", str(folder), "--model=register", "--workload=bank"]) == ExitCode.USAGE


def stored_run(root: Path, day: int) -> Path:
    folder = store.create_run_folder(root, "a.py::t", datetime(2026, 1, day, tzinfo=UTC))
    info = store.RunInfo(
        test="a.py::t", status=store.FINISHED, started=datetime(2026, 1, day, tzinfo=UTC).isoformat(), owner="",
        seed=1, cluster="sim", nemesis="none", command="pytest a.py::t",
    )  # fmt: skip
    folder.write_run(info)
    return folder.path


def test_gc_lists_and_then_deletes_the_older_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older, newer = stored_run(tmp_path, 1), stored_run(tmp_path, 2)
    assert main(["gc", str(tmp_path), "--keep=1", "--dry-run"]) == ExitCode.PASS
    assert capsys.readouterr().out.split() == [str(older)]
    assert older.exists()
    assert main(["gc", str(tmp_path), "--keep=1", "--yes"]) == ExitCode.PASS
    assert not older.exists()
    assert newer.exists()
    assert main(["gc", str(tmp_path / "nowhere")]) == ExitCode.USAGE


def test_gc_without_a_terminal_and_without_yes_deletes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored_run(tmp_path, 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["gc", str(tmp_path), "--keep=0"]) == 2
    said = capsys.readouterr()
    assert said.out.split() == [str(run)]
    assert "--yes" in said.err
    assert run.exists()


@pytest.mark.parametrize(("answer", "left"), [("y\n", False), ("\n", True), ("no\n", True), ("", True)])
def test_gc_asks_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, left: bool) -> None:
    run = stored_run(tmp_path, 1)
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["gc", str(tmp_path), "--keep=0"]) == (2 if left else 0)
    assert run.exists() == left


def test_gc_names_and_keeps_other_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("photos/2024", "thesis/figures", "code/.git"):
        (tmp_path / folder).mkdir(parents=True)
    assert main(["gc", str(tmp_path), "--keep=0", "--yes"]) == ExitCode.PASS
    said = capsys.readouterr()
    assert said.out == ""
    assert all(f"kept: {tmp_path / name}" in said.err for name in ("photos", "thesis", "code"))
    assert len(list(tmp_path.glob("*/*"))) == 3


def test_an_empty_path_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise ``assay gc "$STORE"`` would mean the current folder."""
    for arguments in (["gc", "", "--yes"], ["check", ""], ["index", ""], ["replay", "x", "--store="], ["watch", ""]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == ExitCode.USAGE, arguments
        assert "path is empty" in capsys.readouterr().err


EVIL = """
from pathlib import Path
from assay import Action, Model
Path("executed").touch()
class Account(Model):
    name = "account"
    compiled = False
    def encode(self, call):
        return None
    @staticmethod
    def step(state, f, x, y):
        return True, state
"""
VERBS = (["check"], ["watch"], ["check", "--json"], ["report"])


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_command_imports_a_module_because_a_run_names_it(
    tmp_path: Path, verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_model.py").write_text(EVIL)
    run = run_folder(tmp_path / "store", msgspec.structs.replace(STRICT, model="evil_model:Account"))
    code = main([*verb, str(run)])
    assert not (tmp_path / "executed").exists()
    assert "evil_model" not in sys.modules
    said = capsys.readouterr().out
    if verb != ["report"]:
        assert code == ExitCode.UNKNOWN
        assert f"assay check {run.relative_to(tmp_path)} --plugin=evil_model imports it" in said


def test_nor_does_a_command_over_a_whole_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_model.py").write_text(EVIL)
    run_folder(tmp_path / "store", msgspec.structs.replace(STRICT, model="evil_model:Account"))
    assert main(["check", "store"]) == ExitCode.UNKNOWN
    assert main(["index", "store"]) == ExitCode.PASS
    assert main(["nights", "add", "store", "--into=nights"]) == ExitCode.PASS
    assert main(["carry", "store", "--into=past"]) == ExitCode.PASS
    assert main(["gc", "store", "--keep=0", "--yes"]) == ExitCode.PASS
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("given", ["--plugin=own_model", "--trust-run"])
def test_a_model_that_the_command_line_names_or_trusts_is_imported(
    tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    (tmp_path / "own_model.py").write_text(EVIL)
    run = run_folder(tmp_path / "store", msgspec.structs.replace(STRICT, model="own_model:Account"))
    main(["check", str(run), given])
    assert (tmp_path / "executed").exists()
    assert "is not available here" not in capsys.readouterr().out


def test_help_teaches_paths_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for word in ("check", "report", "heal", "doctor", "gc", "image", "exit codes", "store/latest", "pytest workloads/"):
        assert word in out


def test_defects_lists_every_switch_with_what_must_be_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["defects", "--json"]) == ExitCode.PASS
    listed = {defect["name"]: defect for defect in msgspec.json.decode(capsys.readouterr().out)}
    assert listed["ack-before-replication"]["anomalies"] == ["lost-write"]
    assert main(["defects"]) == ExitCode.PASS
    said = capsys.readouterr().out
    assert all(name in said and defect["fault"] in said for name, defect in listed.items())


def test_images_of_a_system_that_there_is_not_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "build", "--system=no_such_module:System"]) == ExitCode.USAGE
    assert "there is no module no_such_module" in capsys.readouterr().err


def test_images_are_built_for_each_role_and_for_nodes_of_a_client_if_one_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(system: System, roles: Sequence[str], progress: object) -> dict[str, software.NodeImage]:
        return {
            role: software.NodeImage(f"sha256:{len(software.require_software(system, role).packages)}")
            for role in roles
        }

    monkeypatch.setattr(software, "ensure_images", ensure)
    system = "--system=assay.workloads.test_redis:Redis"
    assert main(["image", "build", system]) == ExitCode.PASS
    assert capsys.readouterr().out == "server sha256:1\nsentinel sha256:1\n"
    assert main(["image", "build", system, "--client=assay.workloads.test_redis:SentinelElements"]) == ExitCode.PASS
    assert capsys.readouterr().out == "server sha256:1\nsentinel sha256:1\nclient sha256:0\n"
    assert main(["image", "build", system, "--client=assay.workloads.test_redis:Nothing"]) == ExitCode.USAGE
    assert "has no Nothing; the clients in it are RedisElements, SentinelElements" in capsys.readouterr().err
    assert main(["image", "build", "--client=assay.workloads.test_redis:SentinelElements"]) == ExitCode.USAGE
    assert "--client needs the client's system" in capsys.readouterr().err


def test_images_are_listed_with_what_they_are_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [
        built_images.BuiltImage("assay-own:1", "60MB", "2 days ago", "/mine/Dockerfile", True, "redis (server)"),
        built_images.BuiltImage("0123456789ab", "59MB", "3 days ago", "", False, built_images.UNKNOWN),
    ]
    monkeypatch.setattr(built_images, "list_images", lambda: there)
    assert main(["image", "list"]) == ExitCode.PASS
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["assay-own:1", "60MB", "2", "days", "ago", "redis", "(server),", "on", "/mine/Dockerfile"],
        ["*", "0123456789ab", "59MB", "3", "days", "ago", *built_images.UNKNOWN.split()],
    ]


@pytest.mark.parametrize("action", ["list", "prune"])
def test_images_without_a_docker_command_name_its_packages(
    action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["image", action]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "docker is not installed, or this user may not run it" in said
    assert "as root: `apt install docker.io`" in said


def test_the_doctor_of_hosts_needs_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cluster=ssh", f"--hosts={tmp_path}/none.toml"]) == ExitCode.USAGE
    assert f"there is no {tmp_path}/none.toml" in capsys.readouterr().err


COMMAND = [sys.executable, "-m", "assay.harness.cli.main", "defects", "isr-of-one"]


@pytest.mark.parametrize("buffered", ["", by_night("1")])
def test_what_cannot_be_written_has_an_exit_code_that_no_verdict_has_and_one_line(buffered: str) -> None:
    """Also where Python would write it at its very end alone, and exit with 120."""
    environment = os.environ | {"PYTHONUNBUFFERED": buffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.decode() == "assay: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_change_the_verdict(tmp_path: Path, closed: str) -> None:
    run = run_folder(tmp_path, STRICT, lose=7)
    command = [sys.executable, "-m", "assay.harness.cli.main", "check", str(run)]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, check=False)
    assert done.returncode == ExitCode.FAIL
    assert (b"lost-write" in done.stdout) is (closed == "2>&-")
    assert done.stderr == b""


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error(buffered: str) -> None:
    read, write_end = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONUNBUFFERED": buffered}
    try:
        done = subprocess.run(COMMAND, stdout=write_end, stderr=subprocess.PIPE, env=environment, check=False)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_stored_run_cannot_change_what_a_question_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The question quotes the options of a run, which may come from elsewhere and hide them from the user."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert not confirm("run `pytest --set=a=\x1b[2K\rassay: run `pytest test_kv.py`?", argparse.Namespace(yes=False))
    assert capsys.readouterr().err == r"assay: run `pytest --set=a=\x1b[2K\rassay: run `pytest test_kv.py`? [y/N] "


def test_names_of_runs_cannot_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path, forbid("lost-write"))
    (run.parent / "latest").unlink()
    run.parent.rename(tmp_path / "\x1b[8mhidden")
    assert main(["gc", str(tmp_path), "--keep=0", "--dry-run"]) == ExitCode.PASS
    assert capsys.readouterr().out == f"{tmp_path}/\\x1b[8mhidden/{run.name}\n"
    assert main(["check", str(tmp_path)]) != ExitCode.INTERNAL
    assert "\x1b" not in "".join(capsys.readouterr())


def test_a_page_of_others_in_the_folder_of_the_run_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path, STRICT, lose=7)
    assert main(["report", str(run)]) == main(["report", str(run)]) == ExitCode.PASS
    (run / "report.html").write_text("my own notes")
    assert main(["report", str(run)]) == ExitCode.USAGE
    assert "this command did not make this file" in capsys.readouterr().err
    assert (run / "report.html").read_text() == "my own notes"
