"""Requires that the operations of a history of this tool are those of a workload, as in files of other tools.

Their values are plain JSON: micro-operations are lists such as ``["r", 1, null]``, and maps are objects.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Outcome
from assay.harness.foreign.answers import allow_micros
from assay.harness.foreign.edn import Keyword, Map, to_source
from assay.harness.foreign.shapes import WORKLOADS, OperationShape

_CELLS: Final = ("f", "argument", "result", "outcome")


def require_workload(ops: pa.Table, workload: str, path: Path) -> None:
    """Raises ``HistoryError`` for the first operation that is none of the workload. Equal operations are tried once."""
    shapes = WORKLOADS[workload]
    distinct = ops.group_by(list(_CELLS)).aggregate([("index", "min")]).sort_by("index_min")
    for row in distinct.to_pylist():
        reason = _find_misfit(row, shapes, workload)
        if reason:
            raise HistoryError(f"{path}: operation {row['index_min']} is none of --workload={workload}: {reason}")


def _find_misfit(row: Mapping[str, Any], shapes: Mapping[str, OperationShape], workload: str) -> str:
    """Returns why the operation does not fit the workload; empty if it does."""
    f, shape = row["f"], shapes.get(row["f"])
    if shape is None:
        return f"there is no :{f}, but {', '.join(shapes)}"
    called, answered = (_to_value(msgspec.json.decode(row[name] or "null")) for name in ("argument", "result"))
    if not shape.argument_fits(called):
        return f":{f} takes {shape.argument_text}, not {to_source(called)}"
    if row["outcome"] != Outcome.OK:
        return ""
    if not shape.result_fits(answered):
        return f"the result of :{f} is {shape.result_text}, not {to_source(answered)}"
    if shape.allows is allow_micros and not allow_micros(called, answered):
        return f"the answer {to_source(answered)} contradicts the call {to_source(called)}"
    return ""


def _to_value(value: Any) -> Any:
    """Returns a value as the readers of files make it."""
    if isinstance(value, list):
        return tuple(map(_to_value, value))
    if isinstance(value, dict):
        if set(value) == {"keyword"}:
            return Keyword(value["keyword"])
        return Map(tuple((key, _to_value(one)) for key, one in value.items()))
    return value
