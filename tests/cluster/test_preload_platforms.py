"""The preloaded libraries on x86-64 and arm64: a small C program makes every call that they wrap.

On a machine of another kind, a program for arm64 runs under qemu's emulation of a user's process.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assay.cluster.docker import preload
from assay.cluster.node import DiskChange, Slowed
from assay.cluster.ssh import preloaded
from assay.cluster.ssh.node_processes import SIDECAR_MARK

CHANGES = {
    DiskChange.WRITE: (
        *("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev64", "pwritev2", "pwritev64v2"),
        *("sendfile", "sendfile64", "copy_file_range"),
    ),
    DiskChange.FSYNC: ("fsync", "fdatasync"),
    DiskChange.CUT: (
        *("truncate", "truncate64", "ftruncate", "ftruncate64"),
        *("fallocate", "fallocate64", "posix_fallocate", "posix_fallocate64"),
    ),
    DiskChange.NAME: (
        *("rename", "renameat", "renameat2", "unlink", "unlinkat", "remove", "rmdir", "mkdir", "mkdirat"),
    ),
}
READS = ("read", "pread", "pread64", "readv", "preadv", "preadv64")
CLOCKS = ("clock_gettime", "gettimeofday", "time")
SHIFT = 3600.0
SECONDS = 0.15
CALLS = Path(__file__).with_name("preload_calls.c")


@dataclass(frozen=True)
class Target:
    """A kind of processor for which programs are compiled.

    - ``headers``: a file of its C library
    - ``emulator``: starts a program for another processor. It takes variables of the program as options ``-E``.
    """

    name: str
    compiler: str
    headers: str
    emulator: tuple[str, ...] = ()

    def command(self, program: Path, environment: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Returns the program's command, and the additional environment of that command."""
        if not self.emulator:
            return [str(program)], environment
        variables = [word for key, value in environment.items() for word in ("-E", f"{key}={value}")]
        return [*self.emulator, *variables, str(program)], {}


TARGETS = (
    Target("this machine", preload.COMPILER, "/usr/include/time.h"),
    Target(
        "arm64",
        "aarch64-linux-gnu-gcc",
        "/usr/aarch64-linux-gnu/include/time.h",
        ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
    ),
)


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    missing = [program for program in (found.compiler, *found.emulator[:1]) if shutil.which(program) is None]
    missing += [] if Path(found.headers).exists() else [found.headers]
    if missing:
        make = "make arm64" if found.emulator else "make packages"
        pytest.skip(f"{found.name}: no {' and no '.join(missing)}; `{make}` installs what is missing as root")
    return found


@pytest.fixture(scope="module")
def program(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calls") / "calls"
    subprocess.run([target.compiler, "-O2", "-o", str(made), str(CALLS)], check=True, timeout=60)
    return made


@dataclass(frozen=True)
class Disk:
    """A folder whose disk the library controls, through a file of words.

    ``target`` and ``program``: make calls in that folder.
    """

    target: Target
    program: Path
    place: Path

    @property
    def folder(self) -> Path:
        return self.place / "data"

    @property
    def words(self) -> tuple[int, ...]:
        return struct.unpack("<12q", (self.place / "words").read_bytes())

    def set_words(self, *words: int) -> None:
        (self.place / "words").write_bytes(struct.pack("<12q", *words, *[0] * (12 - len(words))))

    def start(self, calls: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.place / "data-outside").write_text("outside")
        for call in calls:
            if call == "rmdir":
                (self.folder / call).mkdir()
            elif not call.startswith("mkdir"):
                (self.folder / call).write_text("hello")
        library = self.place / "library.so"
        compiled = preload.PreloadLibrary("slowness", "", "SLOWNESS_FILE", "words", b"")
        library.write_bytes(preload.compile_here(compiled, self.target.compiler))
        own = {"LD_PRELOAD": str(library), preloaded.DISK_VARIABLE: str(self.folder), **environment}
        argv, more = self.target.command(self.program, own)
        argv += [str(self.folder), *calls]
        return subprocess.Popen(argv, cwd=self.place, env=os.environ | more, stdout=subprocess.PIPE, text=True)

    def run(self, calls: Sequence[str], **environment: str) -> tuple[int, dict[str, int]]:
        """Returns the exit code, and the error of each call that ended."""
        with self.start(calls, **environment) as started:
            printed, _ = started.communicate(timeout=60)
        return started.returncode, {name: int(error) for name, error in map(str.split, printed.splitlines())}

    def contents(self) -> dict[str, str | None]:
        return {path.name: path.read_text() if path.is_file() else None for path in self.folder.iterdir()}


@pytest.fixture
def disk(target: Target, program: Path, tmp_path: Path) -> Disk:
    return Disk(target, program, tmp_path)


def test_the_program_makes_every_call_that_the_libraries_wrap() -> None:
    source = Path(preload.__file__).with_name("slowness.c").read_text()
    wrapped = re.findall(r"^(?:SYNCED|READ|WRITTEN|COPIED|SIZED|NAMED|CHANGED\(int,) ?\(?(\w+),", source, re.MULTILINE)
    assert sorted(wrapped) == sorted([*READS, *(call for calls in CHANGES.values() for call in calls)])


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_rejected_and_changes_nothing(disk: Disk, change: DiskChange) -> None:
    calls = CHANGES[change]
    disk.set_words(0, 0, 0, 0, len(calls), preloaded.BITS[change])
    assert disk.run(calls) == (0, dict.fromkeys(calls, errno.EIO))
    assert disk.words[4] == 0
    assert disk.words[9:11] == (len(calls), 0)
    found = disk.contents()
    assert set(found) == {call for call in calls if not call.startswith("mkdir")}
    assert set(found.values()) <= {"hello", None}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_other_kinds_succeed(disk: Disk, change: DiskChange) -> None:
    calls = CHANGES[change]
    disk.set_words(0, 0, 0, 0, len(calls), sum(preloaded.BITS.values()) - preloaded.BITS[change])
    assert disk.run(calls) == (0, dict.fromkeys(calls, 0))
    assert disk.words[9:11] == (0, 0)
    if change is not DiskChange.FSYNC:
        assert not {*disk.contents().items()} & {(call, "hello") for call in calls}


def test_an_fsync_and_a_read_or_write_in_the_folder_is_slow_and_counted(disk: Disk) -> None:
    calls = [*READS, *CHANGES[DiskChange.FSYNC], *CHANGES[DiskChange.WRITE]]
    in_folder = {*calls} - {"fsync", "fdatasync", "sendfile", "sendfile64", "copy_file_range"}
    disk.set_words(round(SECONDS * preloaded.MICROSECONDS), 1000)
    began = time.monotonic()
    assert disk.run(calls) == (0, dict.fromkeys(calls, 0))
    assert time.monotonic() - began >= 2 * SECONDS
    assert disk.words[6:8] == (2, len(in_folder)), "copies read a file outside the folder"


@pytest.mark.parametrize(("errors", "content"), [(preloaded.ENDS, "hello"), (preloaded.ENDS_AFTER, "xello")])
def test_the_process_ends_before_or_after_a_write(disk: Disk, errors: int, content: str) -> None:
    disk.set_words(0, 0, 0, 1, errors, preloaded.BITS[DiskChange.WRITE])
    assert disk.run(["pwrite64", "write"]) == (-signal.SIGKILL, {"pwrite64": 0})
    assert disk.words[9:11] == (0, 1)
    assert disk.contents() == {"pwrite64": "xello", "write": content}


def test_a_process_that_stops_itself_in_an_fsync_is_named(disk: Disk) -> None:
    disk.set_words(300_000, 0, 100_000)
    argv = ["sh", "-c", preloaded.read_disk_command(str(disk.place / "words"))]
    with disk.start(["fsync"]) as started:
        try:
            deadline = time.monotonic() + 20
            shown = ""
            while not shown.endswith("T\n"):
                assert time.monotonic() < deadline, shown
                time.sleep(0.02)
                shown = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
            assert preloaded.parse_slowed(shown) == Slowed(1, 0, 1, True)
            assert disk.words[preloaded.STOPPED] == started.pid
            os.kill(started.pid, signal.SIGCONT)
            assert started.communicate(timeout=20)[0] == "fsync 0\n"
        finally:
            started.kill()


def test_a_sidecar_is_slow_but_its_calls_are_neither_rejected_nor_counted(disk: Disk) -> None:
    disk.set_words(round(SECONDS * preloaded.MICROSECONDS), 0, 0, 0, 1, preloaded.BITS[DiskChange.FSYNC])
    before, began = disk.words, time.monotonic()
    assert disk.run(["fsync"], **{SIDECAR_MARK: "1"}) == (0, {"fsync": 0})
    assert time.monotonic() - began >= SECONDS
    assert disk.words == before


@pytest.mark.parametrize("beside", [False, True], ids=["main", "sidecar"])
def test_wall_clocks_are_shifted_and_the_monotonic_clock_is_not(
    target: Target, program: Path, tmp_path: Path, beside: bool
) -> None:
    library, file = tmp_path / "shift.so", tmp_path / "shift"
    library.write_bytes(preload.compile_here(replace(preload.CLOCK, file="shift"), target.compiler))
    file.write_bytes(struct.pack("<3q", round(SHIFT * preloaded.NANOSECONDS), 0, 0))
    environment = {"LD_PRELOAD": str(library)} | ({SIDECAR_MARK: "1"} if beside else {})
    argv, more = target.command(program, environment)
    done = subprocess.run(
        [*argv, str(tmp_path), *CLOCKS, "monotonic"],
        cwd=tmp_path, env=os.environ | more, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    shown = {name: int(moment) / preloaded.NANOSECONDS for name, moment in map(str.split, done.stdout.splitlines())}
    now = time.time()
    assert {name: round((shown[name] - now) / SHIFT, 1) for name in CLOCKS} == dict.fromkeys(CLOCKS, 1.0)
    assert shown["monotonic"] == pytest.approx(time.monotonic(), abs=60)
    _, last, reads = struct.unpack("<3q", file.read_bytes())
    assert last == (0 if beside else round(SHIFT * preloaded.NANOSECONDS))
    assert (reads >= len(CLOCKS)) is not beside
