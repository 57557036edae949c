"""Writes the in-sync sets that leaders propose to ZooKeeper, and notifies the controller of changes.

A leader's term proposes one set at a time (``insync``) and keeps serving. The writer then calls
``LeaderTerm.on_isr_written`` or ``LeaderTerm.on_isr_superseded``, unless the term is over by then.
"""

import asyncio
import logging

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError

from assay.system_under_test.replication.insync import InSyncMembers
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.replication")

NOTICE_DELAY = 0.2
"""Seconds between two notifications of the controller. Each has all changes since the last one."""


class IsrWriter:
    """A broker's writer. ``retry``: seconds before the state is read again after a failure."""

    def __init__(self, zookeeper: ZooKeeper, background: BackgroundTasks, broker_id: int, *, retry: float) -> None:
        self._zookeeper = zookeeper
        self._background = background
        self._broker_id = broker_id
        self._retry = retry
        self._changed: dict[tuple[str, int], None] = {}
        self._in_progress: dict[asyncio.Task[None], tuple[str, int]] = {}

    def start(self) -> None:
        self._background.spawn(self._notify_controller(), "isr notices")

    def write(self, term: LeaderTerm, members: InSyncMembers) -> None:
        """Starts writing the set that this term proposes."""
        task = self._background.spawn(self._write(term, members), f"isr of {term.replica.key}")
        self._in_progress[task] = term.replica.topic, term.replica.index
        task.add_done_callback(self._in_progress.pop)

    async def wait_until_settled(self, topic: str, index: int) -> None:
        """Returns when no write of the partition's state can reach ZooKeeper any more. All its terms must be over.

        The broker awaits this before it reports its replica as deleted. If the topic is created again, the versions of
        its state restart, so a late write could overwrite the new topic's state.
        """
        if in_progress := [task for task, partition in self._in_progress.items() if partition == (topic, index)]:
            await asyncio.wait(in_progress)

    async def _write(self, term: LeaderTerm, members: InSyncMembers) -> None:
        """Writes the state conditionally, until its content is known or the term ends.

        A write of unknown outcome may still be applied. So if the old content is read back, the old content is written
        again at the version that was read. This raises the version, so the earlier write can no longer be applied.
        """
        replica = term.replica
        path = paths.partition_state(replica.topic, replica.index)
        wanted = members.to_state(term.controller_epoch, self._broker_id, term.epoch)
        content, version = wanted, term.in_sync.zk_version
        outcome_unknown = False
        while not term.over:
            try:
                stat = await self._zookeeper.set(path, znodes.encode(content), version)
            except (BadVersionError, NoNodeError):
                pass
            except KazooException as error:
                _log.info("in-sync set of %s, unknown outcome of a write: %r", replica.key, error)
                outcome_unknown = True
            else:
                self._report_written(term, InSyncMembers.from_state(content), stat.version)
                return
            if not replica.traits.reads_state_back:
                await asyncio.sleep(self._retry)
                continue
            try:
                await self._zookeeper.sync(path)
                outcome_unknown = False
                found = znodes.decode_versioned(znodes.PartitionState, path, await self._zookeeper.get(path))
            except NoNodeError:
                term.on_isr_superseded()
                return
            except (KazooException, znodes.ZnodeError) as error:
                _log.info("in-sync set of %s, reading it back: %r", replica.key, error)
                await asyncio.sleep(self._retry)
                continue
            if found.value.leader != self._broker_id or found.value.leader_epoch != term.epoch:
                term.on_isr_superseded(found.value.leader_epoch)
                return
            if found.value == wanted:
                self._report_written(term, members, found.version)
                return
            content, version = found.value, found.version
        # The term is over, but a write of unknown outcome may still be applied until a sync (``wait_until_settled``).
        while outcome_unknown:
            try:
                await self._zookeeper.sync(path)
                outcome_unknown = False
            except NoNodeError:
                return
            except KazooException:
                await asyncio.sleep(self._retry)

    def _report_written(self, term: LeaderTerm, members: InSyncMembers, zk_version: int) -> None:
        term.on_isr_written(members, zk_version)
        self._changed[term.replica.topic, term.replica.index] = None

    async def _notify_controller(self) -> None:
        """Creates one notification for all changes of the last ``NOTICE_DELAY`` seconds; repeats forever."""
        while True:
            await asyncio.sleep(NOTICE_DELAY)
            if not self._changed:
                continue
            changed, self._changed = self._changed, {}
            notice = znodes.IsrChange([znodes.ChangedPartition(topic, index) for topic, index in changed])
            try:
                await self._zookeeper.create(f"{paths.ISR_CHANGES}/isr_change_", znodes.encode(notice), sequence=True)
            except KazooException as error:
                _log.info("notice of in-sync changes: %r; it will be sent again", error)
                self._changed = {**changed, **self._changed}
