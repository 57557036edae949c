"""What a run was done with: written into ``settings.json``, so that it can be repeated or its difference explained."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

PACKAGES: Final = ("assay", "duckdb", "docker", "kazoo", "msgspec", "numpy", "paramiko", "pyarrow", "pytest")
SOURCES: Final = ("harness", "cluster", "nemesis", "workloads", "checkers", "system_under_test")


def versions() -> Mapping[str, str]:
    """Name to version: this project, Python, the kernel, the packages that a run's result may hang on."""
    found = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "source": source_digest(Path(__file__).parents[2]),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def source_digest(root: Path) -> str:
    """Sixteen hexadecimal digits of a SHA-256 over the project's Python files: a commit id that knows local changes."""
    digest = hashlib.sha256()
    for name in SOURCES:
        for path in sorted((root / name).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
