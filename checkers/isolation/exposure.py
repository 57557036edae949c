"""Exposure of an isolation level: the reads that could have contradicted it.

The claims are the reads of committed transactions that show a version of another transaction, or the initial one. A
claim is exposed if another version could have been illegal. That needs two things:

1. Another transaction wrote the object, so the read had two versions to choose from.
2. The reading transaction has a *tie* to the others besides this read. Without a tie, a legal order may place it right
   after the writer of any version, so each version would be legal.

Levels up to read committed only forbid circles of writes and of reads of written values. So a tie is a way *from* the
reader: another transaction read or overwrote what it wrote, or comes after it in the declared order. Stronger levels
know three more ties: another read of an object that others wrote, a written object that others use, and a transaction
before it in the declared order. For read uncommitted the first condition suffices, because this level is about the
order of versions.

The conditions are necessary: a history without exposed claims satisfies the level whatever versions its reads show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from assay.checkers.exposure import Exposure
from assay.checkers.isolation.levels import Level, Order, Rule
from assay.checkers.isolation.transactions import NEVER, TransactionHistory

EXPOSURE_TABLE: Final = "txn_level_exposure"
"""Table with the columns ``key``, ``claims`` and ``exposed``."""


def declare_level_exposure(level: Level) -> Exposure:
    """Returns the claims of a level in words, and the SQL of their counts."""
    remedy = "let transactions read and write several keys that other transactions write"
    return Exposure(
        rows=f"select key, claims, exposed from {EXPOSURE_TABLE}",
        nouns="reads",
        asserted="answered in committed transactions",
        observed="open to contradiction by another transaction",
        no_claims="no transaction that committed read a version of another transaction",
        remedy=remedy,
        at_any_time=True,  # an observation before the claim counts, too
    )


def count_exposure(history: TransactionHistory, level: Level) -> dict[str, tuple[int, int]]:
    """Returns the claims and the exposed claims of each key."""
    users = _find_users(history)
    with_successor, with_predecessor = _find_ordered(history, level.order)
    sources = with_successor | _find_observed(history)
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for number, (reads, writes) in enumerate(zip(history.reads, history.writes, strict=True)):
        is_open = [users.have_other_writer(read.key, number) for read in reads]
        if level.rule is Rule.READ_UNCOMMITTED:
            is_tied = True
        elif level.rule is Rule.READ_COMMITTED:
            is_tied = number in sources
        else:
            is_tied = sum(is_open) > 1 or number in with_successor or number in with_predecessor
            is_tied = is_tied or any(users.have_other(key, number) for key in writes)
        for read, exposed in zip(reads, is_open, strict=True):
            counts[read.key][0] += 1
            counts[read.key][1] += exposed and is_tied
    return {history.keys[key]: (claims, exposed) for key, (claims, exposed) in counts.items()}


@dataclass(frozen=True)
class _Users:
    """By key, up to two transactions that read it, and up to two that wrote it."""

    readers: Mapping[int, Collection[int]]
    writers: Mapping[int, Collection[int]]

    def have_other_writer(self, key: int, number: int) -> bool:
        """Returns whether another transaction than this one wrote the key."""
        return any(writer != number for writer in self.writers.get(key, ()))

    def have_other(self, key: int, number: int) -> bool:
        """Returns whether another transaction than this one read or wrote the key."""
        return self.have_other_writer(key, number) or any(one != number for one in self.readers.get(key, ()))


def _find_users(history: TransactionHistory) -> _Users:
    readers: dict[int, set[int]] = defaultdict(set)
    writers: dict[int, set[int]] = defaultdict(set)
    for number, (reads, writes) in enumerate(zip(history.reads, history.writes, strict=True)):
        for key in {read.key for read in reads}:
            if len(readers[key]) < 2:
                readers[key].add(number)
        for key in writes:
            if len(writers[key]) < 2:
                writers[key].add(number)
    return _Users(readers, writers)


def _find_observed(history: TransactionHistory) -> set[int]:
    """Returns the transactions whose writes others read, or follow in the order of a list."""
    read = {writer for reads in history.reads for one in reads for writer in one.writers}
    return read | {first for first, _, _ in history.list_version_order()}


def _find_ordered(history: TransactionHistory, order: Order) -> tuple[set[int], set[int]]:
    """Returns the transactions that precede another one in the declared order, and those that follow one."""
    if order is Order.REAL_TIME:
        last_call = max(history.calls, default=-1)
        first_return = min(history.returns, default=NEVER)
        return (
            {number for number, ret in enumerate(history.returns) if ret < last_call},
            {number for number, call in enumerate(history.calls) if call > first_return},
        )
    pairs = history.list_session_order() if order is Order.SESSION else []
    return {first for first, _ in pairs}, {second for _, second in pairs}
