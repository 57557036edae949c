"""The memory and the disk space of a node, as its shell prints them, on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.cluster.ssh import process
from assay.cluster.ssh.usage import Usage, parse_usage, usage_watch_command

MB = 1_000_000
GROWING = """
import os, sys, time
held = []
while True:
    if os.path.exists(sys.argv[1]):
        held.append(b"x" * 60_000_000)
        os.unlink(sys.argv[1])
    time.sleep(0.01)
"""
"""A process that allocates 60 MB whenever the file is there."""
FORKS = """
import os, time
held = bytearray(60_000_000)
if os.fork() == 0:
    os.setsid()
    held = bytearray(40_000_000)
time.sleep(600)
"""
"""A process with 60 MB, and a child in a session of its own with 40 MB besides."""


def shell(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FOLDER", f"{tmp_path}/run")
    monkeypatch.setattr(process, "LOG", f"{tmp_path}/log/process.log")


@contextmanager
def running(program: str, folder: Path, *arguments: str) -> Iterator[None]:
    shell(process.launch_command([sys.executable, "-c", program, *arguments], folder=str(folder), environment={}))
    try:
        yield
    finally:
        shell(process.tolerate_missing(process.kill_command()))


@contextmanager
def watching(folder: str | None = None, rounds: int = 1000) -> Iterator[Callable[[], Usage]]:
    command = usage_watch_command((process.MAIN,), folder, 0.05, rounds)(0)
    printing = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    assert printing.stdout is not None

    def read() -> Usage:
        assert printing.stdout is not None
        usage = parse_usage(printing.stdout.readline().rstrip("\n"))
        assert usage is not None
        return usage

    try:
        yield read
    finally:
        printing.stdout.close()
        assert printing.wait(timeout=60) != 0, "it ends once no one reads"


def wait_for(read: Callable[[], Usage], condition: Callable[[Usage], bool]) -> Usage:
    deadline = time.monotonic() + 60
    while not condition(usage := read()):
        assert time.monotonic() < deadline, usage
    return usage


@pytest.mark.usefixtures("own_folders")
def test_memory_grows_by_what_a_process_allocates_and_is_unknown_once_it_is_gone(tmp_path: Path) -> None:
    order = tmp_path / "order"
    with watching() as read:
        assert read().memory is None, "nothing is started yet"
        with running(GROWING, tmp_path, str(order)):
            before = wait_for(read, lambda usage: (usage.memory or 0) > 4 * MB).memory
            assert before is not None
            order.touch()
            grown = wait_for(read, lambda usage: (usage.memory or 0) > before + 55 * MB).memory
            assert grown is not None
            assert grown < before + 75 * MB
        wait_for(read, lambda usage: usage.memory is None)


@pytest.mark.usefixtures("own_folders")
def test_children_count_with_their_own_pages(tmp_path: Path) -> None:
    with running(FORKS, tmp_path), watching() as read:
        usage = wait_for(read, lambda usage: (usage.memory or 0) > 100 * MB)
        assert usage.memory is not None
        assert usage.memory < 200 * MB


@pytest.mark.usefixtures("own_folders")
def test_disk_space_is_that_of_the_folder_if_it_exists(tmp_path: Path) -> None:
    folder = tmp_path / "the data"
    with watching(str(folder)) as read:
        assert read().disk is None
        folder.mkdir()
        (folder / "segment").write_bytes(b"x" * 3 * MB)
        usage = wait_for(read, lambda usage: (usage.disk or 0) >= 3 * MB)
        assert usage.disk is not None
        assert usage.disk < 4 * MB


@pytest.mark.usefixtures("own_folders")
def test_the_interval_doubles_so_that_lines_become_fewer() -> None:
    with watching(rounds=4) as read:
        times = [read().uptime for _ in range(9)]
    assert times[8] - times[6] > 1.5 * (times[3] - times[1])


@pytest.mark.parametrize("line", ["", "1 2", "1.0 x 2", "1.0 -1 2", "1.0 1 2 3", "stat: nonsense", "٣.0 1 2"])
def test_a_damaged_line_is_ignored(line: str) -> None:
    assert parse_usage(line) is None
    assert parse_usage("12.50 100 -") == Usage(12.5, 102_400, None)
