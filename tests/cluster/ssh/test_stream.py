"""Tests the lines of a command that runs on a node: their limits, and that a node waits for a slow reader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from assay.cluster.ssh import stream
from assay.cluster.ssh.connection import LINE_BYTES, LongLineError, SshConnection
from assay.cluster.ssh.stream import LineStream, follow_command

from helpers.ssh_machine import machine

pytestmark = pytest.mark.slow


async def read_lines(connection: SshConnection, command: str, count: int) -> tuple[list[str | None], LineStream]:
    lines = LineStream(connection, lambda delivered: command, asyncio.get_running_loop(), "lines")
    try:
        return [await lines.next_line() for _ in range(count)], lines
    finally:
        await asyncio.to_thread(lines.close)


@pytest.mark.parametrize("size", [LINE_BYTES, 2 * LINE_BYTES])
def test_a_line_of_no_end_is_an_error_and_a_long_one_is_a_line(size: int) -> None:
    with machine() as there:
        connection = SshConnection("n1", there.login)
        try:
            connection.connect(time.monotonic() + 10)
            long = size - 65536 if size == LINE_BYTES else size
            command = f"echo begin; head -c {long} /dev/zero | tr '\\0' x; echo; sleep 9"
            (begin, line), lines = asyncio.run(read_lines(connection, command, 2))
        finally:
            connection.close()
    assert begin == "begin"
    if size == LINE_BYTES:
        assert (line, lines.error) == ("x" * long, None)
    else:
        assert line is None
        assert isinstance(lines.error, LongLineError)
        assert "n1: a line has more than 16 MiB: `echo begin; " in str(lines.error)


def test_what_follows_the_last_line_feed_is_known_when_the_stream_is_closed() -> None:
    async def read(connection: SshConnection) -> tuple[list[str | None], LineStream]:
        command = "printf 'one\\ntwo\\nhalf a line'; sleep 99"
        lines = LineStream(connection, lambda delivered: command, asyncio.get_running_loop(), "lines")
        try:
            return [await lines.next_line() for _ in range(2)], lines
        finally:
            await asyncio.to_thread(lines.close)

    with machine() as there:
        connection = SshConnection("n1", there.login)
        try:
            connection.connect(time.monotonic() + 10)
            found, lines = asyncio.run(read(connection))
        finally:
            connection.close()
    assert found == ["one", "two"]
    assert lines.rest == "half a line"
    assert lines.error is None


def test_a_node_waits_for_a_reader_that_is_slow_and_no_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_WAITING", 10)
    log, count = tmp_path / "events", 3000
    log.write_text("".join(f"{number} {'x' * 5000}\n" for number in range(count)))

    async def read(connection: SshConnection) -> list[int]:
        lines = LineStream(connection, follow_command(str(log)), asyncio.get_running_loop(), "lines")
        try:
            numbers = []
            for _ in range(count):
                line = await lines.next_line()
                assert line is not None
                numbers.append(int(line.partition(" ")[0]))
                if len(numbers) == 1:
                    await asyncio.sleep(0.5)
                    assert lines._queue.qsize() <= 10
            return numbers
        finally:
            await asyncio.to_thread(lines.close)

    with machine() as there:
        connection = SshConnection("n1", there.login)
        try:
            connection.connect(time.monotonic() + 10)
            assert asyncio.run(read(connection)) == list(range(count))
        finally:
            connection.close()
