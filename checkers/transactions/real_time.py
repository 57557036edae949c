"""Real-time order as edges of a graph, linear in the number of operations. Pure functions on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from assay.checkers.engine import INFINITY
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np

    from assay.checkers.transactions.graph import Ints
else:
    np = LazyModule("numpy")

_FIRST_RETURN: Final = -(2**62)
"""Id of the first return's node. The ids of returns must stay below those of fans, the auxiliary nodes of ``edges``."""


@dataclass(frozen=True)
class TimeOrder:
    """Real-time order as a graph: nodes for returns, with their times, and edges between operations and returns."""

    nodes: Ints
    times: Ints
    source: Ints
    target: Ints


def order_in_real_time(node: Ints, call: Ints, ret: Ints, window: Ints) -> TimeOrder:
    """Returns the real-time order of the operations. Each return is a node with an edge to the next return.

    Each operation has an edge to its own return, and an edge from the last return before its call. ``node``: ids of
    nodes; ids below 0 are not operations. ``window``: number of each node's window (``edges``). Only operations of one
    window are ordered.
    """
    ended = np.flatnonzero((node >= 0) & (ret != INFINITY))
    ended = ended[np.lexsort((ret[ended], window[ended]))]
    returns, windows = ret[ended], window[ended]
    ids = _FIRST_RETURN + np.arange(len(ended), dtype=np.int64)
    same = np.diff(windows) == 0
    # An operation may return long after its window ended, so each window is ordered by itself.
    began = np.flatnonzero(node >= 0)
    began = began[np.lexsort((call[began], window[began]))]
    before = _find_last_before(windows, returns, window[began], call[began])
    known = before >= 0
    return TimeOrder(
        ids,
        returns,
        np.concatenate([node[ended], ids[:-1][same], ids[before[known]]]),
        np.concatenate([ids, ids[1:][same], node[began[known]]]),
    )


def _find_last_before(windows: Ints, returns: Ints, window: Ints, call: Ints) -> Ints:
    """Returns, for each (window, call), the index of the last return before the call in the same window, or -1."""
    both = np.lexsort(
        (
            np.concatenate([np.ones(len(returns), np.int64), np.zeros(len(call), np.int64)]),
            np.concatenate([returns, call]),
            np.concatenate([windows, window]),
        )
    )
    is_return = both < len(returns)
    last = np.maximum.accumulate(np.where(is_return, both, -1))
    found = np.full(len(call), -1, np.int64)
    found[both[~is_return] - len(returns)] = last[~is_return]
    here = found >= 0
    here[here] = windows[found[here]] == window[here]
    return np.where(here, found, -1)
