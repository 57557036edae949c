"""Effects of reads, writes and CAS operations, made from ``ops`` alone: what the SQL checks of registers read."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.register_views import INITIAL
from harness.core.history import EFFECTS
from harness.core.operation import Outcome

NAMELESS: Final = "register"
"""What the one register of a history without keys is called."""
VERBS: Final = ("read", "write", "cas")
_PAIR: Final = r"^\[(?P<expected>null|-?[0-9]+),(?P<value>null|-?[0-9]+)\]$"


def register_effects(ops: pa.Table) -> pa.Table | None:
    """One effect per operation, or None where the checks could not judge every key.

    That is: operations other than ``VERBS``; values other than int64 and null; a value that is written twice to one
    key, or null that is written; some keys null and some not; CAS operations that ended ok without having taken place.
    """
    if ops.num_rows == 0 or not pc.all(pc.is_in(ops["f"], pa.array(VERBS))).as_py():
        return None
    if ops["key"].null_count not in (0, ops.num_rows):
        return None
    f, ok = ops["f"].combine_chunks(), pc.equal(ops["outcome"], Outcome.OK.value).combine_chunks()
    argument, result = ops["argument"].combine_chunks(), ops["result"].combine_chunks()
    is_cas, is_read = pc.equal(f, "cas"), pc.equal(f, "read")
    if pc.any(pc.fill_null(pc.and_(is_cas, pc.equal(result, "false")), False)).as_py():
        return None
    pair = pc.extract_regex(pc.if_else(is_cas, argument, None), _PAIR)
    if pair.null_count != len(pair) - (pc.sum(is_cas).as_py() or 0):
        return None
    told = pc.if_else(is_cas, pair.field("value"), pc.if_else(is_read, pc.if_else(ok, result, None), argument))
    value, expected = _numbers(told), _numbers(pc.if_else(is_cas, pair.field("expected"), None))
    if value is None or expected is None:
        return None
    key = pc.fill_null(ops["key"], NAMELESS).combine_chunks()
    writes = pc.and_(pc.invert(is_read), pc.not_equal(ops["outcome"], Outcome.FAIL.value).combine_chunks())
    if not _unique(key, value, expected, is_cas, writes):
        return None
    columns: dict[str, Any] = {
        "op": ops["index"], "process": ops["process"], "key": key, "kind": f, "value": value, "expected": expected,
        "call": ops["call"], "ret": ops["ret"], "outcome": ops["outcome"], "error": ops["error"], "phase": ops["phase"],
    }  # fmt: skip
    columns["sub"] = pa.repeat(pa.scalar(0, pa.int32()), ops.num_rows)
    return pa.Table.from_arrays(
        [columns.get(field.name, pa.nulls(ops.num_rows, field.type)) for field in EFFECTS], schema=EFFECTS
    )


def _numbers(texts: pa.Array) -> pa.Array | None:
    """JSON as int64, null for null; None when there is anything else."""
    texts = pc.if_else(pc.equal(texts, "null"), None, texts)
    if not pc.all(pc.match_substring_regex(texts, r"^(0|-?[1-9][0-9]*)$")).as_py() and texts.null_count < len(texts):
        return None
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 64 bits
        return None
    least = pc.min(numbers).as_py()
    return numbers if least is None or least > INITIAL else None


def _unique(key: pa.Array, value: pa.Array, expected: pa.Array, is_cas: pa.Array, writes: pa.Array) -> bool:
    written = pa.table({"key": key, "value": value}).filter(writes)
    if written["value"].null_count:
        return False
    if pc.any(pc.fill_null(pc.and_(writes, pc.and_(is_cas, pc.equal(value, expected))), False)).as_py():
        return False
    return bool(written.group_by(["key", "value"]).aggregate([]).num_rows == written.num_rows)
