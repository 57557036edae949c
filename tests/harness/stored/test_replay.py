"""A stored run done again: the same history in the simulation, and a clear word when it is not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.files import ForeignFileError, SpecialFileError
from assay.harness.core.history import HistoryError
from assay.harness.run import store
from assay.harness.run.settings import Settings
from assay.harness.stored import replay
from assay.harness.stored.replay import RESOLVED_SCHEDULE, _replace_faults_by_schedule
from assay.nemesis.schedule.schedule import (
    FaultSchedule,
    FaultStep,
    ResolvedStep,
    ScheduleRecord,
    decode_schedule,
    encode_schedule,
)
from assay.nemesis.schedule.target import parse_target

from helpers.commands import in_this_process
from helpers.nightly import by_night
from helpers.run_folders import judgement

pytestmark = pytest.mark.slow

SIM = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--cluster=sim", "--nodes=1", "--nemesis=kill")


def run(project: pytest.Pytester) -> Path:
    project.runpytest_inprocess(*SIM, "--reports=never", "--seed=5", "--time-limit=8", "--rate=10", "--store=runs")
    return (project.path / "runs" / "latest").resolve()


def test_a_simulated_run_is_done_again_exactly_and_another_history_is_reported(
    toy_project: pytest.Pytester, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(toy_project)
    in_this_process(toy_project, monkeypatch, replay, *SIM, "--reports=never")
    before = store.read_run(first)
    assert before is not None
    assert main(["replay", "runs/latest", "--yes"]) == ExitCode.PASS
    recorded = capfd.readouterr().out
    assert f"history {before.digest} is the same" in recorded
    again = (toy_project.path / "runs" / "latest").resolve()
    assert again != first
    assert f"replayed as {again}" in recorded
    # and where the history that is stored is another one:
    (first / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(before, digest="0" * 32)))
    assert main(["replay", str(first), "--store=elsewhere", "--yes"]) == ExitCode.FAIL
    recorded = capfd.readouterr().out
    assert f"was {'0' * 32}: other settings, or code" in recorded
    assert "replay it with" not in recorded, "both were made with this Python"
    assert (toy_project.path / "elsewhere" / "latest").exists()


def test_another_history_on_another_python_names_the_python_of_the_first(tmp_path: Path) -> None:
    def made(name: str, digest: str, **versions: str) -> tuple[Path, store.RunInfo]:
        run = tmp_path / name
        run.mkdir()
        (run / "settings.json").write_bytes(msgspec.json.encode({"versions": versions, "settings": {}}))
        info = store.RunInfo(
            test="t", status=store.FINISHED, started="", owner="", seed=1, cluster="sim", nemesis="none",
            command="pytest t", digest=digest,
        )  # fmt: skip
        return run, info

    first = made("1", "0" * 32, python="3.11.2", source="a", kernel="6.1")
    again = made("2", "1" * 32, python="3.13.0", source="b", kernel="6.12")
    compared = replay._compare(*first, *again)
    assert compared.same is False
    assert compared.summary == (
        f"history {'1' * 32} was {'0' * 32}: it was made with python 3.11.2 (now 3.13.0), source a (now b); "
        "replay it with Python 3.11.2"
    )
    found = msgspec.structs.replace(again[1], digest="0" * 32)
    assert replay._compare(*first, again[0], found).same, "on another Python the history may be the same"


def test_what_is_no_complete_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "t" / "run"  # a run in tmp_path would make later sessions of pytest take its parent for a test
    run.mkdir(parents=True)
    assert main(["replay", str(run)]) == ExitCode.USAGE
    assert "is not a run's folder" in capsys.readouterr().err
    info = store.RunInfo(
        test="t", status=store.RUNNING, started="", owner="", seed=1, cluster="sim", nemesis="none", command="pytest t"
    )
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    assert main(["replay", str(run)]) == ExitCode.USAGE
    assert "did not come to its end" in capsys.readouterr().err


BESIDE = """
from dataclasses import replace
from pathlib import Path

import msgspec

from assay.cluster.owner import current_owner
from assay.harness.run import store

STORE = Path("runs")
FIRST = store.read_run(STORE / "t" / "1")

def made(name, **other):
    run = STORE / "t" / name
    run.mkdir()
    (run / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(FIRST, **other)))
    store.swap_link(STORE / store.LATEST, run)

def test_it(pytestconfig):
    mine = current_owner()
    assert pytestconfig.getoption("--nemesis") == [], "the first run had no faults"
    assert pytestconfig.getoption("--rate") is None, "the default, which a command leaves out"
    made("2", owner=str(mine))
    made("3", digest="1" * 32, command="pytest test_other.py::test_it --seed=8")
    made("4", digest="1" * 32, owner=str(replace(mine, pid=mine.pid + 1)))
    made("5", digest="1" * 32, owner=str(replace(mine, namespace="1")))
    made("6", digest="1" * 32, owner=str(mine), test="test_it.py::test_it[short-none]")
"""
HEALS = """
import time
from pathlib import Path

def pytest_sessionfinish():
    time.sleep(1.0)
    Path("healed").touch()
"""
WAITS = """
import time
from pathlib import Path

def test_it():
    Path("waits").touch()
    time.sleep(60)
"""


def ended(project: pytest.Pytester) -> Path:
    """A simulated run of ``test_it.py``."""
    run = project.path / "runs" / "t" / "1"
    run.mkdir(parents=True)
    info = store.RunInfo(
        test="test_it.py::test_it", status=store.FINISHED, started="", owner="", seed=7, cluster="sim",
        nemesis="none", command="pytest test_it.py::test_it --cluster=sim --seed=7", digest="0" * 32,
    )  # fmt: skip
    (run / "run.json").write_bytes(msgspec.json.encode(info))
    (run / "settings.json").write_bytes(store.encode_json({"settings": asdict(Settings(seed=7))}))
    return run


def test_the_run_of_another_session_is_not_taken_for_the_one_that_was_done_again(pytester: pytest.Pytester) -> None:
    first = ended(pytester)
    pytester.makepyfile(test_it=BESIDE)
    pytester.makeini("[pytest]\naddopts = --nemesis=kill --rate=20")
    compared = replay.replay(first)
    assert (compared.same, compared.again) == (True, first.parent / "2")


def test_a_lost_or_another_verdict_is_not_the_same_result(tmp_path: Path) -> None:
    def make(name: str, verdict: Verdict) -> tuple[Path, store.RunInfo]:
        run = tmp_path / name
        run.mkdir()
        (run / "verdict.json").write_bytes(msgspec.json.encode(judgement(verdict)))
        info = store.RunInfo(
            test="t", status=store.FINISHED, started="", owner="", seed=1, cluster="docker", nemesis="none",
            command="pytest t", digest="0" * 32, verdict=verdict,
        )  # fmt: skip
        return run, info

    passed, again, unknown = make("1", Verdict.PASS), make("2", Verdict.PASS), make("3", Verdict.UNKNOWN)
    assert replay._compare(*passed, *again).same
    other = replay._compare(*passed, *unknown)
    assert not other.same
    assert other.summary == "the verdict was pass, and is unknown now"
    for content in (b"{", None):
        (passed[0] / "verdict.json").unlink()
        if content is not None:
            (passed[0] / "verdict.json").write_bytes(content)
        with pytest.raises(HistoryError, match=r"1/verdict.json is missing or damaged, and run.json says pass"):
            replay._compare(*passed, *again)


def test_only_a_run_of_the_same_test_is_the_repetition(pytester: pytest.Pytester) -> None:
    """A fixture with parameters makes several tests of one function, and the command names the function."""
    first = ended(pytester)
    pytester.makepyfile(test_it=BESIDE.replace('made("2", owner=str(mine))', ""))
    with pytest.raises(HistoryError, match=r"pytest made 1 runs in .*, none of test_it\.py::test_it$"):
        replay.replay(first)


def info(parameters: str, nemesis: str = "none", command: str = "") -> store.RunInfo:
    return store.RunInfo(
        test=f"t.py::t[{parameters}]", status=store.FINISHED, started="", owner="", seed=1, cluster="sim",
        nemesis=nemesis, command=f"pytest t.py::t {command}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "repeated", "others"),
    [
        (info("long-none"), info("long-none"), [info("short-none")]),
        (info("long-mix", "mix"), info("long-kill+stop", "kill+stop"), [info("short-kill+stop", "kill+stop")]),
        (info("kill-1", "kill"), info("none-1"), [info("none-2")]),
        (info("kill-2-long", "kill"), info("kill-long", "kill"), [info("kill-short", "kill")]),
        (info("kill-2", "kill"), info("none-1"), []),
        (info("a-explore", "clock-skew"), info("a-clock-skew", "clock-skew"), [info("b-clock-skew", "clock-skew")]),
        (
            info("a-kill+random", "kill", "--workload-mix=x-y,z"),
            info("a-none+x-y+z", "none", "--workload-mix=x-y,z"),
            [info("b-none+x-y+z", "none", "--workload-mix=x-y,z")],
        ),
        (info("long-none"), None, [info("short-none")]),
    ],
)
def test_a_repetition_may_have_other_faults_and_another_number(
    first: store.RunInfo, repeated: store.RunInfo | None, others: list[store.RunInfo]
) -> None:
    made = {Path(f"{number}"): one for number, one in enumerate([*others, *([repeated] if repeated else []), *others])}
    found = replay._find_repetition(first, made)
    assert (None if found is None else made[found]) == repeated


@pytest.mark.parametrize(
    "number",
    [by_night(signal.SIGINT), signal.SIGTERM, by_night(signal.SIGHUP)],
)
def test_at_a_request_to_stop_there_is_time_to_heal(pytester: pytest.Pytester, number: int) -> None:
    """Without a terminal the signal comes to the command alone, which passes it on once."""
    first = ended(pytester)
    pytester.makepyfile(test_it=WAITS)
    pytester.makeconftest(HEALS)
    again = subprocess.Popen(
        [sys.executable, "-m", "assay.harness.cli.main", "replay", str(first), "--yes"], start_new_session=True
    )
    try:
        end = time.monotonic() + 60.0
        while not (pytester.path / "waits").exists():
            assert time.monotonic() < end, "it did not begin"
            time.sleep(0.05)
        os.kill(again.pid, number)
        assert again.wait(60) == ExitCode.INTERRUPTED
    finally:
        again.kill()
    assert (pytester.path / "healed").exists()


def test_on_real_nodes_the_faults_are_those_that_came_out(tmp_path: Path) -> None:
    step = FaultStep(2.0, "kill", parse_target("one"), 5.0, seed=9)
    done = ResolvedStep(step, ("n2",), 2.25, 7.5, {})
    (tmp_path / "schedule.json").write_bytes(encode_schedule(ScheduleRecord(FaultSchedule(1, (step,)), (done,))))
    argv = ["t.py::t", "--cluster=docker", "--nemesis=kill", "--nemesis-interval=5", "--time-limit=60", "--seed=1"]
    assert _replace_faults_by_schedule(argv, tmp_path) == [
        "t.py::t", "--cluster=docker", "--time-limit=60", "--seed=1", f"--replay={tmp_path / RESOLVED_SCHEDULE}"
    ]  # fmt: skip
    played = decode_schedule((tmp_path / RESOLVED_SCHEDULE).read_bytes())
    assert isinstance(played, FaultSchedule)
    assert [(one.at, str(one.target), one.duration) for one in played.steps] == [(2.25, "n2", 5.25)]
    mixed = ["t.py::t", "--cluster=docker", "--nemesis=mix", "--time-limit=60", "--seed=1"]
    assert _replace_faults_by_schedule(mixed, tmp_path) == [
        "t.py::t", "--cluster=docker", "--time-limit=60", "--seed=1", "--operation-timeout=2", "--concurrency=6n",
        "--rate=80", f"--replay={tmp_path / RESOLVED_SCHEDULE}",
    ], "the defaults of the mix, whose word is left out"  # fmt: skip


def test_a_schedule_that_the_user_has_edited_or_put_there_stays(tmp_path: Path) -> None:
    step = FaultStep(2.0, "kill", parse_target("one"), 5.0, seed=9)
    done = ResolvedStep(step, ("n2",), 2.25, 7.5, {})
    (tmp_path / "schedule.json").write_bytes(encode_schedule(ScheduleRecord(FaultSchedule(1, (step,)), (done,))))
    argv = ["t.py::t", "--cluster=docker"]
    _replace_faults_by_schedule(argv, tmp_path)
    _replace_faults_by_schedule(argv, tmp_path)
    edited = (tmp_path / RESOLVED_SCHEDULE).read_text().replace("2.25", "3.5")
    (tmp_path / RESOLVED_SCHEDULE).write_text(edited)
    with pytest.raises(ForeignFileError, match=r"replayed.json: this command did not make this file"):
        _replace_faults_by_schedule(argv, tmp_path)
    assert (tmp_path / RESOLVED_SCHEDULE).read_text() == edited
    (tmp_path / RESOLVED_SCHEDULE).rename(tmp_path / "mine")
    (tmp_path / RESOLVED_SCHEDULE).symlink_to("mine")
    with pytest.raises(SpecialFileError, match="this is a symbolic link"):
        _replace_faults_by_schedule(argv, tmp_path)


def test_a_process_that_a_test_leaves_running_does_not_keep_the_repetition_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold a pipe open."""
    (tmp_path / "test_daemon.py").write_text(
        "import subprocess, sys\n"
        "def test_it():\n"
        "    child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "    open('daemon', 'w').write(str(child.pid))\n"
        "    print('said by the test', file=sys.stderr)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -s -p no:cacheprovider\n")
    monkeypatch.chdir(tmp_path)
    info = store.RunInfo(
        test="t", status=store.RUNNING, started="", owner="", seed=1, cluster="sim", nemesis="none", command="pytest t"
    )
    try:
        ended = replay.run_pytest(["test_daemon.py"], tmp_path / "store", info, quietly=True)
    finally:
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)
    assert (ended.status, ended.run) == (0, None)
    assert "said by the test" in ended.printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_this_process_alone_ends_the_repetition_at_once(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_slow.py").write_text(
        "import time\ndef test_it():\n    open('begun', 'w').close()\n    time.sleep(300)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    code = (
        "from pathlib import Path\n"
        "from assay.harness.run import interrupt, store\n"
        "from assay.harness.stored import replay\n"
        "info = store.RunInfo(test='t', status=store.RUNNING, started='', owner='', seed=1, cluster='sim',"
        " nemesis='none', command='pytest t')\n"
        "with interrupt.handle_stop_signals():\n"
        "    try:\n"
        "        replay.run_pytest(['test_slow.py'], Path('store').absolute(), info, quietly=True)\n"
        "    except KeyboardInterrupt:\n"
        "        raise SystemExit(130)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 120
            while not (tmp_path / "begun").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(number)
            assert process.wait(60) == 130
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
