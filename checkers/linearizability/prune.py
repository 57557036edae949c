"""The step from one return to the next: drops configurations that another one dominates.

This is rule 6 of the compiled search (``core``).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability.compiled import register_compiled
from assay.checkers.linearizability.layout import WORD, Layout
from assay.checkers.linearizability.tables import (
    CURRENT,
    EVENT,
    GENERATION,
    LARGEST,
    NEXT,
    PENDING,
    PHASE,
    READS,
    SearchMemory,
    hash_row,
)

Ints = NDArray[np.int64]

MOST_COMPARED: Final = 64
"""Rows of one state that a new one is compared with; beyond that it is kept without comparison."""


@register_compiled
def forget(layout: Layout, memory: SearchMemory, op: int) -> None:
    """Removes the operation from the pending ones."""
    counters = memory.counters
    slot, kind = layout.slot[op], layout.kind[op]
    if layout.reads[kind]:
        among, count = memory.pending_reads, READS
    else:
        among, count = memory.pending, PENDING
    place = 0
    while among[place] != op:
        place += 1
    counters[count] -= 1
    for index in range(place, counters[count]):
        among[index] = among[index + 1]
    if layout.total[kind]:
        memory.total_mask[slot // WORD] &= ~(1 << slot % WORD)


@register_compiled
def is_dominating(layout: Layout, memory: SearchMemory, one: Ints, other: Ints, read_mask: Ints) -> bool:
    """Returns whether ``one`` can do all that ``other``, with an equal state, can.

    For each slot, optional can do what done and what open can; for a read, done can do what open can. ``one`` also must
    have used no more of any group.
    """
    for word in range(layout.words):
        done, optional = one[1 + word], one[1 + layout.words + word]
        other_done, other_optional = other[1 + word], other[1 + layout.words + word]
        if other_done & ~(done | optional) or other_optional & ~optional:
            return False
        if done & ~other_done & ~other_optional & ~read_mask[word]:
            return False
    for word in range(len(layout.guards)):
        place = 1 + 2 * layout.words + word
        if ((other[place] | layout.guards[word]) - one[place]) & layout.guards[word] != layout.guards[word]:
            return False
    return True


@register_compiled
def settle(layout: Layout, memory: SearchMemory, op: int) -> None:
    """Moves the rows kept for the next return to the current ones, without dominated rows (rule 6)."""
    counters = memory.counters
    forget(layout, memory, op)
    read_mask = np.zeros(layout.words, np.int64)
    for index in range(counters[READS]):
        slot = layout.slot[memory.pending_reads[index]]
        read_mask[slot // WORD] |= 1 << slot % WORD
    last, generation, dropped = len(memory.heads) - 1, counters[GENERATION], -2
    for index in range(counters[NEXT]):
        row = memory.next[index]
        place = hash_row(row, 1) & last
        first = memory.heads[place] & 0xFFFFFFFF if memory.heads[place] >> 32 == generation else -1
        other, compared, dominated = first, 0, False
        while other >= 0 and compared < MOST_COMPARED:
            rival, following = memory.next[other], memory.links[other]
            if memory.current_trail[other] != dropped and rival[0] == row[0]:
                compared += 1
                if is_dominating(layout, memory, rival, row, read_mask):
                    dominated = True
                    break
                if is_dominating(layout, memory, row, rival, read_mask):
                    memory.current_trail[other] = dropped
            other = following
        memory.current_trail[index] = dropped if dominated else memory.next_trail[index]
        if not dominated:
            memory.links[index] = first
            memory.heads[place] = generation << 32 | index
    kept = 0
    for index in range(counters[NEXT]):
        if memory.current_trail[index] != dropped:
            for at in range(layout.width):
                memory.current[kept, at] = memory.next[index, at]
            memory.current_trail[kept] = memory.current_trail[index]
            kept += 1
    counters[CURRENT] = kept
    counters[LARGEST] = max(counters[LARGEST], kept)
    counters[EVENT] += 1
    counters[PHASE] = 0
