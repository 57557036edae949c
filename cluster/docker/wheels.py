"""Fetches wheels of Python packages for an image's own Python, with this machine's pip.

A package with only a source distribution is first built into a wheel:

1. pip downloads wheels of all requested packages and their dependencies.
2. If pip finds no wheel of a package, the package is built here, and the download is tried again.
3. A wheel that was built here must be a wheel for any platform, because compiled code might not run in the image.

A build runs the package's own code on this machine, as the user who starts the cluster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.cluster.docker import layer
from assay.cluster.docker.image_contents import ImagePython
from assay.cluster.docker.layer import ImageError, Progress

PIP = (sys.executable, "-P", "-m", "pip")  # without modules of the current folder
OPTIONS = ("--quiet", "--disable-pip-version-check")
PIP_TIMEOUT = 300.0
"""Maximum seconds of a download, or of a build."""
NOT_FOUND = re.compile(r"^ERROR: No matching distribution found for ([^;(\n]+)", re.MULTILINE)
"""pip's message about a package without a wheel."""


SHORT_OUTPUT = 2
"""Maximum number of lines of a short output. If pip's output is longer, an error also has its last lines."""


class PipError(ImageError):
    """pip failed. The message begins with pip's last error. If the output is longer, its last lines follow."""

    def __init__(self, failure: str, output: str) -> None:
        self.output = output
        more = "" if len(output.strip().splitlines()) <= SHORT_OUTPUT else f"\n{layer.last_lines(output)}"
        super().__init__(f"{failure}: {find_last_error(output)}{more}")


def download(names: Sequence[str], interpreter: ImagePython, folder: Path, progress: Progress) -> str:
    """Downloads wheels of these packages, their dependencies and pip into the folder. Raises :class:`ImageError`."""
    argv = ["download", *OPTIONS, *interpreter.wheel_options(folder), "--find-links", str(folder), "pip", *names]
    built: list[str] = []
    while True:
        try:
            _run_pip(argv, "pip")
        except PipError as error:
            not_found = NOT_FOUND.search(error.output)
            if not_found is None or (requirement := not_found[1].strip()) in built:
                raise
            built.append(requirement)
            progress(f"{requirement} has no wheel for Python {interpreter.version}: it is built here from its source")
            _build(requirement, folder)
        else:
            return f"downloaded, {', '.join(built)} built" if built else "downloaded"


def _build(requirement: str, folder: Path) -> None:
    before = {*folder.iterdir()}
    argv = ["wheel", *OPTIONS, "--no-deps", "-w", str(folder), requirement]
    _run_pip(argv, f"{requirement} has no wheel, and none could be built from its source distribution")
    for path in {*folder.iterdir()} - before:
        if not path.name.endswith("-none-any.whl"):
            raise ImageError(
                f"{requirement} has only a source distribution, and its build is for this machine alone ({path.name}): "
                "take an image of your own that has the package, Software(image=...) or Software(dockerfile=...)"
            )


def _run_pip(argv: Sequence[str], failure: str) -> None:
    done = layer.run_command([*PIP, *argv], check=False, timeout=PIP_TIMEOUT)
    if done.returncode != 0:
        raise PipError(failure, done.stdout + done.stderr)


def find_last_error(output: str) -> str:
    """Returns pip's last error, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    return (errors or lines or ["pip printed nothing"])[-1]
