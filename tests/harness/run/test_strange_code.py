"""Code of a user's that raises, returns nonsense, or does not let itself be cancelled: named, bounded, never a pass by
mistake, and never in the way of the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import logging
import os
import pdb
import re
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict
from assay.cluster.node import Cluster, Node
from assay.cluster.sim.process import ExitCalls
from assay.cluster.system import System
from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Generator, limit, repeat
from assay.harness.core.history import HistoryReader
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.nightly.outcome import SEARCHED
from assay.harness.plugin import pass_remarks
from assay.harness.run import loop_watchdog, store
from assay.harness.run.attempt import Attempt, InfrastructureError, ReportPolicy, SkippedTooLateError
from assay.harness.run.experiment import Experiment
from assay.harness.run.progress import SilentProgress
from assay.harness.run.settings import Settings

COUNTS = Contract(forbidden=("counter-duplicate",), minimum_operations=3, minimum_during_fault=0)


def slip(*_: Any) -> Any:
    """Parses a text that is not JSON."""
    return json.loads("{nonsense")


async def slip_later(*_: Any) -> Any:
    return slip()


async def deaf(*_: Any) -> None:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            continue


class Quiet(System):
    """Serves no one; its clients count on their own."""

    name, roles = "quiet", ("server",)

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return ["quiet"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {"/etc/quiet": b"1"}

    async def ready(self, node: Node) -> bool:
        return True

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        print(f"{argv[0]} speaks", file=sys.stderr)
        await asyncio.Event().wait()
        return 0


class Counting:
    drawn: Iterator[int]

    async def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    async def invoke(self, operation: Operation) -> Completion:
        await asyncio.sleep(0.01)
        return Completion(Outcome.OK, next(self.drawn))

    async def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return [Effect("counter-add", "c", value=completed.completion.result)]


def attempt(root: Path, system: Mapping[str, Any], client: Mapping[str, Any], **settings: Any) -> Attempt:
    def body(settings: Settings) -> Generator:
        return limit(3000 if settings.nemesis else 30, repeat(Operation("add", "c")))

    deployed, driven = type("Q", (Quiet,), dict(system))(), type("C", (Counting,), {"drawn": count(), **client})
    made = Experiment("test_it", deployed, driven, COUNTS, body)
    chosen = Settings(**{"seed": 1, "nodes": 1, "time_limit": 30.0, "concurrency": 3, "store": root} | settings)
    return Attempt(made, chosen, "test_it", "pytest", reports=ReportPolicy.NEVER)


def played(root: Path, system: Mapping[str, Any], client: Mapping[str, Any], **settings: Any) -> tuple[Attempt, str]:
    """The run, and what it printed."""
    run = attempt(root, system, client, **settings)
    try:
        run.set_up()
        text = run.run() or ""
    finally:
        run.tear_down()
    return run, text


def refused(root: Path, **system: Any) -> str:
    """Returns what is said of a start that failed."""
    run = attempt(root, system, {})
    try:
        with pytest.raises(InfrastructureError) as raised:
            run.set_up()
        assert f"the run's folder: {run.folder.path}" in str(raised.value)
    finally:
        run.tear_down()
    return str(raised.value)


@pytest.mark.parametrize("method", ["argv", "files"])
def test_a_method_that_raises_before_the_start_is_named_with_its_node_and_line(tmp_path: Path, method: str) -> None:
    said = refused(tmp_path, **{method: slip}).splitlines()[0]
    assert said.startswith(f"the cluster did not start: {method}() of n1 raised JSONDecodeError: ")
    assert said.rpartition(" at ")[2].startswith("test_strange_code.py:")


@pytest.mark.parametrize(
    ("method", "given", "wants"),
    [
        ("argv", None, "argv() of n1 returned None: it must return a list of texts, the program first"),
        ("argv", "server --fast", "argv() of n1 returned 'server --fast': it must return a list of texts"),
        ("argv", [], "argv() of n1 returned []"),
        ("argv", ["server", 7000], "argv() of n1 returned ['server', 7000]"),
        (
            "files",
            [("/etc/a", b"")],
            "files() of n1 returned [('/etc/a', b'')]: it must return a dict from path to bytes",
        ),
        ("files", {"/etc/a": "text"}, "files() of n1 has str for /etc/a: it must have bytes, such as text.encode()"),
        ("files", {"etc/a": b""}, "files() of n1: 'etc/a' is not an absolute path"),
    ],
)
def test_nonsense_that_a_method_returns_is_said_with_what_it_takes(
    tmp_path: Path, method: str, given: Any, wants: str
) -> None:
    assert wants in refused(tmp_path, **{method: lambda *_: given})


def test_a_system_that_cannot_be_made_as_the_settings_want_it_leaves_a_run_that_has_ended(tmp_path: Path) -> None:
    run = attempt(tmp_path, {"defects": ("odd",), "with_defect": slip}, {}, defect="odd")
    closed: list[bool] = []
    run.progress = SimpleNamespace(close=lambda: closed.append(True), note=print)  # type: ignore[assignment]
    try:
        with pytest.raises(json.JSONDecodeError):
            run.set_up()
    finally:
        run.tear_down()
    info = store.read_run(run.folder.path)
    assert info is not None
    assert info.status == store.ERROR
    assert "JSONDecodeError" in (info.problem or "")
    assert closed, "a line on the terminal would stay there"
    assert not run.folder.reserve.path.exists()


def test_a_set_up_that_raises_is_named(tmp_path: Path) -> None:
    assert "did not start: set_up() raised JSONDecodeError" in refused(tmp_path, set_up=slip_later)


def test_a_ready_that_raises_is_asked_until_it_no_longer_does(tmp_path: Path) -> None:
    asked = count()

    async def late(*_: Any) -> bool:
        return next(asked) > 3 or slip()

    run, _ = played(tmp_path, {"ready": late}, {})
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_a_ready_that_raises_after_the_heal_is_named_in_the_run_and_with_its_fault(tmp_path: Path) -> None:
    asked = count()

    async def at_first(*_: Any) -> bool:
        return next(asked) < 3 or slip()

    run, _ = played(tmp_path, {"ready": at_first}, {}, nemesis=("kill",), nodes=3)
    assert "the last error of ready(): JSONDecodeError" in (run.problem or "")
    assert run.judgement is not None
    faults = HistoryReader(run.folder.history).table("faults").to_pylist()
    assert any("ready() of n" in row["detail"] and "JSONDecodeError" in row["detail"] for row in faults)


def test_a_ready_that_always_raises_is_named_with_its_cause_and_what_the_node_said_last(tmp_path: Path) -> None:
    said = refused(tmp_path, ready=slip_later)
    assert "n1 (server) at " in said
    assert "last seen: ready() raised JSONDecodeError" in said
    first, *rest = said.splitlines()
    assert first.rpartition(" at ")[2].startswith("test_strange_code.py:")
    assert rest[0] == "the last lines of n1's process.log:"
    assert rest[1].endswith("quiet speaks")


@pytest.mark.parametrize("method", ["open", "invoke", "close"])
def test_a_client_that_swallows_its_cancellation_is_left_behind_and_named(tmp_path: Path, method: str) -> None:
    """The loop is closed all the same: before, the session hung after its verdict."""
    run, text = played(tmp_path, {}, {method: deaf})
    assert run.judgement is not None
    said = [*run.remarks, *(line for line in text.splitlines() if line.startswith("remark: "))]
    assert any("let CancelledError through" in line and f"{method}()" in line for line in said), said
    assert (run.judgement.verdict is Verdict.PASS) == (method == "close"), "only a close is of no consequence"


def test_a_task_of_a_clients_own_that_swallows_its_cancellation_does_not_hang_the_end(tmp_path: Path) -> None:
    async def begin(self: Any, endpoint: Endpoint, runtime: Any) -> None:
        self.background = asyncio.create_task(deaf())

    run, _ = played(tmp_path, {}, {"open": begin})
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_a_close_that_always_raises_is_a_remark_on_a_run_that_passes(tmp_path: Path) -> None:
    run, _ = played(tmp_path, {}, {"close": slip_later})
    (remark,) = run.remarks
    assert remark.startswith("close() failed for every client; the last error, on n1: JSONDecodeError")


def test_there_is_no_remark_where_a_close_failed_once(tmp_path: Path) -> None:
    closed = count()

    async def at_first(*_: Any) -> None:
        if next(closed) == 0:
            slip()

    run, _ = played(tmp_path, {}, {"close": at_first})
    assert run.judgement is not None
    assert (run.judgement.verdict, run.remarks) == (Verdict.PASS, ())


@pytest.mark.parametrize(
    ("effects", "wants"),
    [
        (None, "effects returned None, not a list of Effect"),
        ("text", "effects returned 'text', not a list of Effect"),
        (["x"], "effects returned 'x' in its list, not an Effect"),
        ([Effect("counter-add", "c", value="3")], "value of an effect of kind 'counter-add' is '3': it takes"),  # type: ignore[arg-type]
        (
            [Effect("counter-add", "c", value=True)],
            "value of an effect of kind 'counter-add' is True: it takes",
        ),
        (
            [Effect("counter-add", "c", outcome="done")],  # type: ignore[arg-type]
            "outcome of an effect of kind 'counter-add' is 'done', none of ok, fail, info",
        ),
        ([Effect("counter-add", None)], "key of an effect of kind 'counter-add' is None: it takes text"),  # type: ignore[arg-type]
    ],
)
def test_effects_that_the_history_does_not_take_make_it_unknown(tmp_path: Path, effects: Any, wants: str) -> None:
    run, text = played(tmp_path, {}, {"effects": staticmethod(lambda completed: effects)})
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.UNKNOWN
    assert wants in text


def test_effects_that_are_missing_accuse_no_one(tmp_path: Path) -> None:
    """A single operation lacks its effects. The others contradict themselves with it, or would do so without it."""

    def effects(completed: Completed) -> Sequence[Effect]:
        if completed.index == 2:
            slip()
        return [Effect("counter-add", "c", value=0)]

    run, text = played(tmp_path, {}, {"effects": staticmethod(effects)})
    assert run.judgement is not None
    assert run.judgement.anomalies["counter-duplicate"] > 0
    assert run.judgement.verdict is Verdict.UNKNOWN
    assert text.startswith("UNKNOWN: counter-duplicate: the client's effects() raised for 1 operation. ")
    assert "JSONDecodeError" in text


def raise_good_end(name: str) -> Any:
    match name:
        case "skip":
            pytest.skip("it drains too slowly")
        case "importorskip":
            pytest.importorskip("no_such_module")
        case "xfail":
            pytest.xfail("known")
        case "exit":
            pytest.exit("enough", returncode=0)
        case _:
            raise unittest.SkipTest("old version")


def run_with_late_skip(root: Path, end: str, place: str, numbers: Iterator[int]) -> tuple[Attempt, str]:
    """Plays a run that is skipped at its 20th operation."""

    async def invoke(self: Any, operation: Operation) -> Completion:
        await asyncio.sleep(0.01)
        number = next(numbers)
        if place == "client" and number >= 20:
            raise_good_end(end)
        return Completion(Outcome.OK, number)

    def effects(completed: Completed) -> Sequence[Effect]:
        number = completed.completion.result or 0
        if place == "effects" and completed.index >= 20:
            raise_good_end(end)
        return [Effect("counter-add", "c", value=number)]

    def step(context: Any) -> Operation:
        if place == "generator" and context.time > 10**8:
            raise_good_end(end)
        return Operation("add", "c")

    run = attempt(root, {}, {"invoke": invoke, "effects": staticmethod(effects)})
    run.experiment = replace(run.experiment, body=lambda settings: limit(300, step))
    try:
        run.set_up()
        text = run.run() or ""
    finally:
        run.tear_down()
    return run, text


@pytest.mark.parametrize(
    ("end", "place"),
    [
        ("skip", "client"),
        ("importorskip", "client"),
        ("xfail", "client"),
        ("skip", "effects"),
        ("skip", "generator"),
        ("unittest", "generator"),
        ("exit", "generator"),
    ],
)
def test_a_skip_in_the_middle_of_a_run_is_unknown_and_no_skip(tmp_path: Path, end: str, place: str) -> None:
    run, text = run_with_late_skip(tmp_path, end, place, count())
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.UNKNOWN
    assert re.match(
        r"UNKNOWN: the test's code raised (Skipped|XFailed|Exit|SkipTest): .* at test_strange_code.py", text
    )
    info = store.read_run(run.folder.path)
    assert info is not None
    assert (info.status, info.verdict) == (store.INTERRUPTED, "unknown")
    assert "when the run had made operations" in info.notes[0]


def test_a_skip_in_the_middle_of_a_run_hides_no_violation(tmp_path: Path) -> None:
    run, text = run_with_late_skip(tmp_path, "skip", "client", chain([3, 3], range(4, 1000)))
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.FAIL
    assert text.startswith("FAIL counter-duplicate")


def test_a_skip_before_the_first_operation_stays_a_skip(tmp_path: Path) -> None:
    run = attempt(tmp_path, {}, {})
    run.experiment = replace(run.experiment, body=lambda settings: limit(9, lambda context: raise_good_end("skip")))
    try:
        run.set_up()
        with pytest.raises(pytest.skip.Exception):
            run.run()
    finally:
        run.tear_down()


def test_a_check_that_skips_does_not_skip_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = attempt(tmp_path, {}, {})
    monkeypatch.setattr(run, "_judge", lambda *_: raise_good_end("skip"))
    try:
        run.set_up()
        with pytest.raises(SkippedTooLateError, match=r"not completed: .*Skipped: it drains too slowly"):
            run.run()
    finally:
        run.tear_down()


def test_a_log_with_half_a_character_is_kept_and_so_are_all_others(tmp_path: Path) -> None:
    async def entry(self: Any, runtime: Any, argv: Sequence[str]) -> int:
        print("bytes \udcff of a file", file=sys.stderr)
        await asyncio.Event().wait()
        return 0

    run, _ = played(tmp_path, {"entry": entry}, {}, nodes=2)
    said = [path.read_text() for path in sorted(run.folder.logs.glob("*/process.log"))]
    assert len(said) == 2
    assert all("bytes \\udcff of a file" in text for text in said)


def test_what_a_simulated_server_prints_under_pytest_is_in_its_log(toy_project: pytest.Pytester) -> None:
    toy = toy_project.path / "toy_log.py"
    began = "        try:\n            server.event("
    assert began in toy.read_text()
    later = "        asyncio.get_running_loop().call_later(3, print, 'in the run')\n        print('at the start')\n"
    toy.write_text(toy.read_text().replace(began, later + began))
    result = toy_project.runpytest_inprocess("--cluster=sim", "--nodes=1", "--seed=7", "--time-limit=5", "--rate=20")
    result.assert_outcomes(passed=1)
    (said,) = [path.read_text() for path in (toy_project.path / "store/latest/logs").glob("*/process.log")]
    assert [line.split(maxsplit=1)[1] for line in said.splitlines()] == ["at the start", "in the run"]


def test_what_a_simulated_server_prints_and_does_not_catch_is_in_its_log(tmp_path: Path) -> None:
    """And in no output of the harness. The verdict's footer names the first exception of each process."""

    async def entry(self: Any, runtime: Any, argv: Sequence[str]) -> int:
        async def handle() -> None:
            raise AttributeError("no such field")

        print("standard output")
        logging.getLogger("jobs").error("a logger of its own")
        handling = asyncio.create_task(handle())
        await asyncio.sleep(0.1)
        del handling
        gc.collect()  # asyncio reports an exception that no one retrieved when its task is collected
        asyncio.get_running_loop().call_soon(handle().throw, ValueError("in a callback"))
        await asyncio.Event().wait()
        return 0

    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        run, _ = played(tmp_path, {"entry": entry}, {})
    (said,) = [path.read_text() for path in run.folder.logs.glob("*/process.log")]
    for text in (
        "standard output",
        "a logger of its own",
        "AttributeError: no such field",
        "ValueError: in a callback",
    ):
        assert text in said
        assert text not in written.getvalue()
    (remark,) = [remark for remark in run.remarks if "did not catch" in remark]
    assert re.fullmatch(
        r"n1: 2 exceptions that its code did not catch, at first AttributeError\('no such field'\) "
        r"\(test_strange_code.py:\d+\) after \d+\.\d{3} s; logs/n1 has the traceback",
        remark,
    )


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: os._exit(0), 0),
        (lambda: os._exit(3), 3),
        (lambda: os.abort(), 134),  # the function of the run, not that of the import
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 137),
    ],
    ids=["exit-0", "exit-3", "abort", "kill"],
)
@pytest.mark.parametrize("place", ["callback", "task", "main"])
def test_a_simulated_server_that_ends_its_process_at_once_ends_itself_alone(
    tmp_path: Path, call: Any, code: int, place: str
) -> None:
    codes: list[Any] = []

    async def entry(self: Any, runtime: Any, argv: Sequence[str]) -> int:
        async def end() -> None:
            await asyncio.sleep(0.05)
            call()
            print("goes on")

        if place == "callback":
            asyncio.get_running_loop().call_later(0.05, call)
        elif place == "task":
            self.ending = asyncio.create_task(end())
        else:
            await end()
        await asyncio.Event().wait()
        return 0

    run = attempt(tmp_path, {"entry": entry}, {})
    before = os._exit, os.abort, os.kill
    try:
        run.set_up()
        assert run._trial is not None
        (node,) = run._trial.cluster.nodes
        run.run()
        codes.append(node.exit_code)
    finally:
        run.tear_down()
    assert (os._exit, os.abort, os.kill) == before
    assert codes == [code]
    assert not any("goes on" in path.read_text() for path in run.folder.logs.glob("*/process.log"))
    assert run.judgement is not None
    assert run.judgement.anomalies["unexpected-exit"] == 1


def test_a_client_that_exits_with_0_ends_the_session_with_1_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    notes: list[str] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    calls = ExitCalls()
    calls.begin(notes.append)
    try:
        os._exit(0)
        os._exit(5)
    finally:
        calls.end()
    assert codes == [1, 5]
    assert notes == ["the test's code called os._exit(0) during a run: the session ends with exit code 1"]


def test_logs_that_cannot_be_named_cost_no_verdict(tmp_path: Path) -> None:
    run, _ = played(tmp_path, {"logs": slip}, {})
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.PASS


def test_a_result_that_cannot_be_written_down_makes_it_unknown_and_ends_nothing(tmp_path: Path) -> None:
    async def invoke(self: Any, operation: Operation) -> Completion:
        await asyncio.sleep(0.01)
        return Completion(Outcome.OK, object())

    effects = staticmethod(lambda completed: [Effect("counter-add", "c", value=completed.index)])
    run, text = played(tmp_path, {}, {"invoke": invoke, "effects": effects})
    assert run.judgement is not None
    assert (run.judgement.verdict, run.judgement.effects) == (Verdict.UNKNOWN, 30)
    assert "result of add cannot be written as JSON" in text


def test_a_kind_that_no_check_knows_is_named_with_the_nearest(tmp_path: Path) -> None:
    effects = staticmethod(lambda completed: [Effect("counter-ad", "c", value=completed.index)])
    _, text = played(tmp_path, {}, {"effects": effects})
    assert text.startswith("UNKNOWN: no check knows effects of kind counter-ad; was counter-add meant?")


def test_a_misspelt_kind_of_effect_accuses_no_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of a counter whose additions are misspelt see values that no one added."""

    def effects(completed: Completed) -> Sequence[Effect]:
        number = completed.completion.result
        return [Effect("counter-ad", "c", value=1), Effect("counter-read", "c", value=number)]

    monkeypatch.setitem(globals(), "COUNTS", Contract(forbidden=("counter-phantom",)))
    run, text = played(tmp_path, {}, {"effects": staticmethod(effects)})
    assert run.judgement is not None
    assert run.judgement.verdict is Verdict.UNKNOWN
    (found,) = [name for name, count in run.judgement.anomalies.items() if count]
    assert text.startswith(
        f"UNKNOWN: {found}: found while no check reads the effects of kind counter-ad (was counter-add meant?)"
    )


def test_a_finder_that_raises_is_a_remark(tmp_path: Path) -> None:
    keys = {"keys": lambda self: ["c"], "find": slip_later}
    chosen = {"nemesis": ("kill",), "nemesis_target": "leader:c", "nodes": 3, "nemesis_interval": 2.0}
    run, text = played(tmp_path, keys, {}, **chosen)
    said = [*run.remarks, *text.splitlines()]
    assert any("find() raised in " in line and "JSONDecodeError" in line for line in said), said


def test_remarks_are_said_once_with_the_number_of_runs() -> None:
    lines: list[str] = []
    items = [SimpleNamespace(user_properties=[]) for _ in range(3)]
    for item in items[:2]:
        pass_remarks.keep_remarks(item, ["close() failed"])
    reports = [SimpleNamespace(when=when, user_properties=item.user_properties) for item in items for when in WHEN]
    reporter = SimpleNamespace(stats={"": reports, "passed": [SimpleNamespace()]}, write_line=lines.append)
    pass_remarks.pytest_terminal_summary(reporter)
    assert lines == ["assay: of 2 runs that passed: close() failed"]


def test_what_runs_that_passed_looked_at_is_said_by_the_smallest(tmp_path: Path) -> None:
    lines: list[str] = []
    items = [SimpleNamespace(user_properties=[]) for _ in range(3)]
    for number, item in enumerate(items[:2]):
        pass_remarks.keep_pass(item, 1000 + number, 7, tmp_path / str(number), "1,000 operations (9 ok, 991 failed)")
    reports = [SimpleNamespace(when=when, user_properties=item.user_properties) for item in items for when in WHEN]
    for some in (reports, reports[:3], reports[6:]):
        pass_remarks.pytest_terminal_summary(SimpleNamespace(stats={"": some}, write_line=lines.append))
    smallest = f"1,000 operations (9 ok, 991 failed), looked at by 7 checks: {tmp_path / '0'}"
    assert lines == [
        f"assay: 2 runs passed, of 2,001 operations; the smallest of {smallest}",
        f"assay: a run passed, of {smallest}",
    ]


def test_searches_that_found_nothing_say_how_much_they_played() -> None:
    """A night tells by this line that a cell without a run has tested something."""
    lines: list[str] = []
    items = [SimpleNamespace(user_properties=[]) for _ in range(2)]
    for item in items:
        pass_remarks.keep_search(item, 1000)
    reports = [SimpleNamespace(when=when, user_properties=item.user_properties) for item in items for when in WHEN]
    for some in (reports, reports[:3]):
        pass_remarks.pytest_terminal_summary(SimpleNamespace(stats={"": some}, write_line=lines.append))
    assert lines == [
        "assay: 2 searches found nothing in 2,000 examples",
        "assay: a search found nothing in 1,000 examples",
    ]
    assert all(map(SEARCHED.search, lines))


WHEN = ("setup", "call", "teardown")
HANGS = """
import asyncio, time
from assay.harness.core.blocking import adapt_client
class Client:
    blocking = True
    def open(self, endpoint, runtime): time.sleep(1000)
    def invoke(self, operation): ...
    def close(self): ...
    effects = staticmethod(lambda completed: ())
async def main():
    try:
        await asyncio.wait_for(adapt_client(Client()).open(None, None), 0.1)
    except TimeoutError:
        print("given up", flush=True)
asyncio.run(main())
"""


def test_a_thread_that_never_returns_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("given up\n", "")


def test_other_handlers_keep_no_log_records_of_simulated_processes(tmp_path: Path) -> None:
    """The handlers of pytest keep every record, with its exception and the exception's frames."""

    async def entry(self: Any, runtime: Any, argv: Sequence[str]) -> int:
        logging.getLogger("assay.jobs").warning("below the system's logger")
        logging.getLogger("jobs").warning("a logger of its own")
        await asyncio.Event().wait()
        return 0

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    kept: list[str] = []
    keeper, loggers = Keeper(), (logging.getLogger(), logging.getLogger("assay"))
    for logger in loggers:
        logger.addHandler(keeper)
    try:
        run, _ = played(tmp_path, {"entry": entry}, {})
        (said,) = [path.read_text() for path in run.folder.logs.glob("*/process.log")]
        assert "below the system's logger" in said
        assert "a logger of its own" in said
        assert kept == []
        loggers[0].warning("of the harness")
        loggers[1].warning("of its client")
        assert set(kept) == {"of the harness", "of its client"}
    finally:
        for logger in loggers:
            logger.removeHandler(keeper)


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


async def spin(*_: Any) -> None:
    """Swallows most exceptions, as loops of servers do."""
    while True:
        with contextlib.suppress(Exception):
            json.dumps([1])


async def block(*_: Any) -> None:
    """Waits in a system call, and not for the event loop."""
    time.sleep(1000)  # noqa: ASYNC251 - the mistake of a user


def unending(tmp_path: Path, system: Mapping[str, Any], client: Mapping[str, Any], **settings: Any) -> Attempt:
    run = attempt(tmp_path, system, client, **settings)
    run.patience, run.progress = 2.0, Notes()
    return run


@pytest.mark.slow
@pytest.mark.parametrize("never_awaits", [spin, block])
def test_a_client_that_never_awaits_ends_its_run_which_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never_awaits: Any
) -> None:
    async def invoke(self: Counting, operation: Operation) -> Completion:
        number = next(self.drawn)
        if number == 10:
            await never_awaits()
        await asyncio.sleep(0.01)
        return Completion(Outcome.OK, number)

    monkeypatch.setattr(loop_watchdog, "NOTICE_INTERVAL", 1.0)
    handler = signal.getsignal(loop_watchdog.SIGNAL)
    run = unending(tmp_path, {}, {"invoke": invoke})
    try:
        run.set_up()
        text = run.run() or ""
    finally:
        run.tear_down()
    where = rf"the test's own code has not awaited for \d s at test_strange_code.py:\d+ in {never_awaits.__name__}"
    assert re.search(rf"^UNKNOWN: .*{where}; no other .*`await asyncio.sleep\(0\)`", text), text
    assert isinstance(run.progress, Notes)
    assert [line for line in run.progress.lines if re.match(f"{where}; the run is ended after 2 s", line)]
    assert f"in {never_awaits.__name__}\n" in (run.problem or "")
    assert run.judgement is not None
    assert run.judgement.operations >= 9, "the history until then is kept"
    assert not run.interrupted, "other tests follow"
    assert signal.getsignal(loop_watchdog.SIGNAL) is handler


IN_C = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from assay.harness.run.interrupt import print_stack_at_end
from harness_strange_code import Counting, Completion, Outcome, unending

def never_returns():
    return 1 in itertools.count(2)

async def invoke(self, operation):
    number = next(self.drawn)
    if number == 10:
        never_returns()
    return Completion(Outcome.OK, number)

run = unending(Path(sys.argv[2]), {}, {"invoke": invoke})
run.set_up()
with print_stack_at_end(2):
    run.run()
"""


@pytest.mark.slow
def test_a_client_that_never_returns_from_c_code_ends_the_process_with_its_stack(tmp_path: Path) -> None:
    """Neither a thread nor a handler of Python can run."""
    (tmp_path / "harness_strange_code.py").symlink_to(__file__)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-c", IN_C, str(tmp_path), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == -signal.SIGPROF, done.stderr
    assert "in never_returns" in done.stderr


@pytest.mark.slow
def test_the_time_of_a_client_that_waits_for_moments_only_passes(tmp_path: Path) -> None:
    async def invoke(self: Counting, operation: Operation) -> Completion:
        number = next(self.drawn)
        while number == 10:  # noqa: ASYNC110 - the mistake of a user
            await asyncio.sleep(1e-9)
        await asyncio.sleep(0.01)
        return Completion(Outcome.OK, number)

    run = attempt(tmp_path, {}, {"invoke": invoke}, operation_timeout=0.05)
    try:
        run.set_up()
        run.run()
    finally:
        run.tear_down()
    assert run.judgement is not None
    assert run.judgement.operations >= 29


@pytest.mark.slow
def test_servers_that_never_await_end_their_start_and_are_removed(tmp_path: Path) -> None:
    run = unending(tmp_path, {"entry": spin}, {}, nodes=3)
    try:
        with pytest.raises(InfrastructureError) as raised:
            run.set_up()
    finally:
        run.tear_down()
    said = str(raised.value).splitlines()[0]
    assert re.match(r"the cluster did not start: the code of n\d\S* has not awaited for 2 s at test_strange_code", said)


@pytest.mark.slow
def test_a_debugger_in_the_code_of_a_client_has_all_the_time_that_its_user_takes(tmp_path: Path) -> None:
    async def invoke(self: Counting, operation: Operation) -> Completion:
        number = next(self.drawn)
        if number == 10:
            debugger = pdb.Pdb(stdin=io.StringIO("continue\n"), stdout=io.StringIO(), nosigint=True, readrc=False)
            debugger.preloop = lambda: time.sleep(5)  # type: ignore[method-assign]
            debugger.set_trace()
        return Completion(Outcome.OK, number)

    run = unending(tmp_path, {}, {"invoke": invoke})
    try:
        run.set_up()
        text = run.run()
    finally:
        run.tear_down()
        sys.settrace(None)
    assert text is None
