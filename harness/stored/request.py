"""What ``assay check`` is asked to judge, and how. Loads nothing heavy: the command's parser reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

AUTO: Final = "auto"
PARQUET: Final = "parquet"
FORMATS: Final = (AUTO, PARQUET, "edn", "jepsen-log")
MODELS: Final = ("register", "cas-register", "kv", "mutex", "fifo-queue", "set")
BANK: Final = "bank"
MONOTONIC: Final = "monotonic"
TRANSACTIONAL: Final = ("list-append", "long-fork", "rw-register")
WORKLOADS: Final = (BANK, "list-append", "long-fork", MONOTONIC, "rw-register", "unique-ids")
ORDERED: Final = (*TRANSACTIONAL, MONOTONIC)
"""Workloads that a system may pass without keeping the order of real time."""
KEYS: Final = (AUTO, "tuples", "none")
ORDERS: Final = ("time", "file")


@dataclass(frozen=True)
class Request:
    """The history at ``path``. Without ``model`` and ``workload`` it is judged by the contract."""

    path: Path
    format: str = AUTO
    model: str | None = None
    workload: str | None = None
    """Of a file: one of ``WORKLOADS``, whose checks in SQL judge it."""
    total: int | None = None
    """What all accounts of a bank hold together; None: what most reads show."""
    keys: str = AUTO
    order: str = ORDERS[0]
    refusals: bool = False
    real_time: bool = False
    """Whether what had ended before something else began must come before it."""
    contract: str | None = None
    """The contract for a history that has lost its own: ``strictest``, or a file with one."""
    seconds: float | None = None
    """Per key, for the search; None: as much as it takes by default."""
    bytes: int | None = None
    """For the whole search."""
