"""Containers that a system describes itself, so that each node runs an image unchanged, as a Compose file demands.

A node of such a system consists of two containers (:mod:`assay.cluster.docker.target_container`). The *target* runs
the image as described here. The *holder* owns the network, and has the tools of the faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class ImageBuild:
    """How an image is built: the ``build`` of a Compose file.

    - ``dockerfile``: its path, relative to ``context``
    - ``arguments``: names and values of build arguments
    - ``target``: a stage of the Dockerfile; None: the last
    """

    context: Path
    dockerfile: str = "Dockerfile"
    arguments: Sequence[tuple[str, str]] = ()
    target: str | None = None


@dataclass(frozen=True)
class Container:
    """A container of a node. A setting that is None is the image's own.

    - ``image``: name of the image; ``build``: how it is made. Exactly one of them is given
    - ``entrypoint``, ``command``: a given entrypoint discards the image's command, as Docker does
    - ``names``: further names by which the other nodes find the node
    - ``addresses``: further names that the node knows, and their addresses
    - ``volumes``: maps folders of the container to names of volumes; an empty name is a volume of this container alone
    - ``copied``: maps paths in the container to files and folders of this machine, or contents, which are copied there
    - ``options``: further options of the target, named as in ``create_host_config`` of the Docker SDK
    - ``kernel_settings``: settings of the network (``sysctls``), which belong to the holder
    - ``health_command``: a program of the image that exits with code 0 if the node is healthy; empty: no check
    - ``exposed``: TCP ports at which the image says that it serves
    - ``stop_signal``: the signal that asks the main process to end, by name or number
    - ``restarted``: whether the main process is started again if it ends before the node is ready, or fails in a job
    """

    image: str | None = None
    build: ImageBuild | None = None
    entrypoint: Sequence[str] | None = None
    command: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    folder: str | None = None
    host_name: str | None = None
    names: Sequence[str] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    copied: Mapping[str, Path | bytes] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    kernel_settings: Mapping[str, str] = field(default_factory=dict)
    health_command: Sequence[str] | None = None
    exposed: Sequence[int] = ()
    stop_signal: str | None = None
    restarted: bool = False


@dataclass(frozen=True)
class Job:
    """A container whose process must end with code 0 before further roles start, such as a migration.

    No fault strikes it, because it ends before the first fault.

    - ``after``: the role after which it starts, as soon as that role is ready; None: before all roles
    """

    name: str
    container: Container
    after: str | None = None


@runtime_checkable
class SupportsUpgrade(Protocol):
    """A system that names a newer image of a role. Its nodes can be upgraded while the system runs."""

    def upgraded_image(self, role: str) -> str | None:
        """Returns the name of the image; None if the role is not upgraded."""


@runtime_checkable
class SupportsContainers(Protocol):
    """A system that describes the container of each node."""

    @property
    def name(self) -> str: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def node_counts(self) -> Mapping[str, int]:
        """Number of nodes of each role."""

    def container(self, role: str, index: int) -> Container:
        """Returns the container of the node with this index, from 1, within the role."""


@runtime_checkable
class SupportsJobs(Protocol):
    """A system that has jobs."""

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs, in the order in which they run."""


@runtime_checkable
class SupportsJobContainers(Protocol):
    """A cluster that runs the jobs of a system."""

    async def run_job(self, job: Job) -> None:
        """Runs a job until its process has ended. Raises ``DeploymentError`` with its last lines if it failed."""


def parse_health_command(test: Sequence[str]) -> list[str] | None:
    """Returns the command of a health check as Docker writes it: a kind and its words. An empty command is no check.

    Returns None for an empty test, which means the image's own. Raises ``ValueError`` for an unknown kind.
    """
    if not test:
        return None
    kind, *words = map(str, test)
    if kind == "NONE":
        return []
    if kind == "CMD-SHELL" and len(words) == 1:
        return ["/bin/sh", "-c", *words]
    if kind == "CMD" and words:
        return words
    raise ValueError(f"test {[*test]!r} begins with neither CMD nor CMD-SHELL")


def parse_stop_signal(given: str) -> Signals:
    """Returns a signal by its name, with or without SIG, or its number. Raises ``ValueError`` if there is none."""
    try:
        return Signals(int(given)) if given.isdecimal() else Signals[f"SIG{given.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        raise ValueError(f"{given} is not a signal that a run can send") from None
