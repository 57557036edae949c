"""Judges a history by its folder, on an engine of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.checkers.contract import Contract
from assay.checkers.engine import DuckDB
from assay.checkers.judge import judge as judge_with
from assay.checkers.source import open_history
from assay.checkers.verdict import Judgement


def judge(folder: Path, contract: Contract, **given: Any) -> Judgement:
    with DuckDB() as engine:
        return judge_with(open_history(folder), contract, engine, **given)
