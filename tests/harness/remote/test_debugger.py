"""``breakpoint()`` in a client of a worker process: at the user's terminal, and without one."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from assay.cluster.node import NodeError
from assay.cluster.ssh.command_stream import StreamCommand
from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.harness.remote import RemoteClient, debugger
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.remote.server import make_worker_command, parse_arguments


class Stopping:
    """A client that stops at a breakpoint."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        return None

    async def invoke(self, operation: Operation) -> Completion:
        answer = operation.argument
        breakpoint()
        await asyncio.sleep(0)
        answer += 1
        return Completion(Outcome.OK, {"result": answer})

    async def close(self) -> None:
        return None


class User:
    """Types a line at each prompt of pdb at a terminal, and Ctrl-D when none is left."""

    def __init__(self, *lines: str) -> None:
        self._terminal, self._far_end = pty.openpty()
        self._lines = list(lines)
        self.seen = ""
        threading.Thread(target=self._type, daemon=True).start()

    def open(self) -> IO[bytes]:
        return os.fdopen(os.dup(self._far_end), "r+b", buffering=0)

    def _type(self) -> None:
        prompts = 0
        while True:
            self.seen += os.read(self._terminal, 4096).decode()
            while self.seen.count("(Pdb) ") > prompts:
                prompts += 1
                os.write(self._terminal, (self._lines.pop(0) + "\n").encode() if self._lines else b"\x04")


def invoke(shown: list[str], open_terminal: Callable[[], IO[bytes]] | None) -> Completion:
    """Returns the completion of an operation of a client in a worker process."""
    argv = [
        sys.executable,
        *make_worker_command(
            f"{__name__}:Stopping", None, streams=True, terminal="5ecret" * (open_terminal is not None)
        )[1:],
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path}
    command = StreamCommand(tuple(argv), environment, "look", terminal=("env",))

    async def main() -> Completion:
        worker = NetworkWorker(command, shown.append, open_terminal or debugger.open_terminal)
        await worker.start()
        try:

            async def connect(endpoint: Endpoint) -> Any:
                return worker.open_connection()

            client = RemoteClient(Stopping, 10.0, connect)
            await client.open(Endpoint("n1", "10.0.0.1:1", ("10.0.0.1:1",)), None)
            try:
                return await client.invoke(Operation("get", "k", 1))
            finally:
                await client.close()
        finally:
            await worker.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["p operation.f", "answer = 40", "n", "n", "answer += 1", "c"], id="steps over an await"),
        pytest.param(["answer = 40"], id="Ctrl-D"),
    ],
)
def test_the_user_debugs_a_client_at_the_terminal(lines: list[str]) -> None:
    user, shown = User(*lines), list[str]()
    found = invoke(shown, user.open)
    assert found.result["result"] == (42 if "c" in lines else 41)
    assert f"{__file__}:" in user.seen
    assert ("'get'" in user.seen) == ("p operation.f" in lines)
    assert any(line.startswith(f"{debugger.MARK}{__file__}:") for line in shown)
    assert f"{debugger.MARK}{__file__}:" in user.seen


def test_a_printed_line_without_the_token_opens_no_terminal() -> None:
    """A client could print such a line from a log that it reads."""
    words = make_worker_command(None, None, streams=True, terminal="5ecret")
    token = parse_arguments(words[3:]).terminal
    shown, opened = list[str](), list[str]()

    def open_terminal() -> IO[bytes]:
        opened.append(shown[-1])
        raise OSError("none")

    lines = [f"{debugger.MARK}here", f"{debugger.MARK}other here", f"{debugger.MARK}{token} x.py:1", "the end"]
    program = f"import sys; sys.stderr.write({chr(10).join(lines)!r})"
    worker = NetworkWorker(
        StreamCommand((sys.executable, "-c", program, *words), None, "", terminal=("env",)), shown.append, open_terminal
    )

    async def main() -> None:
        with pytest.raises(NodeError, match="the end"):
            await worker.start()
        await worker.close()

    asyncio.run(main())
    assert opened == [f"{debugger.MARK}x.py:1"]
    assert shown[:2] == lines[:2]
    assert token not in "".join(shown)


@pytest.mark.parametrize("is_stale", [True, False])
def test_without_a_waiting_client_the_terminal_shows_one_line(tmp_path: Path, is_stale: bool) -> None:
    path = tmp_path / "socket"
    if is_stale:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    program = (
        f"import sys; from assay.harness.remote import debugger; sys.exit(debugger.connect_streams({str(path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"assay: no client waits at a breakpoint: {path}: ")


def test_without_a_terminal_a_breakpoint_is_skipped_with_a_line() -> None:
    shown = list[str]()
    assert invoke(shown, None).result == {"result": 2}
    [line] = [line for line in shown if "breakpoint" in line]
    assert f"{__file__}:" in line
    assert line.endswith("is skipped: pytest has no terminal")


def test_if_no_terminal_is_connected_in_time_the_client_goes_on() -> None:
    program = (
        "from assay.harness.remote import debugger; debugger.CONNECT_SECONDS = 0.1\n"
        "debugger.install('secret')\nbreakpoint()\nprint('on')\nbreakpoint()\nprint('and on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "on\nand on\n"
    assert done.stderr.count(debugger.MARK) == done.stderr.count("the breakpoint is skipped") == 2
    assert not Path(debugger.SOCKET.format("secret")).exists()


def test_there_is_a_terminal_only_in_the_foreground_and_not_in_a_worker_of_xdist() -> None:
    question = "from assay.harness.remote.debugger import has_terminal; print(has_terminal())"
    terminal, far_end = pty.openpty()
    said = {}
    for variable in ("", "PYTEST_XDIST_WORKER", "PYTHONBREAKPOINT"):
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        environment |= {variable: "0"} if variable else {}
        # setsid -c: a session of its own, whose terminal is its standard input
        done = subprocess.run(
            ["setsid", "-c", "-w", sys.executable, "-c", question],
            stdin=far_end, capture_output=True, text=True, env=environment, check=True,
        )  # fmt: skip
        said[variable] = done.stdout.strip()
    alone = subprocess.run(
        ["setsid", "-w", sys.executable, "-c", question], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    os.close(terminal)
    os.close(far_end)
    assert said == {"": "True", "PYTEST_XDIST_WORKER": "False", "PYTHONBREAKPOINT": "False"}
    assert alone.stdout.strip() == "False"
