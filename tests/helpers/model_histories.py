"""Thousands of small histories judged as keys of one, so that they cost little."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from assay.checkers.check import Family, build
from assay.checkers.contract import Contract
from assay.checkers.source import register_contract

from helpers.cut_short import seen_until
from helpers.judging import opened
from helpers.log_histories import Row, write


def accused(
    folder: Path, histories: Sequence[Sequence[Row]], families: Sequence[Family], contract: Contract, *,
    ended: bool = True,
) -> dict[str, set[str]]:  # fmt: skip
    """The anomalies of each history, by its name ``m-NUMBER``, with which the names of its keys begin."""
    found: dict[str, set[str]] = defaultdict(set)
    with opened(write(folder, [row for rows in histories for row in rows])) as engine:
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


def cut_at_random(rows: Sequence[Row], number: int) -> list[Row]:
    """As far as it went at some instant."""
    at = random.Random(number).choice([row["call"] for row in rows])
    return [kept for row in rows if row["call"] <= at and (kept := seen_until(row, at)) is not None]
