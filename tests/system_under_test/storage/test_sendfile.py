"""Large slices go out by sendfile: whole, in order, at the reader's pace, and as they were when they were sent."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from assay.system_under_test.runtime import File, IrregularFileError
from assay.system_under_test.storage import local
from assay.system_under_test.storage.local import LocalStorage

SIZE = 12 * 1024 * 1024
"""More than the sockets of both sides take."""
FROM = 64 * 1024
"""Small enough for the sockets to take it all."""
Sending = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def from_small_sizes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SENDFILE_MIN_BYTES", FROM)


@pytest.fixture
def content() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.fixture
def file(storage: LocalStorage, content: bytes) -> File:
    made = storage.open("log")
    made.append(content)
    return made


@pytest.fixture
def sendfiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns what sendfile was asked for, in bytes."""
    asked: list[int] = []
    real = os.sendfile

    def noting(out: int, descriptor: int, position: int, size: int) -> int:
        asked.append(size)
        return real(out, descriptor, position, size)

    monkeypatch.setattr(local.os, "sendfile", noting)
    return asked


@asynccontextmanager
async def reading(send: Sending) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.Task[None]]]:
    """The receiving end of a connection on whose other end ``send`` is at work, and that work. Never for long."""
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    work = asyncio.ensure_future(send(await accepted))
    try:
        async with asyncio.timeout(20):
            yield reader, work
    finally:
        work.cancel()
        await asyncio.wait([work])
        writer.transport.abort()
        (await accepted).transport.abort()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


async def stuck(work: asyncio.Task[None]) -> None:
    """Waits until the sockets are full."""
    await asyncio.sleep(0.1)
    assert not work.done()


def test_slices_and_bytes_arrive_in_order(file: File, content: bytes, sendfiles: list[int]) -> None:
    parts = [(0, 5), (100, FROM), (7, SIZE - 7), (3, 4_000), (SIZE - FROM, FROM)]

    async def send(writer: asyncio.StreamWriter) -> None:
        for start, size in parts:
            writer.write(b"<" * 100_000)
            await file.slice(start, size).send(writer)
            writer.write(b">")
        writer.write_eof()

    async def check() -> None:
        async with reading(send) as (reader, work):
            expected = b"".join(b"<" * 100_000 + content[start : start + size] + b">" for start, size in parts)
            assert await reader.read(-1) == expected
            await work

    asyncio.run(check())
    assert len(sendfiles) >= 3
    assert min(sendfiles) > 0
    file.close()


def test_a_reader_that_takes_nothing_holds_little_memory_and_gets_all_in_the_end(file: File, content: bytes) -> None:
    buffered: list[int] = []

    async def send(writer: asyncio.StreamWriter) -> None:
        sending = asyncio.ensure_future(file.slice(0, SIZE).send(writer))
        while not sending.done():
            buffered.append(writer.transport.get_write_buffer_size())
            await asyncio.sleep(0.001)
        await sending
        writer.write_eof()

    async def check() -> None:
        async with reading(send) as (reader, work):
            await stuck(work)
            assert await reader.read(-1) == content

    asyncio.run(check())
    assert max(buffered) <= local.PIECE
    file.close()


@pytest.mark.slow
@pytest.mark.parametrize("cut", [SIZE // 2 + 1, 100, 0])
def test_what_is_cut_and_written_again_while_a_slice_is_sent_changes_nothing_of_it(
    cut: int, storage: LocalStorage, file: File, content: bytes
) -> None:
    """Also not what was sent already, and lies in the queues of sockets."""

    async def check() -> None:
        async with reading(file.slice(0, SIZE).send) as (reader, work):
            await stuck(work)
            file.truncate(cut)
            file.append(b"new" * 2_000_000)
            assert await reader.readexactly(SIZE) == content
            await work
        expected = content[:cut] + b"new" * 2_000_000
        assert file.read(0, 2 * SIZE) == expected == storage.read_bytes("log")
        assert storage.listdir("") == ["log"]
        await file.fsync()

    asyncio.run(check())
    file.close()


def test_what_was_sent_and_is_not_received_yet_stays_as_it_was_when_it_is_cut(file: File, content: bytes) -> None:
    size = FROM + 1_000

    async def check() -> None:
        async with reading(file.slice(0, size).send) as (reader, work):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await work
            file.truncate(size - 500)
            file.append(b"!" * 5_000)
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            assert await reader.readexactly(size) == content[:size]

    asyncio.run(check())
    file.close()


def test_a_cut_above_what_was_sent_is_made_in_place(storage: LocalStorage, file: File, tmp_path: Path) -> None:
    async def check() -> None:
        async with reading(file.slice(0, 2 * FROM).send) as (reader, work):
            await reader.readexactly(2 * FROM)
            await work

    asyncio.run(check())
    inode = (tmp_path / "log").stat().st_ino
    file.truncate(2 * FROM)
    assert (tmp_path / "log").stat().st_ino == inode
    file.truncate(2 * FROM - 1)
    assert (tmp_path / "log").stat().st_ino != inode
    file.close()


def test_a_cut_that_fails_leaves_a_file_that_is_never_durable_again(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str, target: str) -> None:
        raise OSError(5, "Input/output error")

    async def check() -> None:
        async with reading(file.slice(0, 2 * FROM).send) as (reader, work):
            await reader.readexactly(2 * FROM)
            await work
        monkeypatch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="Input/output"):
            file.truncate(FROM)
        assert file.size == SIZE
        with pytest.raises(OSError, match="an earlier fsync or truncation failed"):
            await file.fsync()

    asyncio.run(check())
    file.close()


def test_a_cut_does_not_write_through_a_link(storage: LocalStorage, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "log.tmp").symlink_to(victim)
    file = storage.open("log")
    file.append(b"0123456789")
    os.close(file.open_for_sendfile(10))
    with pytest.raises(IrregularFileError, match=r"this is a symbolic link.*log\.tmp"):
        file.truncate(4)
    assert (victim.read_text(), file.read(0, 100)) == ("precious", b"0123456789")
    (tmp_path / "log.tmp").unlink()
    file.truncate(4)
    assert storage.read_bytes("log") == b"0123"
    file.close()


def test_a_file_that_is_removed_and_closed_while_a_slice_is_sent_is_sent_whole(
    storage: LocalStorage, file: File, content: bytes
) -> None:
    async def check() -> None:
        async with reading(file.slice(0, SIZE).send) as (reader, work):
            await stuck(work)
            file.close()
            storage.remove("log")
            assert await reader.readexactly(SIZE) == content
            await work

    asyncio.run(check())


def test_a_cut_before_the_sending_is_refused(file: File) -> None:
    async def check() -> None:
        part = file.slice(0, SIZE)
        file.truncate(SIZE - 1)
        async with reading(part.send) as (_, work):
            with pytest.raises(OSError, match=f"only {SIZE - 1} of {SIZE} bytes"):
                await work

    asyncio.run(check())
    file.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["abort", "reset", "cancel"])
def test_a_connection_that_ends_ends_the_sending_and_leaves_no_file_open(end: str, file: File) -> None:
    async def check() -> None:
        ours: list[asyncio.StreamWriter] = []

        async def send(writer: asyncio.StreamWriter) -> None:
            ours.append(writer)
            await file.slice(0, SIZE).send(writer)

        before = len(os.listdir("/proc/self/fd"))
        async with reading(send) as (reader, work):
            await stuck(work)
            if end == "abort":
                ours[0].transport.abort()
            elif end == "reset":
                reader._transport.abort()  # type: ignore[attr-defined]
            else:
                work.cancel()
            await asyncio.wait([work], timeout=5)
            assert work.done(), "it does not wait for ever"
            assert work.cancelled() == (end == "cancel")
            if end != "cancel":
                assert isinstance(work.exception(), ConnectionError)
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(check())
    file.close()
