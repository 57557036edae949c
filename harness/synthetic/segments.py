"""Running sums, minima and last values per group, over arrays sorted by group.

``starts`` flags the first row of each group.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", int, Ints)
"""A number or an array of numbers."""

_APART = 1 << 42
"""Distance between the value ranges of two groups. Values are below half of it, and groups fewer than 2**20, so that
all ranges fit into an int64."""


def sort_by(group: NDArray[Any]) -> tuple[Ints, Flags]:
    """Returns the stable order by group, and ``starts`` in that order."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.empty(len(order), dtype=np.bool_)
    if len(order):
        starts[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return order, starts


def find_ends(starts: Flags) -> Flags:
    """Returns a flag for the last row of each group."""
    last = np.empty(len(starts), dtype=np.bool_)
    if len(starts):
        last[-1] = True
        last[:-1] = starts[1:]
    return last


def find_first_of_group(starts: Flags) -> Ints:
    """Returns for each row the index of the first row of its group."""
    index = np.arange(len(starts), dtype=np.int64)
    return np.maximum.accumulate(np.where(starts, index, 0))


def compute_running_sum(values: Ints, starts: Flags) -> Ints:
    """Returns the sum of the group up to and including each row."""
    total = np.cumsum(values)
    return np.asarray(total - (total - values)[find_first_of_group(starts)])


def compute_running_min(values: Ints, starts: Flags) -> Ints:
    """Returns the minimum of the group up to and including each row."""
    apart = (np.cumsum(starts) - 1) * _APART
    return np.asarray(np.minimum.accumulate(values - apart) + apart)


def find_last_before(flags: Flags, starts: Flags) -> Ints:
    """Returns for each row the index of the last flagged row before it in its group, or -1."""
    index = np.arange(len(flags), dtype=np.int64)
    last = np.maximum.accumulate(np.where(flags, index, -1)) if len(flags) else index
    before = np.concatenate([[-1], last[:-1]]) if len(flags) else index
    return np.asarray(np.where(before >= find_first_of_group(starts), before, -1))


def expand_ranks(at: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Repeats each place ``count`` times. Also returns the ranks 0, 1, 2, ... within each place."""
    repeated = np.repeat(at, count)
    first = np.repeat(np.cumsum(count) - count, count)
    return repeated, np.arange(len(repeated), dtype=np.int64) - first
