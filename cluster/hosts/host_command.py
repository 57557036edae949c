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

CONNECT_SECONDS = 10.0
"""Maximum seconds until the host answers."""
UNDO_SECONDS = 300.0
"""Maximum seconds of an undo command, which ends processes and removes the run's files, maybe from a slow disk.

An aborted command can be repeated. Until then the host is not clean, so no run can use it.
"""


def run_on_host(ssh: SshAddress, command: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """Returns the command's output. Raises :class:`~assay.cluster.node.NodeError`."""
    connection = SshConnection(str(ssh), ssh.login())
    try:
        connection.connect(time.monotonic() + CONNECT_SECONDS)
        return connection.run(command, timeout=timeout)
    finally:
        connection.close()


class HostUndoer:
    """Runs undo commands. Skips a host once it did not answer, rejected the login, or did not finish in time.

    Another attempt could take a whole time limit, and repeated rejected logins may cause a ban.
    """

    def __init__(self) -> None:
        self._failed: dict[SshAddress, str] = {}
        """Maps the hosts that are skipped to the reason."""

    def perform(self, action: RunOnHost) -> None:
        """Runs an undo command. Raises :class:`~assay.cluster.node.NodeError`."""
        if (reason := self._failed.get(action.host)) is not None:
            raise NodeError(reason)
        try:
            run_on_host(action.host, shlex.join(action.argv), UNDO_SECONDS)
        except (UnansweredError, RefusedError, CommandTimeoutError) as error:
            self._failed[action.host] = str(error)
            raise
