"""The address of the Docker engine, found once per process, by the rules of the docker command.

The first of these rules that applies decides:

1. ``DOCKER_HOST``, with ``DOCKER_TLS_VERIFY``, ``DOCKER_TLS`` and ``DOCKER_CERT_PATH``
2. the context that ``DOCKER_CONTEXT`` names
3. the current context, which ``docker context use`` writes to ``config.json``
4. the local socket

The SDK knows no contexts, and the docker command would ask for the current context at each call. So both get the
endpoint that is found here. A context is a file below ``contexts/meta`` of the folder ``DOCKER_CONFIG``, by default
``~/.docker``. The name of its folder is the SHA-256 of the context's name.

This module only needs the standard library, because ``cluster.docker.layer`` and the undo journal import it.
"""

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from assay.cluster.regular_files import NotRegularError, read_regular_json

LOCAL_SOCKET: Final = "unix:///var/run/docker.sock"
DEFAULT_CONTEXT: Final = "default"
"""Name of the context that stands for the environment variables and the local socket."""
PORT, TLS_PORT = 2375, 2376
VARIABLES: Final = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
"""The variables that choose an engine."""
PLACES: Final = ("DOCKER_CONFIG", "HOME")
"""The variables that say where contexts are."""
CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"


class EndpointError(Exception):
    """The engine's address cannot be found. The message has the reason, its origin and the remedy."""


@dataclass(frozen=True)
class Tls:
    """``folder`` has the files ``CA``, ``CERTIFICATE`` and ``KEY``, some of which may be missing.

    ``verify``: whether the engine's certificate is checked.
    """

    folder: str
    verify: bool = True

    def find(self, name: str) -> str | None:
        """Returns the path of a file, or None if it is missing."""
        path = Path(self.folder) / name
        return str(path) if path.is_file() else None


@dataclass(frozen=True)
class Endpoint:
    """The address of an engine.

    - ``host``: its URL, with the scheme ``unix``, ``tcp`` or ``ssh``
    - ``origin``: what names the endpoint, for messages
    - ``context``: the name of a stored context, or empty
    """

    host: str
    origin: str = ""
    context: str = ""
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{self.host} ({self.origin})" if self.origin else self.host

    @property
    def scheme(self) -> str:
        return self.host.partition("://")[0]

    @property
    def path(self) -> str:
        """The path of the engine's socket, if the scheme is ``unix``."""
        return self.host.partition("://")[2]

    @property
    def is_default(self) -> bool:
        """Whether nothing but the default names the endpoint."""
        return self.host == LOCAL_SOCKET and not self.context

    def leads_to(self, other: "Endpoint") -> bool:
        """Returns whether both are the same address, whatever names them."""
        return (self.host, self.tls) == (other.host, other.tls)

    def variables(self) -> dict[str, str]:
        """Returns the environment variables with which the docker command uses this endpoint.

        No variable names a single file of TLS. So a context with TLS is named by ``DOCKER_CONTEXT``.
        """
        if self.tls is None:
            return {"DOCKER_HOST": self.host}
        if self.context:
            return {"DOCKER_CONTEXT": self.context}
        switch = "DOCKER_TLS_VERIFY" if self.tls.verify else "DOCKER_TLS"
        return {"DOCKER_HOST": self.host, switch: "1", "DOCKER_CERT_PATH": self.tls.folder}

    def environment(self) -> dict[str, str]:
        """Returns this process's environment, changed so that the docker command uses this endpoint."""
        return {name: value for name, value in os.environ.items() if name not in VARIABLES} | self.variables()

    def prefix(self) -> str:
        """Returns the beginning of a shell command that uses this endpoint."""
        return " ".join(f"{name}={shlex.quote(value)}" for name, value in self.variables().items())


def resolve_endpoint() -> Endpoint:
    """Returns the engine's endpoint. Raises :class:`EndpointError`.

    The first answer holds as long as the variables are unchanged. So ``docker context use`` in another terminal does
    not move a session to another engine.
    """
    names = (*VARIABLES, *PLACES)
    return _resolve_once(tuple((name, os.environ[name]) for name in names if os.environ.get(name)))


@cache
def _resolve_once(variables: tuple[tuple[str, str], ...]) -> Endpoint:
    return find_endpoint(dict(variables))


def find_endpoint(variables: Mapping[str, str]) -> Endpoint:
    """Returns the endpoint that these environment variables and the stored contexts choose.

    Raises :class:`EndpointError`.
    """
    place = variables.get("DOCKER_CONFIG")
    folder = Path(place).absolute() if place else Path.home() / ".docker"
    if host := variables.get("DOCKER_HOST"):
        return _from_variables(host, "from DOCKER_HOST", variables, folder)
    if name := variables.get("DOCKER_CONTEXT"):
        origin = f"context {_to_printable(name)}, from DOCKER_CONTEXT"
    else:
        name = _read_current_context(folder)
        origin = f"context {_to_printable(name)}, the current one of {folder / 'config.json'}"
    if name and name != DEFAULT_CONTEXT:
        return _from_context(name, origin, folder)
    return _from_variables("", "the default", variables, folder)


def _from_variables(host: str, origin: str, variables: Mapping[str, str], folder: Path) -> Endpoint:
    verify = bool(variables.get("DOCKER_TLS_VERIFY"))
    with_tls = verify or bool(variables.get("DOCKER_TLS"))
    if not host and with_tls:
        host, origin = f"tcp://localhost:{TLS_PORT}", "the default with TLS"
    url = _complete(host or LOCAL_SOCKET, origin, PORT)
    if not with_tls or not url.startswith("tcp://"):
        return Endpoint(url, origin)
    # The journal names the folder, and `assay heal` may run in another one.
    tls = Tls(str(Path(variables.get("DOCKER_CERT_PATH") or folder).absolute()), verify)
    if tls.find(CA) is None:
        switch = "DOCKER_TLS_VERIFY" if verify else "DOCKER_TLS"
        raise EndpointError(
            f"Docker engine {url} ({origin}): there is no {Path(tls.folder) / CA}, and {switch} is set; "
            f"name the folder of {CA}, {CERTIFICATE} and {KEY} by DOCKER_CERT_PATH, or unset {switch}"
        )
    return Endpoint(url, origin, tls=tls)


def _read_current_context(folder: Path) -> str:
    """Returns the name of the current context, or an empty text. Like the docker command, ignores an invalid file.

    Raises :class:`EndpointError` for a FIFO or a device, for which the docker command would wait.
    """
    try:
        name = read_regular_json(folder / "config.json").get("currentContext")
    except NotRegularError as error:
        raise EndpointError(f"the settings of the docker command cannot be read: {error}") from None
    except (OSError, ValueError, AttributeError):
        return ""
    return name if isinstance(name, str) else ""


def _from_context(name: str, origin: str, folder: Path) -> Endpoint:
    store = folder / "contexts"
    try:
        key = hashlib.sha256(os.fsencode(name)).hexdigest()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON may have
        raise EndpointError(f"Docker {origin}: this is no name of a context; {_describe_remedy(origin)}") from None
    path = store / "meta" / key / "meta.json"
    try:
        found: Any = read_regular_json(path)["Endpoints"]["docker"]
        host, skips = str(found.get("Host") or LOCAL_SOCKET), bool(found.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise EndpointError(
            f"Docker {origin}: there is no context of this name in {store}; `docker context ls` lists them, "
            f"{_describe_remedy(origin)}"
        ) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise EndpointError(
            f"Docker {origin}: {path} has no Docker endpoint ({type(error).__name__}: {error}); create the context "
            f"again, or {_describe_remedy(origin)}"
        ) from error
    tls = Tls(str(store / "tls" / key / "docker"), verify=not skips)
    is_used = host.startswith("tcp://") and (skips or any(map(tls.find, (CA, CERTIFICATE, KEY))))
    return Endpoint(_complete(host, origin, 443 if is_used else 80), origin, name, tls if is_used else None)


def _describe_remedy(origin: str) -> str:
    return "name another in DOCKER_CONTEXT" if "DOCKER_CONTEXT" in origin else "`docker context use` chooses another"


def _complete(host: str, origin: str, port: int) -> str:
    """Returns an address as a URL with all its parts. ``port``: the default port of TCP."""
    host, shown = host.strip(), _to_printable(host.strip())
    scheme, mark, rest = host.partition("://")
    if not mark:
        scheme, rest = "tcp", host
    try:
        if b"\0" in os.fsencode(host):
            raise ValueError("an address has no zero byte")
        url = urlsplit(f"{scheme}://{rest}")
        if scheme != "unix":
            (url.hostname or "").encode("idna")  # raises for a name that no machine can have
        if scheme == "unix":
            return f"unix://{rest}" if rest else LOCAL_SOCKET
        if scheme == "tcp":
            address = url.netloc.rpartition("@")[2]
            if url.port is None:
                address = f"{address.removesuffix(':') or 'localhost'}:{port}"
            elif not url.hostname:
                address = f"localhost{address}"
            return f"tcp://{address}{url.path.rstrip('/')}"
        if scheme == "ssh" and url.hostname and url.path in ("", "/") and url.port != 0:
            return f"ssh://{url.netloc}"
    except ValueError as error:
        raise EndpointError(
            f"Docker engine {shown} ({origin}): this is no address of an engine: {_to_printable(str(error))}"
        ) from None
    raise EndpointError(
        f"Docker engine {shown} ({origin}): this is no address of an engine; use unix:///PATH, tcp://HOST:PORT or "
        "ssh://USER@HOST:PORT"
    )


def _to_printable(text: str) -> str:
    """Returns the text with escapes for bytes that are not UTF-8, which no message can have."""
    return text.encode(errors="backslashreplace").decode()
