"""Reads files that users or other tools wrote, and that may be anything: a FIFO, no JSON, or nested very deep.

This module only uses the standard library, because ``docker_endpoint`` does.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, Final

FILE_TYPES: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


MOST_BYTES: Final = 64 * 2**20
"""Maximum size of a file. None of those that are read here is nearly so large."""


class NotRegularError(OSError):
    """A FIFO, a socket, a device or a folder was found instead of a file."""

    def __init__(self, path: Path, mode: int) -> None:
        kind = FILE_TYPES.get(stat.S_IFMT(mode), "no file")
        super().__init__(errno.EINVAL, f"this is {kind}: put a regular file there", str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def read_regular(path: Path) -> bytes:
    """Reads a file, or a file behind a symbolic link.

    Raises ``OSError``, also for more than ``MOST_BYTES``, and :class:`NotRegularError` unless it is a regular file. So
    it never waits for a writer.
    """
    if not stat.S_ISREG(mode := path.stat().st_mode):  # opening a device may already have an effect
        raise NotRegularError(path, mode)
    # The file may have been replaced since. O_NONBLOCK makes that harmless.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(mode := os.fstat(file.fileno()).st_mode):
            raise NotRegularError(path, mode)
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"more than {MOST_BYTES // 2**20} MiB", str(path))
    return data


def read_regular_json(path: Path) -> Any:
    """Reads a JSON file as :func:`read_regular`.

    Raises ``ValueError`` also for text that is not UTF-8, and for values nested too deep.
    """
    data = read_regular(path)
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
