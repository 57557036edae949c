"""A client on a node is the client itself, whatever happens to the node: seen from the harness, and on the node."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.node import Node
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.cluster.system import System
from assay.harness.core.client import ClientHome, Endpoint
from assay.harness.core.generator import limit
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.observed_node import ObservedEndpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.remote import PORT, RemoteClient, RemoteError, server
from assay.harness.remote.messages import (
    ANSWERS,
    REQUESTS,
    CarryRequest,
    FailedCallAnswer,
    RaisedAnswer,
    encode_message,
    make_raised_answer,
    receive_message,
)
from assay.harness.remote.runtime import ClientRuntime
from assay.harness.remote.system_calls import make_failed_answer
from assay.harness.run.client_nodes import SystemWithClientNodes

from helpers.examples import some_of
from helpers.interpret import interpret

T = TypeVar("T")
LIMIT = 5.0

RESULTS: dict[str, Any] = {
    "not a number": [math.nan], "infinity": math.inf, "bytes": b"ab", "integer key": {1: 2},
    "negative zero": -0.0, "set": {8, 0, 16}, "text": "YWI=", "text key": {"1": 2},
}  # fmt: skip
"""Results of the client, by the argument of its operation."""

did: list[str] = []
"""Calls that clients did, on whichever node."""
made_here: list[RemoteClient] = []
"""The clients of :func:`opened`. A connection must be closed before its loop is: Python 3.12 and later complain."""


class Recording:
    """Does what it is asked, and notes it."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.endpoint = endpoint
        did.append(f"open {endpoint.node} {endpoint.home} {runtime.random.random() < 1}")
        self.survives_info = endpoint.node == "keeping"
        if endpoint.node == "refused":
            raise ConnectionRefusedError("not today")

    async def invoke(self, operation: Operation) -> Completion:
        match operation.f:
            case "sleep":
                await asyncio.sleep(operation.argument)
            case "raise":
                raise ZeroDivisionError("a bug in the client")
            case "cancelled":
                raise asyncio.CancelledError
            case "swallow":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)
            case "ignore":
                while True:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(1000)
            case "task":
                return Completion(Outcome.OK, result=id(asyncio.current_task()))
            case "nonsense":
                return {"not": "a completion"}  # type: ignore[return-value]
            case "unspeakable":
                return Completion(Outcome.OK, result=object())
            case "answer":
                return Completion(Outcome.OK, result=RESULTS[operation.argument])
            case "look elsewhere":
                return Completion(Outcome.OK, result=len(self.endpoint.all))
            case "fail":
                return Completion(Outcome.FAIL, error="no")
        did.append(operation.f)
        return Completion(Outcome.OK, result=operation.argument)

    async def close(self) -> None:
        did.append("close")

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return [Effect("done", completed.operation.f)]


class Nothing(System):
    """A system without nodes of its own."""

    name, roles = "nothing", ()


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    """Yields a node on which a worker process serves."""
    did.clear()
    cluster = SimCluster(SystemWithClientNodes(Nothing(), Recording), {"client": 1}, 1)
    try:
        (made,) = cluster.nodes
        await made.start()
        await until(lambda: server.is_ready(made.address))
        yield made
    finally:
        await cluster.close()
        for client in made_here:
            await client.close()
        made_here.clear()


async def until(holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while True:
        try:
            if await holds():
                return
        except OSError:
            pass
        await asyncio.sleep(0.01)


async def opened(node: Node, name: str = "n1") -> RemoteClient:
    client = RemoteClient(Recording, LIMIT)
    made_here.append(client)
    await client.open(endpoint(node, name), None)
    return client


def endpoint(node: Node, name: str = "n1") -> Endpoint:
    return Endpoint(name, "10.0.0.1:9092", ("10.0.0.1:9092",), ClientHome(node.name, f"{node.address}:{PORT}"))


def simulated(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())


def test_a_node_that_clients_live_on_is_called_so() -> None:
    async def main() -> str:
        async with node() as made:
            return made.name

    assert simulated(main) == "client1"


def test_that_a_client_asks_for_other_addresses_is_known_from_its_node() -> None:
    async def main() -> list[bool]:
        async with node() as made:
            client, observed = RemoteClient(Recording, LIMIT), ObservedEndpoint.of_endpoint(endpoint(made))
            made_here.append(client)
            await client.open(observed, None)
            known = [observed.has_read_others]
            for f in ("anything", "look elsewhere"):
                await client.invoke(Operation(f))
                known.append(observed.has_read_others)
            return known

    assert simulated(main) == [False, False, True]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=some_of(30), deadline=None)
@given(st.lists(PLAIN, max_size=5))
def test_arguments_and_results_arrive_as_they_are(values: list[Any]) -> None:
    async def main() -> list[Completion]:
        async with node() as made:
            client = await opened(made)
            return [await client.invoke(Operation("echo", "k", value)) for value in values]

    assert simulated(main) == [Completion(Outcome.OK, value) for value in values]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not a number", "nan has no JSON form"),
        ("infinity", "inf has no JSON form"),
        ("bytes", "b'ab' would become text in base64"),
        ("integer key", "the key 1 of a dict would become text"),
    ],
)
def test_a_result_that_would_be_taken_for_another_is_an_exception_of_the_client(name: str, words: str) -> None:
    """A read of NaN would count as a read of the initial value."""

    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            with pytest.raises(RemoteError, match=words):
                await client.invoke(Operation("answer", argument=name))

    simulated(main)


def test_equal_results_arrive_as_one_value() -> None:
    async def main() -> list[str]:
        async with node() as made:
            client = await opened(made)
            names = ("negative zero", "set", "text", "text key")
            return [str((await client.invoke(Operation("answer", argument=name))).result) for name in names]

    assert simulated(main) == ["0.0", "[0, 8, 16]", "YWI=", "{'1': 2}"]


@pytest.mark.parametrize("argument", [math.nan, [math.inf], b"ab", {1: 2}], ids=repr)
def test_an_argument_that_would_arrive_as_another_is_refused(argument: Any) -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            with pytest.raises(TypeError, match=r"has no JSON form|would become text"):
                await client.invoke(Operation("echo", argument=argument))

    simulated(main)


def test_the_client_on_the_node_knows_the_endpoint_and_has_the_nodes_runtime() -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            assert (await client.invoke(Operation("fail"))) == Completion(Outcome.FAIL, error="no")
            await client.close()
            await asyncio.sleep(0.1)

    simulated(main)
    assert did == ["open n1 None True", "close"]


def test_a_client_that_keeps_is_kept_as_long_as_it_answers() -> None:
    async def main() -> list[bool]:
        async with node() as made:
            known = [(await opened(made)).survives_info]
            client = await opened(made, "keeping")
            await client.invoke(Operation("fail"))
            known.append(client.survives_info)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.invoke(Operation("sleep", argument=2.0)), 1.0)
            return [*known, client.survives_info]

    assert simulated(main) == [False, True, False]


@pytest.mark.parametrize(
    ("f", "recorded"),
    [
        ("raise", "ZeroDivisionError: a bug in the client"),
        ("cancelled", "CancelledError"),
        ("nonsense", "not a Completion"),
        ("unspeakable", "TypeError"),
    ],
)
def test_what_escapes_from_the_client_arrives_with_its_traceback_and_no_verdict_can_be_pass(
    f: str, recorded: str
) -> None:
    async def main() -> InterpreterStatus:
        async with node() as made:
            completed: list[Completed] = []

            class Recorder:
                def completed(self, one: Completed, effects: Sequence[Effect]) -> None:
                    completed.append(one)
                    assert effects == [Effect("done", f)], "they are those of the client's class"

            report = await interpret(
                limit(1, Operation(f)),
                endpoints=[endpoint(made)],
                client=lambda: RemoteClient(Recording, LIMIT),
                recorder=Recorder(),
                concurrency=1,
            )
            assert [(one.worker, one.completion.outcome) for one in completed] == [("w0@client1", Outcome.INFO)]
            return report

    report = simulated(main)
    assert recorded in report.unknown[0]
    assert "on its node:\nTraceback" in report.unknown[0]
    assert "Recording" not in recorded
    assert "test_remote.py" in report.unknown[0] or f in ("nonsense", "unspeakable")


def test_an_open_that_fails_says_why() -> None:
    async def main() -> None:
        async with node() as made:
            with pytest.raises(RemoteError, match="ConnectionRefusedError: not today") as raised:
                await opened(made, "refused")
            assert "in open" in "".join(traceback.format_exception(raised.value))
            await made.kill()
            with pytest.raises(OSError, match="refused"):
                await opened(made)
            assert await until_down(made)

    async def until_down(made: Node) -> bool:
        try:
            return not await server.is_ready(made.address)
        except OSError:
            return True

    simulated(main)


def test_an_operation_whose_process_is_killed_is_indeterminate_and_the_next_process_serves() -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            waiting = asyncio.ensure_future(client.invoke(Operation("sleep", argument=60)))
            await asyncio.sleep(1)
            await made.kill()
            assert (await waiting).outcome is Outcome.INFO
            assert (await client.invoke(Operation("echo"))).outcome is Outcome.INFO, "no one is there any more"
            await made.start()
            await until(lambda: server.is_ready(made.address))
            again = await opened(made)
            assert (await again.invoke(Operation("echo"))).outcome is Outcome.OK

    simulated(main)
    # Calls made while a dead process is unwound reach no one.
    assert [what for what in did if what != "close"] == ["open n1 None True", "open n1 None True", "echo"]


def test_a_process_that_was_stopped_does_when_it_wakes_what_no_one_waits_for_any_more() -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            await made.stop()
            assert not await answers(made)
            waiting = asyncio.ensure_future(client.invoke(Operation("echo")))
            await asyncio.sleep(LIMIT)
            waiting.cancel()
            await client.close()
            await asyncio.sleep(10)
            assert did == ["open n1 None True"]
            await made.resume()
            await until(lambda: server.is_ready(made.address))
            await asyncio.sleep(0.1)

    async def answers(made: Node) -> bool:
        try:
            return await server.is_ready(made.address)
        except TimeoutError:
            return False

    simulated(main)
    assert did == ["open n1 None True", "echo", "close"]


@pytest.mark.parametrize(("seconds", "ends"), [(4.0, True), (40.0, False)])
def test_an_operation_that_is_given_up_may_end_within_its_time(seconds: float, ends: bool) -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            waiting = asyncio.ensure_future(client.invoke(Operation("sleep", argument=seconds)))
            await asyncio.sleep(1)
            waiting.cancel()
            await client.close()
            await asyncio.sleep(2)
            assert did == ["open n1 None True"], "it goes on, and the client is not closed under it"
            await asyncio.sleep(50)

    simulated(main)
    assert did == ["open n1 None True", *(["sleep"] if ends else []), "close"]


def test_an_operation_that_ignores_its_cancellation_does_not_keep_its_client_open() -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            waiting = asyncio.ensure_future(client.invoke(Operation("ignore")))
            await asyncio.sleep(1)
            waiting.cancel()
            await client.close()
            await asyncio.sleep(LIMIT - 1)
            assert did == ["open n1 None True"]
            await asyncio.sleep(2)
            assert did == ["open n1 None True", "close"]

    simulated(main)


def test_one_task_runs_all_operations_of_a_connection() -> None:
    async def main() -> list[Any]:
        async with node() as made:
            client = await opened(made)
            return [(await client.invoke(Operation("task"))).result for _ in range(3)]

    first, *others = simulated(main)
    assert others == [first, first]


def test_a_cancellation_that_a_client_swallowed_does_not_hide_one_that_it_leaks_later() -> None:
    async def main() -> Completion:
        async with node() as made:
            client = await opened(made)
            assert (await client.invoke(Operation("swallow"))).outcome is Outcome.OK
            with pytest.raises(RemoteError, match="CancelledError"):
                await client.invoke(Operation("cancelled"))
            return await client.invoke(Operation("echo", argument=1))

    assert simulated(main) == Completion(Outcome.OK, result=1)


def test_each_connection_is_a_process_of_its_own() -> None:
    async def main() -> list[Completion]:
        async with node() as made:
            clients = [await opened(made) for _ in range(3)]
            slow = asyncio.ensure_future(clients[0].invoke(Operation("sleep", argument=3)))
            quick = [await client.invoke(Operation("echo", argument=1)) for client in clients[1:]]
            assert not slow.done()
            return [await slow, *quick]

    assert [completion.result for completion in simulated(main)] == [3, 1, 1]


def test_nonsense_on_the_line_ends_that_connection_alone() -> None:
    async def main() -> None:
        async with node() as made:
            client = await opened(made)
            reader, writer = await asyncio.open_connection(made.address, PORT)
            writer.write(b'{"type":"moon"}\n')
            assert await reader.read() == b""
            writer.close()
            assert (await client.invoke(Operation("echo"))).outcome is Outcome.OK

    simulated(main)


def test_a_worker_process_on_a_port_connects_to_no_socket_of_its_machine() -> None:
    async def main() -> Any:
        async with node() as made:
            reader, writer = await asyncio.open_connection(made.address, PORT)
            writer.write(encode_message(CarryRequest("/run/any.socket")))
            answer = await receive_message(reader, ANSWERS)
            writer.close()
            return answer

    answer = simulated(main)
    assert isinstance(answer, FailedCallAnswer)
    assert "on a port" in answer.text


def test_a_message_is_read_by_its_kind() -> None:
    async def main() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(encode_message(RaisedAnswer("x", "y")))
        with pytest.raises(ConnectionError, match="not a message"):
            await receive_message(reader, REQUESTS)
        reader.feed_data(b'{"type":"opened"')
        reader.feed_eof()
        assert await receive_message(reader, REQUESTS) is None, "cut short by the end of the line"

    asyncio.run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_worker_process_is_found_at_an_address_of_either_kind(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(range(20_000, 32_000), 100):  # outgoing connections of other processes take higher ones
        try:
            socket.create_server((host.strip("[]"), port), family=family).close()
            break
        except OSError:
            continue
    else:
        pytest.skip("this machine has no such addresses")

    async def real() -> Completion:
        words = ["--client", f"{Recording.__module__}:{Recording.__qualname__}", "--port", str(port)]
        process = asyncio.ensure_future(server.run_worker(ClientRuntime(random.Random(1), None), words))

        async def listens() -> bool:
            assert not process.done(), process
            return await server.is_ready(host.strip("[]"), port)

        await until(listens)
        client = RemoteClient(Recording, LIMIT)
        await client.open(Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",), ClientHome("client1", f"{host}:{port}")), None)
        try:
            return await client.invoke(Operation("echo", argument=1))
        finally:
            process.cancel()
            ended, _ = await asyncio.wait([process], timeout=10)
            await client.close()
            assert ended, "it does not wait for the harness to close its connection"

    assert asyncio.run(asyncio.wait_for(real(), 30)) == Completion(Outcome.OK, result=1)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("file \udcff is gone"), "RuntimeError: file \\udcff is gone"),
        (Unspeakable(), "Unspeakable: its text cannot be made"),
        (RuntimeError("x" * 10_000_000), "RuntimeError: " + "x" * 200),
    ],
    ids=["surrogate", "no text", "huge"],
)
def test_an_exception_is_reported_whatever_its_text_holds(error: Exception, line: str) -> None:
    message = encode_message(make_raised_answer(error))
    answer = msgspec.json.decode(message, type=RaisedAnswer)
    assert len(message) < 200_000
    assert answer.error == line
    assert type(error).__name__ in answer.traceback
    message = encode_message(make_failed_answer("OSError", RuntimeError("\udcff")))
    assert b"udcff" in message
