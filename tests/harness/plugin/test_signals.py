"""SIGTERM and SIGHUP end a session as Ctrl-C does, wherever it stands; a second signal ends it at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from assay.cluster import owner
from assay.cluster.docker.engine import OWNER_LABEL
from assay.cluster.doctor import docker_available
from assay.cluster.journal import RemoveContainer, RunInContainer, UndoJournal, describe_outstanding

from helpers.nightly import by_night

ROOT = Path(__file__).parents[3]
SIM = ("--cluster=sim", "--seed=7", "--time-limit=10", "--rate=100", "--nodes=1", "--reports=never")
HELPERS = """
import os, signal
import pytest

TEST = {}

def pytest_configure(config):
    TEST["config"] = config

def send(number, process=None):
    os.kill(process or os.getpid(), number)

def asked():
    return TEST["config"].pluginmanager.getplugin("assay-signals").signals.received
"""

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = signal.valid_signals() - {signal.SIGALRM}  # the time limit sets its own in each phase
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    assert {number: signal.getsignal(number) for number in numbers} == before


def at_operation(project: pytest.Pytester, code: str, number: int = 200) -> None:
    """Has the toy's client run ``code`` before its operation of that number."""
    toy = project.path / "toy_log.py"
    sys.modules.pop("toy_log", None)  # another test of this process may have left its own
    toy.write_text(
        toy.read_text()
        .replace("class ToyClient:", "import itertools, signal\nCOUNT = itertools.count(1)\n\nclass ToyClient:")
        .replace(
            "        assert operation.key is not None\n        try:",
            "        assert operation.key is not None\n"
            "        import conftest\n"
            f"        if next(COUNT) == {number}:\n"
            f"            {code}\n"
            "        try:",
        )
    )


def with_conftest(project: pytest.Pytester, code: str = "") -> None:
    sys.modules.pop("conftest", None)
    project.makeconftest(HELPERS + code)


def latest(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "store/latest/run.json").read_text())
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_heals_and_is_checked_and_no_other_one_begins(
    toy_project: pytest.Pytester, number: signal.Signals
) -> None:
    with_conftest(toy_project)
    at_operation(toy_project, f"conftest.send({int(number)})")
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["UNKNOWN: the run was interrupted", "*interrupted; what there was has been checked*"])
    assert (latest(toy_project)["status"], latest(toy_project)["verdict"]) == ("interrupted", "unknown")
    assert (toy_project.path / "store/latest/verdict.json").exists()


def test_an_interrupt_that_a_client_raises_ends_the_session_as_ctrl_c(toy_project: pytest.Pytester) -> None:
    with_conftest(toy_project)
    at_operation(toy_project, "raise KeyboardInterrupt")
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "lost sys.stderr" not in result.stderr.str()
    assert latest(toy_project)["problem"] == "KeyboardInterrupt: "
    assert len(list(toy_project.path.glob("store/*/2*"))) == 1


def test_a_hangup_that_nohup_ignores_ends_nothing(toy_project: pytest.Pytester) -> None:
    with_conftest(toy_project)
    at_operation(toy_project, "conftest.send(signal.SIGHUP)")
    result = toy_project.run("nohup", sys.executable, "-m", "pytest", *SIM)
    assert result.ret == 0, result.stdout.str()
    assert latest(toy_project)["verdict"] == "pass"


def test_a_second_signal_ends_the_process_where_it_stands_and_names_what_is_left(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(toy_project.path / "state"))
    with_conftest(
        toy_project,
        """
from assay.harness.run import interrupt
interrupt.SAME_REQUEST = 0.0

def twice():
    from assay.cluster.journal import UndoJournal, RemoveContainer, RemoveNetwork, state_folder
    journal = UndoJournal(state_folder(), "one")
    journal.append(RemoveNetwork("the-network"))
    journal.append(RemoveContainer("the-container"))
    send(signal.SIGTERM)
    assert asked()
    send(signal.SIGHUP)
""",
    )
    at_operation(toy_project, "conftest.twice()")
    result = toy_project.runpytest_subprocess(*SIM)
    assert result.ret == 128 + signal.SIGHUP
    result.stderr.fnmatch_lines(
        [
            "assay: SIGTERM: the run is ended, checked and reported; a second signal ends it at once",
            "",
            "assay: a second signal, SIGHUP: ended at once; these changes are left; `assay heal` or the next *:",
            "  container the-container",
            "  network the-network",
            "the code was here (most recent call last):",
            "*toy_log.py*, line * in invoke",
            "*conftest.twice()",
            "*conftest.py*, line *, in twice",
            "*send(signal.SIGHUP)",
        ]
    )
    assert "interrupt.py" not in result.stderr.str()
    assert latest(toy_project)["status"] == "error"
    assert latest(toy_project)["problem"] == "interrupted twice: ended at once by SIGHUP"


def test_a_fault_is_named_unless_it_goes_with_its_container(tmp_path: Path) -> None:
    mine = owner.current_owner()
    journal = UndoJournal(tmp_path, "one", mine)
    journal.append(RemoveContainer("c1"))
    journal.append(RunInContainer("c1", ("mend", "it")))
    journal.append(RunInContainer("other", ("mend", "that")))
    assert describe_outstanding(tmp_path, mine) == ["not undone: other: mend that", "container c1"]
    journal.close(finished=True)
    assert describe_outstanding(tmp_path, mine) == []


def test_during_collection_it_interrupts(toy_project: pytest.Pytester) -> None:
    toy_project.makepyfile(test_kill="import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    result = toy_project.runpytest_subprocess(*SIM)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])


def test_in_a_project_without_experiments_it_is_an_interrupt_each_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal
        import pytest

        @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 2)
        def test_signal(number):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=6)


def test_while_the_history_is_checked_what_was_found_is_recorded(toy_project: pytest.Pytester) -> None:
    with_conftest(
        toy_project,
        """
from assay.checkers.judging import judge

def names(self):
    send(signal.SIGTERM)

judge._Judging._compare_with_contract = names
""",
    )
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["UNKNOWN: interrupted; of the checks, only these were done: *lost-write*"])
    assert (latest(toy_project)["status"], latest(toy_project)["verdict"]) == ("finished", "unknown")


AFTER_THE_RUN = """
from assay.harness.run import attempt

def at_each(owner, name):
    whole = getattr(owner, name)
    def replaced(*given, **named):
        if asked() is None:
            send(signal.SIGTERM)
        return whole(*given, **named)
    setattr(owner, name, replaced)

at_each(attempt, "{place}")
"""


@pytest.mark.parametrize(
    ("place", "workers"),
    [
        ("open_history", ()),
        ("judge_run", ("-n1",)),
        pytest.param("measure_run", (), marks=pytest.mark.long),
        pytest.param("describe", ("-n1",), marks=pytest.mark.long),
    ],
)
def test_a_signal_after_the_run_hides_nothing_of_what_was_found(
    toy_project: pytest.Pytester, place: str, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    with_conftest(toy_project, AFTER_THE_RUN.format(place=place))
    result = toy_project.runpytest_subprocess(*SIM, "--time-limit=2", "--defect=forgetful", "--repeat=2", *workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["FAIL inconsistent-offset*", "seed: *", "repeat: *"])
    assert "crashed" not in result.stdout.str()
    assert latest(toy_project)["verdict"] == "fail"


DURING = """
from assay.harness.run.trial import Trial

whole = Trial.{method}

async def interrupted(self, **given):
    send(signal.SIGTERM)
    await whole(self, **given)
    print("DONE: {method}")

Trial.{method} = interrupted
taken = Trial.tear_down

async def tear_down(self, **given):
    await taken(self, **given)
    print("TAKEN AWAY")

Trial.tear_down = tear_down
"""


def test_taking_the_cluster_away_is_finished(toy_project: pytest.Pytester) -> None:
    with_conftest(toy_project, DURING.format(method="tear_down"))
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=2", "-s")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*DONE: tear_down", "*TAKEN AWAY"])


def test_a_cluster_that_is_being_started_is_taken_away(toy_project: pytest.Pytester) -> None:
    with_conftest(toy_project, DURING.format(method="set_up"))
    result = toy_project.runpytest_subprocess(*SIM, "-s")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*TAKEN AWAY"])
    assert "DONE" not in result.stdout.str()
    assert latest(toy_project)["problem"] == "the run was aborted"


ASK_CONTROLLER = """
import pathlib
import time

def ask_controller():
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(f"{{worker}}-is-in-its-run").touch()
    if worker == "gw0":
        while not pathlib.Path("gw1-is-in-its-run").exists():
            time.sleep(0.01)
        send(signal.{name}, os.getppid())
    while not asked():
        time.sleep(0.01)
"""


def test_workers_end_their_runs_when_the_controller_is_asked(toy_project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    with_conftest(toy_project, ASK_CONTROLLER.format(name="SIGTERM"))
    at_operation(toy_project, "conftest.ask_controller()")
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=8", "-n2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["UNKNOWN: the run was interrupted"])
    assert "crashed" not in result.stdout.str()
    runs = [json.loads(path.read_text()) for path in toy_project.path.glob("store/*/2*/run.json")]
    assert {(run["status"], run["verdict"]) for run in runs} == {("interrupted", "unknown")}
    assert 1 <= len(runs) <= 2


def test_a_second_signal_leaves_no_folder_of_the_workers(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    temporary = toy_project.path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("XDG_STATE_HOME", str(toy_project.path / "state"))
    twice = ASK_CONTROLLER.replace(
        "    while not asked():", "        send(signal.SIGHUP, os.getppid())\n    while True:"
    )
    # The controller imports this file as its workers do.
    with_conftest(
        toy_project,
        "from assay.harness.run import interrupt\ninterrupt.SAME_REQUEST = 0.0\n" + twice.format(name="SIGTERM"),
    )
    at_operation(toy_project, "conftest.ask_controller()")
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=8", "-n2")
    result.stderr.fnmatch_lines(["*a second signal, SIG*: ended at once; nothing is left behind*"])
    assert not list(temporary.glob("assay-workers-*"))


def test_a_worker_that_is_asked_itself_ends_the_session(toy_project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    with_conftest(toy_project)
    at_operation(toy_project, "conftest.send(signal.SIGTERM)")
    result = toy_project.runpytest_subprocess(*SIM, "--repeat=8", "-n2")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["UNKNOWN: the run was interrupted"])
    assert "crashed" not in result.stdout.str()


def test_a_worker_that_is_asked_while_its_cluster_starts_reports_it(toy_project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    with_conftest(toy_project, DURING.format(method="set_up"))
    result = toy_project.runpytest_subprocess(*SIM, "-n1")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*SIGTERM before the run began"])
    assert "crashed" not in result.stdout.str()
    assert latest(toy_project)["problem"] == "the run was aborted"


def until(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.docker
@pytest.mark.parametrize("moment", [by_night("while the nodes start"), "in the run"])
def test_containers_and_networks_are_removed(moment: str, tmp_path: Path) -> None:
    if not docker_available():
        pytest.skip("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    command = [
        sys.executable, "-m", "pytest", str(ROOT / "workloads/test_log.py"), "--cluster=docker", "--nemesis=partition",
        "--time-limit=600", "--reports=never",
        f"--store={tmp_path}", "-p", "no:cacheprovider",
    ]  # fmt: skip
    client = docker.from_env()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            mine = {"label": f"{OWNER_LABEL}={owner.find_owner(process.pid)}"}
            if "nodes" in moment:
                until(lambda: client.containers.list(filters=mine), process)
            else:
                until(lambda: list(tmp_path.glob("*/2*/settings.json")), process)
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert client.containers.list(all=True, filters=mine) == []
    assert client.networks.list(filters=mine) == []
    (run,) = tmp_path.glob("*/2*/run.json")
    status = json.loads(run.read_text())["status"]
    assert status == ("error" if "nodes" in moment else "interrupted")
    client.close()
