"""``through.json`` of a history: by worker, the node through which its clients reached the system, where that is known.

It is beside the data sets, and no check rests on it: it names a node in what is said of an operation.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.core.files import read_json

FILE: Final = "through.json"


def encode(through: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(sorted(through.items())))


def read(folder: Path) -> dict[str, str]:
    """Of a history's folder; empty where nothing is known, as of a run that goes on."""
    try:
        return read_json(folder / FILE, dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
