"""Judges a history by its folder, on an engine of its own, or asks single checks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.checkers.engine import Engine, Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history, register_history
from assay.checkers.judging.judge import judge as judge_with
from assay.checkers.judging.verdict import Judgement
from assay.checkers.log.family import LOG
from assay.checkers.register.family import REGISTER

Opens = Callable[[int], AbstractContextManager[Engine]]
"""Opens an engine for so many effects."""

TABLES: Final = (replace(LOG, checks=()), replace(REGISTER, checks=()))
"""Families without their checks, for tests of coverage alone: most of a judgement's time is that of the checks."""


def judge(folder: Path, contract: Contract, **given: Any) -> Judgement:
    """On the engine that ``assay check`` opens for such a history."""
    history = open_history(folder)
    with Engines().open(history) as engine:
        return judge_with(history, contract, engine, **given)


def without_times(judgement: Judgement) -> Judgement:
    """All of it but how long it took: what two judgements of one history have in common."""
    examined = tuple(msgspec.structs.replace(one, seconds=0.0) for one in judgement.examined)
    return msgspec.structs.replace(judgement, seconds=0.0, stages={}, examined=examined)


@contextmanager
def opened(folder: Path) -> Iterator[Engine]:
    """The engine that ``assay check`` opens for this history, with its data sets."""
    with Engines().open(open_history(folder)) as engine:
        register_history(engine, folder)
        yield engine
