"""Fetcher of records from one leader: a task that sends the requests of all replicas that follow this leader.

``follower`` processes the leader's answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from assay.system_under_test.config import BrokerConfig
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import measure_records
from assay.system_under_test.replication.follower import BACK_OFF, FollowerTerm
from assay.system_under_test.replication.throttle import Throttle, lists_replica

_log = logging.getLogger("assay.replication")


class LeaderFetcher:
    """Copies all partitions that this broker follows from one leader. ``run`` ends only by cancellation."""

    def __init__(
        self, leader: internal.LiveBroker, config: BrokerConfig, broker_epoch: Callable[[], int], throttle: Throttle
    ) -> None:
        """Makes a fetcher. ``broker_epoch`` returns the czxid of this broker's registration.

        The caller replaces ``leader`` when the leader registers again.
        """
        self.leader = leader
        self._config = config
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._request_timeout = config.request_timeout_ms / 1000
        self._followed: dict[str, FollowerTerm] = {}
        self._changed = asyncio.Event()
        """Set when a partition was added."""
        self._waiting: Connection | None = None
        """The connection on which a fetch waits for new records."""
        self._interrupted = False
        """Whether ``interrupt_wait`` has aborted that connection."""

    def add(self, term: FollowerTerm) -> None:
        self._followed[term.replica.key] = term
        self._changed.set()

    def interrupt_wait(self) -> None:
        """Interrupts a waiting fetch after ``add``, so that the added partitions are fetched at once.

        Otherwise the added partitions would wait until the leader has new records of other partitions, or the fetch
        times out. Meanwhile a new leader could not acknowledge records.
        """
        if self._waiting is not None and self._changed.is_set():
            self._interrupted = True
            self._waiting.abort("there is more to be fetched")

    def remove(self, key: str) -> None:
        self._followed.pop(key, None)

    async def run(self) -> None:
        connection: Connection | None = None
        connected_leader = None
        try:
            while True:
                if not self._followed:
                    self._changed.clear()
                    await self._changed.wait()
                leader = self.leader
                if connection is not None and connected_leader != leader:  # the leader has registered again
                    await connection.close()
                    connection = None
                try:
                    if connection is None:
                        connection = await Connection.open(leader.host, leader.port, self._request_timeout)
                        connected_leader = leader
                    await self._run_round(connection, leader)
                except CallError as error:
                    if connection is not None:
                        await connection.close()
                        connection = None
                    if self._interrupted:
                        self._interrupted = False
                        continue
                    _log.info("fetching from broker %d at %s:%d: %s", leader.broker_id, leader.host, leader.port, error)
                    await asyncio.sleep(BACK_OFF)
        finally:
            if connection is not None:
                await connection.close()

    def _rotate(self, response: internal.ReplicaFetchResponse) -> None:
        """After a full response, moves the partitions that got records behind the others, which then come first."""
        sizes = {f"{one.topic}-{one.partition}": measure_records(one.records) for one in response.partitions}
        if sum(sizes.values()) < internal.MAX_REPLICA_RESPONSE_BYTES:
            return
        for key, size in sizes.items():
            if size and key in self._followed:
                self._followed[key] = self._followed.pop(key)

    def _find_due(self, now: float) -> list[FollowerTerm]:
        """Drops the terms that are over, and returns those that need not wait for a retry."""
        current = [term for term in self._followed.values() if not term.over]
        if len(current) < len(self._followed):
            self._followed = {term.replica.key: term for term in current}
        return [term for term in current if term.retry_at <= now]

    async def _run_round(self, connection: Connection, leader: internal.LiveBroker) -> None:
        self._changed.clear()
        due = self._find_due(asyncio.get_running_loop().time())
        unreconciled = [term for term in due if not term.reconciled]
        if unreconciled:
            await self._reconcile(connection, leader, unreconciled)
        now = asyncio.get_running_loop().time()
        for term in due:
            if term.behind and self._is_throttled(term) and self._throttle.exceeded:
                term.retry_at = now + BACK_OFF
        retry_delays = [
            max(0.0, term.retry_at - now)
            for term in self._followed.values()
            if not term.over and (term.retry_at > now or not term.reconciled)
        ]
        max_wait = min([self._config.replica_fetch_wait_max_ms / 1000, *retry_delays])
        reconciled = [term for term in due if term.reconciled and not term.over and term.retry_at <= now]
        if reconciled:
            await self._fetch(connection, leader, reconciled, max_wait)
        elif max_wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max_wait):
                    await self._changed.wait()

    def _is_throttled(self, term: FollowerTerm) -> bool:
        replica = term.replica
        return lists_replica(
            replica.config.follower_replication_throttled_replicas, replica.index, self._config.broker_id
        )

    async def _reconcile(
        self, connection: Connection, leader: internal.LiveBroker, terms: Sequence[FollowerTerm]
    ) -> None:
        """Asks where the replicas' latest epochs end in the leader's log, so that they remove what the leader lacks."""
        for term in terms:
            await term.replica.wait_for_truncation()
        by_key = {term.replica.key: term for term in terms}
        request = internal.EpochEndRequest(
            replica_id=self._config.broker_id,
            broker_epoch=leader.broker_epoch,
            partitions=[
                internal.EpochQuery(
                    topic=replica.topic,
                    topic_czxid=replica.incarnation,
                    partition=replica.index,
                    leader_epoch=term.epoch,
                    epoch=replica.epochs.latest(),
                )
                for term in terms
                for replica in (term.replica,)
            ],
        )
        response = await connection.call(request, 0, self._request_timeout)
        now = asyncio.get_running_loop().time()
        for answer in response.partitions:
            term = by_key[f"{answer.topic}-{answer.partition}"]
            if term.over:
                continue
            if answer.error_code != ErrorCode.NONE:
                term.retry_later(now)
                continue
            await term.apply_epoch_answer(answer, now)
            await term.replica.epochs.flush()

    async def _fetch(
        self, connection: Connection, leader: internal.LiveBroker, terms: Sequence[FollowerTerm], max_wait: float
    ) -> None:
        """Fetches once; ``max_wait`` is how many seconds the leader may wait for new records."""
        for term in terms:
            # The leader counts all records below a fetch offset as replicated, so enough of them must be on disk.
            await term.replica.flush_until_counted()
        request = internal.ReplicaFetchRequest(
            replica_id=self._config.broker_id,
            replica_epoch=self._broker_epoch(),
            broker_epoch=leader.broker_epoch,
            max_wait_ms=int(max_wait * 1000),
            min_bytes=1,
            partitions=[
                internal.ReplicaFetchPartition(
                    topic=replica.topic,
                    topic_czxid=replica.incarnation,
                    partition=replica.index,
                    leader_epoch=term.epoch,
                    fetch_offset=replica.log.end_offset,
                    max_bytes=self._config.replica_fetch_max_bytes,
                )
                for term in terms
                for replica in (term.replica,)
                if not term.over
            ],
        )
        if not request.partitions or self._changed.is_set():
            return
        requested_offsets = {f"{p.topic}-{p.partition}": p.fetch_offset for p in request.partitions}
        by_key = {term.replica.key: term for term in terms}
        self._waiting = connection
        try:
            response = await connection.call(request, 0, self._request_timeout + max_wait)
        finally:
            self._waiting = None
        now = asyncio.get_running_loop().time()
        if response.error_code != ErrorCode.NONE:
            for term in terms:
                term.retry_at = now + BACK_OFF
            return
        self._rotate(response)
        for fetched in response.partitions:
            key = f"{fetched.topic}-{fetched.partition}"
            term = by_key[key]
            if self._is_throttled(term):
                self._throttle.record(measure_records(fetched.records))
            if not term.over and term.replica.log.end_offset == requested_offsets[key]:
                await term.apply_fetched(fetched, now)
