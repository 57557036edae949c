"""Histories on disk: ``schema`` (the format), ``writer``, ``reader``, ``digest`` (to compare two runs)."""

from assay.harness.core.history.digest import HistoryDigest
from assay.harness.core.history.reader import Closed, HistoryReader
from assay.harness.core.history.schema import (
    ADDED,
    CLOSED,
    DIGESTED,
    EFFECTS,
    EVENTS,
    FAULTS,
    OPS,
    REPLICAS,
    SCHEMAS,
    HistoryError,
)
from assay.harness.core.history.writer import HistoryWriter

__all__ = [
    "ADDED",
    "CLOSED",
    "DIGESTED",
    "EFFECTS",
    "EVENTS",
    "FAULTS",
    "OPS",
    "REPLICAS",
    "SCHEMAS",
    "Closed",
    "HistoryDigest",
    "HistoryError",
    "HistoryReader",
    "HistoryWriter",
]
