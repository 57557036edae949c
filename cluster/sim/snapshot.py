"""Snapshots of files of a simulated disk: the content of all files in a folder, or the state of one file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32


@dataclass(frozen=True)
class FolderSnapshot:
    """The content of every file in a folder, by path."""

    folder: str
    files: Mapping[str, bytes]

    @property
    def sums(self) -> dict[str, str]:
        """Size and checksum of each file."""
        return {path: f"{len(data)} {crc32(data):08x}" for path, data in self.files.items()}


class FileState(NamedTuple):
    """State of a file for a comparison.

    ``life`` changes if the file is truncated or replaced. ``durable``: how many of the first ``size`` bytes survive any
    power loss.
    """

    life: object
    size: int
    durable: int
    held: object
    """Reference that keeps ``life`` (an object id) from being reused."""

    @property
    def unsynced(self) -> int:
        """How many bytes a power loss could take."""
        return self.size - self.durable


def is_within(path: str, folder: str, *, itself: bool = False) -> bool:
    """Returns whether a path lies in a folder, at any depth; with ``itself`` also whether it is that folder."""
    if itself and path.strip("/") == folder.strip("/"):
        return True
    return f"/{path.strip('/')}".startswith(f"/{folder.strip('/')}/".replace("//", "/"))
