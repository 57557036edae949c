"""Tests what becomes of commands and files when a connection, a session or the disk at its other end is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.cluster.node import CommandResult, NodeError
from assay.cluster.ssh import connection as module
from assay.cluster.ssh.connection import CommandTimeoutError, SshConnection

from helpers.small_disk import small_disk
from helpers.ssh_machine import Machine, machine

pytestmark = pytest.mark.slow


@contextmanager
def connected(to: Machine) -> Iterator[SshConnection]:
    connection = SshConnection("n1", to.login)
    try:
        connection.connect(time.monotonic() + 10)
        yield connection
    finally:
        connection.close()


def test_a_file_for_which_there_is_no_room_is_an_error_and_what_was_there_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "32k") as disk, machine() as there, connected(there) as connection:
        path = disk / "settings"
        connection.write(str(path), b"before")
        with pytest.raises(NodeError, match=rf"n1: {path} could not be written"):
            connection.write(str(path), bytes(200_000))
        assert path.read_bytes() == b"before"
        assert list(disk.iterdir()) == [path], "nothing lies beside it"
        connection.write(str(path), b"after")
        assert path.read_bytes() == b"after"


def test_who_notices_late_that_a_connection_is_lost_leaves_the_new_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine() as there, connected(there) as connection, ThreadPoolExecutor() as executor:
        there.silence()
        monkeypatch.setattr(module, "CONNECT_TIMEOUT", 1.0)
        first = executor.submit(connection.run, "sleep 1; echo first")
        time.sleep(0.5)
        second = executor.submit(connection.run, "echo second")
        assert (first.result(), second.result()) == ("first\n", "second\n")
        assert len(there.reached) == 2


def test_files_find_a_connection_again_that_was_lost_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine() as there, connected(there) as connection:
        there.silence()
        monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.5)
        connection.write(str(tmp_path / "file"), b"data")
        assert (tmp_path / "file").read_bytes() == b"data"


def test_a_session_that_is_not_granted_is_waited_for_and_takes_no_other_with_it() -> None:
    with machine(sessions=2) as there, connected(there) as connection, ThreadPoolExecutor() as executor:
        asked = [executor.submit(connection.run, f"sleep 0.2; echo {number}") for number in range(6)]
        assert [one.result() for one in asked] == [f"{number}\n" for number in range(6)]
        assert len(there.reached) == 1


def test_where_no_session_is_ever_granted_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.5)
    with machine(sessions=1) as there, connected(there) as connection, ThreadPoolExecutor() as executor:
        asked = executor.submit(connection.run, "sleep 2; echo done")
        time.sleep(0.3)
        with pytest.raises(NodeError, match=r"n1: .*MaxSessions"):
            connection.run("echo")
        assert asked.result() == "done\n"


def test_a_command_that_says_no_more_has_a_time_limit_all_the_same() -> None:
    with machine() as there, connected(there) as connection:
        begun = time.monotonic()
        with pytest.raises(NodeError, match=r"n1: .*did not end within 0.5 s"):
            connection.run("exec >&- 2>&-; sleep 5", timeout=0.5)
        assert time.monotonic() - begun < 4
        assert connection.run("exec 2>&-; echo said; exec >&-; sleep 0.3", timeout=2) == "said\n"


def test_a_command_that_was_given_up_does_nothing_later_and_what_it_has_started_goes_on(tmp_path: Path) -> None:
    """As a rule of a firewall that is made after the heal of its fault."""
    late, pid = tmp_path / "late", tmp_path / "pid"
    start = f"setsid sh -c 'echo $$ > {pid}; exec sleep 30' </dev/null >/dev/null 2>&1 &"
    with machine() as there, connected(there) as connection:
        with pytest.raises(NodeError, match=r"n1: .*did not end within 0.5 s"):
            connection.run(f"{start} exec >&- 2>&-; sleep 2.5; touch {late}", timeout=0.5)
        connection.run(f"sleep 1; touch {tmp_path / 'soon'}", timeout=2)
        time.sleep(2.0)
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["pid", "soon"]
        started = int(pid.read_text())
        os.kill(started, signal.SIGKILL)  # it is there


def test_a_command_that_goes_on_and_on_has_a_time_limit_too() -> None:
    with (
        machine() as there,
        connected(there) as connection,
        pytest.raises(NodeError, match=r"n1: .*did not end within 1 s"),
    ):
        connection.run("while :; do echo more; sleep 0.1; done", timeout=1)


def test_a_machine_that_neither_accepts_nor_refuses_a_command_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine whose sshd, or whose login, hangs."""
    monkeypatch.setattr(module, "GRACE", 0.3)
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", 0.5)
    with machine() as there, connected(there) as connection:
        there.accepts.clear()
        with pytest.raises(CommandTimeoutError, match=r"n1: .*did not end within 0.5 s"):
            connection.run("echo", timeout=0.5)
        with pytest.raises(NodeError, match="the stream broke: TimeoutError"):
            list(connection.lines("echo", lambda channel: None))
        there.accepts.set()
        assert connection.run("echo done") == "done\n"


def test_a_machine_that_does_not_end_a_command_at_its_limit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.5)
    monkeypatch.setattr(module, "_limit_time", lambda command, timeout: command)
    with (
        machine() as there,
        connected(there) as connection,
        pytest.raises(CommandTimeoutError, match="did not end within"),
    ):
        connection.run("for i in 1 2 3 4 5 6 7 8 9 10; do echo more; sleep 0.4; done", timeout=1)


def test_a_machine_that_can_set_no_limit_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    with machine() as there, connected(there) as connection:
        assert connection.run('echo "it\'s there"; echo $((1 + 1))') == "it's there\n2\n"
        with pytest.raises(NodeError, match="exit code 3; last output: no"):
            connection.run("echo no >&2; exit 3")


def test_a_command_that_is_to_be_completed_has_its_status_and_both_of_its_outputs() -> None:
    with machine() as there, connected(there) as connection:
        assert connection.run_to_completion("echo said; echo warned >&2; exit 3") == CommandResult(
            3, "said\n", "warned\n"
        )
        with pytest.raises(NodeError, match=r"n1: .*did not end within 0.5 s"):
            connection.run_to_completion("sleep 5", timeout=0.5)
