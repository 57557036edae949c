"""What a broker does with its replicas at intervals: in-sync sets shrink, checkpoints are written, old records go."""

import asyncio
import logging

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.log.errors import CorruptLog
from assay.system_under_test.replication.replicas import Replicas
from assay.system_under_test.tasks import Background

_log = logging.getLogger("assay.replication")


class Upkeep:
    def __init__(self, config: BrokerConfig, replicas: Replicas) -> None:
        self._config = config
        self._replicas = replicas

    def start(self, background: Background) -> None:
        background.spawn(self._shrink_at_intervals(), "isr upkeep")
        background.spawn(self._checkpoint_at_intervals(), "checkpoints")
        background.spawn(self._retain_at_intervals(), "retention")
        background.spawn(self._replicas.cleaner.run(), "log cleaner")

    async def _shrink_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2000)
            now = asyncio.get_running_loop().time()
            for partition in list(self._replicas.all()):
                if partition.leader is not None:
                    partition.leader.shrink(now)

    async def _checkpoint_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            await self._replicas.checkpoint()

    async def _retain_at_intervals(self) -> None:
        """Takes out of each log what is too old or too much, and a while later off the disk."""
        while True:
            await asyncio.sleep(self._config.retention_check_interval_ms / 1000)
            for partition in list(self._replicas.all()):
                try:
                    count = await partition.retain()
                except CorruptLog as damage:
                    _log.error("%s: %s", partition.key, damage)
                    continue
                if count:
                    delay = partition.config.file_delete_delay_ms / 1000
                    asyncio.get_running_loop().call_later(delay, partition.log.purge, count)
