"""The follower's side: one task per leader, which reconciles logs with the leader's and then copies records.

Truncation is by leader epoch, never by high watermark (KIP-101, KIP-279): the follower asks where its own last epoch
ended on the leader, cuts, and asks again until both agree; only then it reads the leader's history, whose entries it
writes to disk when its log reaches them, before the records themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from assay.system_under_test.log.errors import DamagedLog
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import (
    EpochAnswer,
    EpochEndRequest,
    EpochQuery,
    ReplicaFetchedPartition,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
)
from assay.system_under_test.protocol.schema import records_bytes
from assay.system_under_test.records.message import CorruptMessage
from assay.system_under_test.records.message_set import scan
from assay.system_under_test.replication.partition import FollowerTerm, Partition

_log = logging.getLogger("assay.replication")

BACK_OFF = 0.1
"""Seconds between tries after an error."""


@dataclass(frozen=True)
class Leader:
    """Where a leader is, and its registration (czxid), by which it knows that it is meant."""

    broker_id: int
    host: str
    port: int
    broker_epoch: int


class LeaderFetcher:
    """Copies all partitions that this broker follows from one leader. ``run`` ends only when it is cancelled."""

    def __init__(
        self,
        leader: Leader,
        broker_id: int,
        broker_epoch: Callable[[], int],
        *,
        request_timeout: float,
        max_wait_ms: int,
        max_bytes: int,
    ) -> None:
        self.leader = leader
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._request_timeout = request_timeout
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._followed: dict[str, tuple[Partition, FollowerTerm]] = {}
        self._changed = asyncio.Event()

    def add(self, partition: Partition, term: FollowerTerm) -> None:
        self._followed[partition.key] = (partition, term)
        self._changed.set()

    def remove(self, key: str) -> None:
        self._followed.pop(key, None)

    async def run(self) -> None:
        connection: Connection | None = None
        address = None
        try:
            while True:
                if not self._followed:
                    self._changed.clear()
                    await self._changed.wait()
                leader = self.leader
                if connection is not None and address != leader:
                    await connection.close()
                    connection = None
                try:
                    if connection is None:
                        connection = await Connection.open(leader.host, leader.port, self._request_timeout)
                        address = leader
                    await self._round(connection, leader)
                except CallError as error:
                    _log.info("fetching from broker %d at %s:%d: %s", *_where(leader), error)
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(BACK_OFF)
        finally:
            if connection is not None:
                await connection.close()

    def _due(self, now: float) -> list[tuple[Partition, FollowerTerm]]:
        current = [(p, t) for p, t in self._followed.values() if p.follower is t]
        if len(current) < len(self._followed):
            self._followed = {p.key: (p, t) for p, t in current}
        return [(p, t) for p, t in current if t.retry_at <= now]

    async def _round(self, connection: Connection, leader: Leader) -> None:
        due = self._due(asyncio.get_running_loop().time())
        if not due:
            await asyncio.sleep(BACK_OFF)
            return
        unreconciled = [(p, t) for p, t in due if not t.reconciled]
        if unreconciled:
            await self._reconcile(connection, leader, unreconciled)
        reconciled = [(p, t) for p, t in due if t.reconciled and p.follower is t]
        if reconciled:
            await self._fetch(connection, leader, reconciled)

    # -- reconciling -----------------------------------------------------------------------------------------------

    async def _reconcile(
        self, connection: Connection, leader: Leader, followed: list[tuple[Partition, FollowerTerm]]
    ) -> None:
        by_key = {p.key: (p, t) for p, t in followed}
        request = EpochEndRequest(
            replica_id=self._broker_id,
            broker_epoch=leader.broker_epoch,
            partitions=[
                EpochQuery(
                    topic=p.topic,
                    topic_czxid=p.incarnation,
                    partition=p.index,
                    leader_epoch=t.epoch,
                    epoch=p.epochs.latest(),
                )
                for p, t in followed
            ],
        )
        response = await connection.call(request, 0, self._request_timeout)
        now = asyncio.get_running_loop().time()
        for answer in response.partitions:
            partition, term = by_key[f"{answer.topic}-{answer.partition}"]
            if partition.follower is not term:
                continue
            if answer.error_code != ErrorCode.NONE:
                term.retry_at = now + BACK_OFF
                continue
            await apply_epoch_answer(partition, term, answer)
            await partition.epochs.flush()

    # -- copying ---------------------------------------------------------------------------------------------------

    async def _fetch(
        self, connection: Connection, leader: Leader, followed: list[tuple[Partition, FollowerTerm]]
    ) -> None:
        for partition, _ in followed:
            # a position counts at the leader: records beyond the flush limit must be on disk before they are claimed
            await partition.flush_counted()
        request = ReplicaFetchRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            broker_epoch=leader.broker_epoch,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            partitions=[
                ReplicaFetchPartition(
                    topic=p.topic,
                    topic_czxid=p.incarnation,
                    partition=p.index,
                    leader_epoch=t.epoch,
                    fetch_offset=p.log.end_offset,
                    max_bytes=self._max_bytes,
                )
                for p, t in followed
                if p.follower is t
            ],
        )
        if not request.partitions:
            return
        asked = {f"{p.topic}-{p.partition}": p.fetch_offset for p in request.partitions}
        by_key = {p.key: (p, t) for p, t in followed}
        response = await connection.call(request, 0, self._request_timeout + self._max_wait_ms / 1000)
        now = asyncio.get_running_loop().time()
        if response.error_code != ErrorCode.NONE:
            for _, term in followed:
                term.retry_at = now + BACK_OFF
            return
        for fetched in response.partitions:
            key = f"{fetched.topic}-{fetched.partition}"
            partition, term = by_key[key]
            if partition.follower is term and partition.log.end_offset == asked[key]:
                await apply_fetched(partition, term, fetched, now)


def _where(leader: Leader) -> tuple[int, str, int]:
    return leader.broker_id, leader.host, leader.port


async def apply_epoch_answer(partition: Partition, term: FollowerTerm, answer: EpochAnswer) -> None:
    """Cuts the log as far as the answer proves it to differ; sets ``reconciled`` when leader and follower agree."""
    log = partition.log
    if log.damage is not None:
        await partition.discard(term, answer.log_start, log.damage)
    elif partition.epochs.latest() < 0 and log.end_offset > log.start_offset:
        await partition.discard(term, answer.log_start, "no epoch history")
    elif log.end_offset < answer.log_start:
        await partition.discard(term, answer.log_start, "below the leader's log start")
    elif log.end_offset == log.start_offset:
        await partition.truncate(term, log.end_offset, "an empty log has no history, whatever it once had")
    elif answer.epoch < 0:
        await partition.discard(term, answer.log_start, "no epoch in common with the leader")
    else:
        end, agreed = partition.parting(answer)
        await partition.truncate(term, end, f"epoch {answer.epoch} of the leader ends there")
        if not agreed:
            return  # what is left ends in another epoch: ask again
    if answer.gaps and partition.follower is term and not log.config.compacted:
        await log.allow_gaps()
    if partition.follower is term:
        partition.agree(term, [(entry.epoch, entry.start_offset) for entry in answer.history])
        reach(partition, term)


def reach(partition: Partition, term: FollowerTerm, next_offset: int = 0) -> bool:
    """Takes over the leader's entries which the log has reached, or reaches with the message at ``next_offset``, which
    is to come next; true when there were any, to be flushed.
    """
    reached = False
    while term.history and term.history[0][1] <= max(partition.log.end_offset, next_offset):
        partition.epochs.assign(*term.history.pop(0))
        reached = True
    return reached


async def apply_fetched(partition: Partition, term: FollowerTerm, fetched: ReplicaFetchedPartition, now: float) -> None:
    """Appends what the leader sent, entering its epochs on the way; asks anew, later, after an error or damage."""
    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # an empty log may lie beyond the leader's end, and has no history that would say so
        if partition.is_beyond_reach(fetched.log_start) or partition.log.start_offset == partition.log.end_offset:
            await partition.discard(term, fetched.log_start, "out of the leader's range")
        term.reconciled = False
        term.retry_at = now + BACK_OFF
        return
    if fetched.error_code != ErrorCode.NONE:
        term.retry_at = now + BACK_OFF
        return
    records = records_bytes(fetched.records)
    while records:
        # compaction may have taken what lay between the log's end and the next message, and whole epochs with it
        if reach(partition, term, _first(records) if partition.log.config.compacted else 0):
            await partition.epochs.flush()
            if partition.follower is not term:
                return
        now_appendable, records = _split(records, term.history[0][1] if term.history else None)
        try:
            if not now_appendable:
                raise CorruptMessage(f"the leader left out offsets from {partition.log.end_offset} on")
            partition.log.append_replicated(now_appendable)
            partition.flush_in_time()
        except (CorruptMessage, DamagedLog) as damage:
            _log.error("%s: %s", partition.key, damage)
            term.reconciled = False
            term.retry_at = now + BACK_OFF
            return
    if reach(partition, term):
        await partition.epochs.flush()
    partition.learn_high_watermark(fetched.high_watermark)


def _first(records: bytes) -> int:
    """Offset of the first whole entry (of a compressed set: of its last message); 0 when there is none."""
    return next((offset for _, _, offset in scan(records)), 0)


def _split(records: bytes, boundary: int | None) -> tuple[bytes, bytes]:
    """The entries below offset ``boundary``, and the rest."""
    if boundary is None:
        return records, b""
    for position, _, offset in scan(records):
        if offset >= boundary:
            return records[:position], records[position:]
    return records, b""
