"""The server of the guide's first chapter runs: each version of it fails or passes under the faults that the page names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "key_value_server.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
SERVER, TEST, WITH_FILE, DURABLE = BLOCKS
STORE = re.compile(r"class Store:.*?(?=\n\n\nasync def serve)", re.DOTALL)


def server(store: str | None) -> str:
    """The server with another class ``Store``."""
    if store is None:
        return SERVER
    replaced, count = STORE.subn(store.rstrip().replace("\\", "\\\\"), SERVER)
    assert count == 1
    return replaced


def test_the_server_of_the_first_chapter_has_about_forty_lines() -> None:
    assert len(SERVER.splitlines()) <= 45


@pytest.mark.parametrize(
    ("store", "nemesis", "found"),
    [
        (None, "kill", ["FAIL stale-read: *"]),
        (WITH_FILE, "kill", []),
        (WITH_FILE, "power-loss", ["FAIL stale-read: *", "FAIL unexpected-exit: *"]),
        (DURABLE, "power-loss", []),
    ],
    ids=["in-memory-kill", "file-kill", "file-power-loss", "durable-power-loss"],
)
def test_the_server_fails_and_passes_as_the_first_chapter_says(
    pytester: pytest.Pytester, store: str | None, nemesis: str, found: list[str]
) -> None:
    pytester.makepyfile(kv=server(store), test_kv=TEST)
    options = ("--cluster=sim", f"--nemesis={nemesis}", "--rate=50", "--seed=7", "-p", "no:xdist", "--reports=never")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(failed=bool(found), passed=not found)
    result.stdout.fnmatch_lines(found)
