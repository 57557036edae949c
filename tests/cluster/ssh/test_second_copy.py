"""A second copy of a real process: its command, its exit status, and what the shell leaves in a data folder."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay.cluster.ssh import data_folders
from assay.cluster.ssh.node_processes import SIDECAR_MARK, Program
from assay.cluster.ssh.second_copy import COUNTS, STATUS, build_copy, parse_changes

EVENTS = "/var/log/x/events.jsonl"


def sh(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_copy_has_the_same_command_but_for_the_event_log() -> None:
    main = Program(["serve", "--events", EVENTS, "--port=1"], "/f", {"A": "1", "E": f"file:{EVENTS}"}, "me", ["/own"])
    copy = build_copy(main, EVENTS, "/data")
    assert copy.argv[3:7] == ["/data", f"{EVENTS}.second", COUNTS, STATUS]
    assert copy.argv[7:] == ["serve", "--events", f"{EVENTS}.second", "--port=1"]
    assert copy.environment == {"A": "1", "E": f"file:{EVENTS}.second", SIDECAR_MARK: "1"}
    assert (copy.folder, copy.user) == ("/f", "me")
    assert copy.owned == ["/own", STATUS, COUNTS, f"{EVENTS}.second"]


def test_the_copy_of_a_system_without_events_has_the_very_command() -> None:
    assert build_copy(Program(["serve"], "/f", {}), None, None).argv[7:] == ["serve"]


@pytest.mark.parametrize(
    ("counted", "changes", "not_proved"),
    [
        ("0 \n", 0, None),
        ("12 \n", 12, None),
        ("0 no ptrace\n", None, "no ptrace"),
        ("3 a queue\n", 3, "a queue"),
        ("", None, "the tracer of the copy has counted nothing"),
    ],
)
def test_no_changes_are_claimed_only_if_all_were_seen(
    counted: str, changes: int | None, not_proved: str | None
) -> None:
    assert parse_changes(counted) == (changes, not_proved)


FILES: Mapping[str, str] = {".lock": "1", "a": "a", "d/e/f": "f", "d/.lock": "2", "d/[x]*": "3"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    for name, text in FILES.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize("kept", [[], [".lock"], ["d/.lock"], [".lock", "d/[x]*"], ["missing"]])
def test_what_is_kept_is_neither_removed_nor_restored(folder: Path, kept: list[str]) -> None:
    paths = [f"{folder}/{name}" for name in kept]
    there = [name for name in kept if name in FILES]
    inodes = {name: (folder / name).stat().st_ino for name in there}
    copied = data_folders.parse_contents(sh(data_folders.copy_command(str(folder), paths)), str(folder))
    assert set(copied) == {f"{folder}/{name}" for name in FILES if name not in kept}
    for name in FILES:
        (folder / name).write_text("later")
    sh(data_folders.remove_command(str(folder), paths))
    assert tree(folder) == dict.fromkeys(sorted(there), "later")
    sh(data_folders.restore_command(str(folder), paths))
    assert tree(folder) == {name: "later" if name in kept else text for name, text in sorted(FILES.items())}
    assert {name: (folder / name).stat().st_ino for name in there} == inodes
    assert data_folders.parse_contents(sh(data_folders.contents_command(str(folder), paths)), str(folder)) == copied
