"""The last log lines of a run's nodes, shown with the error of a failed start."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LINES: Final = 8
"""Lines per log."""
NODES: Final = 3
READ: Final = 65536
"""Bytes of each log, from its end."""


def read_last_lines(logs: Path, error: str) -> list[str]:
    """Returns lines to print for the nodes that ``error`` names, else for the first ones; ``logs`` has a folder per
    node.
    """
    folders = sorted(folder for folder in logs.glob("*") if folder.is_dir())
    named = [folder for folder in folders if re.search(rf"\b{re.escape(folder.name)}\b", error)]
    lines: list[str] = []
    for folder in (named or folders)[:NODES]:
        said = [(path.name, _read_end(path)) for path in sorted(folder.glob("*"))]
        for name, end in said:
            if end:
                lines += [f"the last lines of {folder.name}'s {name}:", *(f"  {line}" for line in end)]
        if not any(end for _, end in said):
            lines.append(f"{folder.name} printed nothing")
    return lines


def _read_end(path: Path) -> Iterable[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - READ))
        return file.read().decode(errors="replace").rstrip().splitlines()[-LINES:]
