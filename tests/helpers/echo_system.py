"""A tiny system of the tests' own: an echo server with a child process, that notes what it does in an event log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.cluster.node import Cluster, Node, get_dial

PORT = 7000
EVENTS = "/var/lib/echo/events.jsonl"
SOURCE = """
import json, os, socket, subprocess, sys, threading, time
name, port, events = sys.argv[1], int(sys.argv[2]), sys.argv[3]
print("echo of", name, flush=True)
child = subprocess.Popen(["sleep", "1000"])
os.makedirs(os.path.dirname(events), exist_ok=True)
log = open(events, "a")
if len(sys.argv) > 4:
    os.makedirs(sys.argv[4], exist_ok=True)
def note(event):
    clocks = {"wall": time.time(), "monotonic": time.monotonic()}
    log.write(json.dumps({"event": event, "pid": os.getpid(), "child": child.pid, **clocks}) + "\\n")
    log.flush()
note("started")
def store(data):
    with open(sys.argv[4] + "/echoed", "ab", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
def serve(connection):
    with connection:
        while data := connection.recv(4096):
            note("echo")
            if len(sys.argv) > 4:
                store(data)
            connection.sendall(data)
both = socket.has_dualstack_ipv6()
family = socket.AF_INET6 if both else socket.AF_INET
with socket.create_server(("", port), family=family, dualstack_ipv6=both) as server:
    note("listening")
    while True:
        try:
            connection, _ = server.accept()
        except OSError as error:  # that of a connection which is over already: accept(2)
            print("accept:", error, file=sys.stderr, flush=True)
            continue
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""


@dataclass
class Echo:
    """Satisfies ``assay.cluster.system.System`` as far as a cluster asks."""

    folder: Path
    name: str = "echo"
    roles: Sequence[str] = ("zookeeper", "broker")
    defects: Sequence[str] = ()

    def __post_init__(self) -> None:
        package = self.folder / "echo_package"
        package.mkdir(parents=True, exist_ok=True)
        (package / "echo.py").write_text(SOURCE)

    @property
    def source(self) -> Sequence[str]:
        return [str(self.folder / "echo_package")]

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return ["python3", "/opt/assay/echo_package/echo.py", node.name, str(PORT), EVENTS]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {"/etc/echo/peers": " ".join(peer.address for peer in cluster.nodes).encode()}

    def event_log(self, node: Node) -> str:
        return EVENTS

    def logs(self, node: Node) -> Sequence[str]:
        return ["/etc/echo/peers"]

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        return 64

    async def ready(self, node: Node) -> bool:
        return await echoes(node)

    async def set_up(self, cluster: Cluster) -> None:
        return None

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return None

    def keys(self) -> Sequence[str]:
        return ()


async def echoes(node: Node, timeout: float = 0.5) -> bool:
    """Does the node answer within ``timeout`` seconds?"""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await get_dial(node)(node.address, PORT)
            try:
                writer.write(b"hello")
                return await reader.readexactly(5) == b"hello"
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


async def until(condition: Callable[[], Coroutine[Any, Any, bool]], what: str, seconds: float = 15) -> None:
    """Fails the test when ``condition`` has not come true in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


DATA = "/var/lib/echo-data"


class StoringEcho(Echo):
    """The echo system with a data folder of its own."""

    def data_folder(self, node: Node) -> str:
        return DATA


class SyncingEcho(StoringEcho):
    """Echo system that stores each answer on its disk, with one write and one fsync."""

    def argv(self, node: Node) -> Sequence[str]:
        return [*super().argv(node), DATA]
