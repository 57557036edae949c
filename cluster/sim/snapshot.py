"""A copy of all files in a folder of a simulated disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True)
class Snapshot:
    """The content of every file in a folder, by path."""

    folder: str
    files: Mapping[str, bytes]

    @property
    def sums(self) -> dict[str, str]:
        """Size and checksum of each."""
        return {path: f"{len(data)} {crc32(data):08x}" for path, data in self.files.items()}


def within(path: str, folder: str) -> bool:
    """Returns whether a path lies in a folder, at any depth."""
    return f"/{path.strip('/')}".startswith(f"/{folder.strip('/')}/".replace("//", "/"))
