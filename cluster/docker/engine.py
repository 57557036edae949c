"""The Docker engine: access, the labels of a run's objects, and their removal.

Every object that a run creates has three labels: the tool, the run, and the owner. Objects without these labels are
never touched. The functions block; callers in an event loop run them in an executor.
"""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from assay.cluster import journal, owner
from assay.cluster.docker import disk
from assay.cluster.docker.layer import command_environment
from assay.cluster.journal import UndoJournal, Unpause
from assay.cluster.node import NodeError
from assay.cluster.ssh.command_stream import StreamCommand

LABEL = "assay"
RUN_LABEL = "assay.run"
OWNER_LABEL = "assay.owner"

CALL_TIMEOUT = 60
"""Maximum seconds of one call to the engine. On a busy machine the removal of a container takes several seconds."""

REMEDY = "start one, as root: `dockerd`, of the package docker.io; `assay doctor` says more"


class DockerEngineError(Exception):
    """No engine answers, or it rejected the call. The message has the engine's message and the remedy."""


@contextlib.contextmanager
def open_docker(timeout: float = CALL_TIMEOUT) -> Iterator[docker.DockerClient]:
    """Yields a client of the engine, and closes it. The engine is that of ``DOCKER_HOST``, else of the local socket."""
    try:
        _require_socket(timeout)
        client = docker.from_env(timeout=int(timeout))
    except (DockerException, OSError) as error:
        raise DockerEngineError(f"no Docker engine answers: {error}; {REMEDY}") from error
    try:
        yield client
    except (DockerException, requests.RequestException) as error:
        remedy = _find_remedy(error) if isinstance(error, APIError) else REMEDY
        raise DockerEngineError(f"the Docker engine rejected the call or broke off: {error}; {remedy}") from error
    finally:
        client.close()


def make_stream_command(container: str) -> StreamCommand:
    """Returns the command that starts an sshd in a container and connects it with its own input and output."""
    sshd = 'exec "$(command -v sshd)" -i -e -f /etc/ssh/assay_sshd_config'
    return StreamCommand(
        ("docker", "exec", "-i", "-u", "0", container, "/bin/sh", "-c", sshd),
        command_environment(),
        "is the container running, and not paused?",
    )


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
    return "`assay doctor` says more"


def _require_socket(timeout: float) -> None:
    """Raises ``OSError`` if no process listens at a local socket. The SDK would leak its socket in that case."""
    url = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(url.removeprefix("unix://"))


def is_answering(timeout: float = 3) -> bool:
    """Returns whether an engine answers."""
    try:
        with open_docker(timeout) as client:
            return bool(client.ping())
    except DockerEngineError:
        return False


def run_labels(run_id: str, creator: owner.Owner) -> dict[str, str]:
    return {LABEL: "run", RUN_LABEL: run_id, OWNER_LABEL: str(creator)}


@dataclass(frozen=True)
class OwnedObject:
    """A container or a network that a run has created."""

    kind: str
    """``container`` or ``network``."""
    name: str
    run_id: str
    owner: str
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


def _to_owned(kind: str, name: str, found: dict[str, str], running: bool) -> OwnedObject:
    return OwnedObject(kind, name, found.get(RUN_LABEL, "?"), found.get(OWNER_LABEL, ""), running)


def undo_action(client: docker.DockerClient, action: journal.Action) -> bool:
    """Undoes one action. Returns False if there was nothing left to undo."""
    match action:
        case journal.RemoveContainer(name):
            return remove_container(client, name)
        case journal.RemoveNetwork(name):
            return remove_network(client, name)
        case journal.RunInContainer(container, argv):
            return execute(client, container, list(argv))
        case journal.RunOnHost(host):
            raise DockerEngineError(f"{host} is not a container")
        case journal.Unpause(container):
            return unpause(client, container)
        case journal.RemoveFile(path):
            existed = Path(path).exists()
            Path(path).unlink(missing_ok=True)
            return existed
        case journal.RemoveDisk(image):
            return disk.remove_disk(Path(image))


class DockerFreezer:
    """Freezes one container. Satisfies :class:`assay.cluster.ssh.node.Freezer`. Raises :class:`NodeError`."""

    def __init__(self, journal: UndoJournal, container: str, node: str) -> None:
        self._journal = journal
        self._container = container
        self._node = node
        self._entry: int | None = None

    def freeze(self) -> None:
        if self._entry is None:
            self._entry = self._journal.append(Unpause(self._container))
        try:
            with open_docker() as client:
                client.containers.get(self._container).pause()
        except DockerEngineError as error:
            raise self._error("frozen", error) from error

    def thaw(self) -> None:
        try:
            with open_docker() as client:
                unpause(client, self._container)
        except DockerEngineError as error:
            raise self._error("thawed", error) from error
        entry, self._entry = self._entry, None
        if entry is not None:
            self._journal.mark_done(entry)

    def frozen(self) -> bool:
        try:
            with open_docker() as client:
                return client.containers.get(self._container).status == "paused"
        except DockerEngineError as error:
            raise self._error("asked whether it is frozen", error) from error

    def _error(self, action: str, error: DockerEngineError) -> NodeError:
        reason = " (the container is gone)" if isinstance(error.__cause__, NotFound) else ""
        return NodeError(f"{self._node} could not be {action}{reason}: {error}")
