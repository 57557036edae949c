"""What a replica does differently when a historic defect is built in; see ``assay.system_under_test.defects``."""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.protocol.internal import EpochAnswer
from assay.system_under_test.replication.insync import InSync


class LogMarks(NamedTuple):
    """How far a replica's log goes, and how far of it is committed."""

    end: int
    high_watermark: int


def _high_watermark(marks: LogMarks) -> int:
    return marks.high_watermark


def _end(marks: LogMarks) -> int:
    return marks.end


def _enough_in_sync(in_sync: InSync, min_insync: int) -> bool:
    """Not while a replica outside of the set may be elected for having all that is acknowledged, which is so after
    min.insync.replicas was lowered.
    """
    return len(in_sync.minimal) >= min_insync and not in_sync.committed.elr


def _caught_up(position: int, high_watermark: int, start: int) -> bool:
    return position >= high_watermark and position >= start


def _by_epochs(answer: EpochAnswer, epochs: EpochHistory, marks: LogMarks) -> tuple[int, bool]:
    _, own_end = epochs.end_offset_for(answer.epoch, marks.end)
    return min(answer.end_offset, own_end), answer.epoch == epochs.latest()


@dataclass(frozen=True)
class ReplicationTraits:
    """What counts as safe, who may read it, where a follower cuts its log, whose requests are obeyed, and what is noted
    when.
    """

    acknowledged: Callable[[LogMarks], int] = _high_watermark
    """Producers that asked for all replicas are answered up to here."""
    readable: Callable[[LogMarks], int] = _high_watermark
    """Consumers read up to here."""
    checkpointed: Callable[[LogMarks, bool], int] = lambda marks, leads: marks.high_watermark
    """The high watermark as it is kept for the next start of this process."""
    enough_in_sync: Callable[[InSync, int], bool] = _enough_in_sync
    """May the high watermark move, with this min.insync.replicas?"""
    fetchable: Callable[[LogMarks, bool], int] = lambda marks, appended: marks.end
    """A follower cannot ask for more than this, of a leader that has ``appended`` in its term or not."""
    starts_over: Callable[[int, int], bool] = lambda log_end, leaders_start: log_end < leaders_start
    """Does the leader lack what comes next in a follower's log, so that it must begin with an empty one?"""
    parting: Callable[[EpochAnswer, EpochHistory, LogMarks], tuple[int, bool]] = _by_epochs
    """Where a follower's history parts from the leader's as far as the answer shows, and whether that is all to cut."""
    rejoins: Callable[[int, int, int], bool] = _caught_up
    """May a replica that asks for this offset be in sync, with this high watermark and start of the leader's epoch?"""
    knows_end: Callable[[int, int], bool] = operator.ge
    """May a leader say where the log ends, with this high watermark and start of its epoch (KIP-207)?"""
    same_epoch: Callable[[int, int], bool] = operator.eq
    """May a follower of this epoch fetch from a leader of that (KIP-320)?"""
    meant: Callable[[int, int], bool] = operator.eq
    """Is a request for this life of the broker obeyed in that (KIP-380)?"""
    current: Callable[[int, int], bool] = operator.ge
    """Is a request of this controller epoch obeyed once that is known?"""
    newer: Callable[[int, int], bool] = operator.gt
    """Does a role of this leader epoch replace one of that?"""
    notes_epoch_at_once: bool = True
    """Is a new leader's epoch on its disk before it serves (KAFKA-7415), or with its first record?"""
    reads_state_again: bool = True
    """Does a leader look what is in ZooKeeper when its in-sync set was not written, or may not have been?"""
    wakes_followers: bool = True
    """Are followers that wait for records served at an append?"""
    shrinks_in_zookeeper: bool = True
    """Is a smaller in-sync set written before it counts?"""


CORRECT = ReplicationTraits()


def replication_traits(defects: Collection[str]) -> ReplicationTraits:
    """Of the build with these defects."""
    for name in defects:
        if name in _DEFECTIVE:
            return _DEFECTIVE[name]
    return CORRECT


def _always(*_: int) -> bool:
    return True


def at_high_watermark(answer: EpochAnswer, epochs: EpochHistory, marks: LogMarks) -> tuple[int, bool]:
    """Cuts at the follower's own high watermark, which it learns one fetch later than the leader."""
    return min(marks.high_watermark, marks.end), True


def by_length(answer: EpochAnswer, epochs: EpochHistory, marks: LogMarks) -> tuple[int, bool]:
    """Compares lengths alone: cuts what the leader's log is too short for, and goes on at the follower's end."""
    if answer.epoch == epochs.latest() == max(entry.epoch for entry in answer.history):
        return min(answer.end_offset, marks.end), True
    epochs.replace((entry.epoch, entry.start_offset) for entry in answer.history if entry.start_offset < marks.end)
    return marks.end, True


def asked_once(answer: EpochAnswer, epochs: EpochHistory, marks: LogMarks) -> tuple[int, bool]:
    """Believes the first answer, also of a leader that does not know the follower's last epoch (KIP-101 alone)."""
    return min(answer.end_offset, marks.end), True


_DEFECTIVE: Mapping[str, ReplicationTraits] = {
    # The records reach the followers when these ask the next time: no one waits for that.
    "ack-before-replication": ReplicationTraits(acknowledged=_end, wakes_followers=False),
    "isr-of-one": ReplicationTraits(enough_in_sync=lambda in_sync, min_insync: True, shrinks_in_zookeeper=False),
    "truncate-to-hw": ReplicationTraits(parting=at_high_watermark),
    "hw-checkpoint-lost": ReplicationTraits(
        parting=at_high_watermark, checkpointed=lambda marks, leads: marks.high_watermark if leads else 0
    ),
    "divergent-tail": ReplicationTraits(parting=by_length),
    "double-failover": ReplicationTraits(parting=asked_once),
    "fetch-append-race": ReplicationTraits(
        fetchable=lambda marks, appended: marks.end if appended else marks.high_watermark,
        starts_over=lambda log_end, leaders_start: True,
    ),
    "read-above-hw": ReplicationTraits(readable=_end),
    "epoch-not-recorded": ReplicationTraits(notes_epoch_at_once=False),
    "zombie-follower": ReplicationTraits(same_epoch=_always),
    "early-isr-rejoin": ReplicationTraits(rejoins=lambda position, high_watermark, start: position >= high_watermark),
    "hw-regression": ReplicationTraits(knows_end=_always),
    "stale-leader-and-isr": ReplicationTraits(current=_always, newer=operator.ne),
    "former-incarnation": ReplicationTraits(meant=_always),
    "cached-zk-version": ReplicationTraits(reads_state_again=False),
}
"""By the defect's name."""
