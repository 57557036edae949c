"""A disk of a few kilobytes, to be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system in memory of ``size``, as mount reads it, at ``place``; skips the test where none can be made."""
    place.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "assay-test", str(place)]
    if not mounted or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a disk of its own needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
