"""The real file system behind the storage seam."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from assay.system_under_test.runtime import IrregularFileError, Storage
from assay.system_under_test.storage.local import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path / "data"))


def test_a_file_keeps_what_is_appended_and_loses_what_is_cut(storage: Storage) -> None:
    file = storage.open("a")
    file.append(b"hello ")
    file.append(b"world")
    assert (file.size, file.read(6, 100), file.read(100, 5)) == (11, b"world", b"")
    file.truncate(4)
    file.append(b"!")
    file.close()
    again = storage.open("a")
    assert again.read(0, again.size) == b"hell!"
    again.close()


def test_a_slice_refuses_when_its_bytes_are_gone(storage: Storage) -> None:
    file = storage.open("a")
    file.append(b"0123456789")
    part = file.slice(4, 100)
    assert (part.size, part.read()) == (6, b"456789")
    file.truncate(7)
    with pytest.raises(OSError, match="3 of 6 bytes"):
        part.read()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        part.read()


def test_an_append_that_fails_half_way_leaves_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    file = storage.open("a")
    file.append(b"before")
    real = os.pwrite
    calls = 0

    def full_disk(descriptor: int, data: bytes, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return real(descriptor, bytes(data)[:3], position)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full_disk)
    with pytest.raises(OSError, match="No space left"):
        file.append(b"too much")
    monkeypatch.undo()
    assert file.size == len(storage.read_bytes("a")) == 6
    file.append(b"!")
    assert storage.read_bytes("a") == b"before!"
    file.close()


@pytest.mark.parametrize("first", ["file", "path", "folder"])
@pytest.mark.parametrize("second", ["file", "path", "folder"])
def test_after_a_failed_fsync_no_later_one_succeeds(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    async def scenario() -> None:
        file = storage.open("a")
        fsyncs = {"file": file.fsync, "path": lambda: storage.fsync("a"), "folder": lambda: storage.fsync_directory("")}
        with pytest.raises(FileNotFoundError):
            await storage.fsync("not there")
        await fsyncs[first]()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            with pytest.raises(OSError, match="Input/output"):
                await fsyncs[first]()
        with pytest.raises(OSError, match="earlier fsync or truncation failed"):
            await fsyncs[second]()
        file.close()

    asyncio.run(scenario())


def test_an_fsync_that_fails_when_its_caller_is_gone_has_failed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is stopped cancels its flushes, and flushes once more. The kernel reports a failure once."""
    begun, go_on = threading.Event(), threading.Event()

    def broken(descriptor: int) -> None:
        begun.set()
        go_on.wait(10)
        raise OSError(5, "Input/output error")

    async def scenario() -> None:
        file = storage.open("a")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            flushing = asyncio.ensure_future(file.fsync())
            await asyncio.to_thread(begun.wait)
            flushing.cancel()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            await asyncio.wait([flushing])
            assert flushing.cancelled()
        with pytest.raises(OSError, match="earlier fsync or truncation failed"):
            await file.fsync()
        file.close()

    asyncio.run(scenario())


def test_a_file_may_be_closed_while_it_is_fsynced(storage: Storage) -> None:
    async def scenario() -> None:
        file = storage.open("a")
        file.append(b"x")
        pending = asyncio.ensure_future(file.fsync())
        await asyncio.sleep(0)
        file.close()
        await pending

    asyncio.run(scenario())


def test_folders_and_names(storage: Storage) -> None:
    storage.mkdir("t/u")
    storage.mkdir("t/u")
    storage.write_bytes("t/u/b", b"1")
    storage.write_bytes("t/u/a", b"2")
    assert storage.listdir("t/u") == ["a", "b"]
    assert storage.listdir("nowhere") == []
    storage.rename("t/u/a", "t/u/b")
    assert storage.read_bytes("t/u/b") == b"2"
    asyncio.run(storage.fsync("t/u/b"))
    asyncio.run(storage.fsync_directory("t/u"))
    with pytest.raises(OSError, match="not empty"):
        storage.remove("t")
    for path in ("t/u/b", "t/u", "t"):
        storage.remove(path)
    assert not storage.exists("t/u/b")
    with pytest.raises(FileNotFoundError):
        storage.open("t/u/b")


def test_an_absolute_path_begins_at_the_root(storage: Storage, tmp_path: Path) -> None:
    storage.write_bytes("/a", b"1")
    assert storage.read_bytes("a") == b"1"
    assert (storage.resolve("/a"), storage.resolve("a")) == ("/a", "a")


@pytest.mark.parametrize("path", ["/../etc/passwd", "../x", "a/../../x"])
def test_a_path_cannot_leave_the_root(storage: Storage, path: str) -> None:
    with pytest.raises(ValueError, match="below the storage's root"):
        storage.exists(path)


def test_what_is_reserved_is_taken_up_and_filled_and_given_back(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "data" / "a"
    file = storage.open("a")
    file.append(b"12")
    file.reserve(20_000)
    assert (file.size, path.stat().st_size) == (2, 20_000)
    assert path.stat().st_blocks * 512 >= 20_000
    file.append(b"345")
    assert (file.size, file.read(0, 100), path.stat().st_size) == (5, b"12345", 20_000)
    other = storage.open("a")
    assert (other.size, other.read(0, 7)) == (20_000, b"12345\0\0")
    other.close()
    file.reserve(0)
    assert (file.size, path.read_bytes()) == (5, b"12345")
    file.reserve(3)
    assert path.read_bytes() == b"12345"
    file.close()


@pytest.mark.parametrize("size", [2, 5, 9])
def test_a_cut_gives_back_what_is_reserved(storage: Storage, tmp_path: Path, size: int) -> None:
    file = storage.open("a")
    file.append(b"12345")
    file.reserve(100)
    file.truncate(size)
    assert (tmp_path / "data" / "a").read_bytes() == b"12345"[:size]
    assert file.size == min(size, 5)
    file.close()


def test_a_reservation_that_fails_takes_up_nothing(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(28, "No space left on device")

    file = storage.open("a")
    file.append(b"12")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        file.reserve(100)
    assert (file.size, (tmp_path / "data" / "a").read_bytes()) == (2, b"12")
    file.close()


def test_what_is_no_regular_file_is_an_error_and_no_one_waits_for_its_other_end(
    storage: Storage, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "data" / "pipe")
    for use in (
        lambda: storage.read_bytes("pipe"),
        lambda: storage.write_bytes("pipe", b"x"),
        lambda: storage.open("pipe"),
    ):
        with pytest.raises(
            OSError, match=r"this is no regular file, but a regular file belongs here: remove it: '.*/data/pipe'"
        ):
            use()


def test_nothing_is_written_through_a_link(storage: Storage, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "data" / "notes.tmp").symlink_to(victim)
    for use in (lambda: storage.write_bytes("notes.tmp", b"x"), lambda: storage.open("notes.tmp")):
        with pytest.raises(IrregularFileError, match="this is a symbolic link"):
            use()
    assert victim.read_text() == "precious"
    assert storage.read_bytes("notes.tmp") == b"precious", "reading through a link harms nothing"


def test_a_file_that_is_written_again_keeps_nothing_of_before(storage: Storage) -> None:
    storage.write_bytes("a", b"longer")
    storage.write_bytes("a", b"short")
    assert storage.read_bytes("a") == b"short"
