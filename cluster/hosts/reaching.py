"""A command on a host, on a connection of its own: how what was done to it is undone, and how it is looked at."""

import shlex
import time

from assay.cluster.journal import RunOnHost
from assay.cluster.ssh.connection import SshConnection
from assay.cluster.ssh.reach import Reach

WITHIN = 10.0
"""Seconds for the host to answer."""


def run(reach: Reach, command: str) -> str:
    """Raises :class:`~assay.cluster.node.NodeError`."""
    connection = SshConnection(str(reach), reach.login())
    try:
        connection.connect(time.monotonic() + WITHIN)
        return connection.run(command)
    finally:
        connection.close()


def perform(action: RunOnHost) -> None:
    """Raises :class:`~assay.cluster.node.NodeError`."""
    run(action.host, shlex.join(action.argv))
