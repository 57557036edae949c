"""Commands that a system, a fault or a workload of the user's runs on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class CommandResult:
    """How a command on a node ended: its exit status, standard output and standard error."""

    status: int
    output: str
    errors: str = ""


class SupportsCommands(Protocol):
    """The part of :class:`assay.cluster.node.Node` that runs commands."""

    async def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        changes: bool = False,
        undo: str | Sequence[str] | None = None,
    ) -> CommandResult:
        """Runs a command as root: text for the shell, or a program with its arguments. Any exit status is an answer.

        ``changes``: the command changes something, and the run's logs list it. ``undo``: the command that takes the
        change back, noted before the change. It runs when the cluster is closed, or by ``assay heal``, and must do no
        harm where there is nothing to take back. ``NodeError`` after ``timeout`` seconds, and in the simulation, which
        has no programs.
        """
