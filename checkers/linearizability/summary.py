"""Combines the results of all keys into a judgement. Its texts do not depend on where keys were searched."""

from collections.abc import Mapping, Sized
from typing import Final

from assay.checkers.judging.verdict import CheckCoverage, Judgement, Verdict, limit_reasons
from assay.checkers.linearizability.key_result import MEANING, NONLINEARIZABLE, SEARCH, ZONES, KeyResult
from assay.checkers.linearizability.model import ModelError

MOST_FINDINGS: Final = 20


def summarize(
    found: Mapping[int, KeyResult],
    *,
    keys: int,
    operations: int,
    seconds: float,
    zone_seconds: float,
    interrupted: bool,
) -> Judgement:
    """Returns the judgement. Raises ``ModelError`` if the model contradicted itself.

    - ``found``: results, by the number of the key
    - ``keys``: number of keys with operations that count. Failed operations and reads of unknown outcome do not count
    - ``operations``: number of operations of the whole history
    - ``seconds``: total time, of which the keys that were judged by zones took ``zone_seconds``
    """
    found = dict(sorted(found.items()))
    errors = [one.model_error for one in found.values() if one.model_error is not None]
    if errors:
        raise ModelError(errors[0])
    by_method: dict[str, list[KeyResult]] = {}
    for one in found.values():
        by_method.setdefault(one.method, []).append(one)
    searched = by_method.pop(SEARCH, [])
    by_zones = by_method.pop(ZONES, [])
    zones_first = sorted(found.values(), key=lambda one: one.method != ZONES)
    contradictions = [one.finding for one in zones_first if one.finding is not None]
    unknown = limit_reasons([one.unknown for one in found.values() if one.unknown is not None])
    if interrupted:
        unknown.insert(0, f"interrupted; {len(found)} of {describe_count(range(keys))} were searched")
    elif not keys:
        unknown = ["no operation says anything about the model"]
    examined: list[CheckCoverage] = []
    seconds_left = seconds
    if by_zones:
        examined.append(_to_examined(by_zones, zone_seconds, f"zones on {describe_count(by_zones)}"))
        seconds_left -= zone_seconds
    for method, judged in sorted(by_method.items()):
        own_seconds = min(seconds_left, sum(one.seconds for one in judged))
        examined.append(_to_examined(judged, own_seconds, f"{method} on {describe_count(judged)}"))
        seconds_left -= own_seconds
    if searched or not examined:
        examined.append(_to_examined(searched, seconds_left, _describe_search(searched)))
    return Judgement(
        verdict=Verdict.FAIL if contradictions else Verdict.UNKNOWN if unknown else Verdict.PASS,
        anomalies={NONLINEARIZABLE: len(contradictions)} if contradictions else {},
        forbidden=(NONLINEARIZABLE,),
        tolerated=(),
        findings=tuple(contradictions[:MOST_FINDINGS]),
        examined=tuple(examined),
        unknown=tuple(unknown),
        operations=operations,
        effects=0,
        seconds=seconds,
        engine="search",
        meanings={NONLINEARIZABLE: MEANING},
        interrupted=interrupted,
    )


def describe_count(keys: Sized) -> str:
    """Returns the number of keys in words."""
    return f"{len(keys)} key{'' if len(keys) == 1 else 's'}"


def _to_examined(keys: list[KeyResult], seconds: float, note: str) -> CheckCoverage:
    return CheckCoverage(check=NONLINEARIZABLE, rows=sum(one.operations for one in keys), seconds=seconds, note=note)


def _describe_search(searched: list[KeyResult]) -> str:
    most_configurations = max((one.most_configurations for one in searched), default=0)
    peak = max((one.bytes for one in searched), default=0)
    return f"search on {describe_count(searched)}; at most {most_configurations} configurations at once, {peak} bytes"
