"""Commands in a process group of their own: Ctrl-C in the terminal does not reach them, and their children end with
them.
"""

import os
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from assay.cluster.operating_system import list_open_files


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
    with suppress(ProcessLookupError, PermissionError):  # macOS denies permission if all members are zombies
        os.killpg(leader, number)


def has_open_file(pid: int, folder: Path) -> bool:
    """Returns whether a process has a file of this folder open; False if that is hidden from this user.

    A file with several hard links does not count, because one of them may lie in another folder.
    """
    own = {(one.st_dev, one.st_ino) for one in map(Path.lstat, folder.iterdir()) if _is_only_link(one)}
    return any((found.st_dev, found.st_ino) in own for found in list_open_files(pid))


def _is_only_link(file: os.stat_result) -> bool:
    return stat.S_ISREG(file.st_mode) and file.st_nlink == 1
