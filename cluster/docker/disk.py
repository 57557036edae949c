"""Disks of a run's nodes, made on the engine's machine by a container with the rights for it.

The *disk container* makes the images of the disks in a volume of its own, attaches them to loop devices, and mounts
them in the nodes' containers (``cluster/docker/power.py``). So the nodes need no rights, and the harness needs no root
and may be on another machine than the engine. The power of a disk is cut without a stop of its node, so the node keeps
its network and packet rules. Only runs whose faults need disks get a disk container.

Nothing but containers must be removed: the volume goes with the disk container, a mount with its node, and a loop
device with its mount.

The disk container is not privileged, because that needs every capability, and an engine inside a container lacks some.
Podman is an exception: it ignores ``device_cgroup_rules`` of Docker's interface (Podman 4.3), and gives a privileged
container only the capabilities that the engine has.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker

from assay.cluster.docker import power
from assay.cluster.docker.engine import DockerEngineError, is_podman, is_rootless, open_docker
from assay.cluster.node import NodeError
from assay.cluster.system import SupportsDataFolder, System

IMAGES = "/assay-disks"
"""Folder of the images in the disk container."""
MACHINE_NAMESPACE = "host"
"""Denotes a namespace of the engine's machine. The disk container sees all its processes, and its root is root."""


ROOTLESS = "the engine is rootless, and only root can make loop devices"
ROOTLESS_REMEDY = "choose an engine that runs as root, or the simulation (--cluster=sim)"
"""Reason and remedy if the engine can make no disks, whatever its kernel can do."""


def explain_missing_folder(system: System) -> str | None:
    """Returns why the servers of this system can have no disks of their own; None if the system names its folder."""
    if isinstance(system, SupportsDataFolder):
        return None
    return f"{system.name} does not say where its data are: define its method data_folder"


class DiskError(Exception):
    """The engine can make no disks. The message has the reason and the remedy."""


def start_disk_container(name: str, image: str, labels: Mapping[str, str]) -> None:
    """Starts a disk container. Its removal must be in the journal before.

    Raises :class:`DiskError`, or :class:`DockerEngineError` if the engine rejects the container.
    """
    with open_docker() as client:
        info = client.info()
        if is_rootless(info):
            raise DiskError(f"{ROOTLESS}; {ROOTLESS_REMEDY}")
        container = client.api.create_container(
            image,
            entrypoint=["sleep", "infinity"],
            name=name,
            labels=dict(labels),
            volumes=[IMAGES],
            host_config=client.api.create_host_config(
                # SYS_ADMIN mounts. SYS_PTRACE and SYS_CHROOT enter a node's namespace, MKNOD makes files of devices.
                cap_add=["SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT", "MKNOD"],
                device_cgroup_rules=[f"b {power.LOOP_MAJOR}:* rwm", "c {}:{} rwm".format(*power.LOOP_CONTROL)],
                privileged=is_podman(info),
                network_mode="none",
                pid_mode=MACHINE_NAMESPACE,
                security_opt=["apparmor=unconfined"],  # AppArmor's profile for containers forbids every mount
                userns_mode=MACHINE_NAMESPACE,
            ),
        )
        client.api.start(container["Id"])


@dataclass(frozen=True)
class DockerDisk:
    """The disk of one node. Satisfies :class:`assay.cluster.ssh.node.NodeDisk`.

    - ``maker``: name of the disk container
    - ``container``: name of the node's container; None if the disk is mounted in the disk container itself
    - ``image``: name of the image
    - ``folder``: where the node mounts the disk
    """

    maker: str
    container: str | None
    image: str
    folder: str

    def try_out(self) -> None:
        self._run("trial")

    def mount(self) -> None:
        self._run("mount")

    def lose_power(self) -> Mapping[str, int]:
        lost: dict[str, int] = self._run("lose")
        return lost

    def _run(self, what: str) -> Any:
        """Runs a command of ``power.py`` in the disk container. Returns what it prints. Raises :class:`NodeError`."""
        try:
            with open_docker() as client:
                pid = power.OWN_NAMESPACE if self.container is None else _find_process(client, self.container)
                command = power.argv(what, pid, f"{IMAGES}/{self.image}", self.folder)
                result: Any = client.containers.get(self.maker).exec_run(command, demux=True)
        except DockerEngineError as error:
            raise NodeError(f"{self.maker}: {error}") from error
        code, (output, errors) = result
        if code != 0:
            said = (errors or output or b"").decode("utf-8", "replace").strip()
            raise NodeError(said.rpartition("\n")[2] or f"`{what}` exited {code} in {self.maker}")
        return json.loads(output)


def _find_process(client: docker.DockerClient, container: str) -> int:
    """Returns the first process of a container, by its number on the engine's machine."""
    pid = int(client.containers.get(container).attrs["State"]["Pid"])
    if pid == 0:
        raise NodeError(f"the container {container} does not run")
    return pid
