"""A machine that is reached over SSH, within this process: its files and its shell are those of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko

from assay.cluster.ssh.connection import Login


class Files(paramiko.SFTPServerInterface):
    """As much of SFTP as it takes to write a file."""

    def open(self, path: str, flags: int, attr: Any) -> Any:
        try:
            file = os.fdopen(os.open(path, flags, 0o644), "rb" if not flags & os.O_WRONLY else "wb", buffering=0)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        handle: Any = paramiko.SFTPHandle(flags)
        handle.readfile = handle.writefile = file
        return handle

    def stat(self, path: str) -> Any:
        try:
            return paramiko.SFTPAttributes.from_stat(os.stat(path))
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        os.replace(oldpath, newpath)
        return paramiko.SFTP_OK

    def remove(self, path: str) -> int:
        Path(path).unlink()
        return paramiko.SFTP_OK


class _Door(paramiko.ServerInterface):
    """A connection, of which so many sessions may be open at a time. No session is, once it is not ``heard``."""

    def __init__(self, sessions: int, heard: threading.Event, accepts: threading.Event) -> None:
        self._sessions, self._heard, self._accepts = sessions, heard, accepts
        self._open: list[paramiko.Channel] = []

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._heard.wait()
        self._open = [one for one in self._open if not one.closed]
        if len(self._open) >= self._sessions:
            return paramiko.OPEN_FAILED_CONNECT_FAILED
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        self._open.append(channel)
        return super().check_channel_subsystem_request(channel, name)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._open.append(channel)
        self._accepts.wait()
        threading.Thread(target=_execute, args=(channel, command), daemon=True).start()
        return True


GONE = (OSError, EOFError, paramiko.SSHException)
"""Errors that are raised if the client does not wait for the answer."""


def _execute(channel: paramiko.Channel, command: bytes) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, bufsize=0) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        with suppress(*GONE):
            while data := run.stdout.read(65536):
                channel.sendall(data)
            channel.sendall_stderr(run.stderr.read())
            channel.shutdown_write()
    with suppress(*GONE, TimeoutError):
        # Paramiko acknowledges the command when it has long begun, and must do so before the channel closes. Reading
        # waits for that: a client that runs a command has closed its input, and one that follows a command is silent.
        channel.settimeout(0.5)
        channel.recv(1)
    with suppress(*GONE):
        code = run.returncode
        channel.send_exit_status(code if code >= 0 else 128 - code)
        channel.close()


class Machine:
    """``login``: how it is reached; ``reached``: the connections that were made to it, in their order."""

    def __init__(self, sessions: int) -> None:
        key, self._host_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
        self._sessions = sessions
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.login = Login("127.0.0.1", "root", key, self._host_key, self._listening.getsockname()[1])
        self.reached: list[paramiko.Transport] = []
        self._heard: list[threading.Event] = []
        self.accepts = threading.Event()
        """While it is not set, commands are neither accepted nor refused."""
        self.accepts.set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                transport = paramiko.Transport(self._listening.accept()[0])
            except OSError:
                return  # closed
            transport.add_server_key(self._host_key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
            heard = threading.Event()
            heard.set()
            self._heard.append(heard)
            self.reached.append(transport)
            with suppress(*GONE):  # a client may leave as soon as it knows the host key
                transport.start_server(server=_Door(self._sessions, heard, self.accepts))

    def silence(self) -> None:
        """As if a cable were cut, for the connections that there are: they stay, and have no answer."""
        for heard in self._heard:
            heard.clear()

    def close(self) -> None:
        self._listening.close()
        self.accepts.set()
        for heard in self._heard:
            heard.set()
        for transport in self.reached:
            transport.close()


@contextmanager
def machine(sessions: int = 1000) -> Iterator[Machine]:
    """``sessions``: so many may be open at a time on one connection."""
    made = Machine(sessions)
    try:
        yield made
    finally:
        made.close()
