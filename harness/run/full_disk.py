"""Handling of a full disk: one clear message, and reserved space to record that it happened."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)


class FullDiskError(Exception):
    """The run could not be written. The message names the disk, its free space and the remedies."""


@contextmanager
def translate_full_disk(root: Path) -> Iterator[None]:
    """Turns errors inside the block that a full disk of the store ``root`` caused into :class:`FullDiskError`."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        free = shutil.disk_usage(root).free if root.exists() else 0
        raise FullDiskError(
            f"No space left on device: the disk of {root} has {free >> 10} KiB free. `assay gc` removes old runs; "
            "--store=FOLDER names another place"
        ) from error


def is_full(error: BaseException | None) -> bool:
    """Returns whether this error, or a cause of it, reports a full disk or an exhausted quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL_ERRNOS:
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass(frozen=True)
class DiskReserve:
    """A file that reserves space. The space is released when something small must be written to a full disk."""

    path: Path

    def allocate(self, size: int) -> None:
        """Creates the file; does nothing if the disk has no space."""
        with suppress(OSError):
            self.path.write_bytes(bytes(size))

    def release(self, size: int | None = None) -> bool:
        """Releases ``size`` bytes, or all. Returns False if nothing is left."""
        allocated = self.path.stat().st_size if self.path.exists() else 0
        if size is not None and allocated > size:
            os.truncate(self.path, allocated - size)
        else:
            self.path.unlink(missing_ok=True)
        return allocated > 0
