"""A command that leads a process group of its own: a terminal's Ctrl-C passes it by, what it starts ends with it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def start(
    command: Sequence[str], output: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """What it prints goes straight into the file: a pipe would be held open by what it leaves behind.

    Raises ``OSError`` if it cannot start.
    """
    with output.open("wb") as written:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def signal_group(leader: int, number: signal.Signals) -> None:
    """To the leader and all that it has started and not put elsewhere; nothing where they are gone."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)
