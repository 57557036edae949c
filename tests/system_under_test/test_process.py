"""The broker as a process: closed standard streams, as some service managers leave them, and its event log."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.system_under_test.process import ProcessRuntime

START = """
import os, sys
from assay.system_under_test import __main__, process
def show(entry):
    entry.close()
    print("data", file=sys.stderr)
    return os.open(sys.argv[-1], os.O_RDWR | os.O_CREAT)
__main__.run_process = show
sys.exit(__main__.main())
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_of_the_broker_gets_the_number_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    command = [sys.executable, "-c", START, "broker", "--config=broker.json", "--event-log", str(tmp_path / "file")]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, check=False)
    assert done.returncode > 2, "the number of the first file"
    assert (tmp_path / "file").read_bytes() == b""
    assert done.stdout == b""


def test_a_line_that_a_full_disk_has_cut_does_not_swallow_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    first, second = ProcessRuntime(str(path)), ProcessRuntime(str(path))
    first.open_event_log()
    first.event_log('{"a": 1}')
    room, write = 4, os.write

    def write_to_full_disk(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_to_full_disk)
        with pytest.raises(OSError, match="No space left"):
            first.event_log('{"b": 2}')
    for _ in range(2):
        second.open_event_log()
        second.event_log('{"c": 3}')
    assert path.read_text().splitlines() == ['{"a": 1}', '{"b"', '{"c": 3}', '{"c": 3}']
