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

    def __init__(self, status: int) -> None:
        self.returncode = status

    def __enter__(self) -> Ended:
        return self

    def __exit__(self, *raised: object) -> None: ...

    def wait(self) -> int:
        return self.returncode

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
        for name, text in (("stdout", result.stdout.str()), ("stderr", result.stderr.str())):
            if given.get(name) is not None:
                given[name].write(text.encode())
        return Ended(int(result.ret))

    patch.setattr(module, "subprocess", SimpleNamespace(Popen=start))
    return commands
