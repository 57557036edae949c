"""Tests what git says: the version that is tested, and the commits since the night before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay.harness.nightly import night_runner
from assay.harness.nightly.night_runner import list_commits, read_version

from helpers.night_cells import cell

AS_SOMEONE = ("-c", "user.name=n", "-c", "user.email=n@example", "-c", "commit.gpgsign=false")


def git(place: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(place), *AS_SOMEONE, *arguments], check=True, capture_output=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q")
    return made


def committed(place: Path, subject: str) -> str:
    (place / "file").write_text(subject)
    git(place, "add", "file")
    git(place, "commit", "-q", "-m", subject)
    found = read_version(place)
    assert found is not None
    return found


def subjects(lines: tuple[str, ...]) -> list[str]:
    return [line.partition(" ")[2] for line in lines]


def test_commits_are_those_after_the_green_one_up_to_the_red_one(place: Path) -> None:
    green, _, red, _ = (committed(place, subject) for subject in ("one", "two", "three", "four"))
    assert subjects(list_commits(place, green, red)) == ["three", "two"]
    assert list_commits(place, red, green) == list_commits(place, red, red) == ()
    (place / "file").write_text("changed")
    dirty = str(read_version(place))
    assert dirty.endswith("-dirty")
    assert subjects(list_commits(place, red, dirty)) == ["four"], "of what is not committed the commit below it"


@pytest.mark.parametrize("other", ["", "41f0", "release 1", "--output=x", "HEAD:file", "-dirty"])
def test_what_is_no_commit_has_none(place: Path, other: str) -> None:
    red = committed(place, "one")
    assert list_commits(place, other, red) == list_commits(place, red, other) == ()
    assert sorted(path.name for path in place.iterdir()) == [".git", "file"]


def test_without_a_repository_there_is_neither(tmp_path: Path) -> None:
    assert read_version(tmp_path) is None
    assert list_commits(tmp_path, "a", "b") == ()


def test_a_night_records_the_commits_since_the_night_before_it_and_its_parts_the_same(
    place: Path, tmp_path: Path
) -> None:
    store, cells = tmp_path / "store", [cell("pass", name=name) for name in "ab"]

    def begun(name: str, share: tuple[int, int] = (1, 1)) -> tuple[str, list[str]]:
        one = night_runner.begin_night(store, name, cells, 1.0, place, read_version(place), share)
        return one.after, subjects(one.commits)

    first = committed(place, "one")
    assert begun("n1") == ("", [])
    committed(place, "two")
    second = committed(place, "three")
    assert begun("n2", (1, 2)) == begun("n2", (2, 2)) == (first, ["three", "two"])
    assert begun("n3") == (second, [])


def test_a_git_that_hangs_names_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(night_runner, "GIT_SECONDS", 0.1)
    assert read_version(tmp_path) is None
