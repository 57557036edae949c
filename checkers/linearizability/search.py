"""Entry point: decides for each key whether its operations are linearizable by a model, and explains violations.

The algorithm of each key depends on the model and the data. A register whose values are unique is judged by the zones
of its values, in near-linear time. ``key_search`` judges all other keys. The judgement's ``examined`` has a row for
each algorithm that was used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from assay.checkers.judging.verdict import Finding, Judgement
from assay.checkers.linearizability.encode import EncodedHistory, encode
from assay.checkers.linearizability.key_result import NONLINEARIZABLE, ZONES, KeyResult
from assay.checkers.linearizability.limits import DEFAULT, Limits
from assay.checkers.linearizability.model import Model, find_plain_register
from assay.checkers.linearizability.scheduler import LocalSearch
from assay.checkers.linearizability.summary import describe_count, summarize
from assay.checkers.linearizability.zones import judge_zones

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[str, int, int], None]
"""Receives the current activity, the number of operations judged, and the number of all operations."""
Report = Callable[[Finding], None]
"""Receives each finding as soon as its key is judged."""
DEFAULT_PLACE: Final = LocalSearch()


def search(
    ops: pa.Table,
    model: Model,
    *,
    limits: Limits = DEFAULT,
    place: LocalSearch = DEFAULT_PLACE,
    progress: Progress = lambda what, done, total: None,
    report: Report = lambda finding: None,
) -> Judgement:
    """Decides whether each key's operations have a legal order: one that respects time and the model.

    ``ops`` has the history's schema (``assay.harness.core.history``). Operations with a null key are one object.
    ``place`` says in how many processes the search runs, which affects only the time. ``report`` receives each finding
    at once. Verdicts:

    - ``fail``: a key has no legal order. The findings name, per key, the operation that fits nowhere in the order.
    - ``unknown``: a limit was reached, or a process died, and no key failed.

    After a key has failed, keys that are not decided quickly are unknown (``Limits.first_look``).

    ``KeyboardInterrupt`` ends the search; the judgement then has the keys searched so far. Raises ``ModelError`` if the
    operations do not fit the model.
    """
    begun = time.perf_counter()
    encoded = encode(ops, model)
    by_zones, rest = judge_by_zones(encoded)
    zone_seconds = time.perf_counter() - begun
    found = dict(by_zones)
    interrupted = False
    try:
        for by_zone in by_zones.values():
            if by_zone.finding is not None:
                report(by_zone.finding)
        _search_keys(found, encoded, rest, limits, place, progress, report)
    except KeyboardInterrupt:
        interrupted = True
    return summarize(
        found,
        keys=len(encoded.keys),
        operations=ops.num_rows,
        seconds=time.perf_counter() - begun,
        zone_seconds=zone_seconds,
        interrupted=interrupted,
    )


def judge_by_zones(encoded: EncodedHistory) -> tuple[dict[int, KeyResult], list[int]]:
    """Judges registers with unique values by ``zones``. Returns their results, and the numbers of all other keys."""
    plain = find_plain_register(encoded.model) is not None
    by_zones, rest = judge_zones(encoded, NONLINEARIZABLE) if plain else ({}, range(len(encoded.keys)))
    found = {key: KeyResult(encoded.length(key), finding=one, method=ZONES) for key, one in by_zones.items()}
    return found, list(rest)


def _search_keys(
    found: dict[int, KeyResult],
    encoded: EncodedHistory,
    keys: list[int],
    limits: Limits,
    place: LocalSearch,
    progress: Progress,
    report: Report,
) -> None:
    done, total, what = 0, sum(map(encoded.length, keys)), f"searching {describe_count(keys)}"
    progress(what, 0, total)
    with closing(place.search(encoded, keys, limits)) as results:
        for number, result in results:
            found[number] = result
            if result.finding is not None:
                report(result.finding)
            done += encoded.length(number)
            progress(what, done, total)
