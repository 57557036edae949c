"""Thousands of small histories judged as keys of one, so that they cost little."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from assay.checkers.check import Family, build
from assay.checkers.contract import Contract
from assay.checkers.engine import Engine
from assay.checkers.source import register_contract, register_history

from helpers.cut_short import seen_until
from helpers.judging import opened
from helpers.log_histories import Row, write


def accused(
    folder: Path, histories: Sequence[Sequence[Row]], families: Sequence[Family], contract: Contract, *,
    ended: bool = True, opens: Callable[[Path], AbstractContextManager[Engine]] = opened,
) -> dict[str, set[str]]:  # fmt: skip
    """The anomalies of each history, by its name ``m-NUMBER``, with which the names of its keys begin."""
    found: dict[str, set[str]] = defaultdict(set)
    with opens(write(folder, [row for rows in histories for row in rows])) as engine:
        register_contract(engine, contract)
        for family in families:
            build(engine, family.views)
            if family.prepare is not None:
                family.prepare(engine)
            for check in family.checks:
                if check.needs_end and not ended:
                    continue
                build(engine, check.views)
                for row in engine.rows(f"select key from {check.found} group by key"):
                    name = re.match(r"m-\d+", row["key"])
                    assert name is not None, row["key"]
                    found[name.group()].add(check.anomaly)
    return found


def accused_by_both(
    folder: Path, histories: Sequence[Sequence[Row]], families: Sequence[Family], contract: Contract, application: Any
) -> dict[str, set[str]]:
    """The same, by each engine on its own."""

    @contextmanager
    def on_spark(written: Path) -> Iterator[Engine]:
        with application.engine(effects=sum(map(len, histories))) as engine:
            register_history(engine, written)
            yield engine

    by = partial(accused, histories=histories, families=families, contract=contract)
    found = by(folder / "duckdb")
    assert by(folder / "spark", opens=on_spark) == found
    return found


def cut_at_random(rows: Sequence[Row], number: int) -> list[Row]:
    """As far as it went at some instant."""
    at = random.Random(number).choice([row["call"] for row in rows])
    return [kept for row in rows if row["call"] <= at and (kept := seen_until(row, at)) is not None]
