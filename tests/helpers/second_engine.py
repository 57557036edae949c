"""A second Docker engine, with network and processes of its own, and pipes that lead to it.

The engine runs in namespaces of its own, so it meets neither the containers nor the networks of this machine's engine.
Only its socket is shared, through the file system. It ends with all its containers when the test ends.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from assay.cluster.docker_endpoint import CA, CERTIFICATE, KEY, VARIABLES

START_SECONDS, END_SECONDS = 60.0, 20.0
DAEMON = """
ip link set lo up
exec dockerd --data-root={0}/data --exec-root={0}/exec --pidfile={0}/pid --host=unix://{0}/engine.sock {1}
"""


@dataclass(frozen=True)
class SecondEngine:
    """``pid``: a process in the engine's network namespace."""

    folder: Path
    pid: int

    @property
    def socket(self) -> Path:
        return self.folder / "engine.sock"

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    def docker(self, *argv: str, stdin: bytes | None = None) -> str:
        """Runs a command of this engine and returns its output."""
        return run_docker({"DOCKER_HOST": self.host}, *argv, stdin=stdin)


def run_docker(variables: Mapping[str, str], *argv: str, stdin: bytes | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | dict(variables)
    return subprocess.run(
        ["docker", *argv], input=stdin, env=environment, capture_output=True, check=True
    ).stdout.decode()


@contextmanager
def second_engine(folder: Path, *options: str, ahead: int = 0) -> Iterator[SecondEngine]:
    """Starts an engine whose files are in ``folder``. Skips the test if this machine cannot run a second one.

    ``ahead``: seconds by which the monotonic clock of the engine and its containers is ahead, in a time namespace.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None or shutil.which("unshare") is None:
        pytest.skip("a second engine needs root, dockerd and unshare")
    folder.mkdir(parents=True, exist_ok=True)
    shift = ["--time", f"--monotonic={ahead}", f"--boottime={ahead}"] if ahead else []
    if shift and subprocess.run(["unshare", *shift, "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this machine cannot make a time namespace")
    argv = ["unshare", "--mount", "--net", "--pid", *shift, "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([*argv, DAEMON.format(folder, " ".join(options))], stdout=log, stderr=log)
    try:
        _wait_for(lambda: _answers(folder / "engine.sock"), daemon, folder / "log")
        yield SecondEngine(folder, _find_child(daemon.pid))
    finally:
        with suppress(ProcessLookupError, OSError, IndexError):
            os.kill(_find_child(daemon.pid), signal.SIGTERM)  # so that it removes control groups
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(END_SECONDS)
        daemon.kill()  # --kill-child: the first process of the pid namespace goes, and so do all others
        daemon.wait()


def _find_child(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()[0])


def _answers(path: Path) -> bool:
    with suppress(OSError, subprocess.CalledProcessError):
        return bool(run_docker({"DOCKER_HOST": f"unix://{path}"}, "version", "--format={{.Server.Version}}"))
    return False


def _wait_for(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"no second engine: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


TLS_PORT = 2376
"""The port at which an engine with :func:`tls_options` speaks TLS, in its own network."""


def tls_options(folder: Path) -> list[str]:
    """Returns the options of an engine whose clients need a certificate. ``folder`` gets the files of a client.

    The certificates are for 127.0.0.1, and are signed by an authority of their own.
    """
    folder.mkdir(parents=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certify("authority", authority_key, "authority", authority_key)
    (folder / CA).write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for name, (certificate_file, key_file) in {
        "client": (CERTIFICATE, KEY),
        "server": ("server", "server-key"),
    }.items():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certify(name, key, "authority", authority_key)
        (folder / certificate_file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / key_file).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    files = f"--tlscacert={folder / CA} --tlscert={folder / 'server'} --tlskey={folder / 'server-key'}"
    return [f"--host=tcp://127.0.0.1:{TLS_PORT}", "--tlsverify", files]


def _certify(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
    )
    if name != issuer:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@contextmanager
def tcp_pipe(target: Path) -> Iterator[int]:
    """Yields a TCP port of 127.0.0.1 that leads to a socket in the file system."""
    with socket.create_server(("127.0.0.1", 0)) as server, _accepting(server, lambda: _connect(str(target))):
        yield int(server.getsockname()[1])


@contextmanager
def namespace_pipe(engine: SecondEngine, port: int) -> Iterator[Path]:
    """Yields a socket in the file system that leads to a TCP port of 127.0.0.1 in the engine's network."""
    path = engine.folder / f"port-{port}.sock"
    argv = ["nsenter", f"--net=/proc/{engine.pid}/ns/net", sys.executable, __file__, str(path), str(port)]
    process = subprocess.Popen(argv)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield path
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


@contextmanager
def _accepting(server: socket.socket, connect: Callable[[], socket.socket]) -> Iterator[None]:
    """Connects each client of a server with a new socket, until the block ends."""
    with ExitStack() as opened:
        thread = threading.Thread(target=_accept_all, args=(server, connect, opened), daemon=True)
        thread.start()
        yield
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _accept_all(server: socket.socket, connect: Callable[[], socket.socket], opened: ExitStack) -> None:
    with suppress(OSError):
        while True:
            near, _ = server.accept()
            far = opened.enter_context(connect())
            opened.enter_context(near)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


class _Login(paramiko.ServerInterface):
    """A user of the engine's machine. Each command gets the engine as its own."""

    def __init__(self, engine: SecondEngine) -> None:
        self._engine = engine

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_execute, args=(channel, command.decode(), self._engine), daemon=True).start()
        return True


def _execute(channel: paramiko.Channel, command: str, engine: SecondEngine) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    near, far = socket.socketpair()
    with (
        near,
        subprocess.Popen(
            ["sh", "-c", command],
            stdin=far,
            stdout=far,
            stderr=subprocess.PIPE,
            env=environment | {"DOCKER_HOST": engine.host},
        ) as run,
    ):
        far.close()
        sending: Any = channel
        threading.Thread(target=_copy, args=(sending, near), daemon=True).start()
        with suppress(OSError):
            while data := near.recv(1 << 16):
                channel.sendall(data)
        assert run.stderr is not None
        with suppress(OSError, EOFError):  # the client may be gone
            channel.sendall_stderr(run.stderr.read())
            channel.send_exit_status(run.wait())
            channel.close()


@contextmanager
def ssh_machine_of(engine: SecondEngine, folder: Path) -> Iterator[tuple[int, Path]]:
    """Yields the port of an SSH server on the engine's machine, and a folder for PATH whose ``ssh`` trusts it."""
    key = paramiko.ECDSAKey.generate()
    folder.mkdir()
    key.write_private_key_file(str(folder / "key"))
    script = f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n'
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        (folder / "config").write_text(
            f"Host *\n Port {port}\n IdentityFile {folder}/key\n IdentitiesOnly yes\n LogLevel ERROR\n"
            " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        )
        threading.Thread(target=_serve_ssh, args=(server, engine), daemon=True).start()
        yield port, folder
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _serve_ssh(server: socket.socket, engine: SecondEngine) -> None:
    host_key = paramiko.ECDSAKey.generate()
    with suppress(OSError):
        while True:
            transport = paramiko.Transport(server.accept()[0])
            transport.add_server_key(host_key)
            with suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=_Login(engine))


def main(path: str, port: int) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen()
        os.rename(f"{path}.new", path)
        _accept_all(server, lambda: socket.create_connection(("127.0.0.1", port)), ExitStack())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
