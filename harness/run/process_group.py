"""Commands in a process group of their own: Ctrl-C in the terminal does not reach them, and their children end with
them.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def start_group(
    command: Sequence[str], output: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a command with its output in a file, because a surviving child would hold a pipe open.

    Raises ``OSError``.
    """
    with output.open("wb") as written:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signals the leader and the children in its group; does nothing if they have ended."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)
