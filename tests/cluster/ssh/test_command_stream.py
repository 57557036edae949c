"""Tests SSH connections that a local command carries: commands, files, errors, and the end of the command."""

from __future__ import annotations

import errno
import filecmp
import os
import socket
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cluster import log_excerpt
from assay.cluster.node import NodeError
from assay.cluster.ssh import connection as connection_module
from assay.cluster.ssh.command_stream import CommandStream, StreamCommand
from assay.cluster.ssh.connection import BULK_SIZE, Login, RefusedError, SshConnection, UnansweredError

from helpers.ssh_machine import Machine, machine

pytestmark = pytest.mark.slow

RELAY = """
import os, socket, sys, threading
with open(sys.argv[2], "a") as file:
    print(os.getpid(), file=file)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    def forward():
        while data := os.read(0, 65536):
            connection.sendall(data)
        os._exit(0)
    threading.Thread(target=forward, daemon=True).start()
    while data := connection.recv(65536):
        os.write(1, data)
"""


def relayed(to: Machine, pids: Path) -> Login:
    """Returns a login whose address leads nowhere: only the command does. ``pids``: file of the commands' pids."""
    command = StreamCommand((sys.executable, "-c", RELAY, str(to.login.port), str(pids)), None, "look at the relay")
    return replace(to.login, address="192.0.2.1", stream=command)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_command_carries_commands_and_files_and_ends_with_the_connection(tmp_path: Path) -> None:
    with machine() as there:
        connection = SshConnection("n1", relayed(there, tmp_path / "pids"))
        try:
            connection.connect(time.monotonic() + 10)
            assert connection.run("echo here") == "here\n"
            connection.write(str(tmp_path / "file"), b"data" * 100_000)
            assert (tmp_path / "file").read_bytes() == b"data" * 100_000
            (pid,) = map(int, (tmp_path / "pids").read_text().split())
            assert lives(pid)
        finally:
            connection.close()
        deadline = time.monotonic() + 10
        while lives(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not lives(pid), "it was ended and collected"


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [("sleep", "1000"), ("sh", "-c", "echo unread; exec sleep 1000")],
    ids=["it does not read its input", "its output is unread"],
)
def test_a_command_that_does_not_end_with_its_socket_is_killed(argv: tuple[str, ...]) -> None:
    stream = CommandStream(StreamCommand(argv))
    if argv[0] == "sh":
        stream.socket.recv(1, socket.MSG_PEEK)  # a command that still writes would end by itself
    stream.socket.close()
    assert stream.read_errors(timeout=10) == ""
    assert stream._process.returncode == -9


def test_a_connection_whose_command_died_is_opened_again(tmp_path: Path) -> None:
    with machine() as there:
        connection = SshConnection("n1", relayed(there, tmp_path / "pids"))
        try:
            connection.connect(time.monotonic() + 10)
            os.kill(int((tmp_path / "pids").read_text()), 9)
            deadline = time.monotonic() + 10
            while connection.run("echo here") and len((tmp_path / "pids").read_text().split()) == 1:
                assert time.monotonic() < deadline
        finally:
            connection.close()


@pytest.mark.parametrize("size", [BULK_SIZE - 1, BULK_SIZE])
def test_large_files_are_printed_by_a_command_of_their_own(size: int, tmp_path: Path) -> None:
    printed, file = tmp_path / "printed", tmp_path / "file"
    file.write_bytes(os.urandom(size))
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        script = f'echo "$1" >> {printed}; exec cat "$1"'
        login = replace(there.login, stream=replace(stream, print_file=("sh", "-c", script, "print")))
        connection = SshConnection("n1", login)
        try:
            connection.connect(time.monotonic() + 10)
            assert connection.read(str(file)) == file.read_bytes()
            assert printed.exists() == (size >= BULK_SIZE)
            with pytest.raises(FileNotFoundError):
                connection.read(str(tmp_path / "missing"))
        finally:
            connection.close()


def test_a_large_file_that_cannot_be_printed_is_named_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(BULK_SIZE))
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        failing = ("sh", "-c", "head -c 9 /dev/zero; echo the container is paused >&2; exit 1")
        connection = SshConnection("n1", replace(there.login, stream=replace(stream, print_file=failing)))
        try:
            connection.connect(time.monotonic() + 10)
            with pytest.raises(NodeError, match=r"n1: .*file could not be read: the container is paused; look"):
                connection.read(str(file))
        finally:
            connection.close()


@pytest.mark.parametrize("by_command", [True, False], ids=["printed by a command", "by the connection"])
def test_a_copied_file_is_never_in_memory_as_a_whole(by_command: bool, tmp_path: Path) -> None:
    size, file, copy = 32 << 20, tmp_path / "file", tmp_path / "new" / "copy"
    with file.open("wb") as content:
        content.truncate(size)
        content.seek(size // 2)
        content.write(b"in the middle")
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        printing = replace(stream, print_file=("cat", "--") if by_command else ())
        connection = SshConnection("n1", replace(there.login, stream=printing))
        try:
            connection.connect(time.monotonic() + 10)
            tracemalloc.start()
            try:
                connection.copy_log(str(file), copy)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        finally:
            connection.close()
    assert filecmp.cmp(file, copy, shallow=False)
    assert most < size // 4


@pytest.mark.parametrize("by_command", [True, False], ids=["printed by a command", "by the connection"])
def test_of_a_large_log_the_beginning_and_the_end_are_copied(
    by_command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_excerpt, "HEAD_BYTES", 100_000)
    monkeypatch.setattr(log_excerpt, "MAX_LOG_BYTES", 300_000)
    log, copy = tmp_path / "log", tmp_path / "copy"
    data = b"".join(b"line %d\n" % number for number in range(300_000))
    log.write_bytes(data)
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        printing = replace(stream, print_file=("cat", "--") if by_command else ())
        connection = SshConnection("n1", replace(there.login, stream=printing))
        try:
            connection.connect(time.monotonic() + 10)
            connection.copy_log(str(log), copy)
            whole = connection.read(str(log))
        finally:
            connection.close()
    assert copy.read_bytes() == log_excerpt.cut_log(data)
    assert copy.stat().st_size < 301_000
    assert whole == data, "other files are read as a whole"


@pytest.mark.parametrize("by_command", [True, False], ids=["printed by a command", "by the connection"])
def test_a_log_that_grows_without_end_while_it_is_copied_is_cut(
    by_command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_LOG_BYTES", 3_000_000)
    log, copy = tmp_path / "log", tmp_path / "copy"
    log.write_bytes(bytes(BULK_SIZE))
    print_file = ("sh", "-c", "cat /dev/zero") if by_command else ()
    if not by_command:
        real = connection_module._copy_range

        def grow(*given: object) -> None:
            real(*given)  # type: ignore[arg-type]
            log.write_bytes(bytes(9_000_000))

        monkeypatch.setattr(connection_module, "_copy_range", grow)
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        connection = SshConnection("n1", replace(there.login, stream=replace(stream, print_file=print_file)))
        try:
            connection.connect(time.monotonic() + 10)
            connection.copy_log(str(log), copy)
        finally:
            connection.close()
    assert copy.stat().st_size == 3_000_000


@pytest.mark.parametrize("size", [BULK_SIZE - 1, BULK_SIZE])
def test_a_copy_that_cannot_be_written_here_is_an_error_of_this_machine(size: int, tmp_path: Path) -> None:
    file, full, other = tmp_path / "file", tmp_path / "full", tmp_path / "other"
    file.write_bytes(bytes(size))
    full.symlink_to("/dev/full")
    with machine() as there:
        stream = relayed(there, tmp_path / "pids").stream
        assert stream is not None
        connection = SshConnection("n1", replace(there.login, stream=replace(stream, print_file=("cat", "--"))))
        try:
            connection.connect(time.monotonic() + 10)
            with pytest.raises(OSError, match="No space left") as raised:
                connection.copy_log(str(file), full)
            with pytest.raises(FileNotFoundError):
                connection.copy_log(str(tmp_path / "missing"), other)
        finally:
            connection.close()
    assert raised.value.errno == errno.ENOSPC
    assert not full.is_symlink()
    assert not other.exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("/bin/sh", "-c", "echo no such container: n1 >&2; exit 1"), "no such container: n1; start it"),
        (("/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo last >&2"), "last; start it"),
    ],
    ids=["its errors are shown", "many errors do not block it"],
)
def test_a_command_that_carries_no_connection_is_explained(argv: tuple[str, ...], message: str) -> None:
    with machine() as there:
        login = replace(there.login, stream=StreamCommand(argv, None, "start it"))
        with pytest.raises(NodeError, match=f"n1: .*{message}") as caught:
            SshConnection("n1", login).connect(time.monotonic())
        assert isinstance(caught.value, UnansweredError)


def test_a_program_that_is_missing_is_named_at_once() -> None:
    with machine() as there:
        login = replace(there.login, stream=StreamCommand(("/nowhere/docker", "exec"), None, "install it"))
        with pytest.raises(RefusedError, match=r"n1: `/nowhere/docker exec` cannot be started: .*; install it"):
            SshConnection("n1", login).connect(time.monotonic() + 60)
