"""A command on a host, on a connection of its own: how what was done to it is undone, and how it is looked at."""

import shlex
import time

from assay.cluster.journal import RunOnHost
from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import AwayError, RefusedError, SshConnection
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


class Undoing:
    """Asks a host that did not answer, or did not let one in, no second time: the one takes its time limit, and of
    the other too many are a reason to ban who asks.
    """

    def __init__(self) -> None:
        self._away: dict[Reach, str] = {}

    def perform(self, action: RunOnHost) -> None:
        """Raises :class:`~assay.cluster.node.NodeError`."""
        if (reason := self._away.get(action.host)) is not None:
            raise NodeError(reason)
        try:
            run(action.host, shlex.join(action.argv))
        except (AwayError, RefusedError) as error:
            self._away[action.host] = str(error)
            raise
