"""A command on a host, on a connection of its own: how what was done to it is undone, and how it is looked at."""

import shlex
import time

from assay.cluster.journal import RunOnHost
from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import COMMAND_TIMEOUT, AwayError, RefusedError, SshConnection, UnendedError
from assay.cluster.ssh.ssh_address import Reach

WITHIN = 10.0
"""Seconds for the host to answer."""
UNDO_WITHIN = 300.0
"""Seconds for what undoes something: it ends processes and removes all that a run has written, maybe from a slow disk.
What is killed half way can be repeated, but until then the host is neither in use nor clean."""


def run(reach: Reach, command: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """Raises :class:`~assay.cluster.node.NodeError`."""
    connection = SshConnection(str(reach), reach.login())
    try:
        connection.connect(time.monotonic() + WITHIN)
        return connection.run(command, timeout=timeout)
    finally:
        connection.close()


class Undoing:
    """Asks a host that did not answer, did not let one in, or did not get done, no second time: that takes a whole time
    limit, and too many refusals are a reason to ban who asks.
    """

    def __init__(self) -> None:
        self._away: dict[Reach, str] = {}

    def perform(self, action: RunOnHost) -> None:
        """Raises :class:`~assay.cluster.node.NodeError`."""
        if (reason := self._away.get(action.host)) is not None:
            raise NodeError(reason)
        try:
            run(action.host, shlex.join(action.argv), UNDO_WITHIN)
        except (AwayError, RefusedError, UnendedError) as error:
            self._away[action.host] = str(error)
            raise
