"""A worker process on standard streams: clients, relayed connections, and methods of a system that call nodes back."""

from __future__ import annotations

import asyncio
import importlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest

from assay.cluster.node import Cluster, Node, NodeError, get_dial
from assay.cluster.ssh.command_stream import SharedSocket, StreamCommand, listen_at
from assay.cluster.system import DeploymentError, System
from assay.cluster.zookeeper import read_mode
from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.harness.remote import RemoteClient, network_worker
from assay.harness.remote.messages import CalledAnswer
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.remote.server import make_worker_command
from assay.harness.remote.system_calls import NODE_KEY, RemoteCallError, SystemCall, _read_answer
from assay.harness.run.system_on_network import SystemOnNetwork, _list_neighbours

pytestmark = pytest.mark.slow

T = TypeVar("T")
RUNTIME = object()
"""Stands for the harness's runtime of clients."""


class Shouting:
    """A client that prints, and ends its process on request."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.runtime = runtime

    async def invoke(self, operation: Operation) -> Completion:
        print("the client prints", operation.argument)
        if operation.f == "exit":
            os._exit(3)
        return Completion(Outcome.OK, {"pid": os.getpid(), "result": operation.argument})

    async def close(self) -> None:
        return None


class OddError(Exception):
    """An error that only this module knows."""


@dataclass(frozen=True)
class Placement:
    members: Collection[int]
    replicas: Mapping[str, Sequence[int]]


class Ticking(System):
    """A system whose methods run in the worker process."""

    name, roles = "ticking", ("server",)
    secret: Any = 7

    async def ready(self, node: Node) -> bool:
        return os.getpid() != int((await node.run("echo the harness's pid")).output)

    async def set_up(self, cluster: Cluster) -> None:
        answers = await asyncio.gather(*(node.run(f"slow {node.index}") for node in cluster.nodes))
        assert [answer.output for answer in answers] == [f"slow {node.index}" for node in cluster.nodes]

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        match what:
            case "leader":
                return None if key is None else cluster.nodes[int(key)]
            case "file":
                await cluster.nodes[0].read_file("/missing")
            case "node error":
                raise NodeError("n1: broken")
            case "refused":
                await asyncio.open_connection("127.0.0.1", 1)
            case "odd":
                raise OddError("very")
            case "unable":
                await cluster.nodes[0].fly()  # type: ignore[attr-defined]
            case "dial":
                node = cluster.nodes[0]
                return None if await read_mode(node.address, 1, dial=get_dial(node)) else cluster.nodes[1]
            case "package":
                import package_that_is_missing  # type: ignore[import-not-found]  # noqa: F401
        return None

    async def replicas_of(self, cluster: Cluster, key: str) -> Sequence[Node] | None:
        return cluster.nodes[1:]

    async def move(self, cluster: Cluster, key: str, nodes: Sequence[Node]) -> str | None:
        return f"{key} to {[node.name for node in nodes]} of {cluster.kind} {cluster.nodes[0] is nodes[0]}"

    async def standing(self, cluster: Cluster) -> Placement | None:
        return Placement({1, 2}, {"k": (1, 2)})

    async def look(self, cluster: Cluster, runtime: Any) -> Sequence[Mapping[str, Any]]:
        return [{"what": "runtime", "value": runtime.wall_clock() > 0, "name": type(runtime).__name__}]


ECHO_GREETING = (
    "import os\nwhile data := os.read(0, 8):\n"
    " number, length = int.from_bytes(data[:4]), int.from_bytes(data[4:])\n"
    " left = length\n"
    " while left:\n  left -= len(os.read(0, left))\n"
    ' answer = b\'{"type":"opened"}\\n\'\n'
    " if length: os.write(1, data[:4] + len(answer).to_bytes(4) + answer)\n"
)
"""The rest of a program that answers each frame as a worker process answers a greeting."""


class FakeNode:
    role, address = "server", "127.0.0.1"

    def __init__(self, index: int) -> None:
        self.name, self.index = f"n{index}", index

    async def run(self, command: str) -> SimpleNamespace:
        if command.startswith("slow"):
            await asyncio.sleep(0.02 * (3 - self.index))  # the last one answers first
            return SimpleNamespace(output=command)
        return SimpleNamespace(output=str(os.getpid()))

    async def read_file(self, path: str) -> bytes:
        raise FileNotFoundError(2, "no such file", path)


def make_cluster() -> Any:
    return SimpleNamespace(kind="fake", nodes=[FakeNode(1), FakeNode(2)], spares=[FakeNode(3)], description={})


@asynccontextmanager
async def started(
    shown: list[str] | None = None, *words: str, shared_socket: SharedSocket | None = None
) -> AsyncIterator[NetworkWorker]:
    argv = words or (sys.executable, *make_worker_command(f"{__name__}:Shouting", None, streams=True)[1:])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = StreamCommand(argv, environment, "look", shared_socket=shared_socket)
    worker = NetworkWorker(command, None if shown is None else shown.append)
    try:
        await worker.start()
        yield worker
    finally:
        await worker.close()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(main())


def ask(method: str, *arguments: Any, system: Any = None) -> Any:
    """Returns what a method returns, called in a worker process. "cluster" stands for a cluster of fake nodes."""

    async def main() -> Any:
        async with started() as worker:
            cluster = next((one for one in arguments if isinstance(one, SimpleNamespace)), None) or make_cluster()
            real = [cluster if one == "cluster" else one(cluster) if callable(one) else one for one in arguments]
            found = await worker.call(SystemCall(system or Ticking(), method, real), cluster, RUNTIME)
            return [found, cluster]

    return run(main)


def test_clients_live_in_the_process_and_their_prints_are_shown() -> None:
    shown: list[str] = []

    async def main() -> Completion:
        async with started(shown) as worker:

            async def connect(endpoint: Endpoint) -> Any:
                return worker.open_connection()

            client = RemoteClient(Shouting, 5.0, connect)
            await client.open(Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",)), None)
            completion = await client.invoke(Operation("echo", "k", [1, None]))
            await client.close()
            return completion

    completion = run(main)
    assert completion.result["result"] == [1, None]
    assert completion.result["pid"] != os.getpid()
    assert "the client prints [1, None]" in shown


def test_operations_of_a_process_that_died_are_indeterminate_and_the_next_client_cannot_be_opened() -> None:
    async def main() -> Completion:
        async with started([]) as worker:

            async def connect(endpoint: Endpoint) -> Any:
                return worker.open_connection()

            endpoint = Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",))
            client = RemoteClient(Shouting, 5.0, connect)
            await client.open(endpoint, None)
            completion = await client.invoke(Operation("exit"))
            with pytest.raises(ConnectionError, match="has ended"):
                await RemoteClient(Shouting, 5.0, connect).open(endpoint, None)
            return completion

    assert run(main) == Completion(Outcome.INFO, error="worker-lost")


async def invoke_once(worker: NetworkWorker) -> Completion:
    """Invokes an operation of a new client."""

    async def connect(endpoint: Endpoint) -> Any:
        return worker.open_connection()

    client = RemoteClient(Shouting, 5.0, connect)
    await client.open(Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",)), None)
    completion = await client.invoke(Operation("echo", "k", 1))
    await client.close()
    return completion


@pytest.fixture
def socket_file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:  # the path of a socket must be short
        yield Path(folder) / "socket"


def test_a_shared_socket_carries_connections_and_the_streams_do_once_it_is_lost(socket_file: Path) -> None:
    async def main() -> list[Outcome]:
        async with started([], shared_socket=SharedSocket(listen_at(socket_file), str(socket_file))) as worker:
            assert worker._streams is not None
            assert worker._socket is not None
            with pytest.MonkeyPatch.context() as context:
                context.setattr(worker._streams, "open_connection", None)
                first = await invoke_once(worker)
            worker._socket.close()
            return [first.outcome, (await invoke_once(worker)).outcome]

    assert run(main) == [Outcome.OK, Outcome.OK]


def test_clients_end_with_the_shared_socket(socket_file: Path) -> None:
    async def main() -> Completion:
        async with started([], shared_socket=SharedSocket(listen_at(socket_file), str(socket_file))) as worker:

            async def connect(endpoint: Endpoint) -> Any:
                return worker.open_connection()

            client = RemoteClient(Shouting, 5.0, connect)
            await client.open(Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",)), None)
            return await client.invoke(Operation("exit"))

    assert run(main) == Completion(Outcome.INFO, error="worker-lost")


@pytest.mark.parametrize("obstacle", ["no file", "no connection"])
def test_without_a_way_to_the_shared_socket_the_streams_carry_everything(
    monkeypatch: pytest.MonkeyPatch, socket_file: Path, obstacle: str
) -> None:
    monkeypatch.setattr(network_worker, "CONNECT_SECONDS", 0.2)
    listener = listen_at(socket_file)
    words = [] if obstacle == "no file" else [sys.executable, "-c", ECHO_GREETING]  # it only says that it has connected

    async def main() -> Outcome | None:
        async with started([], *words, shared_socket=SharedSocket(listener, f"{socket_file}-missing")) as worker:
            assert worker._socket is None
            return None if words else (await invoke_once(worker)).outcome

    assert run(main) is (Outcome.OK if obstacle == "no file" else None)
    assert listener.fileno() == -1, "it is closed"


def test_only_its_user_can_connect_to_the_shared_socket(socket_file: Path) -> None:
    listen_at(socket_file).close()
    assert stat.S_IMODE(socket_file.stat().st_mode) == 0o600
    with pytest.raises(OSError, match="in use"):
        listen_at(socket_file)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_process_that_does_not_start_shows_its_last_words(monkeypatch: pytest.MonkeyPatch, is_over: bool) -> None:
    start = NetworkWorker._start_process

    def start_and_wait(worker: NetworkWorker) -> subprocess.Popen[bytes]:
        process = start(worker)
        process.wait()
        return process

    if is_over:
        monkeypatch.setattr(NetworkWorker, "_start_process", start_and_wait)

    async def main() -> None:
        async with started([], "sh", "-c", "echo no such container >&2; exit 1"):
            pass

    with pytest.raises(NodeError, match="does not answer: no such container"):
        run(main)


def test_long_and_odd_lines_are_shown_in_parts_and_stop_nothing() -> None:
    shown: list[str] = []
    script = "import sys; print('x' * 300_000 + '\\x1b[2J\\tend', file=sys.stderr); " + ECHO_GREETING

    async def main() -> None:
        async with started(shown, sys.executable, "-c", script):
            pass

    run(main)
    assert "".join(shown).startswith("x" * 300_000 + "\\x1b[2J\tend")
    assert len(shown) > 5


def test_a_child_that_holds_the_pipes_of_the_process_does_not_hold_up_the_end() -> None:
    script = "import subprocess; subprocess.Popen(['sleep', '60']); " + ECHO_GREETING
    began = time.monotonic()

    async def main() -> None:
        async with started([], sys.executable, "-c", script):
            pass

    run(main)
    assert time.monotonic() - began < 40


TAKE_READ_MEMORY = """
import ctypes, sys
from assay.harness.remote.__main__ import MAPPED_FROM, keep_read_memory
class Usage(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "heap b c mapped e f g h i j".split()]
library = ctypes.CDLL(None)
if not hasattr(library, "mallinfo2"):
    sys.exit("no glibc")
library.mallinfo2.restype = Usage
library.mallopt(MAPPED_FROM, 1 << 17)  # as in a new process
keep_read_memory()
before = library.mallinfo2()
memory = bytearray(1 << 21)  # more than is free in the heap
during = library.mallinfo2()
del memory
print(during.mapped - before.mapped, during.heap - library.mallinfo2().heap)
"""
"""Takes memory. Prints how many maps that took, and how many bytes were given back to the kernel afterwards."""


def test_the_memory_of_reads_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", TAKE_READ_MEMORY], capture_output=True, text=True, check=False)
    if "no glibc" in done.stderr:
        pytest.skip("this C library has no mallinfo2")
    assert done.stdout == "0 0\n", done.stderr


def test_an_answer_that_is_no_result_is_named() -> None:
    call = SystemCall(Ticking(), "standing", ())
    for result in (b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({NODE_KEY: "n9"})):
        with pytest.raises(ConnectionError, match="no result"):
            _read_answer(CalledAnswer(result), call, {})


def test_a_relayed_connection_reaches_the_address_and_names_its_error() -> None:
    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()) * 2)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with started() as worker:
            reader, writer = await worker.relay("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(b"word\n")
            answer = await reader.read()
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await worker.relay("127.0.0.1", 1)
        server.close()
        return answer

    assert run(main) == b"word\nword\n"


def test_a_forwarded_port_reaches_the_node_until_it_is_closed() -> None:
    async def main() -> list[bytes]:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            writer.close()

        served = await asyncio.start_server(shout, "127.0.0.1", 0)
        system, cluster = SystemOnNetwork(Ticking(), None), make_cluster()
        async with started() as worker:
            system.attach(worker, cluster, RUNTIME)
            ports = [served.sockets[0].getsockname()[1], 1]  # nothing listens at the second
            answers = []
            for port in ports:
                forwarded = await system.forward_port(cluster.nodes[0], port)
                reader, writer = await asyncio.open_connection(*forwarded.sockets[0].getsockname())
                writer.write(b"word\n")
                answers.append(await reader.read())
                writer.close()
                forwarded.close()
        served.close()
        return answers

    assert run(main) == [b"WORD\n", b""]


def test_methods_run_in_the_worker_process_and_call_nodes_in_the_harness() -> None:
    assert ask("ready", lambda cluster: cluster.nodes[0])[0] is True
    assert ask("set_up", "cluster")[0] is None


def test_nodes_arrive_and_return_as_the_nodes_that_they_are() -> None:
    found, cluster = ask("find", "cluster", "leader", "1")
    assert found is cluster.nodes[1]
    found, cluster = ask("replicas_of", "cluster", "k")
    assert found == [cluster.nodes[1]]
    found, _ = ask("move", "cluster", "k", lambda cluster: cluster.nodes)
    assert found == "k to ['n1', 'n2'] of fake True"


def test_the_worker_process_connects_to_nodes_itself_although_the_harness_goes_through_it() -> None:
    async def dial(host: str, port: int) -> Any:
        raise NotImplementedError("the worker process must not ask the harness for a connection")

    cluster = make_cluster()
    cluster.nodes[0].dial = dial
    found, cluster = ask("find", cluster, "dial")
    assert found is cluster.nodes[1]


def test_other_results_keep_their_shape() -> None:
    found, _ = ask("standing", "cluster")
    assert (sorted(found.members), found.replicas) == ([1, 2], {"k": [1, 2]})
    assert ask("look", "cluster", lambda _: RUNTIME)[0] == [{"what": "runtime", "value": True, "name": "ClientRuntime"}]


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("file", FileNotFoundError, "no such file"),
        ("node error", NodeError, "n1: broken"),
        ("refused", ConnectionRefusedError, "Connect"),
        ("odd", RemoteCallError, "OddError: very"),
        ("unable", AttributeError, "fly"),
        ("package", ModuleNotFoundError, r'python = \("package_that_is_missing",\)'),
    ],
)
def test_errors_keep_the_class_by_which_the_harness_decides(what: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ask("find", "cluster", what)


def test_a_system_that_cannot_be_sent_is_named() -> None:
    system = Ticking()
    system.secret = lambda: 7
    with pytest.raises(DeploymentError, match=r"ticking cannot be sent .* at the top of a module"):
        ask("find", "cluster", "leader", system=system)


def test_a_system_is_itself_until_it_has_a_worker_and_keeps_its_optional_methods() -> None:
    system = SystemOnNetwork(Ticking(), Shouting)

    async def main() -> list[Any]:
        cluster = make_cluster()
        here = await system.find(cluster, "leader", "0") is cluster.nodes[0]
        async with started() as worker:
            system.attach(worker, cluster, RUNTIME)
            return [
                here,
                await system.ready(cluster.nodes[0]),
                hasattr(system, "replicas"),
                hasattr(system, "standing"),
            ]

    assert run(main) == [True, True, False, True]


def test_the_worker_has_the_modules_next_to_the_clients_own() -> None:
    description = SystemOnNetwork(Ticking(), Shouting).describe_worker()
    assert description.argv[-1] == "--streams"
    assert {"assay/harness", "assay/cluster", __name__.partition(".")[0]} <= set(description.source)
    assert any(package.startswith("pytest==") for package in description.software.python)


@pytest.mark.parametrize("has_init", [False, True])
def test_a_package_without_an_init_file_brings_its_neighbours_and_nothing_else(
    has_init: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"space_{has_init}".lower()
    (tmp_path / name).mkdir()
    (tmp_path / name / "clients.py").write_text(f"import beside_{name}\nclass Client: pass\n")
    (tmp_path / f"beside_{name}.py").touch()
    if has_init:
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    client = importlib.import_module(f"{name}.clients").Client
    assert _list_neighbours(name) == [f"beside_{name}", name]
    assert set(SystemOnNetwork(Ticking(), client).describe_worker().source) >= {f"beside_{name}", name}
    assert _list_neighbours("sys") == []


def test_a_client_that_no_container_can_import_is_named() -> None:
    class Local(Shouting):
        pass

    with pytest.raises(DeploymentError, match="Local"):
        SystemOnNetwork(Ticking(), Local).describe_worker()
