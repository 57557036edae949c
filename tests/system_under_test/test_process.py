"""The broker as a process whose standard streams are closed, as some service managers start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
