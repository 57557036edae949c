"""Commands that start pytest in another process: the first one does, the rest are run in this one.

The first command proves that processes work. The others need not, because an interpreter takes two seconds to start.
"""

from __future__ import annotations

import os
import subprocess
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Ended:
    """As a process that has ended. The runs of this process are its own."""

    pid = os.getpid()

    def __init__(self, status: int, *printed: str) -> None:
        self.returncode, self._printed = status, printed

    def __enter__(self) -> Ended:
        return self

    def __exit__(self, *raised: object) -> None: ...

    def communicate(self) -> tuple[str, ...]:
        return self._printed

    def kill(self) -> None: ...


def in_this_process(
    project: pytest.Pytester, patch: pytest.MonkeyPatch, module: ModuleType, *options: str
) -> list[list[str]]:
    """Returns what ``module`` starts by ``subprocess.Popen`` from now on, which is listed; ``options``: of the rest."""
    commands: list[list[str]] = []

    def start(command: list[str], **given: Any) -> Any:
        commands.append(command)
        if len(commands) == 1:
            return subprocess.Popen(command, **given)
        assert command[:3] == commands[0][:3]
        result = project.runpytest_inprocess(*options, *command[3:])
        return Ended(int(result.ret), result.stdout.str(), result.stderr.str())

    patch.setattr(module, "subprocess", SimpleNamespace(Popen=start, PIPE=subprocess.PIPE))
    return commands
