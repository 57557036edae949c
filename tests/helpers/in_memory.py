"""A workload played against a system in memory, and judged: no cluster, no time that passes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.generator import Generator, simulate, split_phases
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Completed, Completion, Operation, Outcome

from helpers.judging import judge

Apply = Callable[[Operation], Any]
"""Does an operation at once, when it ends: returns the result of one that is ok, or a ``Completion``."""


def played(generator: Generator, apply: Apply) -> Iterator[Completed]:
    """300 operations and the drain, by four workers; all stamps differ."""
    chance, now, index = random.Random(5), 0, 0
    replaced = Counter[str]()
    for number, part in enumerate(split_phases(generator)):
        events = simulate(
            part, workers=4, respond=lambda *_: (chance.randint(1, 9), Outcome.OK), most=300 if number == 0 else 500
        )
        called: dict[int, int] = {}
        for event in events:
            now += 1_000
            if event.completed is None:
                called[event.worker] = now
                continue
            done, answer = event.completed, apply(event.completed.operation)
            completion = answer if isinstance(answer, Completion) else Completion(Outcome.OK, answer)
            process = done.process + 100 * replaced[done.worker]
            unknown = completion.outcome is Outcome.INFO
            replaced[done.worker] += unknown  # another process takes its place
            call, ret = called[event.worker], None if unknown else now
            yield Completed(index, process, done.worker, done.operation, completion, call, ret)
            index += 1


def judged(
    folder: Path, traffic: Generator, effects: Callable[[Completed], Any], store: Apply, by: Contract
) -> Judgement:
    with HistoryWriter(folder) as writer:
        for completed in played(traffic, store):
            writer.completed(completed, effects(completed))
    return judge(folder, by)
