"""The machine on which the Docker engine runs, and the abilities that its containers have shown.

The engine may be in a virtual machine, on another machine, or in namespaces of a user. Its memory, disk and kernel then
differ from those of this machine. The engine itself says how much memory it has. All else is tried in a container.

A container that does what a fault needs proves that ability for this engine, kernel and image. Proofs are stored in
the state folder, because each trial takes a second, and longer if the engine is elsewhere. Failures are not stored: a
user who repairs something expects another trial.
"""

import contextlib
import hashlib
import json
import os
import platform
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import ContainerError, DockerException

from assay.cluster import owner
from assay.cluster.docker.engine import (
    CALL_TIMEOUT,
    CAPABILITIES,
    DockerEngineError,
    find_engine_id,
    is_podman,
    is_rootless,
    open_docker,
    remove_container,
    run_labels,
)
from assay.cluster.docker_endpoint import Endpoint, resolve_endpoint
from assay.cluster.journal import state_folder

DOCTOR_RUN = "doctor"
"""Label of the containers that try something."""
FREE_DISK = "df -B1 --output=avail / | tail -n 1"
FOLDER = "engines"
"""Folder for the proofs, in the state folder."""


@dataclass(frozen=True)
class EngineMachine:
    """The machine of an engine, as the engine describes it.

    - ``root``: the folder with its images and containers
    - ``memory``: all memory of the machine in bytes; 0 if unknown
    - ``is_here``: whether it is this machine
    """

    id: str
    name: str
    kernel: str
    root: str
    memory: int
    cpus: int
    kind: str
    is_rootless: bool
    is_here: bool
    control_groups: str = ""
    """The version of the engine's control groups, ``1`` or ``2``; empty if unknown."""

    @property
    def lacks_control_groups(self) -> bool:
        """Whether containers can neither be frozen nor get limits, because only root may use version 1."""
        return self.is_rootless and self.control_groups == "1"

    def __str__(self) -> str:
        rootless = "rootless " if self.is_rootless else ""
        return f"{self.name}, {self.cpus} CPUs, kernel {self.kernel}, {rootless}{self.kind}"


def find_engine_machine(timeout: float = CALL_TIMEOUT) -> EngineMachine:
    """Returns the machine of this process's engine. Raises :class:`DockerEngineError` if no engine answers."""
    with open_docker(timeout) as client:
        return describe_machine(client.info(), resolve_endpoint())


def describe_machine(info: dict[str, Any], endpoint: Endpoint) -> EngineMachine:
    """Returns the machine of the engine that gave the answer ``info`` to ``docker info``."""
    name, kernel = str(info.get("Name") or "unnamed"), str(info.get("KernelVersion") or "unknown")
    return EngineMachine(
        id=find_engine_id(info),
        name=name,
        kernel=kernel,
        root=str(info.get("DockerRootDir") or ""),
        memory=int(info.get("MemTotal") or 0),
        cpus=int(info.get("NCPU") or 0),
        kind="podman" if is_podman(info) else "docker",
        is_rootless=is_rootless(info),
        is_here=endpoint.scheme == "unix" and kernel == platform.release() and name == platform.node(),
        control_groups=str(info.get("CgroupVersion") or "").removeprefix("v"),
    )


def run_in_trial(reference: str, command: str, **options: Any) -> str:
    """Runs a shell command in a new container without a network, and returns its output.

    The container may change its own packet rules. Raises :class:`DockerEngineError` if the command fails.
    """
    name = f"assay-doctor-{uuid.uuid4().hex[:12]}"
    with open_docker() as client:
        try:
            output = client.containers.run(
                reference,
                ["-c", command],
                name=name,
                entrypoint="/bin/sh",
                network_mode="none",
                labels=run_labels(DOCTOR_RUN, owner.current_owner(), state_folder()),
                cap_add=list(CAPABILITIES),
                remove=True,
                **options,
            )
        except ContainerError as error:
            said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else str(error.stderr or "")
            last = (said.strip().splitlines() or ["it printed nothing"])[-1]
            raise DockerEngineError(f"exit code {error.exit_status}: {last}") from error
        except DockerException:
            remove_container(client, name)  # Podman keeps a container that did not start
            raise
    return bytes(output).decode(errors="replace")


def try_freeze(reference: str) -> None:
    """Freezes a new container for an instant. Raises :class:`DockerEngineError` if the engine cannot."""
    with open_docker() as client:
        container = client.containers.run(
            reference,
            ["60"],
            entrypoint="sleep",
            network_mode="none",
            labels=run_labels(DOCTOR_RUN, owner.current_owner(), state_folder()),
            detach=True,
        )
        try:
            container.pause()
            container.unpause()
        finally:
            container.remove(force=True)


def measure_free_disk(reference: str) -> int:
    """Returns the free bytes for containers. Raises :class:`DockerEngineError`."""
    return int(run_in_trial(reference, FREE_DISK))


def is_proved(machine: EngineMachine, reference: str, ability: str) -> bool:
    """Returns whether a container of this image has shown the ability on this engine and kernel before."""
    return [reference, ability] in _read_proofs(machine)


def store_proof(machine: EngineMachine, reference: str, ability: str) -> None:
    """Remembers that a container has shown the ability. Failures to write are ignored: the next trial repeats it."""
    if not is_proved(machine, reference, ability):
        _write_proofs(machine, [*_read_proofs(machine), [reference, ability]])


def forget_proof(machine: EngineMachine, reference: str, ability: str) -> None:
    """Forgets that a container has shown the ability, because a later trial has failed."""
    if is_proved(machine, reference, ability):
        _write_proofs(machine, [proof for proof in _read_proofs(machine) if proof != [reference, ability]])


def _read_proofs(machine: EngineMachine) -> list[Any]:
    try:
        found = json.loads(_find_file(machine).read_text())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _write_proofs(machine: EngineMachine, proofs: list[Any]) -> None:
    path = _find_file(machine)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(proofs))
        new.replace(path)


def _find_file(machine: EngineMachine) -> Path:
    key = hashlib.sha256("\n".join((machine.id, machine.root, machine.kernel)).encode()).hexdigest()[:16]
    return state_folder() / FOLDER / f"{key}.json"
