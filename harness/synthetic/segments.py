"""Running sums, minima and last values per group, over whole arrays sorted by group; ``starts``: where one begins."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", int, Ints)
"""Of one, or of many."""

_APART = 1 << 42
"""Values are below half of this, and groups fewer than 2**20, so that groups stay apart inside one int64."""


def sorted_by(group: NDArray[Any]) -> tuple[Ints, Flags]:
    """The stable order by group, and in that order where groups begin."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.empty(len(order), dtype=np.bool_)
    if len(order):
        starts[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return order, starts


def ends(starts: Flags) -> Flags:
    """Where groups end."""
    last = np.empty(len(starts), dtype=np.bool_)
    if len(starts):
        last[-1] = True
        last[:-1] = starts[1:]
    return last


def first_of(starts: Flags) -> Ints:
    """For each row, the index of its group's first."""
    index = np.arange(len(starts), dtype=np.int64)
    return np.maximum.accumulate(np.where(starts, index, 0))


def running_sum(values: Ints, starts: Flags) -> Ints:
    """Sum of the group up to and with each row."""
    total = np.cumsum(values)
    return np.asarray(total - (total - values)[first_of(starts)])


def running_min(values: Ints, starts: Flags) -> Ints:
    """Minimum of the group up to and with each row."""
    apart = (np.cumsum(starts) - 1) * _APART
    return np.asarray(np.minimum.accumulate(values - apart) + apart)


def last_before(flags: Flags, starts: Flags) -> Ints:
    """For each row, the index of the last row before it in its group that has the flag, or -1."""
    index = np.arange(len(flags), dtype=np.int64)
    last = np.maximum.accumulate(np.where(flags, index, -1)) if len(flags) else index
    before = np.concatenate([[-1], last[:-1]]) if len(flags) else index
    return np.asarray(np.where(before >= first_of(starts), before, -1))


def ranks(at: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Each place as often as its count says, and 0, 1, 2, ... for each of them."""
    repeated = np.repeat(at, count)
    first = np.repeat(np.cumsum(count) - count, count)
    return repeated, np.arange(len(repeated), dtype=np.int64) - first
