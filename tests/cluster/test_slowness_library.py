"""The library that makes a process's disk fail, on this machine: it meets every call that changes what is on it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cluster.docker import preload
from assay.cluster.node import DiskChange, DiskErrorEffects, Slowed
from assay.cluster.ssh import preloaded
from assay.cluster.ssh.node_processes import SIDECAR_MARK

from helpers import process_tree

CALLS = {
    DiskChange.WRITE: (
        "os.write(file, b'x')",
        "os.pwrite(file, b'x', 0)",
        "os.writev(file, [b'x'])",
        "os.pwritev(file, [b'x'], 0)",
        "os.pwritev(file, [b'x'], 0, os.RWF_DSYNC)",
        "os.sendfile(file, outside, 0, 7)",
        "os.copy_file_range(outside, file, 7)",
    ),
    DiskChange.FSYNC: ("os.fsync(file)", "os.fdatasync(file)", "os.fsync(folder)"),
    DiskChange.CUT: ("os.ftruncate(file, 1)", "os.truncate(path, 1)", "os.posix_fallocate(file, 0, 100)"),
    DiskChange.NAME: (
        "os.rename(path, path + '.new')",
        "os.replace('file', 'new', src_dir_fd=folder, dst_dir_fd=folder)",
        "os.unlink(path)",
        "os.unlink('file', dir_fd=folder)",
        "os.rmdir(root + '/sub')",
        "shutil.rmtree(root + '/sub')",
        "os.mkdir(root + '/new')",
        "os.mkdir('new', dir_fd=folder)",
        "os.chdir(root); os.unlink('file')",
        "os.chdir('/'); os.unlink(path[1:])",
        "os.chdir(root + '/sub'); os.unlink('../file')",
    ),
}
PROGRAM = """
import os, shutil
root, path = {root!r}, {root!r} + "/file"
file, folder = os.open(path, os.O_RDWR), os.open(root, os.O_RDONLY)
outside = os.open({root!r} + "-outside", os.O_RDWR)
os.write(outside, b"outside")
try:
    {call}
except OSError as error:
    print(error.errno)
"""


def orders(tmp_path: Path, change: DiskChange, errors: int) -> Path:
    """The file through which the library gets them."""
    words = [0, 0, 0, 0, errors, preloaded.BITS[change], 0, 0, 0, 0, 0, 0]
    path = tmp_path / "orders"
    path.write_bytes(struct.pack(f"<{len(words)}q", *words))
    return path


def run(tmp_path: Path, file: Path, call: str, **more: str) -> tuple[int, str]:
    """Returns exit code and output of a program that makes the call in a folder whose disk fails."""
    with started(tmp_path, file, call, **more) as program:
        printed, _ = program.communicate(timeout=60)
    return program.returncode, printed.strip()


def started(tmp_path: Path, file: Path, call: str, **more: str) -> subprocess.Popen[str]:
    """The program."""
    if shutil.which(preload.COMPILER) is None:
        pytest.skip(f"there is no C compiler ({preload.COMPILER})")
    # It opens the file in the folder that the program begins in, so that all tests need it compiled only once.
    made = preload.compile_here(preload.PreloadLibrary("slowness", "", "SLOWNESS_FILE", file.name, b""))
    library = tmp_path / "library.so"
    library.write_bytes(made)
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    (root / "file").write_bytes(b"hello")
    (tmp_path / "data-outside").touch()
    environment = {**os.environ, "LD_PRELOAD": str(library), preloaded.DISK_VARIABLE: str(root), **more}
    program = PROGRAM.format(root=str(root), call=call)
    argv = [sys.executable, "-c", program]
    return subprocess.Popen(argv, cwd=file.parent, env=environment, stdout=subprocess.PIPE, text=True)


def counted(file: Path) -> tuple[Slowed, DiskErrorEffects]:
    shown = " ".join(str(word) for (word,) in struct.iter_unpack("<q", file.read_bytes()))
    return preloaded.parse_slowed(shown), preloaded.parse_failures(shown)


@pytest.mark.parametrize(("change", "call"), [(change, call) for change, calls in CALLS.items() for call in calls])
def test_each_call_that_changes_something_is_rejected_and_changes_nothing(
    tmp_path: Path, change: DiskChange, call: str
) -> None:
    file = orders(tmp_path, change, 1)
    assert run(tmp_path, file, call) == (0, str(errno.EIO))
    assert counted(file) == (Slowed(), DiskErrorEffects(1, 0))
    assert (tmp_path / "data" / "file").read_bytes() == b"hello"
    assert sorted(os.listdir(tmp_path / "data")) == ["file", "sub"]


@pytest.mark.parametrize("errors", [1, preloaded.ENDS])
def test_a_process_beside_the_main_one_is_slow_and_takes_nothing_that_is_meant_for_that_one(
    tmp_path: Path, errors: int
) -> None:
    file = orders(tmp_path, DiskChange.FSYNC, errors)
    words = bytearray(file.read_bytes())
    struct.pack_into("<3q", words, 0, 300_000, 0, 100_000)
    file.write_bytes(words)
    timed = "import time; begun = time.monotonic(); os.fsync(file); print(time.monotonic() - begun > 0.3)"
    assert run(tmp_path, file, timed, **{SIDECAR_MARK: "1"}) == (0, "True")
    assert file.read_bytes() == words, "nothing is counted, and what is to come is still to come"


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (DiskChange.WRITE, "os.write(file, b'x')"),
        (DiskChange.NAME, "os.unlink(path)"),
        (DiskChange.NAME, "os.unlink(root + '-linked/file')"),
        (DiskChange.NAME, "os.unlink('file', dir_fd=folder)"),
    ],
)
def test_a_folder_that_is_known_by_a_link_is_the_one_that_the_link_leads_to(
    tmp_path: Path, change: DiskChange, call: str
) -> None:
    (tmp_path / "data-linked").symlink_to(tmp_path / "data")
    file = orders(tmp_path, change, 1)
    assert run(tmp_path, file, call, **{preloaded.DISK_VARIABLE: f"{tmp_path}/data-linked"}) == (0, str(errno.EIO))
    assert counted(file)[1] == DiskErrorEffects(1, 0)


@pytest.mark.parametrize("own", [True, False], ids=["itself", "one that it has started"])
def test_who_stops_itself_in_an_fsync_is_named_and_seen_to_stand_still(tmp_path: Path, own: bool) -> None:
    file = orders(tmp_path, DiskChange.FSYNC, 0)
    file.write_bytes(struct.pack("<3q", 10_000_000, 0, 100_000) + bytes(9 * 8))
    call = "os.fsync(file)" if own else "os.fork() or (os.fsync(file), os._exit(0)); os.wait()"

    def looked() -> Slowed:
        argv = ["sh", "-c", preloaded.read_disk_command(str(file))]
        return preloaded.parse_slowed(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    assert looked() == Slowed()
    with started(tmp_path, file, call) as program:
        try:
            until(lambda: looked() == Slowed(1, 0, 1, True))
            (stopped,) = [program.pid] if own else process_tree.descendants(program.pid)
            assert struct.unpack("<12q", file.read_bytes())[-1] == stopped
            assert (state(program.pid) == "T") is own
            os.kill(stopped, signal.SIGCONT)
            until(lambda: looked() == Slowed(1, 0, 1, False))
            os.kill(stopped, signal.SIGKILL)
            program.wait(10)
            assert looked() == Slowed(1, 0, 1, False)
        finally:
            program.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
