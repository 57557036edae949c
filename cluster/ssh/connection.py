"""A persistent SSH connection to one machine: commands, files and streamed lines, for calls from worker threads.

paramiko blocks, so everything here runs in an executor's threads; the coroutines are in ``cluster/ssh/node.py``. If a
connection breaks, the next call connects again. A command is only sent again if no channel for it could be opened. If a
connection breaks while a command may run, that is an error, because a second ``kill`` or ``start`` could do harm.
"""

import contextlib
import io
import logging
import math
import posixpath
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import paramiko

from assay.cluster.log_excerpt import MAX_LOG_BYTES, plan_omission
from assay.cluster.node import CommandResult, NodeError, join_host_port
from assay.cluster.ssh.command_stream import BytesTarget, CommandStream, StreamCommand, copy_at_most, copy_printed_file

# paramiko logs a failed login with a traceback, and then raises an error, which is reported. Without a handler, Python
# would print the log on standard error.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

CONNECT_TIMEOUT = 10.0
"""Maximum seconds of one attempt to connect."""
COMMAND_TIMEOUT = 30.0
"""Default time limit of a command in seconds."""
ERRORS_TIMEOUT = 1.0
"""Maximum seconds to wait for the errors of a command that should have carried a connection."""
KEEPALIVE = 5
"""Seconds between keep-alive packets, which detect a dead peer."""
GRACE = 5.0
"""Seconds after a command's time limit until its machine must have reported the end."""
KILLED = (-1, 137)
"""Exit codes of a command that a signal has ended: paramiko's and that of shells."""
BULK_SIZE = 1 << 20
"""Files of at least so many bytes are read by a command of their own, if the connection is carried by a command."""
BULK_TIMEOUT = 300.0
"""Maximum seconds to read such a file."""
PART_BYTES = 1 << 15
"""Bytes that one request of SFTP asks for. Servers need not answer with more."""
WINDOW_BYTES = 64 * PART_BYTES
"""Bytes of a file that are asked for at once, so that a slow network delays all of them together."""
LINE_BYTES = 16 << 20
"""Maximum size of a line of a streamed command."""
TAIL_LINES = 5
PARTIAL_SUFFIX = ".assay-part"
"""Suffix of a file that is being written."""
RSA = ("rsa-sha2-512", "rsa-sha2-256")
"""Signature algorithms of a machine whose key type is ssh-rsa."""
SUDO_SFTP = (
    "for one in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/libexec/sftp-server "
    "/usr/lib/ssh/sftp-server; do [ -x $one ] && exec sudo -n $one; done; exit 127"
)
"""Paths on Debian, Red Hat, the BSDs and Arch."""


class LongLineError(NodeError):
    """A command printed a line that is too long to be one of the system's events."""


class _LocalFile:
    """Context manager for a new file of this machine, which is removed if the block raises.

    ``error``: the error of the write that failed. It is an error of this machine, and not of the one that is read.
    """

    def __init__(self, path: Path) -> None:
        self.error: OSError | None = None
        self._path = path
        self._file = path.open("wb")

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def __enter__(self) -> "_LocalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()  # writes what is buffered
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        if error is not None:
            self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Login:
    """How to reach a machine. Only ``host_key`` is accepted: there is no trust on first use."""

    address: str
    user: str
    key: paramiko.PKey
    host_key: paramiko.PKey
    port: int = 22
    sudo: bool = False
    """Whether the user is not root, but can become root without a password."""
    jump: "Login | None" = None
    """The jump host through which this machine is reached."""
    plain_shell: bool = True
    """Whether the user's login shell understands the syntax of ``sh``."""
    stream: StreamCommand | None = None
    """The command that carries the connection. None: a TCP connection to ``address``."""

    def __str__(self) -> str:
        where = join_host_port(self.address, self.port)
        return f"{self.user}@{where}" if self.stream is None else f"{self.user} through `{self.stream}`"


class UnansweredError(NodeError):
    """The machine does not answer."""


class RefusedError(NodeError):
    """The machine rejects this user, or has another host key, or this machine lacks the program that reaches it.

    Retries are useless and may cause a ban.
    """


class CommandTimeoutError(NodeError):
    """A command did not end in time. It is killed on the machine if possible."""


class SshConnection:
    """Thread-safe connection. ``name`` is the node's, for messages."""

    def __init__(self, name: str, login: Login) -> None:
        self._name = name
        self._login = login
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()
        """Held while a session is opened, because paramiko stores the reason of a rejection once for all threads."""
        self._transport: paramiko.Transport | None = None
        self._jump_transports: list[paramiko.Transport] = []
        """Connections to jump hosts, in the order of the hops from here."""
        self._sftp: paramiko.SFTPClient | None = None
        self._sftp_lock = threading.Lock()
        self._closed = False

    def connect(self, deadline: float) -> None:
        """Retries until the machine answers. Raises :class:`NodeError` at ``deadline`` (by ``time.monotonic()``)."""
        pause = threading.Event()
        while True:
            try:
                self._require_transport()
                return
            except RefusedError:
                raise
            except NodeError:
                if self._closed or time.monotonic() >= deadline:
                    raise
                pause.wait(0.05)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = COMMAND_TIMEOUT) -> str:
        """Returns a shell command's standard output. Raises :class:`NodeError` if it fails, hangs or cannot be sent."""
        done = self.run_to_completion(command, stdin=stdin, timeout=timeout)
        if done.status != 0:
            raise self._command_error(command, f"exit code {done.status}; {_last_lines(done.errors or done.output)}")
        return done.output

    def run_to_completion(self, command: str, *, stdin: bytes = b"", timeout: float = COMMAND_TIMEOUT) -> CommandResult:
        """Runs a shell command and returns its result. Raises :class:`NodeError` if it hangs or cannot be sent.

        A command that hangs is killed on the node a moment later. Otherwise it could take effect after the caller has
        undone it.
        """
        channel, began = self._open_channel(), time.monotonic()
        try:
            channel.settimeout(timeout)
            with _limit_waiting(channel, timeout + GRACE):
                channel.exec_command(self._wrap_command(_limit_time(command, timeout)))
                if stdin:
                    channel.sendall(stdin)
                channel.shutdown_write()
                output, errors = _drain(channel)
                if not channel.status_event.wait(timeout):  # the streams have ended, the command has not
                    raise TimeoutError
            code = channel.recv_exit_status()
        except (TimeoutError, paramiko.SSHException, OSError, EOFError) as error:
            broken = self._command_error(
                command, f"it did not end within {timeout:g} s, or the connection broke: {error!r}"
            )
            raise (CommandTimeoutError(str(broken)) if isinstance(error, TimeoutError) else broken) from error
        finally:
            channel.close()
        if code in KILLED and time.monotonic() - began >= timeout:
            late = self._command_error(command, f"it did not end within {timeout:g} s and was killed")
            raise CommandTimeoutError(str(late))
        if code == -1:  # paramiko's value for "no exit code"
            raise self._command_error(command, "the connection broke before its end, or a signal ended it")
        return CommandResult(code, output, errors)

    def lines(
        self,
        command: str,
        on_channel: Callable[[paramiko.Channel], None],
        on_rest: Callable[[str], None] = lambda rest: None,
    ) -> Iterator[str]:
        """Yields each line as the command writes it, until it ends or the channel given to ``on_channel`` is closed.

        ``on_rest`` is called at the end with what the command has written after its last line feed.
        Raises :class:`LongLineError` at a line of more than ``LINE_BYTES``, and ``NodeError`` if the connection breaks.
        """
        channel = self._open_channel()
        try:
            on_channel(channel)
            with _limit_waiting(channel, COMMAND_TIMEOUT):
                channel.exec_command(self._wrap_command(command))
            rest = bytearray()
            while data := channel.recv(65536):
                *ends, begin = data.split(b"\n")
                for end in ends:
                    rest += end
                    yield rest.decode("utf-8", "replace")
                    rest.clear()
                rest += begin
                if len(rest) > LINE_BYTES:
                    raise LongLineError(f"{self._name}: a line has more than {LINE_BYTES >> 20} MiB: `{command}`")
            on_rest(rest.decode("utf-8", "replace"))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._command_error(command, f"the stream broke: {error!r}") from error
        finally:
            channel.close()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file atomically and creates its parent folders. Readers see the old or the new content."""
        partial = path + PARTIAL_SUFFIX
        with self._hold_sftp() as sftp:
            try:
                file = sftp.open(partial, "wb")
            except FileNotFoundError:
                _make_folders(sftp, posixpath.dirname(path))
                file = sftp.open(partial, "wb")
            try:
                with file:  # not pipelined: paramiko would ignore the machine's answers to the blocks
                    file.write(data)
                sftp.posix_rename(partial, path)
            except TimeoutError:
                raise
            except OSError as error:
                with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                    sftp.remove(partial)
                raise NodeError(f"{self._name}: {path} could not be written: {error!r}; is its disk full?") from error

    def read(self, path: str) -> bytes:
        """Returns a file's content. Raises ``FileNotFoundError``."""
        content = io.BytesIO()
        self._copy(path, content)
        return content.getvalue()

    def copy_log(self, path: str, local: Path) -> None:
        """Copies a log to this machine, in pieces; of a large one, an excerpt (:mod:`assay.cluster.log_excerpt`).

        Creates parent folders, and leaves no incomplete copy behind.

        Raises ``FileNotFoundError`` if there is no such file, ``OSError`` if the copy cannot be written here, and else
        ``NodeError``.
        """
        local.parent.mkdir(parents=True, exist_ok=True)
        with _LocalFile(local) as target:
            try:
                self._copy(path, target, MAX_LOG_BYTES)
            except FileNotFoundError:
                raise
            except OSError as error:
                if error is target.error:
                    raise
                raise NodeError(f"{self._name}: {path} could not be read: {error}") from error

    def _copy(self, path: str, target: BytesTarget, most: int | None = None) -> None:
        """Copies a file. If it has more than ``most`` bytes, copies an excerpt of it."""
        stream = self._login.stream
        with self._hold_sftp() as sftp:
            size = sftp.stat(path).st_size or 0
            left_out = None if most is None else plan_omission(size)
            if left_out is not None:
                with sftp.open(path, "rb") as file:
                    _copy_range(file, 0, left_out.begin, target)
                    target.write(left_out.line)
                    _copy_range(file, left_out.end, size, target)
                return
            if stream is None or not stream.print_file or size < BULK_SIZE:
                with sftp.open(path, "rb") as file:
                    _copy_range(file, 0, size, target)
                    file.seek(size)
                    copy_at_most(file, target, None if most is None else most - size)  # written meanwhile
                return
        try:
            copy_printed_file(stream, path, target, BULK_TIMEOUT, most)
        except OSError as error:
            if isinstance(target, _LocalFile) and error is target.error:
                raise
            raise NodeError(f"{self._name}: {path} could not be read: {error}; {stream.remedy}") from error

    def read_range(self, path: str, position: int, size: int) -> bytes:
        """Returns a part of a file. Raises ``FileNotFoundError``."""
        with self._hold_sftp() as sftp, sftp.open(path, "rb") as file:
            file.seek(position)
            return file.read(size)

    def write_range(self, path: str, position: int, data: bytes) -> None:
        """Overwrites in place, or appends at the end. Raises ``FileNotFoundError``."""
        with self._hold_sftp() as sftp, sftp.open(path, "r+b") as file:
            if position > (file.stat().st_size or 0):
                raise NodeError(f"{self._name}: {path} has no byte at {position} to be overwritten")
            file.seek(position)
            file.write(data)

    def truncate(self, path: str, size: int) -> None:
        """Truncates a file. Raises ``FileNotFoundError``."""
        with self._hold_sftp() as sftp:
            sftp.truncate(path, size)

    def close(self) -> None:
        """Ends every running command and stream. Idempotent."""
        with self._lock:
            self._closed = True
            self._drop()

    def _wrap_command(self, command: str) -> str:
        """Returns the command in the form that the login's shell needs."""
        if self._login.sudo:
            return f"sudo -n sh -c {shlex.quote(command)}"
        return command if self._login.plain_shell else f"sh -c {shlex.quote(command)}"

    def _require_transport(self) -> paramiko.Transport:
        with self._lock:
            if self._closed:
                raise NodeError(f"{self._name}: the connection was closed by the harness; start a new cluster")
            if self._transport is not None and self._transport.is_active():
                return self._transport
            self._drop()
            self._transport = self._open(self._login)
            return self._transport

    def _open(self, login: Login) -> paramiko.Transport:
        """Connects and logs in, through the login's jump hosts."""
        transport: paramiko.Transport | None = None
        stream = None if login.stream is None else self._start_stream(login.stream)
        try:
            raw = self._open_socket(login) if stream is None else stream.socket
            try:
                transport = paramiko.Transport(raw)
            except BaseException:
                raw.close()
                raise
            transport.banner_timeout = CONNECT_TIMEOUT
            name = login.host_key.get_name()  # the machine must show this one of its keys
            transport.get_security_options().key_types = RSA if name == "ssh-rsa" else (name,)
            transport.start_client(timeout=CONNECT_TIMEOUT)
            if transport.get_remote_server_key() != login.host_key:
                raise RefusedError(
                    f"{self._name}: {login.address} shows another host key than the one this run gave it; "
                    "another machine has taken the address"
                )
            transport.auth_publickey(login.user, login.key)
            transport.set_keepalive(KEEPALIVE)
        except paramiko.AuthenticationException as error:
            assert transport is not None, "only the transport raises it"
            transport.close()
            raise RefusedError(f"{self._name}: {login} rejects this key: {error}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            if transport is not None:
                transport.close()
            reason = f"{error!r}; is the machine up and sshd running?"
            if stream is not None:
                reason = f"{stream.read_errors(ERRORS_TIMEOUT) or repr(error)}; {stream.command.remedy}"
            raise UnansweredError(f"{self._name}: no SSH connection to {login}: {reason}") from error
        except BaseException:
            if transport is not None:
                transport.close()
            raise
        return transport

    def _start_stream(self, command: StreamCommand) -> CommandStream:
        try:
            return CommandStream(command)
        except OSError as error:
            raise RefusedError(f"{self._name}: `{command}` cannot be started: {error}; {command.remedy}") from error

    def _open_socket(self, login: Login) -> socket.socket | paramiko.Channel:
        """Opens a TCP connection, or a channel to the same address through the jump host."""
        where = (login.address, login.port)
        if login.jump is None:
            return socket.create_connection(where, CONNECT_TIMEOUT)
        self._jump_transports.append(self._open(login.jump))
        return self._jump_transports[-1].open_channel("direct-tcpip", where, ("", 0), timeout=CONNECT_TIMEOUT)

    def _open_channel(self) -> paramiko.Channel:
        transport = self._require_transport()
        try:
            return self._open_session(transport)
        except (paramiko.SSHException, OSError, EOFError):
            with self._lock:
                if self._transport is transport:  # otherwise another thread has reconnected, and its commands run there
                    self._drop()
        try:
            return self._open_session(self._require_transport())
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NodeError(f"{self._name}: connected, but no channel could be opened: {error!r}") from error

    def _open_session(self, transport: paramiko.Transport) -> paramiko.Channel:
        """Opens a session. If sshd allows no more sessions, waits until one ends. Most last only some milliseconds."""
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while True:
            try:
                with self._session_lock:
                    channel = transport.open_session(timeout=CONNECT_TIMEOUT)
                if channel.closed:  # paramiko also returns it if the connection was lost just then
                    raise paramiko.SSHException("the connection was lost while a session was opened")
                return channel
            except paramiko.ChannelException as error:
                if time.monotonic() >= deadline:
                    raise NodeError(
                        f"{self._name}: sshd grants no more sessions on this connection: {error}; raise its MaxSessions"
                    ) from error
                time.sleep(0.1)

    @contextlib.contextmanager
    def _hold_sftp(self) -> Iterator[paramiko.SFTPClient]:
        """Yields the only SFTP session, to one thread at a time. After an error the next caller opens a new one."""
        with self._sftp_lock:
            sftp = self._sftp
            if sftp is None or sftp.get_channel() is None or sftp.sock.closed:
                channel = self._open_channel()
                try:
                    self._sftp = sftp = self._start_sftp(channel)
                except (paramiko.SSHException, OSError, EOFError) as error:
                    channel.close()
                    raise NodeError(
                        f"{self._name}: no SFTP session: {error!r}; does its sshd offer the sftp subsystem, and may "
                        "the user start it as root?"
                    ) from error
            try:
                yield sftp
            except (EOFError, TimeoutError, paramiko.SSHException) as error:
                sftp.close()
                self._sftp = None
                raise NodeError(f"{self._name}: the SFTP session broke: {error!r}") from error

    def _start_sftp(self, channel: paramiko.Channel) -> paramiko.SFTPClient:
        """Starts the SFTP server. sshd's subsystem runs as the user; for root ``sudo`` must start it."""
        channel.settimeout(COMMAND_TIMEOUT)
        if self._login.sudo:
            channel.exec_command(f"sh -c {shlex.quote(SUDO_SFTP)}")
        else:
            channel.invoke_subsystem("sftp")
        return paramiko.SFTPClient(channel)

    def _drop(self) -> None:
        if self._sftp is not None:
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):  # the closing message may reach no one
                self._sftp.close()
            self._sftp = None
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        while self._jump_transports:
            self._jump_transports.pop().close()

    def _command_error(self, command: str, what: str) -> NodeError:
        return NodeError(f"{self._name}: `{_shorten(command)}`: {what}")


def _limit_time(command: str, timeout: float) -> str:
    """Adds a time limit to a command, if the machine has the program ``timeout``.

    The program kills the command with its children. Processes with sessions of their own, such as the node's main
    process, continue.
    """
    limit = f"timeout -s KILL {math.ceil(timeout) + 1}"
    return f"limit='{limit}'; $limit true 2>/dev/null || limit=; exec $limit sh -c {shlex.quote(command)}"


@contextlib.contextmanager
def _limit_waiting(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Closes the channel after a time and raises ``TimeoutError``.

    The channel's own timeout limits each read, but not paramiko's wait until the machine accepts a command.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may have ended meanwhile
            channel.close()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, EOFError, paramiko.SSHException) as error:
        if expired.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise TimeoutError


def _drain(channel: paramiko.Channel) -> tuple[str, str]:
    """Reads standard output, and then standard error, to their ends. The errors fit into paramiko's window of 2 MB."""
    output, errors = bytearray(), bytearray()
    while data := channel.recv(65536):
        output += data
    while data := channel.recv_stderr(65536):
        errors += data
    return output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _make_folders(sftp: paramiko.SFTPClient, folder: str) -> None:
    if not folder or folder == "/":
        return
    try:
        sftp.stat(folder)
    except FileNotFoundError:
        _make_folders(sftp, posixpath.dirname(folder))
        # Another process may have created the folder in between. The next `open` reports a real error.
        with contextlib.suppress(OSError):
            sftp.mkdir(folder)


def _last_lines(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "last output: " + " | ".join(lines[-TAIL_LINES:]) if lines else "it printed nothing"


def _shorten(command: str) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= 160 else flat[:157] + "..."


def _copy_range(file: paramiko.SFTPFile, begin: int, end: int, target: BytesTarget) -> None:
    """Copies the bytes from ``begin`` to ``end``, many parts at once."""
    for start in range(begin, end, WINDOW_BYTES):
        stop = min(start + WINDOW_BYTES, end)
        for data in file.readv([(at, min(PART_BYTES, stop - at)) for at in range(start, stop, PART_BYTES)]):
            target.write(data)
