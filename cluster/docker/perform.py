"""Undoing one entry of the journal with the engine's help. Each action may be performed again and again."""

from pathlib import Path

import docker

from assay.cluster.docker import disk
from assay.cluster.docker.engine import execute, remove_container, remove_network, unpause
from assay.cluster.journal import (
    Action,
    RemoveContainer,
    RemoveDisk,
    RemoveFile,
    RemoveNetwork,
    RunInContainer,
    Unpause,
)


def perform(client: docker.DockerClient, action: Action) -> bool:
    """Undoes one thing; False when there was nothing left to undo."""
    match action:
        case RemoveContainer(name):
            return remove_container(client, name)
        case RemoveNetwork(name):
            return remove_network(client, name)
        case RunInContainer(container, argv):
            return execute(client, container, list(argv))
        case Unpause(container):
            return unpause(client, container)
        case RemoveFile(path):
            existed = Path(path).exists()
            Path(path).unlink(missing_ok=True)
            return existed
        case RemoveDisk(image):
            return disk.remove(Path(image))
