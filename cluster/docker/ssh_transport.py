"""Connections of the SDK to an engine on another machine, through the user's ``ssh`` command.

``ssh HOST docker system dial-stdio`` connects its own input and output with the engine there, as for the docker
command. The SDK has such a transport, too. But it starts a process for each call, lets none end, has no time limit,
and ignores the port of ``~/.ssh/config``. Here a process serves one connection, which the SDK uses for many calls.
"""

import socket
import subprocess
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import urllib3.connection
import urllib3.connectionpool
from docker.transport import UnixHTTPAdapter

from assay.cluster.docker_endpoint import Endpoint

GRACE = 5.0
"""Seconds after ``ConnectTimeout`` until ``ssh`` must have ended."""


@cache
def require_ssh(endpoint: Endpoint, timeout: float) -> None:
    """Raises ``OSError`` unless SSH reaches an engine. A success is remembered, because each attempt is a login."""
    argv = list(_make_command(endpoint, timeout))
    shown = f"`ssh {' '.join([*_name_login(endpoint), argv[-1]])}`"
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout + GRACE,
                              check=False, errors="replace")  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OSError(f"{shown} did not end within {timeout + GRACE:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise OSError(f"{shown} exited {done.returncode}: {said}")


def _make_command(endpoint: Endpoint, timeout: float) -> Sequence[str]:
    """Returns the command that connects to the engine. It asks nothing, because no user could answer."""
    options = ["-T", "-oBatchMode=yes", f"-oConnectTimeout={max(1, int(timeout))}"]
    *login, host = _name_login(endpoint)
    return ["ssh", *options, *login, "--", host, "docker system dial-stdio"]


def _name_login(endpoint: Endpoint) -> list[str]:
    """Returns the options of ``ssh`` for the port and the user of an address, and its host."""
    url = urlsplit(endpoint.host)
    options = ["-p", str(url.port)] if url.port else []
    options += ["-l", url.username] if url.username else []
    return [*options, str(url.hostname)]


def describe_ssh_remedy(endpoint: Endpoint, reason: str) -> str:
    """Returns the remedy if :func:`require_ssh` failed for this reason; empty if SSH itself is not the reason."""
    login = " ".join(_name_login(endpoint))
    if "exited 127" in reason:
        return f"install docker.io or docker-cli there; `ssh {login} docker version` must find the docker command"
    for said, remedy in (
        ("refused", "no SSH server listens at this port: start sshd there, or correct the address or its port"),
        ("not resolve", "this host name is unknown: correct it, or give HostName in ~/.ssh/config"),
        ("timed out", "look whether the machine is up, and whether its firewall lets SSH pass"),
        ("No route", "look whether the machine is up, and whether its address is right"),
        ("Permission denied", "it knows none of your keys: `ssh-copy-id` sends one, and an agent may have to hold it"),
    ):
        if "exited 255" in reason and said in reason:
            return f"{remedy}. `ssh {login} true` must then work"
    if "exited 255" in reason:
        return f"`ssh {login} true` must log in without a question: log in once by hand, so that its host key is known"
    return ""


def _dial(argv: Sequence[str], timeout: Any) -> socket.socket:
    """Starts the command and returns a socket to its input and output. It ends when the socket is closed."""
    near, far = socket.socketpair()
    with far:
        process = subprocess.Popen(
            argv, stdin=far.fileno(), stdout=far.fileno(), stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not end it before the faults are healed
        )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True, name="end of ssh").start()
    near.settimeout(timeout)
    return near


class _SshConnection(urllib3.connection.HTTPConnection):
    def __init__(self, argv: Sequence[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._argv = argv

    def connect(self) -> None:
        self.sock = _dial(self._argv, self.timeout)


class _SshPool(urllib3.connectionpool.HTTPConnectionPool):
    def __init__(self, argv: Sequence[str], timeout: float, maxsize: int) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=maxsize)
        self._connection = argv, timeout

    def _new_conn(self) -> Any:
        return _SshConnection(*self._connection)


class SshAdapter(UnixHTTPAdapter):
    """Transport of the SDK that takes its connections from ``ssh``."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        super().__init__("http+unix:///ssh", timeout=int(timeout))
        self._argv = _make_command(endpoint, timeout)

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        with self.pools.lock:
            if (pool := self.pools.get(url)) is None:
                pool = self.pools[url] = _SshPool(self._argv, self.timeout, self.max_pool_size)
        return pool
