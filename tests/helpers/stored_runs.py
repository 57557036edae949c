"""Stored runs and synthetic histories with their expected judgements, unpacked once from ``tests/fixtures/runs``."""

from __future__ import annotations

import fcntl
import zipfile
from pathlib import Path
from typing import Final

ARCHIVES: Final = Path(__file__).parents[1] / "fixtures" / "runs"


def _unpack() -> Path:
    """Unpacks the archives, and again if one of them has changed. Several pytest processes may ask at once."""
    target = ARCHIVES.parent / ".unpacked"
    target.mkdir(exist_ok=True)
    archives = sorted(ARCHIVES.glob("*.zip"))
    wanted = "".join(f"{path.name} {path.stat().st_size}\n" for path in archives)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = target / ".done"
        if not done.exists() or done.read_text() != wanted:
            for path in archives:
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(target)
            done.write_text(wanted)
    return target


FIXTURES: Final = _unpack()
"""``format_N/NAME``: the folder of a run or history that was written in format N."""
TODAY: Final = FIXTURES / "format_7"
