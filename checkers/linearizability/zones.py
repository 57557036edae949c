"""Registers with unique values in near-linear time: zones (Gibbons and Korach, "Testing shared memories", 1997).

1. All operations on one value, its write and its reads, are a *cluster*. Its *zone* is the interval between its first
   return and its last call.
2. If the first return is before the last call, the zone is *forward*: the register held the value during the whole
   zone. Otherwise the zone is *backward*: one moment of the zone is enough for all operations of the cluster.
3. A history is linearizable iff every read value was written and no read returned before its write was called. Also, no
   two forward zones overlap, and no backward zone is inside a forward zone.
4. A sort by the begin of zones and a running maximum of the ends of forward zones find all violations: O(n log n), for
   all keys at once.

A key qualifies if it has only reads and plain writes, and no value is written twice or equals the initial value. The
zone of the initial value begins before all times. A write of unknown outcome counts only if its value was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assay.checkers.judging.verdict import Finding
from assay.checkers.linearizability.encode import FOREVER, EncodedHistory
from assay.checkers.linearizability.model import INITIAL
from assay.harness.core.lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
else:
    np = LazyModule("numpy")

BEFORE: Final = -(2**63)
"""A time before all others."""
Zoned = tuple[dict[int, Finding | None], list[int]]
"""The first contradiction of each key that qualifies, or None, by number; and the numbers of the other keys."""


def judge_zones(encoded: EncodedHistory, anomaly: str) -> Zoned:
    """Judges each key that qualifies.

    Returns a dict from the number of each such key to its first contradiction, or None. Also returns the numbers of the
    keys that do not qualify.
    """
    assert encoded.model.register is not None
    read, write = encoded.model.register
    # The first two entries of an action are its verb and its value.
    parts = np.array([action[:2] for action in encoded.actions], dtype=np.int64).reshape(-1, 2)[encoded.action]
    reads, value = parts[:, 0] == read, parts[:, 1]
    writes = np.flatnonzero(parts[:, 0] == write)
    unfit = np.zeros(len(encoded.keys), dtype=np.bool_)
    unfit[encoded.key[~reads & (parts[:, 0] != write)]] = True
    writes = writes[np.lexsort((value[writes], encoded.key[writes]))]
    again = (np.diff(encoded.key[writes]) == 0) & (np.diff(value[writes]) == 0)
    unfit[encoded.key[writes[1:][again]]] = True
    unfit[encoded.key[writes[value[writes] == INITIAL]]] = True
    judged: dict[int, Finding | None] = dict.fromkeys(np.flatnonzero(~unfit).tolist())
    rows = np.flatnonzero(~unfit[encoded.key])
    found = _find_violations(encoded, rows, reads[rows], value[rows])
    for number, (claim, involved) in found.items():
        key = encoded.keys[number]
        judged[number] = Finding(
            anomaly=anomaly,
            key=key,
            claim=claim if key is None else f"In {key}: {claim}",
            operations=tuple(int(encoded.index[row]) for row in involved),
            time=int(encoded.call[involved[0]]),
        )
    return judged, np.flatnonzero(unfit).tolist()


def _find_violations(
    encoded: EncodedHistory, rows: Ints, reads: Flags, value: Ints
) -> dict[int, tuple[str, tuple[int, ...]]]:
    """Returns the first violation of each key: its text, and its operations' rows."""
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    if len(rows) == 0:
        return found
    key, call, ret = encoded.key[rows], encoded.call[rows], encoded.ret[rows]
    _, dense = np.unique(value, return_inverse=True)
    _, cluster = np.unique(key * (dense.max() + 1) + dense, return_inverse=True)
    count = int(cluster.max()) + 1
    writer = np.full(count, -1, dtype=np.int64)
    writer[cluster[~reads]] = np.flatnonzero(~reads)
    initial = np.zeros(count, dtype=np.bool_)
    initial[cluster[value == INITIAL]] = True
    seen = np.zeros(count, dtype=np.bool_)
    seen[cluster[reads]] = True
    for index in np.flatnonzero(reads & (writer[cluster] < 0) & ~initial[cluster]).tolist():
        claim = f"{_describe_operation(encoded, int(rows[index]))} returned a value that no one wrote."
        found.setdefault(int(key[index]), (claim, (int(rows[index]),)))
    written = writer[cluster]
    for index in np.flatnonzero(reads & (written >= 0) & (ret < call[written])).tolist():
        source = int(rows[written[index]])
        reading, writing = _describe_operation(encoded, int(rows[index])), _describe_operation(encoded, source)
        claim = f"{reading} returned before its value's {writing} was called."
        found.setdefault(int(key[index]), (claim, (int(rows[index]), source)))
    first, last = np.full(count, FOREVER), np.full(count, BEFORE)
    np.minimum.at(first, cluster, ret)
    np.maximum.at(last, cluster, call)
    first[initial] = BEFORE
    certain = np.zeros(count, dtype=np.bool_)
    certain[cluster[ret < FOREVER]] = True
    owner = np.zeros(count, dtype=np.int64)  # the key of each cluster
    owner[cluster] = key
    zones = np.flatnonzero(certain | seen)
    forward = first[zones] < last[zones]
    low, high = np.minimum(first, last)[zones], np.maximum(first, last)[zones]
    sort = np.lexsort((zones, forward, low, owner[zones]))
    zones, forward, low, high = zones[sort], forward[sort], low[sort], high[sort]
    # by zone, the latest end of an earlier forward zone, and this forward zone
    reach, by = _find_reach(owner[zones], forward, high)
    # ``late``: the forward zones that begin inside an earlier forward zone, and the backward zones that lie in one.
    late = np.flatnonzero(reach > np.where(forward, low, high))
    calls, returns = _find_operations_at(cluster, call, last), _find_operations_at(cluster, ret, first)
    for index in late.tolist():
        number, long = int(owner[zones[index]]), int(zones[by[index]])
        if number in found:
            continue
        inner = int(zones[index])
        involved = [calls[long], returns[inner], returns[long]]
        last_call, between = (_describe_operation(encoded, int(rows[place])) for place in involved[:2])
        value_text, other_text = (
            encoded.values[number].text(int(value[place])) for place in (calls[long], returns[inner])
        )
        claim = (
            f"{last_call} still used {value_text}, which had been there before; yet {other_text} was there in between: "
            f"{between}."
        )
        unique = dict.fromkeys(int(rows[place]) for place in involved if place >= 0)
        found[number] = (claim, tuple(unique))
    return found


def _find_reach(owner: Ints, forward: Flags, high: Ints) -> tuple[Ints, Ints]:
    """Returns for each zone the latest end of earlier forward zones of its key, and the zone with this end."""
    count = len(owner)
    if count == 0:
        return high, owner
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(high, kind="stable")] = np.arange(count)
    starts = np.r_[True, owner[1:] != owner[:-1]]
    block = np.cumsum(starts) * (count + 1)
    # Ranks of later keys are lifted above those of earlier ones, so one running maximum serves all keys.
    lifted = np.where(forward, rank + 1, 0) + block
    running = np.r_[0, np.maximum.accumulate(lifted)[:-1]] - block
    any_before = running > 0
    by = np.argsort(high, kind="stable")[np.where(any_before, running - 1, 0)]
    return np.where(any_before, high[by], BEFORE), by


def _find_operations_at(cluster: Ints, time: Ints, wanted: Ints) -> Ints:
    """Returns for each cluster one of its operations at its time in ``wanted``, or -1."""
    found = np.full(len(wanted), -1, dtype=np.int64)
    rows = np.flatnonzero(time == wanted[cluster])
    found[cluster[rows]] = rows
    return found


def _describe_operation(encoded: EncodedHistory, row: int) -> str:
    number = int(encoded.key[row])
    return encoded.history(number).describe_operation(row - encoded.bounds[number])
