"""Transactions of micro-operations, as Elle and Jepsen write them, and the effects that the checks read of them.

An operation has f ``txn``; its argument is a list of micro-operations, ``["append", key, value]``,
``["w", key, value]`` and ``["r", key, null]``, and its result the same list with the reads filled in: a list where the
key is one, else the value, null for what was never written. In ``effects`` each key is text, and

- ``txn-append`` and ``txn-write`` have the ``value``;
- ``txn-read`` of a register has the ``value``, and no ``list_index``;
- ``txn-read`` of a list is one row for each element, with its ``list_index`` from 0 and consecutive ``sub``; an empty
  list, as a register without a value, is one row with neither.

What a transaction read is known only if it ended ok; else only what it meant to write is recorded.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.operation import Completed, Effect, Outcome

TRANSACTION: Final = "txn"
_WRITES: Final = {"append": "txn-append", "w": "txn-write"}


def effects(completed: Completed) -> list[Effect]:
    """One row per micro-operation, or element read. Raises ``ValueError`` naming what is no micro-operation."""
    ok = completed.completion.outcome is Outcome.OK
    micros = completed.completion.result if ok else completed.operation.argument
    if not isinstance(micros, Sequence) or isinstance(micros, str):
        raise ValueError(f"operation {completed.index}: {micros!r} is no list of micro-operations")
    return [effect for micro in micros for effect in _effects(completed.index, micro, ok)]


def _effects(index: int, micro: Any, ok: bool) -> list[Effect]:
    match micro:
        case [("append" | "w") as f, key, int(value)]:
            return [Effect(_WRITES[f], str(key), value=value)]
        case ["r", _, _] if not ok:
            return []
        case ["r", key, None | int() as value]:
            return [Effect("txn-read", str(key), value=value)]
        case ["r", key, []]:
            return [Effect("txn-read", str(key))]
        case ["r", key, [*values]] if all(isinstance(value, int) for value in values):
            return [Effect("txn-read", str(key), value=value, list_index=index) for index, value in enumerate(values)]
    raise ValueError(
        f"operation {index}: {micro!r} is no micro-operation; there are [append, key, integer], [w, key, integer] and "
        "[r, key, result]"
    )
