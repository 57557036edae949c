"""Thousands of small histories judged as keys of one, so that they cost little."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from assay.checkers.check import Family, create_views, read_findings
from assay.checkers.engine import Engine
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract, register_history
from assay.checkers.judging.verdict import Finding

from helpers.cut_short import seen_until
from helpers.judging import opened
from helpers.log_histories import Row, write


def accused(
    folder: Path, histories: Sequence[Sequence[Row]], families: Sequence[Family], contract: Contract, *,
    ended: bool = True, opens: Callable[[Path], AbstractContextManager[Engine]] = opened,
    explained: list[Finding] | None = None,
) -> dict[str, Counter[str]]:  # fmt: skip
    """How often each anomaly was found in each history, by its name ``m-NUMBER``, with which the names of its keys
    begin. ``explained`` is given the findings that a report would have.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    with opens(write(folder, [row for rows in histories for row in rows])) as engine:
        register_contract(engine, contract)
        for family in families:
            create_views(engine, family.views)
            if family.prepare is not None:
                family.prepare(engine)
            for check in family.checks:
                if check.needs_end and not ended:
                    continue
                create_views(engine, check.views)
                for row in engine.rows(f"select key, count(*) as times from {check.found} group by key"):
                    found[name_of(row["key"])][check.anomaly] += int(row["times"])
                if explained is not None:
                    explained += read_findings(engine, check)
    return found


def name_of(key: str) -> str:
    """The history that a key is of."""
    name = re.match(r"m-\d+", key)
    assert name is not None, key
    return name.group()


def accused_by_both(
    folder: Path, histories: Sequence[Sequence[Row]], families: Sequence[Family], contract: Contract, application: Any
) -> dict[str, Counter[str]]:
    """Judges the histories with each engine on its own."""

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


def with_unknown(rows: Sequence[Row], doubted: Callable[[int], bool]) -> list[Row]:
    """Returns the rows without the answers of doubted operations, so that neither effect nor result is known."""
    return [kept for row in rows if (kept := row if not doubted(row["op"]) else seen_until(row, -1)) is not None]


def loose(
    findings: Sequence[Finding], histories: Mapping[str, Sequence[Row]], possible: Callable[[Sequence[Row]], bool]
) -> list[tuple[Finding, str]]:
    """The findings whose operations prove nothing, all others being of unknown outcome, with the history's name."""
    named = [(finding, name_of(str(finding.key))) for finding in findings]
    return [
        (finding, name)
        for finding, name in named
        if possible(with_unknown(histories[name], lambda op, finding=finding: op not in finding.operations))
    ]
