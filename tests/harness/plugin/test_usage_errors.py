"""Values that would fill the memory, or hang, are usage errors before anything starts; no session waits in silence."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from assay.harness.plugin.usage_errors import UsageErrors, make_usage_error, refuse_session
from assay.harness.run.attempt import Attempt

SIM = ("--cluster=sim", "--seed=7", "--time-limit=1", "--rate=100", "--nodes=1", "--reports=never")


def said(project: pytest.Pytester, *options: str) -> str:
    """Returns the text of a usage error."""
    result = project.runpytest_inprocess(*SIM, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "store").exists(), "nothing has begun"
    text = "\n".join([*result.outlines, *result.errlines])
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return text


@pytest.mark.parametrize(
    ("option", "recorded"),
    [
        ("--nodes=1000000", "--nodes=1000000 must be between 1 and 200 nodes"),
        ("--nodes=broker=1000000", "--nodes=broker=1000000 must be between 1 and 200 nodes"),
        ("--concurrency=1000000", "--concurrency=1000000 must be between 1 and 10,000 workers"),
        ("--time-limit=1e300", "--time-limit=1e300 must be between 0.001 and 8,640,000 seconds"),
        ("--rate=1e-300", "--rate=1e-300 must be between 0.001 and 1,000,000 operations per second"),
        ("--operation-timeout=1e300", "--operation-timeout=1e300 must be between 0.001 and 86,400 seconds"),
        ("--drain-limit=0", "--drain-limit=0 must be between 0.001 and 8,640,000 seconds"),
        ("--repeat=1000000000", "--repeat=1000000000 must be between"),
        ("--repeat=1000000", "--repeat=1000000 makes more than 50,000 tests"),
        ("--replay=/dev/zero", "--replay=/dev/zero: this is a device, and reading it may never end"),
    ],
)
def test_an_absurd_value_names_its_limits(toy_project: pytest.Pytester, option: str, recorded: str) -> None:
    assert recorded in said(toy_project, option)


@pytest.mark.parametrize("cluster", ["ssh", "attach"])
def test_a_file_of_hosts_whose_name_is_too_long(toy_project: pytest.Pytester, cluster: str) -> None:
    name = "x" * 300
    assert f"{name} cannot be read (File name too long)" in said(toy_project, f"--cluster={cluster}", f"--hosts={name}")


def test_a_fault_each_nanosecond(toy_project: pytest.Pytester) -> None:
    assert "must be between 0.01 and" in said(toy_project, "--nemesis=kill", "--nemesis-interval=1e-9")
    text = said(toy_project, "--nemesis=kill", "--nemesis-interval=0.01", "--time-limit=86400")
    assert "makes 8,640,000 faults; a run has at most 50,000" in text


def test_hours_over_many_tests_are_too_many_to_collect(toy_project: pytest.Pytester) -> None:
    file = toy_project.path / "test_file.py"
    text = file.read_text()
    body = text[text.index("@experiment") :]
    file.write_text(text + "\n".join(body.replace("test_toy", f"test_{number}") for number in range(20)))
    recorded = said(toy_project, "--repeat=8h")
    assert "--repeat=8h makes more than 50,000 tests" in recorded
    assert "assay nightly --budget" in recorded


def test_a_fifo_in_place_of_a_schedule(toy_project: pytest.Pytester) -> None:
    os.mkfifo(toy_project.path / "schedule.json")
    assert "schedule.json: this is a FIFO" in said(toy_project, "--replay=schedule.json")


@pytest.fixture
def dead() -> Iterator[int]:
    """A port that takes no connection: it is bound, and no one listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_spark_master_that_is_dead_is_named_before_a_cluster_starts(
    toy_project: pytest.Pytester, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.checkers.engine.engine_selection._require_spark", lambda: None)  # Java may be missing
    recorded = said(toy_project, f"--spark-master=spark://127.0.0.1:{dead}")
    assert "Exit" not in recorded
    assert f"no Spark master answers at spark://127.0.0.1:{dead}" in recorded
    assert "leave out --spark-master" in recorded


REFUSED = "--nemesis=kill is not available here: no process can be killed"
REFUSING = f"""
from assay.harness.run.attempt import Attempt, FaultUnavailableError
real = Attempt.set_up

def set_up(attempt):
    if "kill" in attempt.settings.nemesis:
        raise FaultUnavailableError({REFUSED!r})
    real(attempt)

Attempt.set_up = set_up
"""
"""A ``conftest.py``: a fault turns out to be impossible when the cluster has started."""
LONGER = "--time-limit=10"
"""Leaves time for a fault."""


def assert_refused(result: pytest.RunResult) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [*result.outlines, *result.errlines]
    assert [line for line in lines if REFUSED in line] == [f"ERROR: {REFUSED}"]
    assert not [line for line in lines if line.startswith("!") or "Exit" in line or "INTERNALERROR" in line]


def test_a_fault_that_a_started_cluster_cannot_inject_ends_the_session_with_one_plain_line(
    toy_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attempt, "set_up", Attempt.set_up)  # restored after the test
    toy_project.makeconftest(REFUSING)
    result = toy_project.runpytest_inprocess(*SIM, LONGER, "--nemesis=kill", "--nemesis=none", "--nemesis=stop")
    assert_refused(result)
    result.assert_outcomes()  # nothing ran, because the refused test is the first
    result = toy_project.runpytest_inprocess(*SIM, LONGER, "--nemesis=all", "-k", "kill and not -", "-rs")
    assert REFUSED in result.stdout.str()
    assert result.ret == pytest.ExitCode.OK, "a fault from --nemesis=all is skipped"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("kill", REFUSED),
        ("move-replicas", "no test remains: --nemesis=move-replicas needs a system that satisfies SupportsMove"),
    ],
    ids=["in a fixture", "in the collection"],
)
def test_a_usage_error_in_a_worker_of_xdist_is_one_of_the_session(
    toy_project: pytest.Pytester, fault: str, line: str
) -> None:
    pytest.importorskip("xdist")
    toy_project.makeconftest(REFUSING)
    result = toy_project.runpytest_subprocess(*SIM, LONGER, f"--nemesis={fault}", "--repeat=2", "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [one for one in result.errlines if one.startswith("ERROR: ")] == [
        one for one in result.errlines if one.startswith(f"ERROR: {line}")
    ]
    assert sum(line in one for one in (*result.outlines, *result.errlines)) == 1
    assert "INTERNALERROR" not in result.stdout.str()


@dataclass
class FakeSession:
    """A session and its configuration, as far as the plugin for usage errors needs them."""

    stash: pytest.Stash = field(default_factory=pytest.Stash)
    shouldstop: bool | str = False
    workeroutput: dict[str, Any] | None = None


def run_wrapped(wrapper: Generator[None, Any, Any], outcome: Callable[[], bool]) -> Any:
    """Runs a wrapper of a hook around ``outcome``, as pluggy does."""
    next(wrapper)
    try:
        try:
            value = outcome()
        except BaseException as error:  # noqa: BLE001 - passed on as pluggy does
            wrapper.throw(error)
        else:
            wrapper.send(value)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a wrapper yields once")


def play_worker(wrap: str, outcome: Callable[[Any], bool]) -> FakeSession:
    """Returns the state of a worker whose collection or tests have ended with a usage error."""
    session: Any = FakeSession(workeroutput={})
    with pytest.raises(pytest.UsageError, match="refused"):
        run_wrapped(getattr(UsageErrors(session), wrap)(session), lambda: outcome(session))
    return cast(FakeSession, session)


def raise_in_collection(config: Any) -> bool:
    raise make_usage_error(config, "refused", "refused as well")


def interrupt() -> bool:
    raise KeyboardInterrupt("stopping: usage error")


def test_the_controller_of_xdist_raises_the_usage_errors_of_its_workers_once() -> None:
    workers = [play_worker("pytest_collection", raise_in_collection) for _ in range(2)]
    workers.append(play_worker("pytest_runtestloop", lambda config: refuse_session(config, "refused at last")))
    assert all(worker.shouldstop for worker in workers), "otherwise the controller regards them as crashed"
    for end in (interrupt, lambda: True):
        controller: Any = FakeSession()
        plugin = UsageErrors(controller)
        for worker in workers:
            plugin.pytest_testnodedown(worker, None)
        with pytest.raises(pytest.UsageError) as raised:
            run_wrapped(plugin.pytest_runtestloop(controller), end)
        assert raised.value.args == ("refused", "refused as well", "refused at last")


def test_other_ends_of_a_session_are_left_alone() -> None:
    session: Any = FakeSession(workeroutput={})
    plugin = UsageErrors(session)
    plugin.pytest_testnodedown(session, None)
    assert run_wrapped(plugin.pytest_runtestloop(session), lambda: True) is True
    with pytest.raises(KeyboardInterrupt):
        run_wrapped(plugin.pytest_runtestloop(session), interrupt)
    with pytest.raises(pytest.exit.Exception, match="of a test"):
        run_wrapped(plugin.pytest_runtestloop(session), lambda: pytest.exit("of a test", returncode=0))
    assert session == FakeSession(stash=session.stash, workeroutput={})


def test_a_test_without_the_decorator_is_named_without_a_traceback(toy_project: pytest.Pytester) -> None:
    toy_project.makepyfile(test_bare="def test_bare(assay_trial): ...")
    result = toy_project.runpytest_inprocess(*SIM, "test_bare.py")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "test_bare takes assay_trial, but has no decorator @experiment" in result.outlines
    assert "Traceback" not in result.stdout.str()
    assert "hooks.py" not in result.stdout.str()
