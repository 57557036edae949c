"""Commands that a user's system, fault or workload runs on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class CommandResult:
    """Exit status, standard output and standard error of a command on a node."""

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
        """Runs a command as root: text for the shell, or a program with its arguments. Any exit status is a result.

        ``changes``: the command changes something, and the run's logs list it. ``undo``: the command that reverts the
        change, noted before the change. It runs when the cluster is closed, or by ``assay heal``, and must do no harm
        if there is nothing to revert. Raises ``NodeError`` after ``timeout`` seconds, and in the simulation, which has
        no programs.
        """
