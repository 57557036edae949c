"""Makes effects of reads, writes and CAS operations from ``ops`` alone, for the SQL checks of registers.

It works batch by batch, so a history may have any size. Only the test for unique values reads the whole history.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.checkers.engine import Engines
from assay.checkers.linearizability.model import NIL_AT_FIRST, InitialValues
from assay.checkers.register.views import INITIAL
from assay.harness.core.history import EFFECTS, HistoryReader, HistoryWriter
from assay.harness.core.operation import Outcome

NAMELESS: Final = "register"
"""The name of the only register of a history without keys."""
VERBS: Final = ("read", "write", "cas")
_PAIR: Final = r"^\[(?P<expected>null|-?[0-9]+),(?P<value>null|-?[0-9]+)\]$"
"""The argument of a CAS operation, as JSON."""


def write_register_history(
    ops: Iterable[pa.RecordBatch], folder: Path, initial: InitialValues = NIL_AT_FIRST
) -> HistoryReader | None:
    """Writes the history ``folder`` with ``ops``, and one effect for each operation.

    In effects, null is the initial value. So an initial value of a key becomes null. Returns None if the checks could
    not judge every key.

    That is the case for:

    - operations other than ``VERBS``
    - values other than int64 and null
    - a value written twice to one key, or the initial value written
    - an initial value that is neither int64 nor null
    - null as a value of a key whose initial value is not null
    - operations with a key beside operations without one
    - CAS operations that ended ok without taking effect
    """
    nameless = set()
    with HistoryWriter(folder) as writer:
        for batch in ops:
            effects = _make_effects(batch, initial)
            nameless |= set(pc.unique(pc.is_null(batch["key"])).to_pylist())
            if effects is None or len(nameless) > 1:
                return None
            writer.batch("ops", batch)
            writer.batch("effects", effects)
    if not nameless:
        return None
    reader = HistoryReader(folder)
    return reader if _has_unique_writes(reader) else None


def _make_effects(ops: pa.RecordBatch, initial: InitialValues) -> pa.RecordBatch | None:
    if not pc.all(pc.is_in(ops["f"], pa.array(VERBS))).as_py():
        return None
    f, ok = ops["f"], pc.equal(ops["outcome"], Outcome.OK.value)
    argument, result = ops["argument"], ops["result"]
    is_cas, is_read = pc.equal(f, "cas"), pc.equal(f, "read")
    if pc.any(pc.fill_null(pc.and_(is_cas, pc.equal(result, "false")), False)).as_py():
        return None
    pair = pc.extract_regex(pc.if_else(is_cas, argument, None), _PAIR)
    if pair.null_count != len(pair) - (pc.sum(is_cas).as_py() or 0):
        return None
    given = pc.if_else(is_cas, pair.field("value"), pc.if_else(is_read, pc.if_else(ok, result, None), argument))
    value, expected = _parse_numbers(given), _parse_numbers(pc.if_else(is_cas, pair.field("expected"), None))
    at_first = _find_initial(ops["key"], initial)
    if value is None or expected is None or at_first is None:
        return None
    if at_first.null_count < len(at_first):
        nil = pc.or_(pc.is_null(value), pc.and_(is_cas, pc.is_null(expected)))
        shows_nil = pc.and_(nil, pc.or_(pc.invert(is_read), ok))
        if pc.any(pc.and_(shows_nil, pc.is_valid(at_first))).as_py():
            return None
        value, expected = _replace_by_null(value, at_first), _replace_by_null(expected, at_first)
    written = pc.and_(pc.invert(is_read), pc.not_equal(ops["outcome"], Outcome.FAIL.value))
    # Writes of the initial value, and CAS operations from a value to itself, are left to the model.
    nothing = pc.or_(pc.is_null(value), pc.and_(is_cas, pc.fill_null(pc.equal(value, expected), False)))
    if pc.any(pc.and_(written, nothing)).as_py():
        return None
    key, kind = pc.fill_null(ops["key"], NAMELESS), pc.binary_join_element_wise(pa.scalar("register"), f, "-")
    columns: dict[str, Any] = {
        "op": ops["index"], "process": ops["process"], "key": key, "kind": kind, "value": value, "expected": expected,
        "call": ops["call"], "ret": ops["ret"], "outcome": ops["outcome"], "error": ops["error"], "phase": ops["phase"],
    }  # fmt: skip
    columns["sub"] = pa.repeat(pa.scalar(0, pa.int32()), ops.num_rows)
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(ops.num_rows, field.type)) for field in EFFECTS], schema=EFFECTS
    )


def _replace_by_null(values: pa.Array, replaced: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(pc.equal(values, replaced), False), None, values)


def _find_initial(key: pa.Array, initial: InitialValues) -> pa.Array | None:
    """Returns the initial value of each operation's key. Returns None if some value is neither null nor int64."""
    values = (initial.default, *initial.by_key.values())
    # In the checks, ``INITIAL`` (the least integer) stands for null.
    if not all(value is None or (type(value) is int and INITIAL < value < 2**63) for value in values):
        return None
    found = pa.repeat(pa.scalar(initial.default, pa.int64()), len(key))
    for name, value in initial.by_key.items():
        found = pc.if_else(pc.fill_null(pc.equal(key, name), False), pa.scalar(value, pa.int64()), found)
    return found


def _parse_numbers(texts: pa.Array) -> pa.Array | None:
    """Parses JSON integers; null stays null. Returns None if there is any other value."""
    texts = pc.if_else(pc.equal(texts, "null"), None, texts)
    if not pc.all(pc.match_substring_regex(texts, r"^(0|-?[1-9][0-9]*)$")).as_py() and texts.null_count < len(texts):
        return None
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:  # beyond 64 bits
        return None
    least = pc.min(numbers).as_py()
    return numbers if least is None or least > INITIAL else None


def _has_unique_writes(history: HistoryReader) -> bool:
    with Engines(spark=False).open(history) as engine:
        engine.register("effects", history.paths("effects"), EFFECTS)
        return not engine.rows(
            f"select key from effects where kind <> 'register-read' and outcome <> '{Outcome.FAIL.value}' "
            "group by key, value having count(*) > 1 limit 1"
        )
