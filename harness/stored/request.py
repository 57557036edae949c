"""What ``assay check`` is asked to judge, and how. Loads nothing heavy: the command's parser reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

AUTO: Final = "auto"
PARQUET: Final = "parquet"
FORMATS: Final = (AUTO, PARQUET, "edn", "jepsen-log")
MODELS: Final = ("register", "cas-register", "kv", "mutex", "fifo-queue", "set")
KEYS: Final = (AUTO, "tuples", "none")
ORDERS: Final = ("time", "file")


@dataclass(frozen=True)
class Request:
    """The history at ``path``. ``model`` None: judge by the contract, in which ``family`` says what objects are."""

    path: Path
    format: str = AUTO
    model: str | None = None
    keys: str = AUTO
    order: str = ORDERS[0]
    refusals: bool = False
    family: str | None = None
    seconds: float | None = None
    """Per key, for the search; None: as much as it takes by default."""
    bytes: int | None = None
    """For the whole search."""
