"""Judges the isolation level that a contract names, and reports a refutation as a cycle of its class.

The tables of reads and writes are those of the other checks (``views``). The order of transactions is judged by
``checkers.isolation``, which needs no table of dependencies. ``txn_level`` says what was found, ``txn_found`` has the
refutation as a finding (``cycles``), and ``txn_level_exposure`` counts the reads that could have contradicted the
level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from assay.checkers.check import create_views
from assay.checkers.engine import Engine, EngineError
from assay.checkers.exposure import ExposureCount, read_count
from assay.checkers.isolation.certificate import to_certificate
from assay.checkers.isolation.explain import describe, find_class, get_shown_path, list_branches, list_reasons
from assay.checkers.isolation.exposure import EXPOSURE_TABLE, count_exposure, declare_level_exposure
from assay.checkers.isolation.level_check import LevelResult, check_level
from assay.checkers.isolation.levels import Level, find_level
from assay.checkers.isolation.refutation import Refutation, StepCycle, iterate_step_cycles
from assay.checkers.isolation.solver import has_solver
from assay.checkers.isolation.transactions import Row, TransactionHistory, make_history
from assay.checkers.judging.verdict import MOST_OPERATIONS
from assay.checkers.transactions.cycles import encode_reasons, load_cycles
from assay.checkers.transactions.views import SOURCE_VIEWS
from assay.harness.core.lazy_import import LazyModule
from assay.harness.core.printable import count_noun

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow")

LEVEL_TABLE: Final = "txn_level"
"""Table with one row: the level, what was found, the number of transactions, and the certificate of a pass."""
_ROWS: Final = "select op, sub, process, key, kind, position, value, call, ret, outcome from txn_rows"
# The checks count the rows of ``txn_edges`` as examined. A level has no such table, so this view stands in for it: the
# operations that read something.
_EXAMINED: Final = "select op from txn_register_seen union all select op from txn_list_seen"


def prepare_level(engine: Engine, name: str, seconds: float, *, all_reads: bool = False) -> list[str]:
    """Creates every table that the transaction checks read. Returns reasons not to pass.

    ``all_reads``: whether the reads of failed and unknown transactions are judged as well.
    """
    create_views(engine, SOURCE_VIEWS)
    engine.view("txn_edges", _EXAMINED)
    level = find_level(name)
    history = make_history(read_transaction_rows(engine), all_reads=all_reads)
    result = check_level(history, level, seconds)
    found = [] if result.refutation is None else [_make_finding(history, level, result.refutation)]
    load_cycles(engine, "txn_found", found)
    note = "; ".join((_describe_level(history, result), *result.notes))
    certificate = "" if result.order is None else encode_certificate(history, level, result.order)
    row = {"level": [level.name], "note": [note], "transactions": [len(history)], "certificate": [certificate]}
    engine.load(LEVEL_TABLE, pa.table(row))
    _load_exposure(engine, history, level)
    return list(result.reasons)


def read_certificate(engine: Engine) -> str:
    """Returns the certificate that ``prepare_level`` found, as JSON; empty if there is none."""
    try:
        return "".join(row["certificate"] for row in engine.rows(f"select certificate from {LEVEL_TABLE}"))
    except EngineError:
        return ""


def encode_certificate(history: TransactionHistory, level: Level, order: Sequence[int]) -> str:
    """Returns the certificate of an order as JSON."""
    return msgspec.json.encode(to_certificate(history, level, order)).decode()


def _load_exposure(engine: Engine, history: TransactionHistory, level: Level) -> None:
    counts = sorted(count_exposure(history, level).items())
    columns = {
        "key": pa.array([key for key, _ in counts], pa.string()),
        "claims": pa.array([claims for _, (claims, _) in counts], pa.int64()),
        "exposed": pa.array([exposed for _, (_, exposed) in counts], pa.int64()),
    }
    engine.load(EXPOSURE_TABLE, pa.table(columns))


@dataclass(frozen=True)
class LevelCoverage:
    """The claims of an isolation level in a history. ``note``: what was found."""

    transactions: int
    note: str
    exposure: ExposureCount


def read_level_coverage(engine: Engine, level: Level) -> LevelCoverage:
    """Returns what ``prepare_level`` counted."""
    (row,) = engine.rows(f"select note, transactions from {LEVEL_TABLE}")
    (counts,) = engine.rows(declare_level_exposure(level).totals)
    return LevelCoverage(int(row["transactions"]), row["note"], read_count(counts))


def read_level_notes(engine: Engine) -> list[str]:
    """Returns what ``prepare_level`` found, for the user. Empty if the judging did not come that far."""
    try:
        return [row["note"] for row in engine.rows(f"select note from {LEVEL_TABLE}")]
    except EngineError:
        return []


def read_transaction_rows(engine: Engine) -> Iterable[Row]:
    """Returns the rows from which ``make_history`` makes transactions. Needs the view ``txn_rows``."""
    table = engine.arrow(_ROWS)
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _describe_level(history: TransactionHistory, result: LevelResult) -> str:
    level: Level = result.level
    said = f"level {level.name}: {level.meaning}"
    if result.order is not None:
        said += f"; an order of {count_noun(len(history), 'transaction')} shows it, and was verified"
    if level.rule.needs_search:  # NP-complete, so it may need a search
        said += f"; open choices are decided by {'python-sat' if has_solver() else 'the built-in search'}"
    return said


def _encode_reasons(history: TransactionHistory, refutation: Refutation) -> str | None:
    """Returns the reasons of a circle as JSON. None if it cannot be drawn: a drawing has one box per transaction.

    So a circle that meets a transaction twice has no drawing. A refutation by cases has a drawing of each case
    (``list_branches``).
    """
    if not isinstance(refutation, StepCycle):
        return None
    sources = [step.source for step in refutation.steps]
    return None if len({*sources}) < len(sources) else encode_reasons(list_reasons(history, refutation))


def _make_finding(history: TransactionHistory, level: Level, refutation: Refutation) -> dict[str, Any]:
    """Returns a row of ``txn_found``."""
    anomaly = find_class(history, refutation)
    if anomaly not in level.anomalies:  # no check would report it, and the history would pass
        raise AssertionError(f"{level.name} does not declare {anomaly}, which refutes it")
    steps = [step for circle in iterate_step_cycles(refutation) for step in circle.steps]
    involved = list(dict.fromkeys(history.ops[step.source] for step in steps))
    # `reader`: the transaction whose read shows the step. -1 stands for no reader, or no key.
    readers = [history.ops[step.reader] for step in steps if step.reader >= 0]
    shown = [one for step in steps for one in get_shown_path(step)]
    # transactions that the reasons of derived steps name
    on_paths = [history.ops[number] for one in shown for number in (one.source, one.target)]
    ops, branches = list(dict.fromkeys((*involved, *readers, *on_paths))), list_branches(history, refutation)
    keys = [history.keys[step.key] for step in steps if step.key >= 0]
    return {
        "anomaly": anomaly,
        "number": 1,
        "key": keys[0] if keys else None,
        "first_op": ops[0],
        "second_op": ops[1] if len(ops) > 1 else ops[0],
        "ops": ",".join(map(str, ops[:MOST_OPERATIONS])),
        "more": max(0, len(ops) - MOST_OPERATIONS),
        "claim": describe(history, refutation),
        "cycle": int(isinstance(refutation, StepCycle)),
        "reasons": _encode_reasons(history, refutation),
        "branches": msgspec.json.encode(branches).decode() if branches else None,
    }
