"""Programs that run as on a system that is not Linux: without ``/proc``, and without functions that only Linux has.

Two forms: ``linux`` is a Linux that has lost all this. For ``darwin``, Python calls itself macOS, and psutil answers,
as it does there; it reads a ``/proc`` that is mounted elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from helpers.layout import ROOT

FORMS = ("linux", "darwin")
ENTER = """
set -e
mount --make-rprivate /
mkdir -p "$1"
mount --rbind /proc "$1"
mount -t tmpfs none /proc
shift
exec "$@"
"""


@cache
def namespace() -> tuple[str, ...]:
    """Returns the command that makes a mount namespace; skips the test if there can be none."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: the package util-linux has it")
    for options in (("-m",), ("-r", "-m")):
        tried = subprocess.run(["unshare", *options, "mount", "-t", "tmpfs", "none", "/proc"], capture_output=True)
        if tried.returncode == 0:
            return ("unshare", *options)
    pytest.skip(f"no mount namespace can be made here: {tried.stderr.decode().strip()}")


def run(form: str, scratch: Path, *command: str) -> subprocess.CompletedProcess[str]:
    hidden, tests = scratch / "proc", ROOT / "tests"
    path = os.pathsep.join((str(tests / "helpers" / "without_linux"), str(tests)))
    environment = {
        **os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(scratch / "state"), "DOCKER_HOST": "unix:///none.sock",
    }  # fmt: skip
    if form == "darwin":
        environment |= {"HIDDEN_PROC": str(hidden), "HYPOTHESIS_NO_PLUGINS": "1"}  # trio, which loads so, asks kqueue
    return subprocess.run(
        [*namespace(), "bash", "-c", ENTER, "enter", str(hidden), *command],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
