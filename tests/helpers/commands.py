"""Commands that start pytest in another process: the first one does, the rest are run in this one.

What the first shows of processes no other has to, and an interpreter takes two seconds of a core to start.
"""

from __future__ import annotations

import subprocess
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def in_this_process(
    project: pytest.Pytester, patch: pytest.MonkeyPatch, module: ModuleType, *options: str
) -> list[list[str]]:
    """What ``module`` starts by ``subprocess.run`` from now on, which is listed; ``options``: of the rest."""
    commands: list[list[str]] = []
    start = subprocess.run

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if len(commands) == 1:
            return start(command, **given)
        assert command[:3] == commands[0][:3]
        result = project.runpytest_inprocess(*options, *command[3:])
        return subprocess.CompletedProcess(command, int(result.ret), result.stdout.str(), result.stderr.str())

    patch.setattr(module, "subprocess", SimpleNamespace(run=run))
    return commands
