"""Temporary folders of killed processes are deleted by the next sweep; those of others are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cluster import leftovers, owner, temporary_folders
from assay.cluster.docker import engine as docker_engine
from assay.cluster.owner import current_owner, find_owner
from assay.cluster.temporary_folders import create_temporary_folder, delete_left_folders, temporary_folder

KILLED = """
import os, signal
from assay.cluster.temporary_folders import temporary_folder
with temporary_folder("image") as folder:
    (folder / "wheels").mkdir()
    (folder / "wheels" / "one").write_text("1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(temporary_folders.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def kill_a_process() -> None:
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -signal.SIGKILL


def test_a_folder_of_a_killed_process_is_swept_with_the_other_leftovers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_a_process()
    (left,) = folder.iterdir()
    assert left.name.startswith("assay-image-")
    monkeypatch.setattr(docker_engine, "is_answering", lambda: False)
    assert leftovers.sweep(folder / "state").undone == [f"temporary folder {left} deleted"]
    assert not left.exists()


def test_a_folder_of_a_live_process_and_one_that_only_has_such_a_name_are_left_alone(folder: Path) -> None:
    with temporary_folder("image") as mine:
        parent = find_owner(os.getppid())
        of_parent = folder / mine.name.replace(str(current_owner()), str(parent))
        for other in (of_parent, folder / "assay-image-12345678", folder / "assay-image-x.1.b.n.on.0-12345678"):
            other.mkdir()
        kill_a_process()
        (dead,) = set(folder.iterdir()) - {mine, of_parent, *folder.glob("*-12345678")}
        link = folder / dead.name.replace(dead.name[-8:], "aaaaaaaa")
        link.symlink_to(of_parent)
        assert delete_left_folders() == ([f"temporary folder {dead} deleted"], [])
        assert {path.name for path in folder.iterdir()} == {
            mine.name, of_parent.name, link.name, "assay-image-12345678", "assay-image-x.1.b.n.on.0-12345678",
        }  # fmt: skip
    assert not mine.exists()


@pytest.mark.parametrize(("machine", "deleted"), [("this one", True), ("another one", False), ("", False)])
def test_a_folder_of_another_boot_is_deleted_only_on_the_same_machine(
    folder: Path, machine: str, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_folders, "read_machine", lambda: "this one")
    monkeypatch.setattr(owner, "read_boot_id", lambda: "former")
    if machine != "this one":
        monkeypatch.setattr(temporary_folders, "read_machine", lambda: machine)
    left = create_temporary_folder("image")
    monkeypatch.undo()
    monkeypatch.setattr(temporary_folders.tempfile, "tempdir", str(folder))
    monkeypatch.setattr(temporary_folders, "read_machine", lambda: "this one" if machine else "")
    delete_left_folders()
    assert left.exists() is not deleted
