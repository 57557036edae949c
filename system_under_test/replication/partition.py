"""A replica of a partition on this broker, and its role.

A *term* is the time of one leader epoch on this replica (``leader``, ``follower``). Every change of role or epoch first
ends the old term: waiting producers get NOT_LEADER_FOR_PARTITION, and the outcome of an ISR write in flight is ignored.
Code that resumes after an await must check that its term is not over.
"""

import logging

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import PartitionStateUpdate
from assay.system_under_test.replication.follower import FollowerTerm
from assay.system_under_test.replication.leader import LeaderTerm
from assay.system_under_test.replication.replica import UNKNOWN, PartitionError, Replica

_log = logging.getLogger("assay.replication")


class Partition(Replica):
    """A replica with a role; both ``leader`` and ``follower`` are None while it has none."""

    leader: LeaderTerm | None = None
    follower: FollowerTerm | None = None
    _reported: tuple[int, int] | None = None
    """The leader epoch and high watermark that were last reported."""
    _was_elected = False
    """Whether this replica became leader in the current epoch, so that other brokers may rely on it."""

    async def configure(self, config: TopicConfig) -> None:
        await super().configure(config)
        if self.leader is not None and self.leader.serving:
            self.leader.answer_producers()

    def advance(self) -> None:
        if self.leader is not None:
            self.leader.advance()

    def prepare_checkpoint(self) -> int:
        """Returns the high watermark to store for the next start of this process. A leader also reports it."""
        if self.leader is not None:
            self._report_high_watermark()
        return self.traits.checkpointed_watermark(self.bounds, self.leader is not None)

    def _report_high_watermark(self) -> None:
        """Reports the high watermark: at every checkpoint of a leader, and at the end of each term."""
        current = self.leader_epoch, self.high_watermark
        if self.leader_epoch != UNKNOWN and current != self._reported:
            self._reported = current
            self.events.emit(
                "high-watermark",
                key=self.key,
                epoch=self.leader_epoch,
                high_watermark=self.high_watermark,
                log_start=self.log.start_offset,
                log_end=self.log.end_offset,
            )

    @property
    def is_relied_on(self) -> bool:
        """Whether other brokers may rely on this replica to have all acknowledged records.

        If so, its log must not be discarded because of damage: if the leader fails next, this replica may be elected.
        """
        return self._was_elected or (self.follower is not None and self.follower.is_relied_on)

    # -- terms ---------------------------------------------------------------------------------------------------

    def end_term(self) -> None:
        """Ends the current role; the replica has none until the next term begins."""
        self._report_high_watermark()
        if self.leader is not None:
            self.leader.ended.set_result(None)
        if self.follower is not None:
            self.follower.over = True
        self.leader = None
        self.follower = None
        self.producers.fail(ErrorCode.NOT_LEADER_FOR_PARTITION)
        self.append_readers.wake()
        self.commit_readers.wake()

    async def lead(self, update: PartitionStateUpdate, now: float) -> None:
        """Begins a leader's term. The epoch's entry is on disk before any request is served (KAFKA-7415).

        Raises ``PartitionError`` (UNKNOWN) if this replica must not lead:

        - its log has lost durable records
        - its log has a later epoch, because ZooKeeper's data were replaced by an older copy
        """
        self.end_term()
        self.leader_epoch = update.leader_epoch
        self._was_elected = True
        await self.wait_for_truncation()
        if self.log.damage is None:
            await self.log.flush()  # copied records count as the leader's now, and perhaps no append ever flushes them
        if self.log.damage is not None:
            self.go_offline()
            raise PartitionError(ErrorCode.UNKNOWN)
        self.forget_epochs_ahead()
        if self.epochs.latest() > update.leader_epoch:
            _log.error(
                "%s has no leader: ZooKeeper names leader epoch %d, and the log has epoch %d already, so ZooKeeper has "
                "older data than the log; stop all brokers, and restore ZooKeeper's newest data",
                self.key,
                update.leader_epoch,
                self.epochs.latest(),
            )
            raise PartitionError(ErrorCode.UNKNOWN)
        self.leader = term = LeaderTerm(self, update, now)
        if self.traits.records_epoch_at_once:
            self.epochs.assign(term.epoch, term.start_offset)
        await self.epochs.flush()
        if term.over:
            return
        term.serving = True
        self.events.emit(
            "became-leader",
            key=self.key,
            epoch=term.epoch,
            controller_epoch=term.controller_epoch,
            position=term.start_offset,
            high_watermark=self.high_watermark,
            isr=list(update.isr),
            elr=list(update.elr),
            osr=[replica for replica in update.replicas if replica not in update.isr],
            version=update.zk_version,
        )
        term.advance()

    def follow(self, update: PartitionStateUpdate) -> None:
        """Begins a follower's term; the fetcher reconciles the log before it appends anything."""
        self.end_term()
        self.leader_epoch = update.leader_epoch
        self._was_elected = False
        self.follower = FollowerTerm(self, update)
        self.events.emit(
            "became-follower",
            key=self.key,
            epoch=update.leader_epoch,
            controller_epoch=update.controller_epoch,
            value=update.leader,
        )

    def stop(self, leader_epoch: int) -> None:
        """Ends the role until a later epoch. No other broker relies on this replica from now on."""
        self.end_term()
        self.leader_epoch = leader_epoch
        self._was_elected = False

    def go_offline(self) -> None:
        """Stops leading with a damaged log, so that clients look for another leader at once."""
        self.end_term()
        self.events.emit("replica-offline", key=self.key, epoch=self.leader_epoch, detail={"problem": self.log.damage})

    def require_leader(self) -> LeaderTerm:
        """Returns the leader's term. Raises ``PartitionError`` (NOT_LEADER_FOR_PARTITION) if there is none."""
        if self.leader is None or not self.leader.serving:
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
        return self.leader

    def require_leader_at(self, epoch: int, incarnation: int) -> LeaderTerm:
        """Returns the leader's term if its epoch and the topic's czxid are those that a peer named (KIP-320).

        Raises ``PartitionError`` (NOT_LEADER_FOR_PARTITION) otherwise. The czxid matters because leader epochs restart
        in a topic that was deleted and created again by hand.
        """
        term = self.require_leader()
        if not self.traits.accepts_fetch_of_epoch(epoch, term.epoch) or self.incarnation != incarnation:
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
        return term
