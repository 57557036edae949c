"""The log cleaner: one task that compacts the logs of this broker one after the other, the dirtiest first.

Replicas are cleaned each on its own, leaders and followers alike: what compaction takes says nothing to whoever reads
the log later, and offsets do not change. How far each log is clean stands in ``cleaner-offset-checkpoint``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.log import cleaner
from assay.system_under_test.log.checkpoints import CLEANED, CheckpointError, OffsetCheckpoint
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.records.message import RecordError
from assay.system_under_test.replication.partition import Partition
from assay.system_under_test.runtime import Storage

_log = logging.getLogger("assay.cleaner")


class LogCleaner:
    """See the module. ``cutting`` is held by whoever notes something that a cut would make untrue."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        partitions: Callable[[], Iterable[Partition]],
        cutting: asyncio.Lock,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._cutting = cutting
        self._storage = storage
        self._path = f"{config.data_dir}/{CLEANED}"
        self._checkpoint = OffsetCheckpoint(storage, self._path)

    def open(self) -> None:
        """A checkpoint that makes no sense is none: then everything is looked at again."""
        try:
            self._checkpoint.load()
        except CheckpointError as error:
            _log.error("%s; it is removed", error)
            self._storage.remove(self._path)

    async def run(self) -> None:
        """Ends only by cancellation."""
        while True:
            await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
            ratios = {partition: work.ratio for partition in self._partitions() if (work := self._due(partition))}
            for partition in sorted(ratios, key=lambda partition: -ratios[partition]):
                try:
                    await self._clean(partition)
                except cleaner.Interrupted:
                    _log.info("%s: changed while it was being cleaned; later", partition.key)
                except (CorruptLog, RecordError, OSError) as error:
                    _log.error("%s: not cleaned: %s", partition.key, error)

    async def before_cut(self, partition: Partition, offset: int) -> None:
        """What will stand at ``offset`` and beyond has never been cleaned. ``cutting`` is held."""
        if offset < self._clean_to(partition):
            await self._checkpoint.write({(partition.topic, partition.index): offset})
        await partition.log.before_cut(offset)

    async def forget(self, topic: str, index: int) -> None:
        """The log is gone."""
        if (topic, index) in self._checkpoint.load():
            await self._checkpoint.write({}, remove=[(topic, index)])

    def _clean_to(self, partition: Partition) -> int:
        return self._checkpoint.load().get((partition.topic, partition.index), 0)

    def _due(self, partition: Partition) -> cleaner.Work | None:
        if not partition.is_configured or not partition.config.compacts:
            return None
        try:
            clean_to = self._clean_to(partition)
            return cleaner.due(partition.log, clean_to, partition.high_watermark, partition.config)
        except CorruptLog as damage:
            _log.error("%s: %s", partition.key, damage)
            return None

    async def _clean(self, partition: Partition) -> None:
        work = self._due(partition)  # again: it is some time since it was looked at
        if work is None:
            return
        log = partition.log

        def purge_later(count: int) -> None:
            delay = partition.config.file_delete_delay_ms / 1000
            asyncio.get_running_loop().call_later(delay, log.purge, count)

        done = await cleaner.clean(log, work, self._config.cleaner_max_keys, purge_later)
        async with self._cutting:
            if await cleaner.note(log, done):
                await self._checkpoint.write({(partition.topic, partition.index): done.end})
        partition.cleaned(done)
