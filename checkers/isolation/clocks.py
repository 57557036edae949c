"""Bounds and clocks: consequences of real time and the reads for the order of events. All edges are in numpy arrays.

1. *Bounds.* Each event takes effect between the call and the return of its transaction. A target of an edge is not
   before its source's earliest moment, and a source is not after its target's latest moment.
2. *Versions by time.* A version must be there until the earliest moment of its last reader. Another version that was
   certainly written before that moment is the earlier one of the two. Such edges tighten more bounds.
3. *Clocks.* Transactions whose bounds do not overlap form chains, about as many as there are sessions. The clock of an
   event has the last place in each chain that must precede the event. It is as good as a closure, and needs one number
   per event and chain.
4. *Saturation.* Edges are added by the rules of ``saturation``. Only versions whose lives overlap are compared. The
   life of a version lasts from its commit to its last reader.

The edges are sound for levels with real time. For others they are a guess that most stores fulfil.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from assay.checkers.isolation.transactions import INITIAL, TransactionHistory
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Clocks = NDArray[np.int32]
else:
    np = LazyModule("numpy")

_ROUNDS: Final = 3
"""Number of times that versions are ordered by time, and that bounds and clocks are computed."""
_NEAREST: Final = 4
"""Number of earlier versions that get an edge to a version. Still older versions precede it by way of their edges."""
_MOST_PASSES: Final = 100
"""Maximum number of passes over all edges that tighten bounds. Fewer passes leave wider bounds, which are right."""
_MOST_PAIRS: Final = 30
"""Maximum number of pairs with overlapping lives, per event. Beyond it, only times order the versions."""
_MOST_CELLS: Final = 50_000_000
"""Maximum number of events and edges, times the number of chains. Beyond it, only times order the versions."""
_MOST_COPIES: Final = 300_000_000
"""Maximum number of places that are copied from clock to clock. Then the edges that were found so far are enough."""


@dataclass(frozen=True)
class TimeOrder:
    """Consequences of real time and the reads.

    - ``pairs``: pairs of events: the commit of a version precedes the later writer of the key (its start under snapshot
      isolation)
    - ``earliest``, ``latest``: the bounds of each event. An event precedes all events whose ``earliest`` is after its
      ``latest``
    """

    pairs: list[tuple[int, int]]
    earliest: list[int]
    latest: list[int]


def order_by_time(history: TransactionHistory, *, snapshot: bool) -> TimeOrder | None:
    """Returns the consequences, or None if the reads contradict real time. Events are numbered as in
    ``certificate``."""
    found = _TimeOrder(history, snapshot)
    try:
        return found.derive()
    except _Contradiction:
        return None


class _Contradiction(Exception):
    """No order respects real time and the reads."""


class _TooManyCopies(Exception):
    """More places than ``_MOST_COPIES`` were copied."""


def _expand(begins: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Returns, for each place of each range in turn, the number of the range and the place."""
    owners = np.repeat(np.arange(len(counts)), counts)
    inside = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owners, begins[owners] + inside


class _TimeOrder:
    """Derives a :class:`TimeOrder`. Versions are numbered by key, then by writer. ``_readers`` lists the readers of
    each version one after the other.

    - ``_first_reader``, ``_reader_counts``: by version, the place of its first reader in ``_readers``, and their number
    - ``_sources``, ``_targets``: the events between which edges lead
    - ``_low``, ``_high``: by event, the bounds
    """

    def __init__(self, history: TransactionHistory, snapshot: bool) -> None:
        count = len(history)
        self._snapshot = snapshot
        numbers = np.arange(count)
        self._starts, self._commits = (2 * numbers, 2 * numbers + 1) if snapshot else (numbers, numbers)
        self._low = np.repeat(np.array(history.calls, np.int64), 2 if snapshot else 1)
        self._high = np.repeat(np.array(history.returns, np.int64), 2 if snapshot else 1)
        written = [(key, number) for number, keys in enumerate(history.writes) for key in keys]
        read = {(one.key, one.writer, number) for number, reads in enumerate(history.reads) for one in reads}
        versions = np.array(sorted(written), np.int64).reshape(-1, 2)
        reads = np.array(sorted(read), np.int64).reshape(-1, 3)
        self._keys, self._writers = versions[:, 0], versions[:, 1]
        names = self._keys * count + self._writers
        is_initial = reads[:, 1] == INITIAL
        self._initial_keys, self._initial_readers = reads[is_initial, 0], reads[is_initial, 2]
        known = reads[~is_initial]
        self._versions = np.searchsorted(names, known[:, 0] * count + known[:, 1])
        self._readers = known[:, 2]
        self._reader_counts = np.bincount(self._versions, minlength=len(names))
        self._first_reader = np.cumsum(self._reader_counts) - self._reader_counts
        self._sources, self._targets = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._ordered = self._sources
        """The pairs of versions that times ordered in the last round, each as one number."""
        self._copies = 0
        """Number of places copied so far from clock to clock."""
        self._pairs: list[tuple[Ints, Ints]] = []
        self._add_edges(self._commits[self._writers[self._versions]], self._starts[self._readers])
        if snapshot:
            self._add_edges(self._starts, self._commits)
        listed = np.array([(one, other) for one, other, _ in history.list_version_order()], np.int64).reshape(-1, 2)
        self._add_edges(self._commits[listed[:, 0]], self._starts[listed[:, 1]])

    def derive(self) -> TimeOrder:
        self._tighten()
        for _ in range(_ROUNDS):
            if not self._order_versions_by_time():
                break
            self._tighten()
        chains, places = self._assign_chains()
        width = int(chains.max(initial=-1)) + 1
        for _ in range(_ROUNDS):
            before = len(self._sources)
            if (len(self._low) + before) * width > _MOST_CELLS:
                break
            try:
                self._saturate(chains, places, width)
            except _TooManyCopies:
                break
            if len(self._sources) == before or not self._tighten():
                break
        sources, targets = (np.concatenate([pair[side] for pair in self._pairs] or [self._sources[:0]])
                            for side in (0, 1))  # fmt: skip
        unique = np.unique(sources * len(self._low) + targets)
        pairs = zip((unique // len(self._low)).tolist(), (unique % len(self._low)).tolist(), strict=True)
        return TimeOrder(list(pairs), self._low.tolist(), self._high.tolist())

    def _add_edges(self, sources: Ints, targets: Ints) -> None:
        self._sources = np.concatenate((self._sources, sources))
        self._targets = np.concatenate((self._targets, targets))

    def _tighten(self) -> bool:
        """Tightens the bounds along all edges. Returns whether they changed."""
        low, high = self._low, self._high
        first_low, first_high = low.copy(), high.copy()
        initial, of_key = self._starts[self._initial_readers], self._keys
        commits = self._commits[self._writers]
        keys = int(max(self._keys.max(initial=-1), self._initial_keys.max(initial=-1))) + 1
        for _ in range(_MOST_PASSES):
            former_low, former_high = low.copy(), high.copy()
            np.maximum.at(low, self._targets, low[self._sources])
            np.minimum.at(high, self._sources, high[self._targets])
            if len(initial):
                latest_read = np.full(keys, np.iinfo(np.int64).min)
                np.maximum.at(latest_read, self._initial_keys, low[initial])
                np.maximum.at(low, commits, latest_read[of_key])
                earliest_write = np.full(keys, np.iinfo(np.int64).max)
                np.minimum.at(earliest_write, of_key, high[commits])
                np.minimum.at(high, initial, earliest_write[self._initial_keys])
            if (low > high).any():
                raise _Contradiction
            if np.array_equal(low, former_low) and np.array_equal(high, former_high):
                break
        return not (np.array_equal(low, first_low) and np.array_equal(high, first_high))

    def _find_lives(self) -> tuple[Ints, Ints]:
        """Returns, of each version, the earliest moment of its last reader and the latest moment of its commit."""
        commits = self._commits[self._writers]
        needed = self._low[commits].copy()
        np.maximum.at(needed, self._versions, self._low[self._starts[self._readers]])
        return needed, self._high[commits]

    def _rank(self, needed: Ints, latest: Ints) -> tuple[Ints, Ints]:
        """Returns both times as numbers that are ascending by key, then by time."""
        values = np.unique(np.concatenate((needed, latest)))
        scale = self._keys * len(values)
        return scale + np.searchsorted(values, needed), scale + np.searchsorted(values, latest)

    def _order_versions_by_time(self) -> bool:
        """Adds edges between versions of which times say which is the earlier one. Returns whether some are new."""
        needed, latest = self._rank(*self._find_lives())
        by_latest = np.argsort(latest, kind="stable")
        places = np.searchsorted(latest[by_latest], needed)
        later = np.repeat(np.arange(len(places)), _NEAREST)
        at = places[later] - np.tile(np.arange(1, _NEAREST + 1), len(places))
        later, at = later[at >= 0], at[at >= 0]
        earlier = by_latest[at]
        same = (self._keys[earlier] == self._keys[later]) & (earlier != later)
        names = earlier[same] * len(places) + later[same]
        is_new = ~np.isin(names, self._ordered)
        self._ordered = names
        earlier, later = earlier[same][is_new], later[same][is_new]
        self._order(earlier, later)
        return len(earlier) > 0

    def _order(self, earlier: Ints, later: Ints) -> tuple[Ints, Ints]:
        """Adds edges for pairs of versions of one key, as far as times do not say them. Returns these edges.

        An edge leads from the earlier writer to the later one, and another from each reader of the earlier version to
        the later writer.
        """
        commits, starts = self._commits[self._writers], self._starts[self._writers]
        begins = starts if self._snapshot else commits
        owners, places = _expand(self._first_reader[earlier], self._reader_counts[earlier])
        readers, overwriters = self._readers[places], later[owners]
        others = readers != self._writers[overwriters]
        sources = np.concatenate((commits[earlier], self._starts[readers[others]]))
        targets = np.concatenate((begins[later], commits[overwriters[others]]))
        is_new = self._high[sources] >= self._low[targets]
        is_pair = is_new[: len(earlier)]
        self._pairs.append((commits[earlier][is_pair], begins[later][is_pair]))
        sources, targets = sources[is_new], targets[is_new]
        self._add_edges(sources, targets)
        return sources, targets

    def _assign_chains(self) -> tuple[Ints, Ints]:
        """Returns the chain of each event and its place there. Bounds of transactions in a chain do not overlap."""
        begins, ends = self._low[self._starts].tolist(), self._high[self._commits].tolist()
        free: list[tuple[int, int]] = []
        lengths: list[int] = []
        chains, places = [0] * len(begins), [0] * len(begins)
        for number in sorted(range(len(begins)), key=begins.__getitem__):
            if free and free[0][0] < begins[number]:
                chain = free[0][1]
                heapq.heapreplace(free, (ends[number], chain))
            else:
                chain = len(lengths)
                lengths.append(0)
                heapq.heappush(free, (ends[number], chain))
            chains[number], places[number] = chain, lengths[chain]
            lengths[chain] += 1
        of_chain, of_place = np.array(chains, np.int64), np.array(places, np.int64)
        if not self._snapshot:
            return of_chain, of_place
        return np.repeat(of_chain, 2), np.stack((2 * of_place, 2 * of_place + 1), axis=1).ravel()

    def _saturate(self, chains: Ints, places: Ints, width: int) -> None:
        """Adds the edges that follow from the clocks of all events, until there is no other one."""
        earlier, later = self._list_overlapping_versions()
        if len(earlier) > _MOST_PAIRS * len(self._low):
            return
        clocks = self._begin_clocks(chains, places, width)
        self._order_initial_reads()
        owners, at = _expand(self._first_reader[later], self._reader_counts[later])
        readers = self._readers[at]
        others = readers != self._writers[earlier[owners]]
        owners, readers = owners[others], self._starts[readers[others]]
        commits, starts = self._commits[self._writers], self._starts[self._writers]
        begins = starts if self._snapshot else commits
        # By pair, the place of the pair with the same versions exchanged.
        opposite = np.argsort(later * len(commits) + earlier)[np.argsort(np.argsort(earlier * len(commits) + later))]
        is_open = np.ones(len(earlier), np.bool_)
        keep = self._high[self._sources] >= self._low[self._targets]
        sources, targets = self._sources[keep], self._targets[keep]
        self._propagate(clocks, chains, places, sources, targets, np.arange(len(sources)))
        while True:
            # A pair holds if the first commit precedes the second writer, or a reader of the second version. Under
            # snapshot isolation it also holds if the first start precedes the second commit.
            first, second = commits[earlier], commits[later]
            is_ordered = clocks[begins[later], chains[first]] >= places[first]
            if self._snapshot:
                is_ordered |= clocks[second, chains[first]] >= places[starts[earlier]]
            seen = clocks[readers, chains[first[owners]]] >= places[first[owners]]
            is_ordered[owners[seen]] = True
            found = np.flatnonzero(is_ordered & is_open)
            if is_ordered[opposite[found]].any():
                raise _Contradiction
            is_open[found] = is_open[opposite[found]] = False
            if not len(found):
                return
            more = self._order(earlier[found], later[found])
            left = is_open[owners]
            owners, readers = owners[left], readers[left]
            active = np.arange(len(sources), len(sources) + len(more[0]))
            sources, targets = np.concatenate((sources, more[0])), np.concatenate((targets, more[1]))
            self._propagate(clocks, chains, places, sources, targets, active)

    def _list_overlapping_versions(self) -> tuple[Ints, Ints]:
        """Returns versions of one key each that times do not order, every pair in both directions."""
        needed, latest = self._rank(*self._find_lives())
        by_need = np.argsort(needed, kind="stable")
        ends = np.searchsorted(needed[by_need], latest[by_need], side="right")
        begins = np.arange(1, len(by_need) + 1)
        counts = np.maximum(ends - begins, 0)
        if counts.sum() > _MOST_PAIRS * len(self._low):
            return np.zeros(int(counts.sum()), np.int64), np.zeros(0, np.int64)
        owners, places = _expand(begins, counts)
        one, other = by_need[owners], by_need[places]
        overlap = needed[one] <= latest[other]
        one, other = one[overlap], other[overlap]
        return np.concatenate((one, other)), np.concatenate((other, one))

    def _order_initial_reads(self) -> None:
        """Adds edges from reads of initial values to writers of their keys, as far as times do not say them."""
        values = np.unique(np.concatenate((self._low, self._high)))
        commits, reads = self._commits[self._writers], self._starts[self._initial_readers]
        begins = self._keys * len(values) + np.searchsorted(values, self._low[commits])
        by_begin = np.argsort(begins)
        first = np.searchsorted(begins[by_begin], self._initial_keys * len(values))
        last = np.searchsorted(
            begins[by_begin], self._initial_keys * len(values) + np.searchsorted(values, self._high[reads]),
            side="right",
        )  # fmt: skip
        counts = np.maximum(last - first, 0)
        if counts.sum() > _MOST_PAIRS * len(self._low):
            return
        owners, places = _expand(first, counts)
        writers = self._writers[by_begin[places]]
        others = writers != self._initial_readers[owners]
        self._add_edges(reads[owners[others]], self._commits[writers[others]])

    def _begin_clocks(self, chains: Ints, places: Ints, width: int) -> Clocks:
        """Returns the clocks that follow from times alone."""
        clocks = np.empty((len(self._low), width), np.int32)
        by_chain = np.lexsort((places, chains))
        begins = np.searchsorted(chains[by_chain], np.arange(width + 1))
        by_low = np.argsort(self._low)
        lows = self._low[by_low]
        for chain in range(width):
            ends = self._high[by_chain[begins[chain] : begins[chain + 1]]]
            clocks[by_low, chain] = np.searchsorted(ends, lows) - 1
        return clocks

    def _propagate(
        self, clocks: Clocks, chains: Ints, places: Ints, sources: Ints, targets: Ints, active: Ints
    ) -> None:
        """Adds to the clocks of the targets what the sources know, first along the active edges."""
        changed = np.zeros(len(clocks), np.bool_)
        while len(active):
            self._copies += active.size * clocks.shape[1]
            if self._copies > _MOST_COPIES:
                raise _TooManyCopies
            active = active[np.argsort(targets[active], kind="stable")]
            heads, tails = sources[active], targets[active]
            known = clocks[heads]
            own = np.arange(len(heads)), chains[heads]
            known[own] = np.maximum(known[own], places[heads])
            begins = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), tails[1:] != tails[:-1])))
            merged = np.maximum.reduceat(known, begins, axis=0)
            events = tails[begins]
            is_later = (merged > clocks[events]).any(axis=1)
            events = events[is_later]
            clocks[events] = np.maximum(clocks[events], merged[is_later])
            if (clocks[events, chains[events]] >= places[events]).any():
                raise _Contradiction
            changed[:] = False
            changed[events] = True
            active = np.flatnonzero(changed[sources])
