"""The container of a user's image that runs as it is, beside the node's own container.

Images without a shell run so, and all images of a system that describes its containers, such as a Compose file. Such a
node consists of two containers:

- The *holder* runs the node image. It owns the network and the process namespace, and has the tools.
- The *target* runs the user's image, in both namespaces of the holder. Its entrypoint is ``hold`` (``hold.c``), a
  static program that is copied into the container. ``hold`` starts the system's processes on request of the holder
  (:mod:`assay.cluster.ssh.target`), and outlives them.

So the image keeps its digest, user, environment, working folder and files. The processes are in the target's mount
namespace and control group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import docker
from docker.errors import NotFound
from docker.types import Mount

from assay.cluster.containers import Container
from assay.cluster.docker import code_archive, layer, preload
from assay.cluster.docker.layer import ImageError, Progress
from assay.cluster.docker.preload import PreloadError, StaticProgram
from assay.cluster.ssh import target

HOLD = StaticProgram("hold")
HOLD_PATH = "/.assay-hold"
"""Path of the program in the target."""
CAPABILITIES = ("SYS_PTRACE", "SYS_CHROOT")
"""Rights of a holder in addition to those of a node: to enter the folders of processes of other users."""
SUFFIX = "-target"
"""The target's name is the holder's with this suffix."""
FORMER = "-former"
"""Suffix of a target that is being replaced. Its removal must be in the journal before."""


def compile_hold(image: str, progress: Progress) -> bytes:
    """Returns ``hold`` for the processors of an image. Raises :class:`ImageError`.

    This machine's compiler may lack the static C library. Then a container compiles it.
    """
    architecture = layer.image_architecture(image)
    try:
        if preload.compiles_here(architecture):
            try:
                return preload.compile_here(HOLD)
            except PreloadError:
                pass
        return preload.compile_in_container(HOLD, architecture, progress)
    except PreloadError as error:
        raise ImageError(f"the program that starts processes in it could not be compiled: {error}") from error


def start_target(
    client: docker.DockerClient,
    holder: str,
    image: str,
    user: str | None,
    labels: Mapping[str, str],
    hold: bytes,
    given: Container,
    volumes: Mapping[str, str],
    archives: Sequence[bytes],
) -> None:
    """Starts the target of a running holder. Its removal must be in the journal before.

    - ``holder``: name of the holder's container
    - ``hold``: the result of :func:`compile_hold`
    - ``given``: the container's description by the system
    - ``volumes``: maps names of volumes that containers share to their names on the engine
    - ``archives``: further files
    """
    container = client.api.create_container(
        image,
        name=f"{holder}{SUFFIX}",
        user=user,
        entrypoint=[HOLD_PATH, target.SOCKET],
        environment=dict(given.environment),
        working_dir=given.folder,
        healthcheck={"test": ["NONE"]},
        labels=dict(labels),
        host_config=client.api.create_host_config(
            **given.options,
            network_mode=f"container:{holder}",
            pid_mode=f"container:{holder}",
            mounts=make_mounts(given, volumes),
        ),
    )
    for path, source in sorted(given.copied.items()):
        client.api.put_archive(container["Id"], "/", code_archive.archive_path(path, source))
    for data in (*archives, code_archive.archive_files({HOLD_PATH: (0o755, hold)})):
        client.api.put_archive(container["Id"], "/", data)
    client.api.start(container["Id"])


def make_mounts(given: Container, volumes: Mapping[str, str]) -> list[Mount]:
    """Returns the mounts of a container's volumes. ``volumes``: as in :func:`start_target`."""
    return [Mount(path, volumes.get(name), type="volume") for path, name in sorted(given.volumes.items())]


def replace_target(
    client: docker.DockerClient, name: str, start: Callable[[Mapping[str, str]], None], keep: Callable[[str], None]
) -> None:
    """Replaces a target by a new one that has its volumes. If that fails, the old target runs again.

    - ``name``: of the target
    - ``start``: starts the new target. Its argument maps the folders of the volumes to their names
    - ``keep``: notes a volume in the journal, because it no longer goes with its container
    """
    old = client.containers.get(name)
    volumes = {mount["Destination"]: mount["Name"] for mount in old.attrs["Mounts"] if mount["Type"] == "volume"}
    for volume in volumes.values():
        keep(volume)
    old.kill()
    old.rename(f"{name}{FORMER}")
    try:
        start(volumes)
    except BaseException:
        with suppress(NotFound):
            client.containers.get(name).remove(force=True)
        old.rename(name)
        old.start()
        raise
    old.remove(force=True)


def find_shared_volumes(containers: Iterable[Container]) -> list[str]:
    """Returns the names of volumes that several containers use. All other volumes go with their container."""
    uses = Counter(name for container in containers for name in set(container.volumes.values()) if name)
    return sorted(name for name, count in uses.items() if count > 1)
