"""The project's root folder and its parts: the folders that are packages of ``assay``."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = tuple(sorted(link.name for link in (ROOT / "src" / "assay").iterdir() if link.is_symlink()))
