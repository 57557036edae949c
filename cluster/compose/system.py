"""The system that a Compose file describes: each service is a role, and each replica of it a node.

A test names the services that its clients use, and their ports::

    from pathlib import Path

    from assay import Compose

    SHOP = Compose(Path(__file__).parent / "docker-compose.yml", roles={"etcd": 2379})

Images run unchanged, with the entrypoint, command, environment, user, volumes and files that the file says. The run has
a network and volumes of its own. It publishes no port. It follows a restart policy until a node is ready and not after
that, because a restart would undo a kill.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from assay.cluster.compose.project import ComposeError, Project, Service, read_project
from assay.cluster.containers import Container, Job
from assay.cluster.node import Cluster, Node, SupportsImageCommands, get_dial
from assay.cluster.system import DeploymentError, System

REPLICA: Final = re.compile(r"(?P<role>.*[^-_\d])[-_]?\d+")
"""Name of a service that is one of several of a role: etcd1, etcd-1 and etcd_1 belong to the role etcd."""
HEALTH_SECONDS: Final = 30.0
"""Maximum seconds of one health check."""
PORT_SECONDS: Final = 5.0
"""Seconds after which a healthy node is ready although it serves at no port of its image.

Images of databases start a server without a network while they make their data. Their usual checks, such as that of
PostgreSQL, succeed meanwhile. Compose checks seldom enough to miss that. A worker may serve at no port at all.
"""


class Compose(System):
    """A system under test of the services of a Compose file.

    - ``file``: the file. Its override file is read, too, if Compose reads it
    - ``roles``: maps services that clients use to the port where they serve. A name may also stand for several services
      that have it and a number, such as etcd1 and etcd2. All other services are roles without clients
    - ``profiles``: profiles whose services are started, too
    - ``data``: maps roles to the folder of their data, for faults of disks and files. The default is the first volume
    - ``files``: maps roles to patterns of append-only files below that folder, for truncation and corruption
    - ``upgrade``: maps roles to the image that the fault ``upgrade`` gives their nodes, one after the other
    - ``jobs``: services that end, such as a migration. A service is one without being named here if another service
      waits for its end (``service_completed_successfully``). A job is no node

    The file is read when the first attribute is used. Then every method raises
    :class:`~assay.cluster.compose.project.ComposeError` if the file cannot be carried out.
    """

    def __init__(
        self,
        file: str | Path,
        roles: Mapping[str, int],
        *,
        profiles: Sequence[str] = (),
        data: Mapping[str, str] | None = None,
        files: Mapping[str, Sequence[str]] | None = None,
        upgrade: Mapping[str, str] | None = None,
        jobs: Sequence[str] = (),
    ) -> None:
        self._file = Path(file)
        self._ports = dict(roles)
        self._profiles = tuple(profiles)
        self._data = dict(data or {})
        self._upgrades = dict(upgrade or {})
        self._data_files = {role: tuple(patterns) for role, patterns in (files or {}).items()}
        self._job_names = tuple(jobs)
        self._healthy_since: dict[str, float] = {}
        """By name of a node, the loop's time of its first successful health check since the last one that failed."""

    @property
    def name(self) -> str:
        """The name of the file's folder, as in Compose."""
        return self._file.resolve().parent.name

    @cached_property
    def _project(self) -> Project:
        return read_project(self._file, self._profiles)

    @cached_property
    def _members(self) -> dict[str, list[Service]]:
        """The replicas of each role, in the order in which roles start: a replicated service is there several times."""
        services = self._project.services
        members: dict[str, list[Service]] = {}
        for name, service in services.items():
            if self._is_job(service):
                continue
            found = REPLICA.fullmatch(name)
            role = name
            if name not in self._ports and found is not None and found["role"] in self._ports:
                role = found["role"]
            members.setdefault(role, []).extend([service] * service.count)
        self._require_services("jobs", self._job_names, services)
        options: dict[str, Mapping[str, object]] = {
            "roles": self._ports,
            "data": self._data,
            "files": self._data_files,
            "upgrade": self._upgrades,
        }
        for kind, named in options.items():
            if ending := sorted(name for name in named if name in services and self._is_job(services[name])):
                raise ComposeError(
                    f"{self._file}: {', '.join(ending)} ends before the run, because it is a job, so `{kind}` cannot "
                    "name it"
                )
            self._require_services(kind, named, members)
        return members

    def _require_services(self, kind: str, named: Iterable[str], known: Iterable[str]) -> None:
        """Raises :class:`ComposeError` for names in an argument that the file does not have."""
        if unknown := sorted(set(named) - set(known)):
            raise ComposeError(
                f"{self._file} has no service {', '.join(unknown)}, which `{kind}` names; its services are "
                f"{', '.join(self._project.services)}"
            )

    def _is_job(self, service: Service) -> bool:
        return service.ends or service.name in self._job_names

    @property
    def jobs(self) -> Sequence[Job]:
        """The services that end. Each starts as soon as the roles are ready on which it depends, through others too."""
        starts = list(self._members)
        own = {service.name: starts.index(role) for role, services in self._members.items() for service in services}
        last: dict[str, int] = {}
        """By service, the place of the last role on which it depends, or to which it belongs; -1 if there is none."""
        jobs = []
        for name, service in self._project.services.items():  # each after those on which it depends
            needed = [last[one.service] for one in service.depends_on if one.service in last]
            last[name] = max([own.get(name, -1), *needed])
            if self._is_job(service):
                jobs.append(Job(name, service.container, starts[last[name]] if last[name] >= 0 else None))
        return jobs

    @property
    def roles(self) -> Sequence[str]:
        return list(self._members)

    @property
    def node_counts(self) -> Mapping[str, int]:
        return {role: len(services) for role, services in self._members.items()}

    @property
    def client_roles(self) -> Sequence[str]:
        return list(self._ports)

    def port(self, role: str) -> int:
        return self._ports.get(role, 0)

    def service(self, role: str, index: int) -> Service:
        return self._members[role][index - 1]

    def container(self, role: str, index: int) -> Container:
        service = self.service(role, index)
        if service.count == 1:
            return service.container
        return replace(service.container, host_name=None)  # replicas need different names

    def upgraded_image(self, role: str) -> str | None:
        return self._upgrades.get(role)

    def argv(self, node: Node) -> Sequence[str]:
        """Returns the service's own command; empty if it is the image's."""
        container = self.service(node.role, node.index).container
        return [*(container.entrypoint or ()), *(container.command or ())]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def data_folder(self, node: Node) -> str:
        """Returns the folder. Raises :class:`DeploymentError` if the service has none."""
        volumes = self.service(node.role, node.index).container.volumes
        if folder := self._data.get(node.role) or next(iter(volumes), None):
            return folder
        raise DeploymentError(
            f"{node.name} has no volume: say where its data are (`data={{{node.role!r}: ...}}`), or let faults of data "
            "strike another role (--nemesis-target=one:ROLE)"
        )

    def data_files(self, node: Node) -> Sequence[str]:
        return [f"{self.data_folder(node)}/{pattern}" for pattern in self._data_files.get(node.role, ())]

    async def durable_size(self, node: Node, path: str) -> int | None:
        """Returns None, because a Compose file does not say which part of a file is durable."""
        return None

    async def ready(self, node: Node) -> bool:
        """Returns whether the node passes its health check, and accepts connections if clients use it."""
        if isinstance(node, SupportsImageCommands) and node.health_command:
            done = await node.run_in_image(node.health_command, timeout=HEALTH_SECONDS)
            now = asyncio.get_running_loop().time()
            if done.status != 0:
                self._healthy_since.pop(node.name, None)
                return False
            is_new = now < self._healthy_since.setdefault(node.name, now) + PORT_SECONDS
            if is_new and node.exposed_ports and not await _accepts_any(node, node.exposed_ports):
                return False
        if (port := self._ports.get(node.role)) is not None:
            _, writer = await get_dial(node)(node.address, port)
            writer.close()
        return True


async def _accepts_any(node: Node, ports: Iterable[int]) -> bool:
    """Returns whether the node accepts connections at one of the ports."""
    for port in ports:
        try:
            _, writer = await get_dial(node)(node.address, port)
        except OSError:
            continue
        writer.close()
        return True
    return False
