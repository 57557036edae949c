"""Packages of Python in a folder that pip takes for an index: wheels, and source distributions that build offline."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

BACKEND = """
import zipfile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    {first}
    name = "{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("{name}.py", "")
        for path, text in {metadata!r}.items():
            wheel.writestr("{name}-{version}.dist-info/" + path, text)
    return name
"""
"""A build backend of its own, so that none is downloaded."""


def metadata(name: str, version: str, tag: str, needs: str) -> dict[str, str]:
    described = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {
        "METADATA": described + (f"Requires-Dist: {needs}\n" if needs else ""),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        "RECORD": "",
    }


def put_wheel(index: Path, name: str, needs: str = "") -> None:
    with zipfile.ZipFile(index / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        for path, text in metadata(name, "1.0", "py3-none-any", needs).items():
            wheel.writestr(f"{name}-1.0.dist-info/{path}", text)


def put_source(
    index: Path, name: str, *, version: str = "1.0", tag: str = "py3-none-any", needs: str = "", first: str = "pass"
) -> None:
    backend = BACKEND.format(
        name=name, version=version, tag=tag, first=first, metadata=metadata(name, version, tag, needs)
    )
    files = {"pyproject.toml": PROJECT, "backend.py": backend, "PKG-INFO": metadata(name, version, tag, "")["METADATA"]}
    with tarfile.open(index / f"{name}-{version}.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
