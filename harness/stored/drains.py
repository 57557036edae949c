"""Drains of queues for the search for a linear order: one operation for each element that a drain took.

A client drains a queue by dequeues, one after another, between the call and the return of the drain. So each element
becomes an operation with the times of the drain. The model (``DrainedQueue``) keeps them in the order of the drain, if
the file shows this order: a set of elements shows none.

A drain that failed took nothing. A drain of unknown outcome may have taken any elements, so no order is judged beside
it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.judging.verdict import Judgement
from assay.checkers.workload_checks.transaction_models import DRAIN
from assay.checkers.workload_checks.workload_result import list_elements
from assay.harness.core.operation import Outcome
from assay.harness.foreign.pairing import iterate_unused
from assay.harness.run.judging import add_doubts

UNKNOWN_DRAIN: Final = "a drain of unknown outcome may have taken any elements, so the order of others proves nothing"
# In a finding, an expanded row has the argument [number of the drain, place of the element, number of elements].
_SHOWN: Final = re.compile(rf"{DRAIN}\(\[\d+, ?(?:\d+|null), ?\d+\]\)")
_OPERATION: Final = re.compile(r"(?<=operation )\d+")


@dataclass(frozen=True)
class ExpandedDrains:
    """Operations with one row for each element of a drain.

    - ``drains``: the drain of each such row, by the index of the row
    - ``unknown``: whether some drain is of unknown outcome; then the rows of its queue are left out
    """

    ops: pa.Table
    drains: Mapping[int, int]
    unknown: bool

    def name_drains(self, judgement: Judgement) -> Judgement:
        """Returns the judgement of ``ops``, whose findings name the drains of the file."""

        def name(text: str) -> str:
            plain = _SHOWN.sub(f"{DRAIN}()", text)
            return _OPERATION.sub(lambda found: str(self._find(int(found[0]))), plain)

        findings = tuple(
            msgspec.structs.replace(
                one,
                claim=name(one.claim),
                operations=tuple(dict.fromkeys(map(self._find, one.operations))),
                first_operation=None if one.first_operation is None else self._find(one.first_operation),
            )
            for one in judgement.findings
        )
        named = msgspec.structs.replace(judgement, findings=findings)
        if self.unknown and not self.ops.num_rows:  # the unknown drain is the reason that nothing is left
            named = msgspec.structs.replace(named, unknown=())
        return add_doubts(named, [UNKNOWN_DRAIN] if self.unknown else [])

    def _find(self, index: int) -> int:
        return self.drains.get(index, index)


def expand_drains(ops: pa.Table) -> ExpandedDrains | None:
    """Returns the operations with expanded drains; None if there are no drains."""
    is_drain = pc.equal(ops["f"], DRAIN)
    drains = ops.filter(is_drain).to_pylist()
    if not drains:
        return None
    unknown = {row["key"] for row in drains if row["outcome"] == Outcome.INFO}
    others = ops.filter(pc.invert(is_drain))
    index = 1 + (pc.max(ops["index"]).as_py() or 0)
    processes = iterate_unused(ops["process"].to_pylist())
    expanded: list[dict[str, Any]] = []
    owners: dict[int, int] = {}
    for number, row in enumerate(drains):
        result = json.loads(row["result"] or "null")
        if row["outcome"] != Outcome.OK or result is None:
            continue
        elements = list_elements(result)
        for place, element in enumerate(elements):
            new = len(expanded)
            argument = json.dumps([number, place if isinstance(result, list) else None, len(elements)])
            text = json.dumps(element, ensure_ascii=False, separators=(",", ":"))
            owners[index + new] = row["index"]
            expanded.append(
                {**row, "index": index + new, "process": next(processes), "argument": argument, "result": text}
            )
    table = pa.concat_tables([others, pa.Table.from_pylist(expanded, ops.schema)])
    if unknown:
        keep = [key not in unknown for key in table["key"].to_pylist()]
        table = table.filter(pa.array(keep, pa.bool_()))
    return ExpandedDrains(table, owners, bool(unknown))
