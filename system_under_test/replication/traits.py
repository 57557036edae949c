"""Traits of replication: the functions and flags that a historic defect replaces (``system_under_test.defects``)."""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.protocol.internal import EpochAnswer
from assay.system_under_test.replication.insync import InSyncSet


class LogBounds(NamedTuple):
    """A replica's log end and high watermark."""

    end: int
    high_watermark: int


def _get_high_watermark(bounds: LogBounds) -> int:
    return bounds.high_watermark


def _get_end(bounds: LogBounds) -> int:
    return bounds.end


def _has_enough_in_sync(in_sync: InSyncSet, min_insync: int) -> bool:
    """Returns whether enough replicas are in sync. False while the ELR (eligible leader replicas) is not empty."""
    return len(in_sync.minimal) >= min_insync and not in_sync.committed.elr


def _has_caught_up(position: int, high_watermark: int, start: int) -> bool:
    return position >= high_watermark and position >= start


def _diverge_by_epochs(answer: EpochAnswer, epochs: EpochHistory, bounds: LogBounds) -> tuple[int, bool]:
    _, own_end = epochs.end_offset_for(answer.epoch, bounds.end)
    return min(answer.end_offset, own_end), answer.epoch == epochs.latest()


@dataclass(frozen=True)
class ReplicationTraits:
    """The rules of replication that defects change. The defaults are correct."""

    acknowledged_end: Callable[[LogBounds], int] = _get_high_watermark
    """The offset below which sends with acks=all are acknowledged."""
    readable_end: Callable[[LogBounds], int] = _get_high_watermark
    """The offset below which consumers can read."""
    checkpointed_watermark: Callable[[LogBounds, bool], int] = lambda bounds, leads: bounds.high_watermark
    """The high watermark to store for the next start of this process."""
    has_enough_in_sync: Callable[[InSyncSet, int], bool] = _has_enough_in_sync
    """Whether the high watermark may advance, given the in-sync set and min.insync.replicas."""
    fetchable_end: Callable[[LogBounds, bool], int] = lambda bounds, appended: bounds.end
    """The highest offset that a follower may fetch. The flag: whether the leader has appended a record in its term."""
    needs_empty_log: Callable[[int, int], bool] = lambda log_end, leaders_start: log_end < leaders_start
    """Whether a follower must replace its log by an empty one, given its log end and the start of the leader's log."""
    find_divergence: Callable[[EpochAnswer, EpochHistory, LogBounds], tuple[int, bool]] = _diverge_by_epochs
    """The offset at which a follower's log diverges from the leader's, and whether truncating there is enough."""
    may_rejoin: Callable[[int, int, int], bool] = _has_caught_up
    """Whether a replica may rejoin, given its fetch offset, the high watermark and the start of the leader's epoch."""
    may_return_end: Callable[[int, int], bool] = operator.ge
    """Whether a leader may return its end, given its high watermark and the start of its epoch (KIP-207)."""
    accepts_fetch_of_epoch: Callable[[int, int], bool] = operator.eq
    """Whether a leader accepts a fetch, given the leader epoch in the fetch and its own (KIP-320)."""
    accepts_broker_epoch: Callable[[int, int], bool] = operator.eq
    """Whether a broker accepts a request, given the broker epoch in the request and its own (KIP-380)."""
    accepts_controller_epoch: Callable[[int, int], bool] = operator.ge
    """Whether a broker accepts a request, given the controller epoch in the request and the known one."""
    accepts_leader_epoch: Callable[[int, int], bool] = operator.gt
    """Whether a broker accepts a LeaderAndIsr update, given the leader epoch in the update and the known one."""
    records_epoch_at_once: bool = True
    """Whether a new leader's epoch is on disk before it serves (KAFKA-7415), or only with its first record."""
    reads_state_back: bool = True
    """Whether a leader reads the state back after a write that failed, or whose outcome is unknown."""
    wakes_followers: bool = True
    """Whether an append wakes the followers that wait for records."""
    shrinks_in_zookeeper: bool = True
    """Whether a smaller in-sync set is written to ZooKeeper before it counts."""


CORRECT = ReplicationTraits()


def select_replication_traits(defects: Collection[str]) -> ReplicationTraits:
    """Returns the traits of a build with these defects."""
    for name in defects:
        if name in _DEFECTIVE:
            return _DEFECTIVE[name]
    return CORRECT


def _accept_always(*_: int) -> bool:
    return True


def diverge_at_high_watermark(answer: EpochAnswer, epochs: EpochHistory, bounds: LogBounds) -> tuple[int, bool]:
    """Truncates at the follower's own high watermark, which lags the leader's by one fetch."""
    return min(bounds.high_watermark, bounds.end), True


def diverge_by_length(answer: EpochAnswer, epochs: EpochHistory, bounds: LogBounds) -> tuple[int, bool]:
    """Compares lengths only: truncates records beyond the end of the leader's log, and keeps all others."""
    if answer.epoch == epochs.latest() == max(entry.epoch for entry in answer.history):
        return min(answer.end_offset, bounds.end), True
    epochs.replace((entry.epoch, entry.start_offset) for entry in answer.history if entry.start_offset < bounds.end)
    return bounds.end, True


def diverge_by_first_answer(answer: EpochAnswer, epochs: EpochHistory, bounds: LogBounds) -> tuple[int, bool]:
    """Accepts the first answer, even if the leader does not know the follower's last epoch (KIP-101 alone)."""
    return min(answer.end_offset, bounds.end), True


_DEFECTIVE: Mapping[str, ReplicationTraits] = {
    # Followers get new records only with their next fetch: a waiting fetch is not answered early.
    "ack-before-replication": ReplicationTraits(acknowledged_end=_get_end, wakes_followers=False),
    "isr-of-one": ReplicationTraits(has_enough_in_sync=lambda in_sync, min_insync: True, shrinks_in_zookeeper=False),
    "truncate-to-hw": ReplicationTraits(find_divergence=diverge_at_high_watermark),
    "hw-checkpoint-lost": ReplicationTraits(
        find_divergence=diverge_at_high_watermark,
        checkpointed_watermark=lambda bounds, leads: bounds.high_watermark if leads else 0,
    ),
    "divergent-tail": ReplicationTraits(find_divergence=diverge_by_length),
    "double-failover": ReplicationTraits(find_divergence=diverge_by_first_answer),
    "fetch-append-race": ReplicationTraits(
        fetchable_end=lambda bounds, appended: bounds.end if appended else bounds.high_watermark,
        needs_empty_log=lambda log_end, leaders_start: True,
    ),
    "read-above-hw": ReplicationTraits(readable_end=_get_end),
    "epoch-not-recorded": ReplicationTraits(records_epoch_at_once=False),
    "zombie-follower": ReplicationTraits(accepts_fetch_of_epoch=_accept_always),
    "early-isr-rejoin": ReplicationTraits(
        may_rejoin=lambda position, high_watermark, start: position >= high_watermark
    ),
    "hw-regression": ReplicationTraits(may_return_end=_accept_always),
    "stale-leader-and-isr": ReplicationTraits(
        accepts_controller_epoch=_accept_always, accepts_leader_epoch=operator.ne
    ),
    "former-incarnation": ReplicationTraits(accepts_broker_epoch=_accept_always),
    "cached-zk-version": ReplicationTraits(reads_state_back=False),
}
"""Traits by the defect's name."""
