"""Runs a single command on a host over its own connection, to undo a change or to examine the host."""

import shlex
import time

from assay.cluster.journal import RunOnHost
from assay.cluster.node import NodeError
from assay.cluster.ssh.connection import (
    COMMAND_TIMEOUT,
    CommandTimeoutError,
    RefusedError,
    SshConnection,
    UnansweredError,
)
from assay.cluster.ssh.ssh_address import SshAddress

WITHIN = 10.0
"""Seconds for the host to answer."""
UNDO_WITHIN = 300.0
"""Seconds for an undo command, which ends processes and removes the run's files, maybe from a slow disk.

An aborted command can be repeated, but until then the host is neither in use nor clean.
"""


def run_on_host(ssh: SshAddress, command: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """Returns the command's output. Raises :class:`~assay.cluster.node.NodeError`."""
    connection = SshConnection(str(ssh), ssh.login())
    try:
        connection.connect(time.monotonic() + WITHIN)
        return connection.run(command, timeout=timeout)
    finally:
        connection.close()


class HostUndoer:
    """Runs undo commands, and skips a host after it failed to answer, to log in or to finish in time.

    Each such failure takes a whole time limit, and repeated rejected logins may cause a ban.
    """

    def __init__(self) -> None:
        self._away: dict[SshAddress, str] = {}

    def perform(self, action: RunOnHost) -> None:
        """Raises :class:`~assay.cluster.node.NodeError`."""
        if (reason := self._away.get(action.host)) is not None:
            raise NodeError(reason)
        try:
            run_on_host(action.host, shlex.join(action.argv), UNDO_WITHIN)
        except (UnansweredError, RefusedError, CommandTimeoutError) as error:
            self._away[action.host] = str(error)
            raise
