"""Memory layout of one key's operations for the compiled search: events in order, and each operation's bits in a row.

Terms of ``core``: a *blind* action leads to the same state from any state. A *total* action is allowed in any state. In
the *lost* state the value is unknown. The states of an *interned* model are any objects, of which the search sees only
numbers.

An operation that completes has a *slot* while it is pending. Slots are reused, so their number is the largest number of
operations pending at once, even in a long history. Operations of unknown outcome are pending for ever. Equal ones form
a *group*. A row counts the used operations of each group, in as few bits as the group's size needs.

A configuration is a row of integers: the state, two bits per slot, the groups' counts, and a mark. The *done* bit says
that the operation has taken effect. The *optional* bit says that the operation may still take effect, but need not
(rule 3 of ``core``). The mark is 1 if the last action was total, and no read has shown its effect (rule 4 of ``core``).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.checkers.linearizability.compiled import register_compiled
from assay.checkers.linearizability.encode import FOREVER
from assay.checkers.linearizability.model import Action

Ints = NDArray[np.int64]

WORD: Final = 60
"""Number of bits used in each integer of a row. The other bits are the sign and room for ``guards``."""

NONE: Final = np.iinfo(np.int64).min
"""The value of ``Layout.lost`` for a model without a lost state."""


class Layout(NamedTuple):
    """Constant data of one key's search. All arrays are int64."""

    events: Ints
    """Calls and returns in order: an operation's number at its call, and the complement at its return. At equal times
    calls come first."""
    kind: Ints
    """For each operation, its action, numbered within the key."""
    slot: Ints
    """For each operation, its slot or the complement of its group. Operations that the search leaves out have the
    complement of the number of groups."""
    return_event: Ints
    """For each operation, the index in ``events`` of its return; ``FOREVER`` if it has none."""
    f: Ints
    """``f``, ``x``, ``y``: arguments of ``step`` for each action. For interned models, ``x`` is the action's number."""
    x: Ints
    y: Ints
    reads: Ints
    """``reads``, ``blind``, ``total``: for each action, whether it has this property (``core``), as 0 or 1."""
    blind: Ints
    total: Ints
    group_kind: Ints
    """For each group, its action. The next three arrays describe the group's count: the word of a row that has it, the
    number that adds one to it, and the mask of its bits."""
    group_word: Ints
    group_unit: Ints
    group_mask: Ints
    guards: Ints
    """For each word of counts, a bit above each count. The bit is set before two rows are subtracted, and stays set iff
    the difference of the counts is not negative."""
    lost: int
    """The lost state (``core``), or ``NONE``."""
    words: int
    """Number of words of the done bits. The optional bits have as many."""
    width: int
    """Number of integers in a row."""


def lay_out(
    actions: list[Action],
    numbers: list[int] | None,
    action: Ints,
    call: Ints,
    ret: Ints,
    lost: int = NONE,
    unread: NDArray[np.bool_] | None = None,
) -> Layout:
    """Lays out a key.

    - ``action``: indexes into ``actions``
    - ``numbers``: numbers of the actions for interned models
    - ``unread``: which operations the search leaves out (``searcher.find_unread_writes``); None for no operation
    """
    count = len(action)
    info = ret == FOREVER
    done = np.flatnonzero(~info)
    times = np.concatenate([call, ret[done]])
    returns = np.concatenate([np.zeros(count, np.int64), np.ones(len(done), np.int64)])
    codes = np.concatenate([np.arange(count, dtype=np.int64), ~done])
    events = codes[np.lexsort((codes, returns, times))]
    slot, slots = _assign_slots(events, info)
    return_event = np.full(count, FOREVER, dtype=np.int64)
    ends = np.flatnonzero(events < 0)
    return_event[~events[ends]] = ends
    grouped = info if unread is None else info & ~unread
    group_kind, group = np.unique(action[grouped], return_inverse=True)
    slot[grouped] = ~group
    slot[info & ~grouped] = ~len(group_kind)
    words = max(1, -(-slots // WORD))
    word, unit, mask, guards = _pack_fields(np.bincount(group, minlength=len(group_kind)), 1 + 2 * words)
    numbered = [one[:3] for one in actions] if numbers is None else [(0, number, 0) for number in numbers]
    step = np.array(numbered, dtype=np.int64).reshape(-1, 3)
    return Layout(
        events=events,
        kind=action,
        slot=slot,
        return_event=return_event,
        f=step[:, 0].copy(),
        x=step[:, 1].copy(),
        y=step[:, 2].copy(),
        reads=np.array([one.reads for one in actions], dtype=np.int64),
        blind=np.array([one.blind for one in actions], dtype=np.int64),
        total=np.array([one.blind or one.total for one in actions], dtype=np.int64),
        group_kind=group_kind,
        group_word=word,
        group_unit=unit,
        group_mask=mask,
        guards=guards,
        lost=lost,
        words=words,
        width=2 + 2 * words + len(guards),
    )


@register_compiled
def _assign_slots(events: Ints, info: NDArray[np.bool_]) -> tuple[Ints, int]:
    """Returns the slot of each operation that completes, and the number of slots."""
    slot = np.zeros(len(info), np.int64)
    free = np.empty(len(info) + 1, np.int64)
    free_count = slots = 0
    for event in events:
        if event < 0:
            free[free_count] = slot[~event]
            free_count += 1
        elif not info[event]:
            if free_count:
                free_count -= 1
                slot[event] = free[free_count]
            else:
                slot[event] = slots
                slots += 1
    return slot, slots


def _pack_fields(sizes: Ints, first: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Packs one counter per group into words. ``first``: the number of the first word in a row.

    A counter has room for the size of its group, and a guard bit above it. Returns the word, the unit and the mask of
    each counter, and the guard bits of each word.
    """
    word, unit, mask = (np.zeros(len(sizes), np.int64) for _ in range(3))
    guards: list[int] = []
    used = WORD
    for group, size in enumerate(sizes.tolist()):
        bits = size.bit_length()
        if used + bits + 1 > WORD:
            guards.append(0)
            used = 0
        word[group], unit[group], mask[group] = first + len(guards) - 1, 1 << used, (1 << bits) - 1
        guards[-1] |= 1 << used + bits
        used += bits + 1
    return word, unit, mask, np.array(guards, dtype=np.int64)
