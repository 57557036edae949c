"""The file ``through.json`` of a history: by worker, the node through which its clients reached the system, if known.

No check depends on it: it serves to name a node when an operation is described.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.core.files import read_json_if_valid

FILE: Final = "through.json"


def encode_worker_nodes(through: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(sorted(through.items())))


def read_worker_nodes(folder: Path) -> dict[str, str]:
    """Reads the file of a history's folder; empty if there is none, as during a run."""
    return read_json_if_valid(folder / FILE, dict[str, str]) or {}
