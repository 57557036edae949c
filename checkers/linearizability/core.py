"""The compiled search: just-in-time linearization over sets of configurations.

Events are processed in order. A configuration is a possible state, with the pending operations that have taken effect.
The search keeps the set of all configurations after each return, and orders operations only when it must. When an
operation returns, configurations in which it has not taken effect are extended: the search tries every order of pending
operations that ends with this operation. If no configuration is left, the operation cannot be placed. So memory depends
on the number of operations pending at once, not on the length of the history. The source is Lowe, "Testing for
linearizability", 2017, after Wing and Gong, 1993.

Each operation performs an *action* of the model. A *blind* action leads to the same state from any state, as a write
does. A *total* action is allowed in any state; blind actions are total. In the *lost* state the value is unknown, and
only a blind action leads out of it. The states of an *interned* model are any objects, of which the search sees only
numbers. Its actions may lead to several states; the search then continues from each of them.

Six rules drop configurations that another configuration makes unnecessary:

1. An action that only reads takes effect as soon as the state allows it.
2. Among equal pending actions, the action that returns first takes effect first. Actions of unknown outcome come last.
3. Right before a blind action, any total action may have happened unseen. So when a blind action takes effect, all
   pending total actions become *optional*: they may still take effect, but need not.
4. After a total action whose effect no read saw, no blind action is tried. The configuration that skips this total
   action covers this case: by rule 3, the action is optional there after the blind action.
5. In the lost state only the returning operation and blind actions are tried. All other actions leave the state
   unchanged until a blind action takes effect, and may by rule 3 have happened unseen.
6. At each return, a configuration is dropped if another configuration with an equal state dominates it
   (``is_dominating``).

``layout`` explains slots, groups, and the words of a *row*, which is a configuration in memory. ``tables`` explains the
arrays of ``SearchMemory``, the *trail*, and the cells of ``counters``, whose names are in capitals (``PENDING``).

All memory belongs to the caller (``workspace``). ``advance`` stops if an array is full, a transition is unknown or its
budget is spent. It continues from this point when it is called again.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability.compiled import register_compiled
from assay.checkers.linearizability.layout import WORD, Layout
from assay.checkers.linearizability.tables import (
    AT_ACTION,
    AT_OPERATION,
    BEAM_WIDTH,
    BUDGET,
    CURRENT,
    EVENT,
    EXPLORED,
    GENERATION,
    HEAD,
    LARGEST,
    NEXT,
    OPEN,
    PENDING,
    PHASE,
    READS,
    SEEN,
    STAMP,
    TRAIL,
    SearchMemory,
    extend_trail,
    find_next_state,
    hash_row,
    keep_row,
)

Ints = NDArray[np.int64]

WORDS_PER_STEP: Final = 16
"""Number of words that a search can copy or compare in about the time of one step of a model."""
MOST_COMPARED: Final = 64
"""Maximum number of rows with an equal state that are compared with a new row. If none of them dominates the new row,
it is kept."""

CONTINUE, PLACED, STUCK, FULL_ROWS, FULL_TRAIL, MISSING, SPENT, WIDE = range(8)
WRONG_READ, WRONG_BLIND, WRONG_TOTAL, WRONG_LOST = range(8, 12)
"""Statuses that ``advance`` returns. Only its parts return ``CONTINUE``: the search goes on.

- ``PLACED``: every operation has its place. ``STUCK``: the operation ``AT_OPERATION`` has no place; ``current`` and
  ``seen`` hold the configurations before it.
- ``FULL_ROWS``, ``FULL_TRAIL``: an array is full. ``SPENT``: the budget is spent.
- ``MISSING``: the transitions in ``requests`` are needed. ``WIDE``: the set is larger than ``BEAM_WIDTH``; the caller
  may reduce it.
- ``WRONG_...``: the action ``AT_ACTION`` violates its model's claim. ``WRONG_READ``: it reads, but changed the state.
  ``WRONG_BLIND``: it is blind, but was rejected or left another state than before. ``WRONG_TOTAL``: it is total, but
  was rejected. ``WRONG_LOST``: it leads out of the lost state, but is not blind.
"""


@register_compiled
def count_work(layout: Layout, memory: SearchMemory) -> int:
    """Returns the cost of making or comparing a row, in steps: 1, and more for long rows and many pending reads."""
    cost: int = 1 + (layout.width + memory.counters[READS]) // WORDS_PER_STEP
    return cost


@register_compiled
def take_bit(layout: Layout, op: int) -> Any:
    """Returns the word of a row that has the operation's done bit, and the bit."""
    slot = layout.slot[op]
    return 1 + slot // WORD, 1 << slot % WORD


@register_compiled
def find_slot(layout: Layout, chosen: int) -> int:
    """Returns the slot of an operation, or the complement of its group. ``chosen``: as in ``find_kind``."""
    slot: int = layout.slot[chosen] if chosen >= 0 else chosen
    return slot


@register_compiled
def find_kind(layout: Layout, chosen: int) -> int:
    """Returns the action of an operation. ``chosen``: the operation, or the complement of its group."""
    kind: int = layout.kind[chosen] if chosen >= 0 else layout.group_kind[~chosen]
    return kind


@register_compiled
def find_full_array(memory: SearchMemory) -> int:
    """Returns ``FULL_ROWS`` or ``FULL_TRAIL`` without room for the rows that follow one row, else ``CONTINUE``."""
    counters = memory.counters
    if counters[SEEN] >= len(memory.seen) or counters[NEXT] + 1 >= len(memory.next):
        return FULL_ROWS
    return FULL_TRAIL if counters[TRAIL] + counters[READS] + 1 >= len(memory.trail_op) else CONTINUE


@register_compiled
def apply_reads(step: Any, interned: bool, layout: Layout, memory: SearchMemory, row: Ints, trail: int) -> int:
    """Applies every pending read that the row's state allows (rule 1).

    ``interned``: states are numbers in a table of known transitions. The caller computes missing transitions in Python.

    Returns the number of the row's latest entry in the trail of operations that took effect. Returns -2 if a transition
    is missing, and -3 if an action that reads changed the state.
    """
    missing = False
    for index in range(memory.counters[READS]):
        op = memory.pending_reads[index]
        word, bit = take_bit(layout, op)
        if row[word] & bit:
            continue
        next_states, after = find_next_state(step, interned, layout, memory, row[0], layout.kind[op])
        if next_states < 0:
            missing = True
        elif next_states:
            if next_states > 1 or after != row[0]:
                memory.counters[AT_ACTION] = layout.kind[op]
                return -3
            row[word] |= bit
            trail = extend_trail(memory, trail, op)
    return -2 if missing else trail


@register_compiled
def add_to_search(layout: Layout, memory: SearchMemory, row: Ints, trail: int) -> None:
    """Adds a row to ``seen``, the rows from which the search continues before the next return."""
    counters = memory.counters
    generation, count = counters[GENERATION], counters[SEEN]
    counters[SEEN] += keep_row(
        memory.seen_table, generation, memory.seen, memory.seen_trail, count, row, trail, layout.width
    )


@register_compiled
def add_to_next(layout: Layout, memory: SearchMemory, row: Ints, trail: int, op: int) -> None:
    """Adds a row to ``next``, the rows after the return, without the slot of the returning operation.

    The row's last word, which marks an unread total action, is cleared.
    """
    counters = memory.counters
    word, bit = take_bit(layout, op)
    done, optional, mark = row[word], row[layout.words + word], row[layout.width - 1]
    row[word] = done & ~bit
    row[layout.words + word] = optional & ~bit
    row[layout.width - 1] = 0
    generation, count = counters[GENERATION], counters[NEXT]
    counters[NEXT] += keep_row(
        memory.next_table, generation, memory.next, memory.next_trail, count, row, trail, layout.width
    )
    row[word], row[layout.words + word], row[layout.width - 1] = done, optional, mark


@register_compiled
def take_events(layout: Layout, memory: SearchMemory) -> bool:
    """Makes the calls up to the next return pending, and sets ``AT_OPERATION`` to the returning operation.

    Returns False if no operation returns any more. Equal operations of unknown outcome have no slot, but share a group
    with a count (``layout``). For these, ``slot`` is the complement of the group's number, which is negative.
    """
    counters = memory.counters
    while counters[EVENT] < len(layout.events):
        event = layout.events[counters[EVENT]]
        if event < 0:
            counters[AT_OPERATION] = ~event
            return True
        slot, kind = layout.slot[event], layout.kind[event]
        if slot < 0:
            if ~slot < len(layout.group_kind):  # else it is left out (``searcher.find_unread_writes``)
                if memory.available[~slot] == 0:
                    memory.open_groups[counters[OPEN]] = ~slot
                    counters[OPEN] += 1
                memory.available[~slot] += 1
        elif layout.reads[kind]:
            memory.pending_reads[counters[READS]] = event
            counters[READS] += 1
        else:
            place = counters[PENDING]
            while place > 0 and layout.return_event[memory.pending[place - 1]] > layout.return_event[event]:
                memory.pending[place] = memory.pending[place - 1]
                place -= 1
            memory.pending[place] = event
            counters[PENDING] += 1
            if layout.total[kind]:
                memory.total_mask[slot // WORD] |= 1 << slot % WORD
        counters[EVENT] += 1
    return False


@register_compiled
def begin_return(step: Any, interned: bool, layout: Layout, memory: SearchMemory, op: int) -> int:
    """Divides the current rows: into ``next`` if the returning operation has taken effect, otherwise into ``seen``.

    A row in which the operation is optional (rule 3) goes into both.
    """
    counters, row = memory.counters, memory.row
    word, bit = take_bit(layout, op)
    while counters[HEAD] < counters[CURRENT]:
        if counters[BUDGET] <= 0:
            return SPENT
        full = find_full_array(memory)
        if full != CONTINUE:
            return full
        for at in range(layout.width):
            row[at] = memory.current[counters[HEAD], at]
        trail = apply_reads(step, interned, layout, memory, row, memory.current_trail[counters[HEAD]])
        if trail == -3:
            return WRONG_READ
        if trail == -2:
            return MISSING
        if (row[word] | row[layout.words + word]) & bit:
            add_to_next(layout, memory, row, trail, op)
        if not row[word] & bit:
            add_to_search(layout, memory, row, trail)
        counters[BUDGET] -= count_work(layout, memory)
        counters[HEAD] += 1
    counters[HEAD] = 0
    counters[PHASE] = 2
    return CONTINUE


@register_compiled
def apply_action(
    step: Any,
    interned: bool,
    layout: Layout,
    memory: SearchMemory,
    op: int,
    number: int,
    chosen: int,
) -> int:
    """Applies one action to the row ``number`` of ``seen``. Returns ``CONTINUE`` if it took effect or was rejected.

    ``chosen`` is the action's operation, or the complement of its group. An action with several next states adds a row
    for each of them.
    """
    counters, kind = memory.counters, find_kind(layout, chosen)
    next_states, after = find_next_state(step, interned, layout, memory, memory.seen[number, 0], kind)
    if next_states < 0:
        return MISSING
    if layout.blind[kind]:
        known = memory.blind_state[kind, 0]
        if not next_states or (known and (known != next_states or memory.blind_state[kind, 1] != after)):
            counters[AT_ACTION] = kind
            return WRONG_BLIND
        memory.blind_state[kind, 0], memory.blind_state[kind, 1] = next_states, after
    if not next_states:
        counters[AT_ACTION] = kind
        return WRONG_TOTAL if layout.total[kind] else CONTINUE
    for place in range(next_states):
        state = after if next_states == 1 else memory.branches[after + place]
        status = add_state_after(step, interned, layout, memory, op, number, chosen, state)
        if status != CONTINUE:
            return status
    return CONTINUE


@register_compiled
def add_state_after(
    step: Any,
    interned: bool,
    layout: Layout,
    memory: SearchMemory,
    op: int,
    number: int,
    chosen: int,
    after: int,
) -> int:
    """Adds the row that follows the row ``number`` of ``seen`` after an action that leads to the state ``after``.

    If the memory is full, the caller enlarges it and applies the action again. A row that was added before is then not
    added twice.
    """
    counters, row, words = memory.counters, memory.row, layout.words
    kind, slot = find_kind(layout, chosen), find_slot(layout, chosen)
    full = find_full_array(memory)
    if full != CONTINUE:
        return full
    if memory.seen[number, 0] == layout.lost and after != layout.lost and not layout.blind[kind]:
        counters[AT_ACTION] = kind
        return WRONG_LOST
    for at in range(layout.width):
        row[at] = memory.seen[number, at]
    row[0] = after
    if slot >= 0:
        row[1 + slot // WORD] |= 1 << slot % WORD
        row[1 + words + slot // WORD] &= ~(1 << slot % WORD)
    else:
        row[layout.group_word[~slot]] += layout.group_unit[~slot]
    if layout.blind[kind]:
        for word in range(words):
            row[1 + words + word] |= memory.total_mask[word] & ~row[1 + word]
    before = counters[TRAIL]
    own = extend_trail(memory, memory.seen_trail[number], chosen)
    trail = apply_reads(step, interned, layout, memory, row, own)
    if trail < 0:
        counters[TRAIL] = before
        return WRONG_READ if trail == -3 else MISSING
    row[layout.width - 1] = 1 if layout.total[kind] and trail == own else 0
    count = counters[NEXT] + counters[SEEN]
    word, bit = take_bit(layout, op)
    if row[word] & bit:
        add_to_next(layout, memory, row, trail, op)
    else:
        if row[words + word] & bit and not memory.seen[number, words + word] & bit:
            add_to_next(layout, memory, row, trail, op)
        add_to_search(layout, memory, row, trail)
    if counters[NEXT] + counters[SEEN] == count:
        counters[TRAIL] = before
    return CONTINUE


@register_compiled
def expand_rows(step: Any, interned: bool, layout: Layout, memory: SearchMemory, op: int) -> int:
    """Tries each pending action on each row of ``seen``, in order. New rows are appended to ``seen`` or ``next``."""
    counters, tried, cost = memory.counters, memory.tried, count_work(layout, memory)
    while counters[HEAD] < counters[SEEN]:
        if counters[BUDGET] <= 0:
            return SPENT
        counters[BUDGET] -= (counters[PENDING] + counters[OPEN]) // WORDS_PER_STEP
        number = counters[HEAD]
        counters[STAMP] += 1
        counters[EXPLORED] += 1
        unread = memory.seen[number, layout.width - 1] == 1
        lost = memory.seen[number, 0] == layout.lost
        missing = False
        for index in range(counters[PENDING] + counters[OPEN]):
            if index < counters[PENDING]:
                chosen = memory.pending[index]
                word, bit = take_bit(layout, chosen)
                if memory.seen[number, word] & bit:
                    continue
            else:
                group = memory.open_groups[index - counters[PENDING]]
                chosen = ~group
                used = memory.seen[number, layout.group_word[group]] // layout.group_unit[group]
                if used & layout.group_mask[group] >= memory.available[group]:
                    continue
            kind = find_kind(layout, chosen)
            if tried[kind] == counters[STAMP] or (lost and chosen != op and not layout.blind[kind]):
                continue
            tried[kind] = counters[STAMP]
            if unread and layout.blind[kind]:
                continue
            counters[BUDGET] -= cost
            status = apply_action(step, interned, layout, memory, op, number, chosen)
            if status == MISSING:
                missing = True
            elif status != CONTINUE:
                return status
        if missing:
            return MISSING
        counters[HEAD] += 1
    return CONTINUE


@register_compiled
def remove_pending(layout: Layout, memory: SearchMemory, op: int) -> None:
    """Removes the returning operation from the pending operations."""
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
    """Returns whether ``one`` dominates ``other``: both have an equal state, and ``other`` is not needed.

    The operation in a slot is open (it has not taken effect), done or optional (rule 3). Each slot must fulfil:

    - If it is done in ``other``, it is done or optional in ``one``.
    - If it is optional in ``other``, it is optional in ``one``.
    - If it is done in ``one``, it is done or optional in ``other``. A read may also be open in ``other``.

    ``one`` must not have used more operations of any group.
    """
    for word in range(layout.words):
        done, optional = one[1 + word], one[1 + layout.words + word]
        other_done, other_optional = other[1 + word], other[1 + layout.words + word]
        if other_done & ~(done | optional) or other_optional & ~optional:
            return False
        if done & ~other_done & ~other_optional & ~read_mask[word]:
            return False
    # All counts of a word are compared at once: the guard bit above a count stays set iff the difference of the counts
    # is not negative.
    for word in range(len(layout.guards)):
        place = 1 + 2 * layout.words + word
        if ((other[place] | layout.guards[word]) - one[place]) & layout.guards[word] != layout.guards[word]:
            return False
    return True


@register_compiled
def drop_dominated_rows(layout: Layout, memory: SearchMemory) -> int:
    """Moves the rows of ``next`` to ``current``, without dominated rows (rule 6). Returns ``CONTINUE`` or ``SPENT``."""
    counters, cost = memory.counters, count_work(layout, memory)
    read_mask = np.zeros(layout.words, np.int64)  # the slots of pending reads
    for index in range(counters[READS]):
        slot = layout.slot[memory.pending_reads[index]]
        read_mask[slot // WORD] |= 1 << slot % WORD
    # `dropped` replaces the trail of a row, which is -1 or more.
    last, generation, dropped = len(memory.heads) - 1, counters[GENERATION], -2
    while counters[HEAD] < counters[NEXT]:
        if counters[BUDGET] <= 0:
            return SPENT
        index = counters[HEAD]
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
        counters[BUDGET] -= 1 + compared * cost // WORDS_PER_STEP
        counters[HEAD] += 1
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
    return CONTINUE


@register_compiled
def advance(step: Any, interned: bool, layout: Layout, memory: SearchMemory) -> int:
    """Runs the search until the caller must act. Returns a status (``PLACED`` to ``WRONG_LOST``)."""
    counters = memory.counters
    while True:
        if counters[PHASE] == 0:
            if not take_events(layout, memory):
                return PLACED
            counters[HEAD] = counters[SEEN] = counters[NEXT] = 0
            counters[GENERATION] += 1
            counters[PHASE] = 1
        op = ~layout.events[counters[EVENT]]
        if counters[PHASE] == 1:
            status = begin_return(step, interned, layout, memory, op)
            if status != CONTINUE:
                return status
        if counters[PHASE] == 2:
            status = expand_rows(step, interned, layout, memory, op)
            if status != CONTINUE:
                return status
            if counters[NEXT] == 0:
                counters[AT_OPERATION] = op
                return STUCK
            remove_pending(layout, memory, op)
            counters[HEAD] = 0
            counters[PHASE] = 3
        status = drop_dominated_rows(layout, memory)
        if status != CONTINUE:
            return status
        if counters[CURRENT] > counters[BEAM_WIDTH]:
            return WIDE
        if counters[BUDGET] <= 0:
            return SPENT
        counters[BUDGET] -= 1
