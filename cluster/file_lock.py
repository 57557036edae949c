"""Locks among processes: ``flock(2)`` on an open file.

The kernel releases such a lock when its holder dies, so a leftover file does no harm. After a second, a waiting process
prints which process holds the lock. It gives up at a limit, because the holder may be stopped or wait for a network.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from assay.cluster.operating_system import find_lock_holders

ANNOUNCE_AFTER: Final = 1.0
"""Seconds after which a waiting process prints a line to standard error."""
POLL_SECONDS: Final = 0.05
STATE_LOCK_SECONDS: Final = 60.0
"""Maximum seconds to wait for a lock of the state folder, which processes hold only for a moment."""
BUILD_LOCK_SECONDS: Final = 1_800.0
"""Maximum seconds to wait for another process that builds an image and downloads packages."""


class LockHeldError(OSError):
    """Another process has held a lock for the whole limit."""


@contextmanager
def hold_lock(path: Path, limit: float = STATE_LOCK_SECONDS) -> Iterator[None]:
    """Holds an exclusive lock on a file. Creates a missing file, and does not change the content of an existing one.

    Raises :class:`LockHeldError` after ``limit`` seconds, and ``OSError`` for a symbolic link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        wait_for_lock(descriptor, path, limit)
        yield
    finally:
        os.close(descriptor)


def wait_for_lock(descriptor: int, path: Path, limit: float, kind: int = fcntl.LOCK_EX) -> None:
    """Locks an open file. Raises :class:`LockHeldError` after ``limit`` seconds. ``kind``: as for ``flock``."""
    began, announced = time.monotonic(), False
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
        else:
            return
        if waited >= limit:
            raise LockHeldError(
                f"{path} is held by {_name_holders(descriptor)}, and {waited:.0f} s were not enough; "
                "try again when it has ended"
            )
        if waited >= ANNOUNCE_AFTER and not announced:
            announced = True
            print(f"assay: waiting for {_name_holders(descriptor)}, which holds {path}, for at most {limit:.0f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
        time.sleep(POLL_SECONDS)


def _name_holders(descriptor: int) -> str:
    """Returns a text that names the processes that hold a lock of an open file, if the system lists them."""
    holders = find_lock_holders(os.fstat(descriptor))
    return f"process {', '.join(map(str, holders))}" if holders else "another process"
