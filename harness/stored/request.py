"""Arguments of ``assay check``. The module imports nothing heavy, because the command line parser imports it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.stored.workload_table import BY_NAME

AUTO: Final = "auto"
PARQUET: Final = "parquet"
FORMATS: Final = (AUTO, PARQUET, "edn", "json", "history-txt", "jepsen-log")
MODELS: Final[Mapping[str, str]] = {
    "register": "read, write",
    "cas-register": "and cas",
    "kv": "get, put, append; strings",
    "mutex": "acquire, release; anyone may release",
    "owner-mutex": "only its owner may release",
    "reentrant-mutex": "its owner may acquire it again; (2): at most twice",
    "fenced-mutex": "an owner-mutex whose acquire returns a rising fence",
    "fenced-reentrant-mutex": "both",
    "lease-mutex(10)": "and renew; the owner keeps it for at least 10 s",
    "semaphore(2)": "acquire, release of 2 permits",
    "owner-semaphore(2)": "only who acquired a permit may release it",
    "fifo-queue": "enqueue, dequeue",
    "unordered-queue": "enqueue, dequeue in any order",
    "set": "add, remove, contains, read",
}
"""The built-in models, with an example of the arguments that a model needs, and with their operations or rules."""
MODEL_NAMES: Final = tuple(name.partition("(")[0] for name in MODELS)
WORKLOADS: Final = tuple(BY_NAME)
KEYS: Final = (AUTO, "tuples", "none")
ORDERS: Final = (AUTO, "time", "file")
READING: Final = "reading"
"""The stage of progress in which a file is read. The name of the file follows."""


@dataclass(frozen=True)
class CheckRequest:
    """Request to judge the history at ``path``, by its contract without ``model`` and ``workload``."""

    path: Path
    format: str = AUTO
    model: str | None = None
    """A name of ``MODEL_NAMES`` or ``package.module:Class``, perhaps with arguments in parentheses."""
    initial: tuple[str, ...] = ()
    """Initial values of registers, as texts: ``0`` for all keys, ``x=0`` for key x."""
    workload: str | None = None
    """The name of a workload, one of ``WORKLOADS``."""
    total: int | None = None
    """The sum of all balances of a bank; None: the sum that most reads show."""
    negative_balances: bool = False
    """Whether accounts of a bank may hold less than nothing."""
    linearizable: bool = False
    """Whether a workload is asked for linearizability, beyond its original question."""
    keys: str = AUTO
    """How the keys of a file's operations are found: one of ``KEYS``."""
    order: str = ORDERS[0]
    """The order of a file's entries: one of ``ORDERS``."""
    refusals: bool = False
    """Whether a ``:fail`` of a CAS in a file means that the register had another value (``--cas-refusals``)."""
    real_time: bool = False
    """Whether an operation that ended before another one began must also precede it in the order."""
    level: str | None = None
    """The isolation level that transactions must satisfy; None: the default of the workload."""
    all_reads: bool = False
    """Whether the reads of failed and unknown transactions are judged as well."""
    certificate: Path | None = None
    """The file to which the certificate of an isolation level is written."""
    contract: str | None = None
    """The contract for a history that has lost its own: ``strictest``, or a file with one."""
    seconds: float | None = None
    """Time limit per key for the search; None: the default."""
    bytes: int | None = None
    """Memory limit for the whole search."""
    every_key: bool = False
    """Whether the search goes on to the limit of each key even if another key is wrong."""
