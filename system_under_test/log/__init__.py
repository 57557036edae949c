"""The partition log and the small files around it.

``log`` is the way in; ``segment``, ``index``, ``scan``, ``slices``, ``cut`` and ``recovery`` are what it is made of,
``errors`` what it raises. ``cleaner`` compacts it, by ``swap`` and with what ``tombstones`` remembers. ``epochs`` and
``checkpoints`` are what replication remembers about logs, ``directory`` how they lie on a broker's disk.
"""

from assay.system_under_test.log.checkpoints import CheckpointError, OffsetCheckpoint
from assay.system_under_test.log.config import LogConfig
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.log.errors import DamagedLog, OffsetOutOfRange, UnflushedTruncation
from assay.system_under_test.log.log import Log
from assay.system_under_test.log.recovery import Recovery
from assay.system_under_test.log.segment import CorruptLog

__all__ = [
    "CheckpointError",
    "CorruptLog",
    "DamagedLog",
    "EpochHistory",
    "Log",
    "LogConfig",
    "OffsetCheckpoint",
    "OffsetOutOfRange",
    "Recovery",
    "UnflushedTruncation",
]
