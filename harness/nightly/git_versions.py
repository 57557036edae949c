"""Versions and commits from git, for the folder of a matrix: the version under test, and the commits since the last."""

import subprocess
from pathlib import Path
from typing import Final

DIRTY: Final = "-dirty"
MOST: Final = 500
"""Commits that a night records at most."""


def read_version(place: Path) -> str | None:
    """Returns the commit, with ``-dirty`` for uncommitted changes; None without git or a repository."""
    return _run_git(place, "describe", "--always", f"--dirty={DIRTY}") or None


def list_commits(place: Path, green: str, red: str) -> tuple[str, ...]:
    """Returns ``git log --oneline green..red``, the newest first; empty unless both commits exist.

    For a version with uncommitted changes its commit is used.
    """
    ends = [_run_git(place, "rev-parse", "--verify", "--quiet", "--end-of-options",
                 f"{version.removesuffix(DIRTY)}^{{commit}}") for version in (green, red)]  # fmt: skip
    if not all(ends):
        return ()
    said = _run_git(place, "log", "--oneline", "--no-decorate", f"--max-count={MOST}", "..".join(map(str, ends)))
    return tuple((said or "").splitlines())


def _run_git(place: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(place), "-c", "color.ui=false", *arguments]
    try:
        said = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.decode(errors="replace").strip()
