"""Explains a failed search: the operation that cannot be linearized, the possible states, and the longest order.

``core`` explains configurations, and ``tables`` the trail: the operations that took effect, in order.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.checkers.judging.verdict import MOST_OPERATIONS, Finding
from assay.checkers.linearizability import tables
from assay.checkers.linearizability.encode import FOREVER, KeyHistory
from assay.checkers.linearizability.layout import Layout
from assay.checkers.linearizability.workspace import Workspace
from assay.harness.core.printable import count_noun

MOST_STATES: Final = 5
MAX_ORDERS_COMPARED: Final = 64
"""Maximum number of configurations whose orders are compared to find the longest one."""


@dataclass(frozen=True)
class StuckSearch:
    """A search that ended at an operation that cannot be linearized.

    All operations are given by their ``index`` in the history.
    """

    operation: int
    """The operation that cannot take effect before it returns, in any order."""
    order: tuple[int, ...]
    """The longest partial linearization without ``operation``, legal by the model and by time."""
    states: tuple[str, ...]
    """Possible states before the operation, over all orders; at most ``MOST_STATES`` of them."""
    possible: int
    """Number of all possible states."""
    concurrent: tuple[int, ...]
    """Operations that were pending when ``operation`` returned. Operations of unknown outcome are listed last."""


def explain(history: KeyHistory, layout: Layout, space: Workspace) -> StuckSearch:
    """Explains a search that is ``STUCK``."""
    counters, memory = space.counters, space.memory
    index = history.index
    rows = memory.seen[: counters[tables.SEEN]]
    pending = [*memory.pending[: counters[tables.PENDING]], *memory.pending_reads[: counters[tables.READS]]]
    op = int(counters[tables.AT_OPERATION])
    called = layout.events[: counters[tables.EVENT]]
    info = [event for event in called[called >= 0].tolist() if layout.slot[event] < 0]
    # An operation that was left out could have taken effect last. It is the write of a register, whose state is ``x``.
    unread = [layout.x[layout.kind[one]] for one in info if ~layout.slot[one] >= len(layout.group_kind)]
    states = np.unique(np.append(rows[:, 0], np.array(unread, dtype=np.int64)))
    compared = [_count_pending(row, layout) for row in rows[:MAX_ORDERS_COMPARED]]
    trail = int(memory.seen_trail[compared.index(max(compared))])
    return StuckSearch(
        operation=int(index[op]),
        order=find_order(history, layout, space, trail),
        states=tuple(space.describe(int(state), history.values) for state in states[:MOST_STATES]),
        possible=len(states),
        concurrent=tuple(int(index[one]) for one in [*pending, *info] if one != op),
    )


def _count_pending(row: NDArray[np.int64], layout: Layout) -> int:
    """Returns how many operations have taken effect in a configuration without having returned.

    All configurations have the same operations that returned, so this number orders them by the length of their orders.
    """
    done = sum(int(word).bit_count() for word in row[1 : 1 + layout.words])
    used = row[layout.group_word] // layout.group_unit & layout.group_mask
    return done + int(used.sum())


def find_order(history: KeyHistory, layout: Layout, space: Workspace, trail: int) -> tuple[int, ...]:
    """Returns the operations of one configuration in the order of their effects, including unseen operations.

    ``trail``: the number of the configuration's last entry in the trail. By rule 3 of ``core``, a total operation may
    take effect unseen right before a blind action, such as a plain write. So an unseen operation is placed right before
    the first blind action that took effect after its call.
    """
    in_groups = np.flatnonzero(layout.slot < 0)
    by_group = in_groups[np.argsort(layout.slot[in_groups], kind="stable")]
    slots, begins = np.unique(layout.slot[by_group], return_index=True)
    parts = np.split(by_group, begins[1:])
    members = {slot: iter(part.tolist()) for slot, part in zip(slots.tolist(), parts, strict=False)}
    placed = [(op if op >= 0 else next(members[op]), event) for op, event in space.read_trail(trail)]
    called = np.empty(len(layout.kind), dtype=np.int64)
    starts = np.flatnonzero(layout.events >= 0)
    called[layout.events[starts]] = starts
    placed_ops = {op for op, _ in placed}
    returned = [~event for event in layout.events[: space.counters[tables.EVENT]].tolist() if event < 0]
    blind = [(event, place) for place, (op, event) in enumerate(placed) if layout.blind[layout.kind[op]]]
    events = np.array([event for event, _ in blind], dtype=np.int64)
    unseen: dict[int, list[int]] = {}
    for op in returned:
        if op not in placed_ops:
            unseen.setdefault(blind[int(np.searchsorted(events, called[op]))][1], []).append(op)
    order = [op for place, (own, _) in enumerate(placed) for op in (*unseen.get(place, ()), own)]
    return tuple(history.index[np.array(order, dtype=np.int64)].tolist())


def to_finding(anomaly: str, history: KeyHistory, why: StuckSearch) -> Finding:
    """Returns the explanation as a finding: one sentence, and its first operations."""
    row = int(np.flatnonzero(history.index == why.operation)[0])
    states = " or ".join(why.states) + (f" or {why.possible - len(why.states)} more" * (why.possible > len(why.states)))
    others = f", with {count_noun(len(why.concurrent), 'other operation')} pending" if why.concurrent else ""
    claim = (
        f"{history.describe_operation(row)} has no place in any order: "
        f"{count_noun(len(why.order), 'operation')} can be placed before it{others}, "
        f"and then the state can only be {states}."
    )
    # The last placed operation comes second, because the first two operations determine the time and the active faults.
    involved = tuple(dict.fromkeys((why.operation, *why.order[-1:], *why.concurrent, *why.order[::-1])))
    return Finding(
        anomaly=anomaly,
        key=history.key,
        claim=claim if history.key is None else f"In {history.key}: {claim}",
        operations=involved[:MOST_OPERATIONS],
        omitted=max(0, len(involved) - MOST_OPERATIONS),
        time=None if history.ret[row] == FOREVER else int(history.ret[row]),
    )
