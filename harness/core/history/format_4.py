"""Histories of format 4: today's, without what controllers say of their state machines and of who is out of sync."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from assay.harness.core.history.schema import SCHEMAS

ADDED: Final[Mapping[str, tuple[str, ...]]] = {"events": ("replica", "from_state", "to_state", "osr")}
"""The columns that came with format 5."""


def schema(name: str) -> pa.Schema:
    """A data set's columns as format 4 had them."""
    return pa.schema([field for field in SCHEMAS[name] if field.name not in ADDED.get(name, ())])
