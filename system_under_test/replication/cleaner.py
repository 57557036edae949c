"""The log cleaner: one task that compacts this broker's logs one at a time, the dirtiest first.

Each broker cleans its own replicas, whether they lead or follow. This is safe because compaction changes no offsets and
removes only records that later records replace. ``cleaner-offset-checkpoint`` stores the offset up to which each log is
clean.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.log import cleaner
from assay.system_under_test.log.checkpoints import CLEANED_OFFSETS, OffsetCheckpoint
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.records.message import RecordError
from assay.system_under_test.replication.replica import Replica
from assay.system_under_test.runtime import Storage

_log = logging.getLogger("assay.cleaner")


class LogCleaner:
    """The task and its checkpoint.

    The lock ``checkpointing`` is held while the checkpoint is written, so that no truncation happens meanwhile.
    ``require_in_place`` raises an error if the data directory was moved (``log.directory``).
    """

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        replicas: Callable[[], Iterable[Replica]],
        checkpointing: asyncio.Lock,
        require_in_place: Callable[[], None],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._checkpointing = checkpointing
        self._checkpoint = OffsetCheckpoint(storage, f"{config.data_dir}/{CLEANED_OFFSETS}", require_in_place)

    def open(self) -> str | None:
        """Loads the checkpoint. If it is unreadable, returns the problem, and all logs count as dirty."""
        return self._checkpoint.recover()

    async def run(self) -> None:
        """Cleans forever; ends only by cancellation."""
        while True:
            await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
            ratios = {replica: plan.ratio for replica in self._replicas() if (plan := self._plan(replica))}
            for replica in sorted(ratios, key=lambda replica: -ratios[replica]):
                try:
                    await self._clean(replica)
                except cleaner.CleaningInterrupted:
                    _log.info("%s: changed while it was being cleaned; it is cleaned later", replica.key)
                except (CorruptLog, RecordError, OSError) as error:
                    _log.error("%s: not cleaned: %s", replica.key, error)

    async def prepare_truncation(self, replica: Replica, offset: int) -> None:
        """Lowers the checkpoint before a truncation to ``offset``. The caller holds ``checkpointing``."""
        if offset < self._read_cleaned_end(replica):
            await self._checkpoint.write({(replica.topic, replica.index): offset})
        await replica.log.prepare_truncation(offset)

    async def forget(self, topic: str, index: int) -> None:
        """Removes the entry of a deleted log."""
        await self._checkpoint.remove((topic, index))

    def _read_cleaned_end(self, replica: Replica) -> int:
        """Returns the offset below which the log has been compacted, by the checkpoint."""
        return self._checkpoint.load().get((replica.topic, replica.index), 0)

    def _plan(self, replica: Replica) -> cleaner.CleaningPlan | None:
        if not replica.is_configured or not replica.config.compacts:
            return None
        try:
            clean_to = self._read_cleaned_end(replica)
            return cleaner.plan_cleaning(replica.log, clean_to, replica.high_watermark, replica.config)
        except CorruptLog as damage:
            _log.error("%s: %s", replica.key, damage)
            return None

    async def _clean(self, replica: Replica) -> None:
        plan = self._plan(replica)  # again: the log may have changed since its ratio was computed
        if plan is None:
            return
        log = replica.log

        def purge_later(count: int) -> None:
            delay = replica.config.file_delete_delay_ms / 1000
            asyncio.get_running_loop().call_later(delay, log.purge_retired, count)

        done = await cleaner.clean(log, plan, self._config.cleaner_max_keys, purge_later)
        async with self._checkpointing:
            if await cleaner.note_cleaning(log, done):
                await self._checkpoint.write({(replica.topic, replica.index): done.end})
        replica.report_cleaning(done)
