"""The container of a job: a service that must end before further roles start, such as a migration.

A job is no node, so it needs no holder. It is a plain container on the run's network, and knows the names of the nodes.
The engine restarts it after a failure if its file says so. The container stays until the run ends, for ``docker logs``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import docker

from assay.cluster.docker import code_archive, target_container
from assay.cluster.docker.engine import open_docker
from assay.cluster.docker.software import NodeImage
from assay.cluster.system import DeploymentError

POLL_SECONDS: Final = 0.1
"""Seconds between two looks at a job."""
LAST_LINES: Final = 10
"""Number of a failed job's last lines that its error has."""


def start_job(
    client: docker.DockerClient,
    name: str,
    image: NodeImage,
    labels: Mapping[str, str],
    network: str,
    hosts: Sequence[str],
    volumes: Mapping[str, str],
) -> None:
    """Starts the container of a job. Its removal must be in the journal before.

    - ``name``: of the container
    - ``hosts``: names that the job knows, each with a colon and its address
    - ``volumes``: as in :func:`assay.cluster.docker.target_container.start_target`
    """
    assert image.target is not None, "a job is a container that the system describes"
    assert image.container is not None, "see above"
    given = image.container
    container = client.api.create_container(
        image.target,
        name=name,
        user=image.user,
        hostname=given.host_name,
        entrypoint=list(image.argv),
        environment=dict(given.environment),
        working_dir=given.folder,
        healthcheck={"test": ["NONE"]},
        labels=dict(labels),
        host_config=client.api.create_host_config(
            **given.options,
            extra_hosts=list(hosts),
            network_mode=network,
            sysctls=dict(given.kernel_settings),
            restart_policy={"Name": "on-failure"} if given.restarted else None,
            mounts=target_container.make_mounts(given, volumes),
        ),
    )
    for path, source in sorted(given.copied.items()):
        client.api.put_archive(container["Id"], "/", code_archive.archive_path(path, source))
    client.api.start(container["Id"])


async def wait_until_done(name: str, container: str) -> None:
    """Waits until the process of a job has ended. Raises :class:`DeploymentError` if it has failed.

    - ``name``: that the user knows
    - ``container``: the name of the container
    """
    while True:
        code = await asyncio.to_thread(_find_exit_code, container)
        if code == 0:
            return
        if code is None:
            await asyncio.sleep(POLL_SECONDS)
            continue
        lines = await asyncio.to_thread(read_last_lines, container)
        raise DeploymentError("\n".join([f"the job {name} ended with exit code {code}; its last lines are:", *lines]))


def _find_exit_code(container: str) -> int | None:
    """Returns the exit code of a container; None if it runs, or is about to be restarted."""
    with open_docker() as client:
        state = client.api.inspect_container(container)["State"]
    return None if state["Running"] or state["Restarting"] else int(state["ExitCode"])


def read_last_lines(container: str) -> list[str]:
    with open_docker() as client:
        printed: bytes = client.api.logs(container, tail=LAST_LINES)
    return [f"  {line}" for line in printed.decode("utf-8", "replace").splitlines()] or ["  (it printed nothing)"]
