"""The Docker engine: access, the labels of a run's objects, and their removal.

``cluster.docker_endpoint`` says where the engine is. Every object that a run creates has four labels: the tool, the
run, the owner and the owner's machine. Objects without an owner are never touched. The functions block; callers in an
event loop run them in an executor.
"""

import contextlib
import errno
import grp
import os
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.tls import TLSConfig

from assay.cluster import journal, owner
from assay.cluster.docker.layer import command_environment
from assay.cluster.docker.ssh_transport import SshAdapter, describe_ssh_remedy, require_ssh
from assay.cluster.docker.tools import MACHINE_LABEL
from assay.cluster.docker_endpoint import (
    CA,
    CERTIFICATE,
    KEY,
    LOCAL_SOCKET,
    Endpoint,
    EndpointError,
    Tls,
    resolve_endpoint,
)
from assay.cluster.journal import EngineRecord, UndoJournal, Unpause
from assay.cluster.node import NodeError
from assay.cluster.ssh.command_stream import StreamCommand

LABEL = "assay"
RUN_LABEL = "assay.run"
OWNER_LABEL = "assay.owner"

CALL_TIMEOUT = 60
"""Maximum seconds of one call to the engine. On a busy machine the removal of a container takes several seconds."""

VERSION_ERROR = "Error while fetching server API version: "
"""The SDK begins with this text if an engine does not answer."""

CHUNK_BYTES = 1 << 16
"""Maximum bytes of an answer that are read at once."""
PROBE_TIMEOUT = 5
"""Maximum seconds of an attempt to reach an engine that a journal names."""

CAPABILITIES = ("NET_ADMIN", "NET_RAW")
"""Rights of a node in addition to the default ones, for packet rules and shaping. Only Docker gives NET_RAW itself."""

FREEZE_REMEDY = "a rootless engine needs control groups of version 2; or use stop"

DOCTOR_REMEDY = "`assay doctor` says what is missing"
REMEDY = "start one, as root: `dockerd`, of the package docker.io; `assay doctor` says more"


FORBIDDEN = "this user may not use its socket"
"""Begin of the remedy if the socket is closed to this process's user."""


class DockerEngineError(Exception):
    """No engine answers, or it rejected the call. The message has the engine's message and the remedy."""


class _ApiClient(docker.APIClient):
    """Client whose connections obey the environment as the docker command's do.

    ``REQUESTS_CA_BUNDLE`` would replace the engine's own certificates, and a proxy would get calls to this machine.
    """

    def __init__(self, ssh: SshAdapter | None, **options: Any) -> None:
        self._ssh = ssh
        super().__init__(**options)

    def get_adapter(self, url: Any) -> Any:
        return super().get_adapter(url) if self._ssh is None else self._ssh

    def _retrieve_server_version(self) -> str:
        """Returns the version of the API, from the answer to a ping. Podman takes seconds for ``docker version``."""
        try:
            response = self.get(f"{self.base_url}/_ping", timeout=self.timeout)
        except requests.RequestException as error:
            raise DockerException(f"{VERSION_ERROR}{error}") from error
        if not response.ok:
            raise DockerException(f"{VERSION_ERROR}{response.text}")
        if version := response.headers.get("Api-Version"):
            return version
        return str(super()._retrieve_server_version())  # type: ignore[misc]

    def send(self, request: Any, **options: Any) -> Any:
        """Sends a request. An answer in chunks that is read as a whole must arrive within the time limit.

        requests limits only each silence, so an engine that trickles its chunks could take for ever.
        """
        limit = options.get("timeout")
        if options.get("stream") or not isinstance(limit, int | float):
            return super().send(request, **options)
        deadline = time.monotonic() + limit
        response = super().send(request, **options | {"stream": True})
        body = bytearray()
        for chunk in response.iter_content(CHUNK_BYTES):
            body += chunk
            if time.monotonic() > deadline:
                response.close()
                raise requests.ReadTimeout(f"its answer is not complete after {limit:g} s")
        response._content = bytes(body)
        return response

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        host = urlsplit(str(url)).hostname or ""
        if host in ("localhost", "::1") or host.startswith("127."):
            proxies = {"no_proxy": host} | (proxies or {})
        chosen = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, chosen, cert)

    def close(self) -> None:
        super().close()
        if self._ssh is not None:
            self._ssh.close()


class _Client(docker.DockerClient):
    def __init__(self, ssh: SshAdapter | None = None, **options: Any) -> None:
        self.api = _ApiClient(ssh, **options)


@contextlib.contextmanager
def open_docker(timeout: float = CALL_TIMEOUT, endpoint: Endpoint | None = None) -> Iterator[docker.DockerClient]:
    """Yields a client of the engine, and closes it. ``endpoint``: the engine's; default: that of this process."""
    try:
        endpoint = endpoint or resolve_endpoint()
    except EndpointError as error:
        raise DockerEngineError(f"no Docker engine answers: {error}") from error
    try:
        client = _connect(endpoint, timeout)
    except (DockerException, OSError) as error:
        reason = _find_reason(error)
        raise DockerEngineError(
            f"no Docker engine answers: {endpoint}: {reason}; {_describe_remedy(endpoint, reason)}"
        ) from error
    try:
        yield client
    except (DockerException, requests.RequestException) as error:
        remedy = _find_remedy(error) if isinstance(error, APIError) else _describe_remedy(endpoint)
        essence = (isinstance(error, APIError) and error.explanation) or error  # the SDK adds the address of the call
        raise DockerEngineError(f"the Docker engine rejected the call or broke off: {essence}; {remedy}") from error
    finally:
        client.close()


def _connect(endpoint: Endpoint, timeout: float) -> docker.DockerClient:
    """Returns a client. Raises ``OSError`` or ``DockerException`` if no engine answers."""
    url, seconds = endpoint.host, int(timeout)
    if endpoint.scheme == "ssh":
        require_ssh(endpoint, timeout)
        return _Client(SshAdapter(endpoint, timeout), base_url=LOCAL_SOCKET, timeout=seconds)
    _require_listener(endpoint, timeout)
    tls = False if endpoint.tls is None else _make_tls(endpoint.tls)
    return _Client(base_url=url, timeout=seconds, tls=tls)


def _make_tls(tls: Tls) -> TLSConfig:
    certificate, key = tls.find(CERTIFICATE), tls.find(KEY)
    pair = (certificate, key) if certificate and key else None
    return TLSConfig(client_cert=pair, ca_cert=tls.find(CA), verify=tls.verify)


def _find_reason(error: Exception) -> str:
    """Returns the essence of an error. The SDK puts the names of its classes around it."""
    text = " ".join(str(error).split()).removeprefix(VERSION_ERROR)
    inner = re.search(r"Caused by .*?\d+, '([^']+)'", text)
    return inner[1] if inner else text


def _require_listener(endpoint: Endpoint, timeout: float) -> None:
    """Raises ``OSError`` if no process listens there. The SDK would leak its socket, or say it at great length."""
    if endpoint.scheme == "unix":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(endpoint.path)
    else:
        url = urlsplit(endpoint.host)
        socket.create_connection((url.hostname, url.port), timeout).close()


def _describe_remedy(endpoint: Endpoint, reason: str = "") -> str:
    """Returns the remedy if no engine answers there."""
    if "HTTP request to an HTTPS server" in reason:
        return "set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the folder of its certificates"
    if endpoint.tls is not None and "WRONG_VERSION_NUMBER" in reason:
        return "it speaks no TLS: unset DOCKER_TLS_VERIFY and DOCKER_TLS, or take a context without TLS"
    if endpoint.tls is not None and "SSL" in reason:
        return f"compare its certificate with {CA}, {CERTIFICATE} and {KEY} in {endpoint.tls.folder}"
    if endpoint.scheme == "unix" and os.strerror(errno.EACCES) in reason:
        return _describe_access(endpoint.path)
    if endpoint.is_default:
        return REMEDY
    if endpoint.scheme == "ssh" and (remedy := describe_ssh_remedy(endpoint, reason)):
        return remedy
    if endpoint.context:
        return "start the engine of this context, or choose another: `docker context ls`, then DOCKER_CONTEXT=NAME"
    return "start the engine there, or correct or unset DOCKER_HOST"


def _describe_access(path: str) -> str:
    """Returns the remedy if this user may not use a socket. Its group may use it, unless that is root's own."""
    try:
        group = grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        group = ""
    if group in ("", "root"):
        return f"{FORBIDDEN}: run as its owner or root, or name an engine of your own in DOCKER_HOST"
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = "USER"
    return (
        f"{FORBIDDEN}, but the group {group} may: as root, `usermod -aG {group} {user}`, then log in again. Members "
        "of this group can become root. A rootless engine gives no such power"
    )


def identify_engine(timeout: float = CALL_TIMEOUT, endpoint: Endpoint | None = None) -> EngineRecord:
    """Returns what the journal must know of an engine. Raises :class:`DockerEngineError`."""
    with open_docker(timeout, endpoint) as client:
        info = client.info()
    folder = str(info.get("DockerRootDir") or "")
    return EngineRecord(find_engine_id(info), folder, endpoint or resolve_endpoint())


def name_engine(version: Mapping[str, Any]) -> str:
    """Returns ``docker`` or ``podman``, by the answer to ``docker version``."""
    names = [str(part.get("Name")) for part in version.get("Components") or ()]
    return "podman" if "Podman Engine" in names else "docker"


def is_podman(info: Mapping[str, Any]) -> bool:
    """Returns whether the answer to ``docker info`` comes from Podman, which adds fields of its own."""
    return "BuildahVersion" in info


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Returns whether the engine runs as an ordinary user, by its answer to ``docker info``."""
    return bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or ())


def find_engine_id(info: Mapping[str, Any]) -> str:
    """Returns the engine's id. Podman draws another one for each answer, so its machine's name is taken instead."""
    if is_podman(info):
        return f"podman on {info.get('Name') or 'a machine without a name'}"
    return str(info.get("ID") or "")


def reach_engine(engine: EngineRecord, timeout: float = PROBE_TIMEOUT) -> Endpoint:
    """Returns an endpoint where this very engine answers: the recorded one, else that of this process.

    Raises :class:`DockerEngineError` if neither does.
    """
    candidates, reasons = [engine.endpoint], []
    with contextlib.suppress(EndpointError):
        if not engine.endpoint.leads_to(chosen := resolve_endpoint()):
            candidates.append(chosen)
    for endpoint in candidates:
        try:
            found = identify_engine(timeout, endpoint)
        except DockerEngineError as error:
            reasons.append(str(error).partition("; ")[0])
            continue
        if engine.is_same_as(found):
            return endpoint
        reasons.append(f"at {endpoint} answers another engine, {found}")
    raise DockerEngineError("; ".join(reasons))


def make_exec_command(container: str, environment: Mapping[str, str], argv: Sequence[str]) -> StreamCommand:
    """Returns the command that runs a program as root in a container, with its standard streams connected."""
    variables = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    return StreamCommand(
        ("docker", "exec", "-i", "-u", "0", *variables, container, *argv),
        command_environment(),
        "is the container running, and not paused?",
        terminal=("docker", "exec", "-it", "-u", "0", *variables, container),
    )


def make_stream_command(container: str) -> StreamCommand:
    """Returns the command that starts an sshd in a container and connects it with its own input and output."""
    sshd = 'exec "$(command -v sshd)" -i -e -f /etc/ssh/assay_sshd_config'
    command = make_exec_command(container, {}, ["/bin/sh", "-c", sshd])
    return replace(command, print_file=("docker", "exec", "-u", "0", container, "cat", "--"))


def _find_remedy(error: APIError) -> str:
    """Returns the remedy for an error of a running engine."""
    for pattern, kind, removal in (
        (r'The container name "/?([^"]+)" is already in use', "container", "docker rm -f"),
        (r"network with name (\S+) already exists", "network", "docker network rm"),
    ):
        if (taken := re.search(pattern, str(error))) is not None:
            return (
                f"a {kind} {taken[1]} exists already: `assay heal` removes what a killed session has left, "
                f"`{removal} {taken[1]}` removes any other"
            )
    return DOCTOR_REMEDY


def is_answering(timeout: float = 3) -> bool:
    """Returns whether an engine answers."""
    try:
        with open_docker(timeout) as client:
            return bool(client.ping())
    except DockerEngineError:
        return False


def is_listening(timeout: float = 3) -> bool:
    """Returns whether a process takes connections at the engine's endpoint. It need not answer."""
    try:
        endpoint = resolve_endpoint()
        if endpoint.scheme == "ssh":
            return False
        _require_listener(endpoint, timeout)
    except (EndpointError, OSError):
        return False
    return True


def run_labels(run_id: str, creator: owner.Owner, state: Path) -> dict[str, str]:
    """Returns the labels of a run's objects. ``state``: see :func:`assay.cluster.owner.find_host_label`."""
    machine = owner.find_host_label(state)
    return {LABEL: "run", RUN_LABEL: run_id, OWNER_LABEL: str(creator), MACHINE_LABEL: machine}


@dataclass(frozen=True)
class OwnedObject:
    """A container or a network that a run has created."""

    kind: str
    """``container`` or ``network``."""
    name: str
    run_id: str
    owner: str
    machine: str
    """The label of the owner's machine; empty if there is none."""
    running: bool


def list_owned(client: docker.DockerClient) -> list[OwnedObject]:
    """Returns all owned objects. Containers come first, because a network in use cannot be removed."""
    found = []
    for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True):
        running = container.status == "running"
        found.append(_to_owned("container", container.name or container.id or "", container.labels, running))
    for network in client.networks.list(filters={"label": OWNER_LABEL}):
        found.append(_to_owned("network", network.name or network.id or "", network.attrs.get("Labels") or {}, False))
    return found


def remove_container(client: docker.DockerClient, name: str) -> bool:
    """Removes a container, running or not, with its anonymous volumes. Returns False if it is already gone."""
    try:
        client.containers.get(name).remove(force=True, v=True)
    except NotFound:
        return False
    except APIError as error:
        if error.status_code == 409 and "already in progress" in str(error):
            return False
        raise
    return True


def remove_network(client: docker.DockerClient, name: str) -> bool:
    """Removes all networks of this name: older engines (Docker 20) allow several. Returns False if there is none."""
    removed = False
    for network in client.networks.list(names=[f"^{re.escape(name)}$"]):
        with contextlib.suppress(NotFound):
            client.networks.get(str(network.id)).remove()
            removed = True
    return removed


def remove_volume(client: docker.DockerClient, name: str) -> bool:
    """Removes a volume. Returns False if it is already gone."""
    try:
        client.volumes.get(name).remove(force=True)
    except NotFound:
        return False
    return True


def unpause(client: docker.DockerClient, name: str) -> bool:
    """Continues a frozen container. Returns False if it is gone or not frozen."""
    try:
        container = client.containers.get(name)
        if container.status != "paused":
            return False
        container.unpause()
    except NotFound:
        return False
    return True


def execute(client: docker.DockerClient, container: str, argv: list[str]) -> bool:
    """Runs an undo command in a container. Returns False if the container does not run: then the fault is gone, too."""
    try:
        target = client.containers.get(container)
        if target.status != "running":
            return False
        code, output = target.exec_run(argv)
    except NotFound:
        return False
    if code != 0:
        said = output.decode("utf-8", "replace") if isinstance(output, bytes) else ""
        raise DockerEngineError(f"{container}: `{' '.join(argv)[:120]}` exited {code}: {said[-400:]}")
    return True


def _to_owned(kind: str, name: str, labels: dict[str, str], running: bool) -> OwnedObject:
    run_id, creator, machine = labels.get(RUN_LABEL, "?"), labels.get(OWNER_LABEL, ""), labels.get(MACHINE_LABEL, "")
    return OwnedObject(kind, name, run_id, creator, machine, running)


def undo_action(client: docker.DockerClient, action: journal.Action) -> bool:
    """Undoes one action. Returns False if there was nothing left to undo."""
    match action:
        case journal.RemoveContainer(name):
            return remove_container(client, name)
        case journal.RemoveNetwork(name):
            return remove_network(client, name)
        case journal.RemoveVolume(name):
            return remove_volume(client, name)
        case journal.RunInContainer(container, argv):
            return execute(client, container, list(argv))
        case journal.RunOnHost(host):
            raise DockerEngineError(f"{host} is not the container of a node of this cluster")
        case journal.Unpause(container):
            return unpause(client, container)
        case journal.RemoveFile(path):
            existed = Path(path).exists()
            Path(path).unlink(missing_ok=True)
            return existed
        case journal.RemoveDisk(image):
            return _remove_earlier_disk(Path(image))


def _remove_earlier_disk(image: Path) -> bool:
    """Removes a disk that an earlier version made on this machine. Returns False if there is none."""
    if not image.exists():
        return False
    options = ["--noheadings", "--output=NAME", f"--associated={image}"]
    devices = subprocess.run(["losetup", *options], capture_output=True, text=True, check=False).stdout.split()
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=False)
    image.unlink()
    return True


class DockerFreezer:
    """Freezes the containers of one node. Satisfies :class:`assay.cluster.ssh.node.Freezer`.

    Raises :class:`NodeError`.
    """

    def __init__(self, journal: UndoJournal, containers: Sequence[str], node: str) -> None:
        self._journal = journal
        self._containers = containers
        self._node = node
        self._entries: list[int] = []

    def freeze(self) -> None:
        if not self._entries:
            self._entries = [self._journal.append(Unpause(container)) for container in self._containers]
        try:
            with open_docker() as client:
                for container in self._containers:
                    client.containers.get(container).pause()
        except DockerEngineError as error:
            raise self._error("frozen", error) from error

    def thaw(self) -> None:
        try:
            with open_docker() as client:
                for container in reversed(self._containers):
                    unpause(client, container)
        except DockerEngineError as error:
            raise self._error("thawed", error) from error
        entries, self._entries = self._entries, []
        for entry in entries:
            self._journal.mark_done(entry)

    def find_obstacle(self) -> str | None:
        try:
            self.freeze()
        except NodeError as error:
            return f"{error}; {FREEZE_REMEDY}"
        finally:
            self.thaw()
        return None

    def frozen(self) -> bool:
        try:
            with open_docker() as client:
                return all(client.containers.get(container).status == "paused" for container in self._containers)
        except DockerEngineError as error:
            raise self._error("asked whether it is frozen", error) from error

    def _error(self, action: str, error: DockerEngineError) -> NodeError:
        reason = " (the container is gone)" if isinstance(error.__cause__, NotFound) else ""
        return NodeError(f"{self._node} could not be {action}{reason}: {error}")
