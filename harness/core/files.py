"""A file that is there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step. Raises ``OSError``, and then the file is as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
    except OSError:
        temporary.unlink(missing_ok=True)  # half a file takes room on a disk that may be full
        raise
    os.replace(temporary, path)
