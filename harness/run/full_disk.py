"""A store whose disk is full: said in one line, with room kept in reserve to write down that it happened."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class FullDiskError(Exception):
    """The run could not be written down; the message says where, how much is free, and the remedies."""


@contextmanager
def naming_a_full_disk(root: Path) -> Iterator[None]:
    """Whatever a full disk of the store ``root`` made of an error becomes a :class:`FullDiskError`."""
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
    """Whether this error, or one that led to it, is that of a full disk or a quota that is used up."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass(frozen=True)
class Reserve:
    """A file that takes room, to be given up where something small must be written though the disk is full."""

    path: Path

    def keep(self, size: int) -> None:
        """Does nothing on a disk that has no room for it."""
        with suppress(OSError):
            self.path.write_bytes(bytes(size))

    def give_up(self, size: int | None = None) -> bool:
        """So many bytes of it, or all; False: there is none any more."""
        there = self.path.stat().st_size if self.path.exists() else 0
        if size is not None and there > size:
            os.truncate(self.path, there - size)
        else:
            self.path.unlink(missing_ok=True)
        return there > 0
