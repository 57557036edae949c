"""Data of the compiled search: configurations in hash tables, their trails of operations, and known transitions.

``core`` explains configurations and the search, and ``layout`` the words of a row and the slots of operations. All
memory belongs to the caller (``workspace``), which enlarges full arrays.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability.compiled import register_compiled
from assay.checkers.linearizability.layout import Layout

Ints = NDArray[np.int64]

# Positions in ``counters``:
# - EVENT: the next event. PHASE: 0 takes events, 1 divides the current rows, 2 expands rows, 3 compares the rows after
#   the return. HEAD: number of rows of ``current`` (phase 1), ``seen`` (2) or ``next`` (3) processed so far.
#   AT_OPERATION, AT_ACTION: the operation or the action that a status is about.
# - CURRENT, SEEN, NEXT, TRAIL, PENDING, READS, OPEN, REQUESTS: used lengths of the arrays; READS is that of
#   ``pending_reads``, and OPEN that of ``open_groups``.
# - GENERATION: number of the return. In the hash tables, entries of earlier generations are free.
# - STAMP: number of the expanded row. ``tried`` has this number for the actions that were tried on this row.
# - BUDGET: work left, in steps. BEAM_WIDTH: limit of CURRENT. LARGEST: largest CURRENT so far. EXPLORED: rows expanded
#   so far.
EVENT, PHASE, AT_OPERATION, AT_ACTION, CURRENT, SEEN, NEXT, HEAD, TRAIL, PENDING = range(10)
READS, OPEN, GENERATION, STAMP, REQUESTS, BUDGET, BEAM_WIDTH, LARGEST, EXPLORED = range(10, 19)
COUNTERS: Final = 19
"""Number of counters."""


class SearchMemory(NamedTuple):
    """Mutable state of the search.

    The trail has an entry for each operation that took effect in a row: the operation, and the previous entry (its
    parent). A row's trail is the number of its latest entry.
    """

    counters: Ints
    current: Ints
    """Rows after the last return."""
    current_trail: Ints
    seen: Ints
    """Rows reached since then, in which the returning operation has not taken effect."""
    seen_trail: Ints
    next: Ints
    """Rows in which the returning operation has taken effect. They become the current rows."""
    next_trail: Ints
    seen_table: Ints
    """``seen_table``, ``next_table``: hash tables with open addressing. An entry has generation and index of a row."""
    next_table: Ints
    heads: Ints
    """``heads``, ``links``: chains of the rows of ``next`` with one hash of the state, to find dominated rows."""
    links: Ints
    trail_parent: Ints
    trail_op: Ints
    trail_event: Ints
    pending: Ints
    """Pending operations that change something, ordered by return."""
    pending_reads: Ints
    available: Ints
    """For each group, the number of operations called so far."""
    open_groups: Ints
    total_mask: Ints
    """The slots of pending total operations."""
    blind_state: Ints
    """For each blind action, whether its next state is known (0 or 1), and this state."""
    tried: Ints
    row: Ints
    """Working memory for one row."""
    requests: Ints
    """Transitions that the caller must compute, as in ``known``."""
    known: Ints
    """Hash table of known transitions of interned models: state and action in one integer, -1 in empty entries."""
    known_next: Ints
    """The state after each transition, or -1 if the action was rejected. A lower number is the complement of a place in
    ``branches``, plus one."""
    branches: Ints
    """Lists of states, for transitions to several states: the length of each list, then its states in order. Equal
    lists have one place."""


@register_compiled
def hash_row(row: Ints, width: int) -> int:
    value = 7
    for place in range(width):
        part = row[place]
        value = ((value ^ (part & 0x7FFFFFFF)) * 1000003) & 0x7FFFFFFF
        value = ((value ^ ((part >> 31) & 0x7FFFFFFF)) * 1540483) & 0x7FFFFFFF
        value ^= value >> 15
    return value


@register_compiled
def find_entry(table: Ints, generation: int, rows: Ints, row: Ints, width: int) -> int:
    """Returns the position of ``row``'s entry, or the free position for it."""
    last = len(table) - 1
    place = hash_row(row, width) & last
    while table[place] >> 32 == generation:
        index = table[place] & 0xFFFFFFFF
        equal = True
        for at in range(width):
            if rows[index, at] != row[at]:
                equal = False
                break
        if equal:
            return place
        place = (place + 1) & last
    return place


@register_compiled
def keep_row(
    table: Ints, generation: int, rows: Ints, trails: Ints, count: int, row: Ints, trail: int, width: int
) -> bool:
    """Adds a row as number ``count`` unless the table has an equal row. Returns whether it was added."""
    place = find_entry(table, generation, rows, row, width)
    if table[place] >> 32 == generation:
        return False
    table[place] = generation << 32 | count
    for at in range(width):
        rows[count, at] = row[at]
    trails[count] = trail
    return True


@register_compiled
def rebuild(table: Ints, generation: int, rows: Ints, count: int, width: int) -> None:
    """Enters rows into a new table."""
    for index in range(count):
        table[find_entry(table, generation, rows, rows[index], width)] = generation << 32 | index


@register_compiled
def find_transition(known: Ints, key: int) -> int:
    last = len(known) - 1
    place = ((key & 0x7FFFFFFF) * 1000003 ^ ((key >> 31) & 0x7FFFFFFF) * 1540483) & last
    while known[place] >= 0 and known[place] != key:
        place = (place + 1) & last
    return place


@register_compiled
def add_transitions(known: Ints, known_next: Ints, keys: Ints, states: Ints) -> None:
    for index in range(len(keys)):
        place = find_transition(known, keys[index])
        known[place] = keys[index]
        known_next[place] = states[index]


@register_compiled
def find_next_state(step: Any, interned: bool, layout: Layout, memory: SearchMemory, state: int, kind: int) -> Any:
    """Returns the number of next states, and the next state; 0 if the action is rejected.

    If there are several next states, the second result is the place of the first one in ``branches``. For an unknown
    transition the number is -1, and the transition is requested. ``interned``: the model's states are known by number.
    """
    if not interned:
        allowed, after = step(state, layout.f[kind], layout.x[kind], layout.y[kind])
        return (1 if allowed else 0), after
    key = state << 31 | layout.x[kind]
    place = find_transition(memory.known, key)
    if memory.known[place] == key:
        after = memory.known_next[place]
        if after < -1:
            return memory.branches[-2 - after], -1 - after
        return (1 if after >= 0 else 0), after
    if memory.counters[REQUESTS] < len(memory.requests):
        memory.requests[memory.counters[REQUESTS]] = key
        memory.counters[REQUESTS] += 1
    return -1, 0


@register_compiled
def extend_trail(memory: SearchMemory, trail: int, op: int) -> int:
    """Appends an entry to the trail. The caller ensures that there is room."""
    counters = memory.counters
    at: int = counters[TRAIL]
    memory.trail_parent[at] = trail
    memory.trail_op[at] = op
    memory.trail_event[at] = counters[EVENT]
    counters[TRAIL] += 1
    return at


@register_compiled
def sweep_trail(parent: Ints, op: Ints, event: Ints, count: int, trails: Ints) -> int:
    """Drops the entries of the trail that no row needs. ``trails``: the last entry of each row (negative: no entry),
    which gets its new number.

    Returns the number of remaining entries.
    """
    moved = np.zeros(count, np.int64)
    for index in range(len(trails)):
        at = trails[index]
        while at >= 0 and not moved[at]:
            moved[at] = 1
            at = parent[at]
    kept = 0
    for at in range(count):
        if moved[at]:
            moved[at] = kept
            parent[kept] = moved[parent[at]] if parent[at] >= 0 else -1
            op[kept], event[kept] = op[at], event[at]
            kept += 1
    for index in range(len(trails)):
        if trails[index] >= 0:
            trails[index] = moved[trails[index]]
    return kept
