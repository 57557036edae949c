"""Containers that a system describes itself, so that each node runs an image unchanged, as a Compose file demands.

A node of such a system consists of two containers (:mod:`assay.cluster.docker.target_container`). The *target* runs
the image as described here. The *holder* owns the network, and has the tools of the faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
    - ``copied``: maps paths in the container to files and folders of this machine, which are copied there
    - ``options``: further options of the target, named as in ``create_host_config`` of the Docker SDK
    - ``kernel_settings``: settings of the network (``sysctls``), which belong to the holder
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
    copied: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    kernel_settings: Mapping[str, str] = field(default_factory=dict)


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
