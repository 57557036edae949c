"""The entry: is a history linearizable by a model, key by key, and if not, why.

The algorithm is picked for each key from the model and the data. A register whose values are unique is judged by the
zones of its values, in near-linear time; everything else by the compiled search, at a ``Place``. The choice is told in
``examined``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sized
from contextlib import closing
from typing import Final

import pyarrow as pa

from checkers.linearizability.answer import NONLINEARIZABLE, Answer
from checkers.linearizability.encode import Encoded, encode
from checkers.linearizability.limits import DEFAULT, Limits
from checkers.linearizability.model import Model, ModelError
from checkers.linearizability.place import Place, ThisMachine
from checkers.linearizability.zones import judge_zones
from checkers.verdict import Examined, Judgement, Verdict

MOST_FINDINGS: Final = 20
MOST_REASONS: Final = 20

Progress = Callable[[str, int, int], None]
"""What is being done; how many operations are judged, of how many."""


def search(
    ops: pa.Table,
    model: Model,
    *,
    limits: Limits = DEFAULT,
    place: Place | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Judgement:
    """Whether each key's operations can be put into one order that respects time and the model.

    ``ops`` has the history's schema (``harness.core.history``); null keys are one object. ``place``: where keys are
    searched (None: on the cores of this machine); it changes nothing but the time. ``fail``: there is no such order,
    and the findings name, per key, the operation that has no place. ``unknown``: a limit was reached, or a process
    died, and no key failed. ``KeyboardInterrupt`` ends it with what is known until then. Raises ``ModelError`` when the
    operations do not fit the model.
    """
    begun = time.perf_counter()
    encoded = encode(ops, model)
    everything = range(len(encoded.keys))
    zoned, rest = judge_zones(encoded, NONLINEARIZABLE) if model.register else ({}, list(everything))
    zone_seconds = time.perf_counter() - begun
    answers: dict[int, Answer] = {}
    interrupted = False
    try:
        _search(answers, encoded, rest, limits, place or ThisMachine(), progress)
    except KeyboardInterrupt:
        interrupted = True
    answers = dict(sorted(answers.items()))
    broken = [answer.broken for answer in answers.values() if answer.broken is not None]
    if broken:
        raise ModelError(broken[0])
    contradictions = [finding for finding in zoned.values() if finding is not None]
    contradictions += [answer.finding for answer in answers.values() if answer.finding is not None]
    unknown = _reasons(encoded, answers)
    if interrupted:
        unknown.insert(0, f"interrupted; {len(zoned) + len(answers)} of {_keys(everything)} were searched")
    examined = []
    searched = sum(map(encoded.length, answers))
    if zoned:
        rows = sum(map(encoded.length, zoned))
        note = f"zones on {_keys(zoned)}"
        examined.append(Examined(check=NONLINEARIZABLE, rows=rows, seconds=zone_seconds, note=note))
    if rest or not zoned:
        seconds = time.perf_counter() - begun - (zone_seconds if zoned else 0)
        examined.append(Examined(check=NONLINEARIZABLE, rows=searched, seconds=seconds, note=_note(answers)))
    return Judgement(
        verdict=Verdict.FAIL if contradictions else Verdict.UNKNOWN if unknown else Verdict.PASS,
        anomalies={NONLINEARIZABLE: len(contradictions)} if contradictions else {},
        forbidden=(NONLINEARIZABLE,),
        tolerated=(),
        findings=tuple(contradictions[:MOST_FINDINGS]),
        examined=tuple(examined),
        unknown=tuple(unknown),
        operations=ops.num_rows,
        effects=0,
        seconds=time.perf_counter() - begun,
        engine="search",
        interrupted=interrupted,
    )


def _search(
    answers: dict[int, Answer], encoded: Encoded, keys: list[int], limits: Limits, place: Place, progress: Progress
) -> None:
    done, total, what = 0, sum(map(encoded.length, keys)), f"searching {_keys(keys)}"
    progress(what, 0, total)
    with closing(place.answers(encoded, keys, limits)) as found:
        for number, answer in found:
            answers[number] = answer
            done += encoded.length(number)
            progress(what, done, total)


def _reasons(encoded: Encoded, answers: Mapping[int, Answer]) -> list[str]:
    reasons = [answer.unknown for answer in answers.values() if answer.unknown is not None]
    if len(reasons) > MOST_REASONS:
        reasons[MOST_REASONS:] = [f"and {len(reasons) - MOST_REASONS} keys more"]
    return reasons if len(encoded) else ["no operation says anything about the model"]


def _note(answers: Mapping[int, Answer]) -> str:
    largest = max((answer.largest for answer in answers.values()), default=0)
    peak = max((answer.bytes for answer in answers.values()), default=0)
    return f"search on {_keys(answers)}; at most {largest} configurations at once, {peak} bytes"


def _keys(keys: Sized) -> str:
    return f"{len(keys)} key{'' if len(keys) == 1 else 's'}"
