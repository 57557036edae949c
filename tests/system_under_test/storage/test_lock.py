"""The lock of a file, in both worlds: it lasts as long as the process that has it, however that ends, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from assay.cluster.sim.disk import SimDisk, SimStorage
from assay.cluster.sim.runtime import DeadProcessError
from assay.system_under_test.storage.local import LocalStorage

LOCKING = """
import subprocess, sys
from assay.system_under_test.storage.local import LocalStorage
LocalStorage(sys.argv[1]).lock("data/.lock")
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL) if "child" in sys.argv else None
print(child.pid if child else "locked", flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that has locked ``data/.lock``; ``said`` is what it printed once it had."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-c", LOCKING, str(folder), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def holder(folder: Path) -> Iterator[Holder]:
    made = Holder(folder)
    assert made.said == "locked"
    yield made
    made.end()


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, inode and time of the last change of each file."""
    found = {}
    for path in sorted((folder / "data").iterdir()):
        about = path.stat()
        found[path.name] = (path.read_bytes(), about.st_ino, about.st_ctime_ns)
    return found


def test_a_second_process_is_refused_with_the_holder_named_and_changes_nothing(folder: Path, holder: Holder) -> None:
    before = state(folder)
    with pytest.raises(BlockingIOError, match=rf"process {holder.process.pid} holds the lock.*\.lock"):
        LocalStorage(str(folder)).lock("data/.lock")
    assert state(folder) == before


@pytest.mark.parametrize("kind", ["symbolic link", "FIFO", "link to nowhere"])
def test_a_lock_that_is_no_regular_file_is_refused_and_nothing_is_written(folder: Path, kind: str) -> None:
    target, lock = folder / "target", folder / "data" / ".lock"
    if kind == "FIFO":
        os.mkfifo(lock)
    else:
        lock.symlink_to(target)
    if kind == "symbolic link":
        target.write_text("precious")
    with pytest.raises(OSError, match=r"a regular file belongs here.*\.lock"):
        LocalStorage(str(folder)).lock("data/.lock")
    assert target.exists() is (kind == "symbolic link")
    assert kind != "symbolic link" or target.read_text() == "precious"


def test_a_killed_process_releases_the_lock(folder: Path, holder: Holder) -> None:
    holder.end()
    LocalStorage(str(folder)).lock("data/.lock")
    assert (folder / "data/.lock").read_text() == f"{os.getpid()}\n"


def test_a_stopped_process_keeps_the_lock(folder: Path, holder: Holder) -> None:
    holder.process.send_signal(signal.SIGSTOP)
    os.waitpid(holder.process.pid, os.WUNTRACED)
    with pytest.raises(BlockingIOError):
        LocalStorage(str(folder)).lock("data/.lock")


def test_a_program_that_the_holder_started_does_not_keep_the_lock(folder: Path) -> None:
    holder = Holder(folder, "child")
    try:
        holder.end()
        LocalStorage(str(folder)).lock("data/.lock")
    finally:
        os.kill(int(holder.said), signal.SIGKILL)


def test_a_lock_file_without_a_lock_refuses_no_process(folder: Path) -> None:
    (folder / "data/.lock").write_text("1\n")
    LocalStorage(str(folder)).lock("data/.lock")


def test_a_holder_that_left_no_note_is_still_a_holder(folder: Path, holder: Holder) -> None:
    os.truncate(folder / "data/.lock", 0)
    with pytest.raises(BlockingIOError, match="process unknown holds the lock"):
        LocalStorage(str(folder)).lock("data/.lock")


def test_a_full_disk_does_not_refuse_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        LocalStorage(str(folder)).lock("data/.lock")
    with pytest.raises(BlockingIOError):
        LocalStorage(str(folder)).lock("data/.lock")


def test_a_locked_file_that_is_elsewhere_is_noticed_in_both_worlds(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for storage, other in (
        (LocalStorage(str(tmp_path)), LocalStorage(str(tmp_path))),
        (SimProcess(disk := disk_with_data(), "n1.1").storage, SimProcess(disk, "n1.2").storage),
    ):
        assert not storage.has_lost_lock("data/.lock"), "it was never locked"
        storage.lock("data/.lock")
        assert not storage.has_lost_lock("data/.lock")
        storage.rename("data", "moved")
        assert storage.has_lost_lock("data/.lock")
        storage.mkdir("data")
        assert storage.has_lost_lock("data/.lock")
        other.lock("data/.lock")
        assert storage.has_lost_lock("data/.lock")
        assert not other.has_lost_lock("data/.lock")
        other.rename("data", "other")
        storage.rename("moved", "data")
        assert not storage.has_lost_lock("data/.lock")


def test_a_folder_is_made_without_its_parents_in_both_worlds(tmp_path: Path) -> None:
    for storage in (LocalStorage(str(tmp_path)), SimDisk(Random(1)).storage()):
        with pytest.raises(FileNotFoundError):
            storage.mkdir("data/t-0", parents=False)
        assert not storage.exists("data")
        storage.mkdir("data", parents=False)
        for _ in range(2):
            storage.mkdir("data/t-0", parents=False)
        storage.open("data/file").close()
        with pytest.raises(OSError, match="data/file"):
            storage.mkdir("data/file", parents=False)


# -- the simulation ------------------------------------------------------------------------------------------------


class SimProcess:
    """A process of one simulated node; ``dead`` once it was killed."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self.dead = False
        self.storage: SimStorage = disk.storage(self._check, name=name)

    def _check(self) -> None:
        if self.dead:
            raise DeadProcessError(3, "killed")


def disk_with_data() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.write("data/meta", b"1")
    return disk


def test_in_the_simulation_a_second_process_is_refused_too() -> None:
    disk = disk_with_data()
    SimProcess(disk, "n1.1").storage.lock("data/.lock")
    before = disk.snapshot("data")
    with pytest.raises(BlockingIOError, match=r"process n1\.1 holds the lock"):
        SimProcess(disk, "n1.2").storage.lock("data/.lock")
    assert disk.snapshot("data") == before


def test_in_the_simulation_a_killed_process_releases_the_lock() -> None:
    disk = disk_with_data()
    first, second = SimProcess(disk, "n1.1"), SimProcess(disk, "n1.2")
    first.storage.lock("data/.lock")
    first.dead = True
    second.storage.lock("data/.lock")
    assert disk.read("data/.lock") == b"n1.2\n"


def test_in_the_simulation_a_power_loss_releases_the_lock() -> None:
    disk = disk_with_data()
    first = SimProcess(disk, "n1.1")
    first.storage.lock("data/.lock")
    first.dead = True
    disk.cut_power()
    SimProcess(disk, "n1.2").storage.lock("data/.lock")


def test_in_the_simulation_each_node_has_locks_of_its_own() -> None:
    for name in ("n1.1", "n2.1"):
        SimProcess(disk_with_data(), name).storage.lock("data/.lock")


def test_a_locked_file_leaves_the_chance_of_a_power_loss_as_it_was() -> None:
    def survivors(*, locked: bool) -> list[str]:
        disk = SimDisk(Random(3))
        process = SimProcess(disk, "n1.1")
        disk.write("data/meta", b"1")
        if locked:
            process.storage.lock("data/.lock")
            disk._tree.make_names_durable("data/.lock")  # as the broker's first note in its directory has it
        for number in range(20):
            file = process.storage.open(f"data/{number}")
            file.append(b"x" * 50)
        process.dead = True
        disk.cut_power()
        return [f"{path} {disk.read(path)!r}" for path in disk.files() if not path.endswith(".lock")]

    assert survivors(locked=True) == survivors(locked=False)


def test_two_processes_that_write_one_file_overwrite_each_other_as_on_a_real_disk(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = disk_with_data()
    results = []
    for one, two in (
        (LocalStorage(str(tmp_path)), LocalStorage(str(tmp_path))),
        (SimProcess(disk, "n1.1").storage, SimProcess(disk, "n1.2").storage),
    ):
        first = one.open("data/log")
        first.append(b"0123456789")
        second = two.open("data/log")
        first.append(b"abcdef")
        assert second.size == 10
        second.append(b"XY")
        again = one.open("data/log")
        seen = [again.read(0, 100)]
        second.truncate(4)
        first.append(b"!")
        seen += [first.read(0, 100), one.read_bytes("data/log")]
        results.append(seen)
    assert results[0] == results[1]
    assert results[0][0] == b"0123456789XYcdef"
    assert results[0][1] == b"0123" + bytes(12) + b"!"
