"""Judges a file of another tool by its workload: the questions of Jepsen's checker of that name, in SQL."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.judge import Watch, judge
from assay.checkers.judging.verdict import CheckCoverage, Judgement
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.operation import Completed
from assay.harness.stored import effects_of_workload as effects
from assay.harness.stored.request import CheckRequest

MAKERS: Final[Mapping[str, Callable[[Sequence[Completed], CheckRequest], effects.WorkloadEffects]]] = {
    "bank": lambda done, request: effects.make_bank_effects(done, request.total),
    "list-append": lambda done, request: effects.make_transaction_effects(done),
    "long-fork": lambda done, request: effects.make_transaction_effects(done),
    "monotonic": lambda done, request: effects.make_monotonic_effects(done),
    "rw-register": lambda done, request: effects.make_transaction_effects(done),
    "unique-ids": lambda done, request: effects.make_unique_id_effects(done),
}
"""Makers of effects, by workload."""


def judge_workload(
    ops: pa.Table, request: CheckRequest, engines: Engines, watch: Watch
) -> tuple[Judgement, tuple[str, ...]]:
    """Judges ``ops``, read from the file at ``request.path``, by the checks of ``request.workload``.

    It uses the strictest contract. The second result has notes for the user about facts that had to be inferred. Raises
    ``HistoryError`` for operations that do not belong to the workload.
    """
    assert request.workload is not None
    contract = Contract(transaction_order="real-time" if request.real_time else "none")
    recorded = MAKERS[request.workload](effects.to_operations(ops), request)
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        history = Path(folder) / "history"
        with HistoryWriter(history) as writer:
            for completed, its_effects in recorded.rows:
                writer.completed(completed, its_effects)
        reader = HistoryReader(history)
        with engines.open(reader) as engine:
            judgement = judge(reader, contract, engine, watch=watch)
    if not recorded.note:
        return judgement, ()
    found_out = CheckCoverage(check=f"workload {request.workload}", rows=ops.num_rows, seconds=0.0, note=recorded.note)
    return msgspec.structs.replace(judgement, examined=(found_out, *judgement.examined)), (recorded.note,)
