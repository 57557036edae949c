"""The interpreter against scripted clients, in virtual time."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.blocking import BlockingClientError
from assay.harness.core.client import Endpoint
from assay.harness.core.generator import (
    Context,
    Generator,
    Invoke,
    OperationEvent,
    Pending,
    each_process,
    in_phase,
    limit,
    mix,
    rate,
    sequence,
    stagger,
    time_limit,
    unfold,
    until,
)
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.history.data_sets import UNRECORDED
from assay.harness.core.interpreter import GeneratorError, Interpreter
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome

from helpers.examples import some_of
from helpers.interpret import interpret

T = TypeVar("T")
S = 1_000_000_000
OK = Completion(Outcome.OK)
ENDPOINTS = [Endpoint("n1", "10.0.0.1:9092", ()), Endpoint("n2", "10.0.0.2:9092", ())]
Script = Callable[[Operation], Awaitable[Any]]


class Recorded:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.rows: list[Completed] = []
        self.effects: list[Effect] = []

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None:
        self.rows.append(completed)
        self.effects.extend(effects)

    @property
    def arguments(self) -> list[Any]:
        return sorted(row.operation.argument for row in self.rows)


class Scripted:
    """A client that does what the test says, and notes who opened and closed it."""

    def __init__(self, script: Script, log: list[str], refuse: Callable[[Endpoint], bool] = lambda endpoint: False):
        self.script = script
        self.log = log
        self.refuse = refuse
        self.node = ""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.node = endpoint.node
        if self.refuse(endpoint):
            raise ConnectionRefusedError(f"{endpoint.node} refused")
        self.log.append(f"open {endpoint.node}")

    async def invoke(self, operation: Operation) -> Completion:
        answer: Completion = await self.script(operation)
        return answer

    async def close(self) -> None:
        self.log.append(f"close {self.node}")

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return [Effect("append", "k", position=completed.index)]


async def quick(operation: Operation) -> Completion:
    await asyncio.sleep(0.001)
    return OK


def simulated(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(coroutine)


def numbers(f: str = "n") -> Generator:
    return unfold(lambda n, context: (Operation(f, argument=n), n + 1), 0)


def some(count: int) -> Generator:
    return limit(count, numbers())


def drive(
    generator: Generator, script: Script = quick, *, workers: int = 4, log: list[str] | None = None, **options: Any
) -> tuple[Recorded, InterpreterStatus]:
    recorded = Recorded()
    noted = [] if log is None else log

    async def go() -> InterpreterStatus:
        return await interpret(
            generator,
            endpoints=ENDPOINTS,
            client=lambda: Scripted(script, noted),
            recorder=recorded,
            concurrency=workers,
            **options,
        )

    return recorded, simulated(go())


def test_every_operation_is_recorded_once_with_stamps_that_strictly_increase() -> None:
    recorded, status = drive(some(200))
    assert recorded.arguments == list(range(200))
    assert sorted(row.index for row in recorded.rows) == list(range(200))
    stamps = [stamp for row in recorded.rows for stamp in (row.call, row.ret) if stamp is not None]
    assert len(set(stamps)) == len(stamps) == 400
    assert all(row.ret is not None and row.call < row.ret for row in recorded.rows)
    assert (status.ok, status.fail, status.info, status.unknown) == (200, 0, 0, [])
    assert [effect.position for effect in recorded.effects] == [row.index for row in recorded.rows]


def test_what_had_ended_is_never_recorded_as_concurrent_with_what_began_after_it() -> None:
    """All four of a round are answered at once; each of the next round must follow every one of them."""
    waiting: list[asyncio.Future[None]] = []

    async def together(operation: Operation) -> Completion:
        waiting.append(asyncio.get_running_loop().create_future())
        mine = waiting[-1]
        if len(waiting) == 4:
            for future in waiting:
                future.set_result(None)
            waiting.clear()
        await mine
        return OK

    recorded, _ = drive(some(40), together, workers=4)
    rounds = [[row for row in recorded.rows if row.operation.argument // 4 == n] for n in range(10)]
    for before, after in pairwise(rounds):
        assert max(row.ret or 0 for row in before) < min(row.call for row in after)


def test_operations_of_one_process_never_overlap() -> None:
    async def uneven(operation: Operation) -> Completion:
        await asyncio.sleep((operation.argument * 7919 % 31) / 1000)
        return Completion((Outcome.OK, Outcome.FAIL, Outcome.INFO)[operation.argument % 3])

    recorded, status = drive(some(150), uneven, workers=5)
    by_process: dict[int, list[Completed]] = {}
    for row in sorted(recorded.rows, key=lambda row: row.index):
        by_process.setdefault(row.process, []).append(row)
    for rows in by_process.values():
        for before, after in pairwise(rows):
            assert before.ret is not None, "an operation that ended info must be its process's last"
            assert before.ret < after.call
    assert status.completed == 150


def test_info_retires_the_process_and_its_client_but_not_the_worker() -> None:
    async def third_is_lost(operation: Operation) -> Completion:
        return Completion(Outcome.INFO, error="lost") if operation.argument == 2 else OK

    log: list[str] = []
    recorded, _ = drive(limit(6, stagger(0.01, numbers())), third_is_lost, workers=1, log=log)
    assert [(row.process, row.worker) for row in recorded.rows] == [(0, "w0")] * 3 + [(1, "w0")] * 3
    assert recorded.rows[2].ret is None
    assert recorded.rows[2].completion.error == "lost"
    assert log == ["open n1", "close n1", "open n1", "close n1"]


def test_workers_are_spread_over_the_nodes_and_share_the_operations() -> None:
    log: list[str] = []
    recorded, status = drive(some(120), workers=6, log=log)
    assert status.invoked == {"n1": 60, "n2": 60}
    assert sorted(log) == ["close n1"] * 3 + ["close n2"] * 3 + ["open n1"] * 3 + ["open n2"] * 3
    assert {row.worker for row in recorded.rows} == {f"w{n}" for n in range(6)}


def test_an_operation_past_its_time_limit_is_cancelled_and_info() -> None:
    cancelled: list[int] = []

    async def hang(operation: Operation) -> Completion:
        if operation.argument in (1, 5):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(operation.argument)
                raise
        return await quick(operation)

    recorded, status = drive(some(100), hang, workers=2, operation_timeout=2.0)
    lost = {row.operation.argument: row.completion for row in recorded.rows if row.ret is None}
    assert lost == {argument: Completion(Outcome.INFO, error="timeout") for argument in (1, 5)}
    assert cancelled == [1, 5]
    assert status.completed == 100
    assert status.unknown == []


def test_time_limits_hold_to_the_moment_and_for_each_operation() -> None:
    ends: dict[int, float] = {}

    async def hang(operation: Operation) -> Completion:
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(1000)
        finally:
            ends[operation.argument] = asyncio.get_running_loop().time() - began
        return OK

    drive(limit(6, rate(2, numbers())), hang, workers=6, operation_timeout=1.7)
    assert ends == pytest.approx(dict.fromkeys(range(6), 1.7), abs=1e-6)


@pytest.mark.parametrize("limit_seconds", [0.02, 0.3, 0.999, 1.7])
def test_a_time_limit_holds_after_another_operation_has_reached_it(limit_seconds: float) -> None:
    """The operation that expired ends late, within its grace. Each later one has the whole limit, and no more."""
    took: dict[int, float] = {}

    async def poll(operation: Operation) -> Completion:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await asyncio.sleep(1000 if operation.argument % 3 == 0 else 5.4 * limit_seconds)
        except asyncio.CancelledError:
            took[operation.argument] = loop.time() - began
            await asyncio.sleep(0.1)
            raise
        return OK

    recorded, _ = drive(some(12), poll, workers=1, operation_timeout=limit_seconds)
    assert took == pytest.approx(dict.fromkeys(range(12), limit_seconds), abs=1e-6)
    assert [row.completion for row in recorded.rows] == [Completion(Outcome.INFO, error="timeout")] * 12


@settings(max_examples=some_of(40), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 0.9)), min_size=1, max_size=20),
    st.floats(0.01, 2.0),
    st.integers(1, 4),
)
def test_no_operation_is_done_after_its_time_limit(
    plan: list[tuple[float, float]], limit_seconds: float, workers: int
) -> None:
    """Whatever the others do: those that would take longer are timeouts, and those that would not are done."""

    async def waits(operation: Operation) -> Completion:
        takes, heeds = plan[operation.argument]
        try:
            await asyncio.sleep(takes)
        except asyncio.CancelledError:
            await asyncio.sleep(heeds)
            raise
        return OK

    recorded, _ = drive(some(len(plan)), waits, workers=workers, operation_timeout=limit_seconds)
    outcomes = {row.operation.argument: row.completion.error for row in recorded.rows}
    margin = 1e-6
    assert {number for number, error in outcomes.items() if error is None} >= {
        number for number, (takes, _) in enumerate(plan) if takes < limit_seconds - margin
    }
    assert {number for number, error in outcomes.items() if error == "timeout"} >= {
        number for number, (takes, _) in enumerate(plan) if takes > limit_seconds + margin
    }


def test_an_answer_that_comes_after_the_cancellation_does_not_count() -> None:
    async def stubborn(operation: Operation) -> Completion:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return Completion(Outcome.FAIL)
        return OK

    recorded, _ = drive(some(3), stubborn, workers=1, operation_timeout=1.0)
    assert [row.completion.error for row in recorded.rows] == ["timeout"] * 3
    assert [row.process for row in recorded.rows] == [0, 1, 2]


def test_an_exception_made_of_the_cancellation_is_the_time_limit_and_no_surprise() -> None:
    async def translates(operation: Operation) -> Completion:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError as error:
            raise ConnectionError("gone") from error
        return OK

    recorded, status = drive(some(2), translates, workers=1, operation_timeout=1.0)
    assert [row.completion.error for row in recorded.rows] == ["timeout"] * 2
    assert status.unknown == []


def test_a_client_that_cannot_be_cancelled_is_left_behind() -> None:
    async def deaf(operation: Operation) -> Completion:
        while operation.argument == 0 and asyncio.get_running_loop().time() < 8:
            try:
                await asyncio.sleep(1000 if asyncio.get_running_loop().time() < 0.5 else 5)
            except asyncio.CancelledError:
                continue
        return await quick(operation)

    recorded, status = drive(limit(200, stagger(0.1, numbers())), deaf, workers=2, operation_timeout=1.0)
    assert recorded.arguments == list(range(200))
    assert status.stuck == 1
    assert [row.completion.error for row in recorded.rows if row.operation.argument == 0] == ["timeout"]
    assert {row.process for row in recorded.rows if row.worker == "w0"} == {0, 2}


def test_an_escaped_exception_is_info_and_makes_the_verdict_unknown_with_its_traceback() -> None:
    async def broken(operation: Operation) -> Completion:
        if operation.argument >= 10:
            raise ValueError(f"no such thing as {operation.argument}")
        return OK

    recorded, status = drive(some(40), broken)
    errors = [row.completion.error for row in recorded.rows if row.operation.argument == 10]
    assert errors == ["exception: ValueError: no such thing as 10"]
    assert status.info == status.exceptions_total == 30
    assert len(status.exceptions) == 20
    by_index = {row.index: row for row in recorded.rows}
    assert all(by_index[found.index].process == found.process for found in status.exceptions)
    assert len({found.process for found in status.exceptions}) == 20
    assert "in broken" in status.exceptions[0].traceback
    first, *traceback = status.unknown[0].splitlines()
    assert re.match(
        r"30 unexpected exceptions in the client; the first: ValueError: no such thing as 10 at "
        r"test_interpreter.py:\d+, in operation \d+ \(n, process \d+\):$",
        first,
    )
    assert traceback[-1] == "ValueError: no such thing as 10"


@pytest.mark.parametrize("answer", [None, "ok"])
def test_an_answer_that_is_no_completion_is_an_exception(answer: object) -> None:
    async def wrong(operation: Operation) -> Any:
        return answer

    recorded, status = drive(some(3), wrong)
    assert {row.completion.outcome for row in recorded.rows} == {Outcome.INFO}
    assert status.exceptions_total == 3


@pytest.mark.parametrize(
    ("outcome", "recorded", "exceptions"),
    [("ok", Outcome.OK, 0), ("info", Outcome.INFO, 0), ("OK", Outcome.INFO, 1), (None, Outcome.INFO, 1)],
)
def test_an_outcome_by_its_name_is_that_one_and_any_other_an_exception(
    outcome: Any, recorded: Outcome, exceptions: int
) -> None:
    async def script(operation: Operation) -> Completion:
        return Completion(outcome)

    kept, status = drive(some(1), script)
    (row,) = kept.rows
    assert row.completion.outcome is recorded
    assert (row.ret is None) == (recorded is Outcome.INFO)
    assert status.exceptions_total == exceptions


def test_a_cancellation_that_a_client_lets_escape_is_an_exception() -> None:
    async def cancels(operation: Operation) -> Completion:
        raise asyncio.CancelledError

    recorded, status = drive(some(3), cancels)
    assert len(recorded.rows) == status.exceptions_total == 3


def record_in(folder: Path, client: Callable[[], Scripted]) -> InterpreterStatus:
    """Runs three operations and records them in a history, which must have all of them."""
    with HistoryWriter(folder) as writer:
        status = simulated(interpret(some(3), endpoints=ENDPOINTS, client=client, recorder=writer, concurrency=1))
    assert HistoryReader(folder).rows("ops") == 3
    return status


def nest(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def make_cycle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("value", [make_cycle(), nest(50_000)], ids=["a cycle", "depth"])
def test_a_result_that_contains_itself_or_is_nested_too_deep_is_an_exception_of_its_operation(
    tmp_path: Path, value: Any
) -> None:
    async def script(operation: Operation) -> Completion:
        return Completion(Outcome.OK, value if operation.argument == 1 else None)

    status = record_in(tmp_path, lambda: Scripted(script, []))
    assert status.exceptions_total == 1
    assert "result of n cannot be written as JSON: it contains itself, or is nested too deep" in status.unknown[0]


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": b"1"}, {1: 2}], ids=repr)
def test_a_result_that_would_be_taken_for_another_is_an_exception_of_its_operation(tmp_path: Path, value: Any) -> None:
    """A read of NaN would count as a read of the initial value."""

    async def script(operation: Operation) -> Completion:
        return Completion(Outcome.OK, value if operation.argument == 1 else 0.5)

    status = record_in(tmp_path, lambda: Scripted(script, []))
    assert status.exceptions_total == 1
    assert "result of n cannot be written as JSON: " in status.unknown[0]


@pytest.mark.parametrize("value", [make_cycle(), nest(50_000)], ids=["a cycle", "depth"])
def test_an_error_that_contains_itself_or_is_nested_too_deep_is_an_exception_of_its_operation(value: Any) -> None:
    async def script(operation: Operation) -> Completion:
        return Completion(Outcome.FAIL, None, value if operation.argument == 1 else None)

    kept, status = drive(some(3), script)
    assert len(kept.rows) == 3
    assert status.exceptions_total == 1


@pytest.mark.parametrize("column", ["kind", "key", "owner"])
def test_an_effect_with_half_a_surrogate_is_an_exception_of_its_operation(tmp_path: Path, column: str) -> None:
    class Odd(Scripted):
        @staticmethod
        def effects(completed: Completed) -> Sequence[Effect]:
            odd = {column: "\ud800"} if completed.operation.argument == 1 else {}
            return [Effect(**{"kind": "read", "key": "k", "value": completed.index, **odd})]

    status = record_in(tmp_path, lambda: Odd(quick, []))
    assert status.exceptions_total == 1
    assert f"{column} of an effect of kind" in status.unknown[0]
    kinds = [row["kind"] for row in HistoryReader(tmp_path).table("effects").to_pylist()]
    assert sorted(kinds) == sorted(["read", "read", UNRECORDED])


@pytest.mark.parametrize(
    ("error", "recorded", "exceptions"),
    [
        ("no such key", "no such key", 0),
        ("bytes \udcff of a server", "bytes \\udcff of a server", 0),
        (TimeoutError("late"), "TimeoutError('late')", 1),
    ],
)
def test_an_error_that_is_no_text_or_half_of_one_is_recorded_as_text(
    tmp_path: Path, error: Any, recorded: str, exceptions: int
) -> None:
    async def script(operation: Operation) -> Completion:
        return Completion(Outcome.FAIL, None, error)

    kept, status = drive(some(1), script)
    assert [row.completion.error for row in kept.rows] == [recorded]
    assert status.exceptions_total == exceptions
    with HistoryWriter(tmp_path) as writer:
        writer.completed(kept.rows[0])


def test_the_words_of_an_exception_can_be_written_whatever_they_are() -> None:
    async def script(operation: Operation) -> Completion:
        raise ValueError("bytes \udcff of a server")

    kept, status = drive(some(1), script)
    (said,) = status.unknown
    for text in (said, kept.rows[0].completion.error or ""):
        assert "bytes \\udcff of a server" in text
        text.encode()


def test_effects_that_raise_are_reported_and_the_operation_is_recorded() -> None:
    class Wrong(Scripted):
        @staticmethod
        def effects(completed: Completed) -> Sequence[Effect]:
            raise KeyError(completed.index)

    recorded = Recorded()
    status = simulated(
        interpret(some(3), endpoints=ENDPOINTS, client=lambda: Wrong(quick, []), recorder=recorded, concurrency=1)
    )
    assert (len(recorded.rows), status.ok, status.exceptions_total) == (3, 3, 3)


@pytest.mark.parametrize("value", [2**100, -(2**63) - 1, "text", 1.5])
def test_a_number_beyond_64_bits_in_an_effect_costs_its_operation_alone(tmp_path: Path, value: Any) -> None:
    """It is not the first effect of its kind, of which all columns are looked at."""

    class Wrong(Scripted):
        @staticmethod
        def effects(completed: Completed) -> Sequence[Effect]:
            first = Effect("append", "k", position=0, value=2**63 - 1)
            return [first, Effect("append", "k", position=1, value=value if completed.index == 1 else -(2**63))]

    with HistoryWriter(tmp_path) as writer:
        status = simulated(
            interpret(some(3), endpoints=ENDPOINTS, client=lambda: Wrong(quick, []), recorder=writer, concurrency=1)
        )
    assert status.exceptions_total == 1
    (reported,) = status.exceptions
    assert f"value of an effect of kind 'append' is {value!r}: it takes a whole number" in str(reported)
    history = HistoryReader(tmp_path)
    assert history.rows("ops") == 3
    found = [(row["op"], row["kind"], row["outcome"]) for row in history.table("effects").to_pylist()]
    assert found == [(0, "append", "ok"), (0, "append", "ok"), (1, UNRECORDED, "ok"), (2, "append", "ok"),
                     (2, "append", "ok")]  # fmt: skip


def test_a_node_that_refuses_is_tried_again_while_the_others_work() -> None:
    async def go() -> tuple[Recorded, InterpreterStatus]:
        recorded = Recorded()
        loop = asyncio.get_running_loop()

        def client() -> Scripted:
            return Scripted(quick, [], lambda endpoint: endpoint.node == "n2" and loop.time() < 5)

        status = await interpret(
            time_limit(10.0, stagger(0.01, numbers())),
            endpoints=ENDPOINTS,
            client=client,
            recorder=recorded,
            concurrency=2,
        )
        return recorded, status

    recorded, status = simulated(go())
    second = [row for row in recorded.rows if row.worker == "w1"]
    assert 5 * S <= second[0].call < 6.5 * S
    assert {row.process for row in second} == {1}, "no operation ended info, so the process is the same"
    assert 5 <= status.failed_opens["n2"] <= 12
    assert re.fullmatch(r"ConnectionRefusedError: n2 refused at test_interpreter.py:\d+", status.open_errors["n2"])
    assert "n1" not in status.failed_opens
    assert status.unknown == [], "it was open later: nothing speaks against a pass"


def test_a_cluster_that_is_down_for_good_does_not_hold_up_the_time_limit() -> None:
    recorded = Recorded()
    status = simulated(
        interpret(
            time_limit(3.0, numbers()),
            endpoints=ENDPOINTS,
            client=lambda: Scripted(quick, [], lambda endpoint: True),
            recorder=recorded,
            concurrency=2,
        )
    )
    assert recorded.rows == []
    assert set(status.failed_opens) == {"n1", "n2"}
    (reason,) = status.unknown
    assert reason.startswith("no client could be opened on n1, n2; the last error: ConnectionRefusedError: n2 refused")


def test_a_node_at_which_no_client_could_be_opened_is_named_with_the_error_of_open_and_not_of_close() -> None:
    class Misspelt(Scripted):
        async def open(self, endpoint: Endpoint, runtime: Any) -> None:
            if endpoint.node == "n2":
                raise AttributeError("no attribute 'adress'")

        async def close(self) -> None:
            raise AttributeError("no attribute 'writer'")

    status = simulated(
        interpret(
            time_limit(3.0, stagger(0.1, numbers())),
            endpoints=ENDPOINTS,
            client=lambda: Misspelt(quick, []),
            recorder=Recorded(),
            concurrency=2,
        )
    )
    assert status.ok > 0
    (reason,) = status.unknown
    place = r"test_interpreter.py:\d+"
    assert re.fullmatch(
        rf"no client could be opened on n2; the last error: AttributeError: no attribute 'adress' at {place}", reason
    )


def test_opening_has_a_time_limit_and_is_tried_again() -> None:
    class Slow(Scripted):
        async def open(self, endpoint: Endpoint, runtime: Any) -> None:
            if asyncio.get_running_loop().time() < 5:
                await asyncio.sleep(1000)

    recorded = Recorded()
    client = lambda: Slow(quick, [])  # noqa: E731
    options: dict[str, Any] = {"endpoints": ENDPOINTS[:1], "client": client, "concurrency": 1}
    status = simulated(interpret(some(3), recorder=recorded, operation_timeout=2.0, **options))
    assert status.failed_opens == {"n1": 3}
    assert 6 * S < recorded.rows[0].call < 7 * S


def test_a_client_whose_close_fails_does_no_harm() -> None:
    class Clinging(Scripted):
        async def close(self) -> None:
            raise OSError("broken pipe")

    status = simulated(
        interpret(some(4), endpoints=ENDPOINTS, client=lambda: Clinging(quick, []), recorder=Recorded(), concurrency=2)
    )
    assert (status.ok, status.failed_closes, status.unknown) == (4, 2, [])
    assert status.close_errors["n1"].startswith("OSError: broken pipe")


def test_stop_lets_open_operations_end_or_time_out_and_the_drain_runs_on_the_same_clients() -> None:
    async def slow(operation: Operation) -> Completion:
        if operation.f == "hang":
            await asyncio.sleep(1000)
        await asyncio.sleep(0.5)
        return OK

    async def go() -> None:
        recorded, log, stop = Recorded(), [], asyncio.Event()
        asyncio.get_running_loop().call_later(2.2, stop.set)
        main = sequence(Operation("hang", argument=-1), numbers())
        async with Interpreter(
            endpoints=ENDPOINTS,
            client=lambda: Scripted(slow, log),
            recorder=recorded,
            concurrency=2,
            operation_timeout=3.0,
        ) as interpreter:
            await interpreter.run(main, stop=stop)
            assert max(row.call for row in recorded.rows) < 2.2 * S
            assert recorded.rows[-1].completion.error == "timeout"
            assert recorded.arguments == [-1, 0, 1, 2, 3, 4]
            status = await interpreter.run(in_phase("drain", each_process(limit(1, numbers("drain")))))
        drained = [row for row in recorded.rows if row.operation.phase == "drain"]
        assert [row.process for row in drained] in ([1, 2], [2, 1])
        assert log.count("open n1") == 2, "only the worker whose operation timed out opened another client"
        assert log.count("open n2") == 1
        assert status.stopped
        assert status.unknown == [], "that is for the judge to say"

    log: list[str] = []
    simulated(go())
    assert log == []


@pytest.mark.slow
@pytest.mark.parametrize(("backs_off", "most"), [(True, 700), (False, 20_001)])
def test_a_system_that_is_gone_is_not_asked_a_thousand_times_a_second(backs_off: bool, most: int) -> None:
    """For two seconds, then it serves: soon all go on as before."""

    async def away(operation: Operation) -> Completion:
        await asyncio.sleep(0.001)
        gone = asyncio.get_running_loop().time() < 2.0
        return Completion(Outcome.FAIL, error="refused") if gone else OK

    async def go() -> None:
        recorded = Recorded()
        given: Any = {"endpoints": ENDPOINTS, "client": lambda: Scripted(away, []), "recorder": recorded}
        await interpret(time_limit(3.0, numbers()), concurrency=10, backs_off=backs_off, **given)
        failed = [row for row in recorded.rows if row.completion.outcome is Outcome.FAIL]
        assert most // 2 < len(failed) < most
        assert len(recorded.rows) - len(failed) > 8_000, "a success ends all waiting"
        assert all(row.ret is not None and row.ret - row.call < 0.002 * S for row in failed), (
            "and is in no time of a row"
        )

    simulated(go())


def test_a_worker_that_rests_past_its_time_limit_goes_on() -> None:
    async def refused(operation: Operation) -> Completion:
        return Completion(Outcome.FAIL)

    async def go() -> None:
        recorded = Recorded()
        given: Any = {"endpoints": ENDPOINTS, "client": lambda: Scripted(refused, []), "recorder": recorded}
        await interpret(time_limit(2.0, numbers()), concurrency=1, operation_timeout=0.03, backs_off=True, **given)
        assert {row.completion.outcome for row in recorded.rows} == {Outcome.FAIL}
        assert recorded.rows[-1].call > 1.8 * S

    simulated(go())


def test_until_ends_a_run_without_making_it_an_interruption() -> None:
    async def go() -> None:
        recorded, ended = Recorded(), asyncio.Event()
        asyncio.get_running_loop().call_later(2.0, ended.set)
        async with Interpreter(
            endpoints=ENDPOINTS, client=lambda: Scripted(quick, []), recorder=recorded, concurrency=2
        ) as interpreter:
            status = await interpreter.run(stagger(0.1, numbers()), until=ended)
            before = status.completed
            await interpreter.run(some(5))
        assert max(row.call for row in recorded.rows[:before]) < 2 * S
        assert (status.completed, status.unknown) == (before + 5, [])

    simulated(go())


def test_a_generator_that_can_never_go_on_is_an_error_and_not_a_hang() -> None:
    class Silent(Generator, frozen=True):
        def op(self, context: Context) -> tuple[Pending, Generator]:
            return Pending(), self

    with pytest.raises(GeneratorError, match="waits for ever"):
        drive(sequence(some(3), Silent()))


def test_the_histories_of_two_simulated_runs_of_one_seed_have_one_digest(tmp_path: Path) -> None:
    async def uneven(operation: Operation) -> Completion:
        await asyncio.sleep((operation.argument * 7919 % 31) / 1000)
        return Completion((Outcome.OK, Outcome.INFO)[operation.argument % 5 == 0], result={"n": operation.argument})

    async def go(folder: Path, seed: int) -> str:
        seconds = 0.05 * (1 + len(folder.name))
        with HistoryWriter(folder, loop=asyncio.get_running_loop(), seal_seconds=seconds) as history:
            await interpret(
                limit(200, stagger(0.01, mix(numbers("a"), numbers("b")))),
                endpoints=ENDPOINTS,
                client=lambda: Scripted(uneven, []),
                recorder=history,
                concurrency=4,
                seed=seed,
            )
            return history.digest()

    first, again, other = (
        simulated(go(tmp_path / name, seed)) for name, seed in (("first", 1), ("once again", 1), ("other", 2))
    )
    assert first == again == HistoryReader(tmp_path / "first").digest()
    assert first != other
    assert len(HistoryReader(tmp_path / "first").paths("ops")) > 3


def test_what_is_open_when_the_interpreter_is_left_is_recorded_as_info() -> None:
    async def hang(operation: Operation) -> Completion:
        await asyncio.sleep(1000)
        return OK

    async def go() -> None:
        recorded, log = Recorded(), list[str]()
        task = asyncio.create_task(
            interpret(
                numbers(),
                endpoints=ENDPOINTS,
                client=lambda: Scripted(hang, log),
                recorder=recorded,
                concurrency=3,
            )
        )
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [(row.completion.error, row.ret) for row in recorded.rows] == [("interrupted", None)] * 3
        assert sorted(log) == ["close n1", "close n1", "close n2", "open n1", "open n1", "open n2"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    simulated(go())


def test_an_open_loop_hands_its_schedule_to_the_history() -> None:
    async def stall(operation: Operation) -> Completion:
        await asyncio.sleep(1.0 if operation.argument == 0 else 0.001)
        return OK

    recorded, _ = drive(limit(10, rate(10, numbers())), stall, workers=1)
    scheduled = [row.scheduled for row in recorded.rows if row.scheduled is not None]
    assert [stamp - scheduled[0] for stamp in scheduled] == [n * S // 10 for n in range(10)]
    assert recorded.rows[1].call > S > scheduled[1]
    closed, _ = drive(some(3))
    assert {row.scheduled for row in closed.rows} == {None}


def test_generators_hear_of_invocations_and_completions() -> None:
    heard: list[OperationEvent] = []

    def enough(event: OperationEvent) -> bool:
        heard.append(event)
        return event.completed is not None and event.operation.argument == 3

    recorded, _ = drive(until(enough, numbers()), workers=1)
    assert recorded.arguments == [0, 1, 2, 3]
    assert [event.completed is None for event in heard] == [True, False] * 4
    assert [event.completed for event in heard if event.completed is not None] == recorded.rows


def test_hooks_are_called() -> None:
    seen: list[Completed] = []
    recorded, _ = drive(time_limit(5.5, stagger(0.01, numbers())), on_completion=[seen.append])
    assert len(seen) > 100
    assert seen == recorded.rows


def test_two_runs_of_one_seed_are_equal_and_of_two_differ() -> None:
    async def uneven(operation: Operation) -> Completion:
        await asyncio.sleep((operation.argument * 7919 % 31) / 1000)
        return Completion((Outcome.OK, Outcome.INFO)[operation.argument % 5 == 0])

    def go(seed: int) -> list[Completed]:
        return drive(limit(200, stagger(0.01, mix(numbers("a"), numbers("b")))), uneven, seed=seed)[0].rows

    assert go(3) == go(3)
    assert go(3) != go(4)


def test_what_a_generator_raises_and_a_broken_law_end_the_run_and_close_the_clients() -> None:
    class Rude(Generator, frozen=True):
        def op(self, context: Context) -> tuple[Invoke, Generator]:
            return Invoke(Operation("x", argument=0), 0), self

    def fails(context: Context) -> Operation:
        raise ZeroDivisionError

    for generator, error in ((Rude(), GeneratorError), (fails, ZeroDivisionError)):
        log: list[str] = []
        with pytest.raises(error):
            drive(generator, log=log)  # type: ignore[arg-type]
        assert log.count("open n1") == log.count("close n1")


class Blocking:
    """A client with plain methods."""

    blocking = True
    threads: ClassVar[set[str]] = set()

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Nothing to open."""

    def invoke(self, operation: Operation) -> Completion:
        self.threads.add(threading.current_thread().name)
        if operation.argument == 1:
            self.release.wait(5)
        return OK

    def close(self) -> None:
        self.release.set()

    def __init__(self) -> None:
        self.release = threading.Event()

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return ()


def test_a_blocking_client_runs_in_threads_and_its_time_limit_holds() -> None:
    recorded = Recorded()
    Blocking.threads.clear()
    status = asyncio.run(
        interpret(
            some(10),
            endpoints=ENDPOINTS,
            client=Blocking,
            recorder=recorded,
            concurrency=2,
            operation_timeout=0.3,
        )
    )
    assert recorded.arguments == list(range(10))
    assert [row.operation.argument for row in recorded.rows if row.completion.error == "timeout"] == [1]
    assert threading.main_thread().name not in Blocking.threads
    assert status.unknown == []


class Kept(Blocking):
    """Does not know what became of anything, and goes on with what it has."""

    survives_info = True
    opened = 0

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        type(self).opened += 1

    def invoke(self, operation: Operation) -> Completion:
        return Completion(Outcome.INFO)


def test_a_blocking_client_that_keeps_its_connections_is_the_next_process_too() -> None:
    recorded = Recorded()
    asyncio.run(interpret(some(4), endpoints=ENDPOINTS[:1], client=Kept, recorder=recorded, concurrency=1))
    assert [row.process for row in recorded.rows] == [0, 1, 2, 3]
    assert Kept.opened == 1


def test_a_blocking_client_is_refused_in_the_simulation() -> None:
    class Marked(SimLoop):
        simulated = True

    with asyncio.Runner(loop_factory=Marked) as runner, pytest.raises(BlockingClientError, match="no threads"):
        runner.run(interpret(some(1), endpoints=ENDPOINTS, client=Blocking, recorder=Recorded(), concurrency=1))


def test_a_run_without_endpoints_or_workers_is_refused() -> None:
    for endpoints, workers in (([], 1), (ENDPOINTS, 0)):
        with pytest.raises(ValueError, match="takes endpoints and workers"):
            simulated(
                interpret(
                    some(1),
                    endpoints=endpoints,
                    client=lambda: Scripted(quick, []),
                    recorder=Recorded(),
                    concurrency=workers,
                )
            )
