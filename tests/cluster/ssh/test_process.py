"""The shell of a node's processes and files, on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay.cluster.ssh import process

GONE = """#!/bin/sh
case $3 in *gone) rm "$3";; esac
exec /usr/bin/stat "$@"
"""
"""A ``stat`` in whose way a file is removed: the system deletes what it needs no more at any moment."""


def sizes(pattern: str, path: str) -> dict[str, int]:
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["sh", "-c", process.files(pattern)], env=environment, capture_output=True, text=True, check=True
    )
    return process.sizes(run.stdout)


def test_a_file_that_is_removed_while_files_are_looked_for_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b.gone", "c"):
        (tmp_path / "data" / name).write_text(name)
    stat = tmp_path / "stat"
    stat.write_text(GONE)
    stat.chmod(0o755)
    assert sizes(f"{tmp_path}/data/*", str(tmp_path)) == {f"{tmp_path}/data/a": 1, f"{tmp_path}/data/c": 1}
    assert sizes(f"{tmp_path}/none/*", str(tmp_path)) == {}


def test_a_file_that_is_there_and_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    stat = tmp_path / "stat"
    stat.write_text("#!/bin/sh\nexit 1\n")
    stat.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        sizes(f"{tmp_path}/a", str(tmp_path))
