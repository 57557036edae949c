"""The entry: is a history linearizable by a model, key by key, and if not, why.

The algorithm is picked for each key from the model and the data. A register whose values are unique is judged by the
zones of its values, in near-linear time; everything else by the compiled search. The choice is told in ``examined``.
"""

from __future__ import annotations

import time
from collections.abc import Sized
from typing import Final

import pyarrow as pa

from checkers.linearizability.encode import encode
from checkers.linearizability.limits import DEFAULT, Limits
from checkers.linearizability.model import Model
from checkers.linearizability.zones import judge_zones
from checkers.verdict import Examined, Finding, Judgement, Verdict

NONLINEARIZABLE: Final = "nonlinearizable"
MOST_FINDINGS: Final = 20
MOST_REASONS: Final = 20


def search(ops: pa.Table, model: Model, *, limits: Limits = DEFAULT) -> Judgement:
    """Whether each key's operations can be put into one order that respects time and the model.

    ``ops`` has the history's schema (``harness.core.history``); null keys are one object. ``fail``: it is not, and the
    findings name, per key, the operation that has no place. ``unknown``: a limit was reached, and no key failed. Raises
    ``ModelError`` when the operations do not fit the model.
    """
    begun = time.perf_counter()
    encoded = encode(ops, model)
    findings: list[Finding] = []
    failed, unknown = 0, []
    zoned, rest = judge_zones(encoded, NONLINEARIZABLE) if model.register else ({}, list(encoded.by_key()))
    zone_seconds = time.perf_counter() - begun
    for contradiction in zoned.values():
        failed += contradiction is not None
        if contradiction is not None and len(findings) < MOST_FINDINGS:
            findings.append(contradiction)
    largest = peak = searched = 0
    if rest:
        from checkers.linearizability.explain import finding
        from checkers.linearizability.searcher import Searcher  # imports numba, which takes a second

        searcher = Searcher(encoded, limits)
    for key, where in rest:
        one = searcher.search(key, where)
        searched += where.stop - where.start
        largest, peak = max(largest, one.largest), max(peak, one.bytes)
        if one.why is not None:
            failed += 1
            if len(findings) < MOST_FINDINGS:
                findings.append(finding(NONLINEARIZABLE, key, encoded, where, one.why))
        if one.unknown is not None:
            unknown.append(one.unknown)
    examined = []
    if zoned:
        rows = len(encoded) - searched
        examined.append(Examined(check=NONLINEARIZABLE, rows=rows, seconds=zone_seconds, note=_note("zones", zoned)))
    if rest or not zoned:
        note = f"{_note('search', rest)}; at most {largest} configurations at once, {peak} bytes"
        seconds = time.perf_counter() - begun - (zone_seconds if zoned else 0)
        examined.append(Examined(check=NONLINEARIZABLE, rows=searched, seconds=seconds, note=note))
    if len(encoded) == 0:
        unknown.append("no operation says anything about the model")
    if len(unknown) > MOST_REASONS:
        unknown[MOST_REASONS:] = [f"and {len(unknown) - MOST_REASONS} keys more"]
    return Judgement(
        verdict=Verdict.FAIL if failed else Verdict.UNKNOWN if unknown else Verdict.PASS,
        anomalies={NONLINEARIZABLE: failed} if failed else {},
        forbidden=(NONLINEARIZABLE,),
        tolerated=(),
        findings=tuple(findings),
        examined=tuple(examined),
        unknown=tuple(unknown),
        operations=ops.num_rows,
        effects=0,
        seconds=time.perf_counter() - begun,
        engine="search",
    )


def _note(algorithm: str, keys: Sized) -> str:
    return f"{algorithm} on {len(keys)} key{'' if len(keys) == 1 else 's'}"
