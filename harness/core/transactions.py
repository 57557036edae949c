"""Transactions of micro-operations in the notation of Elle and Jepsen, and their effects.

An operation has f ``txn``. Its argument is a list of micro-operations: ``["append", key, value]``, ``["w", key,
value]`` and ``["r", key, null]``. Its result is this list with the reads filled in: a list for a list key, else the
value, or null if the key was never written. In ``derive_effects`` each key is text:

- ``txn-append`` and ``txn-write`` have the ``value``.
- ``txn-read`` of a register has the ``value``, and no ``list_index``.
- ``txn-read`` of a list has one row per element, with its ``list_index`` from 0 and consecutive ``sub``.
- ``txn-read`` of an empty list, or of a register without a value, is one row with neither.

Reads are known only if the transaction ended ok. Otherwise only its writes are recorded.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.operation import Completed, Effect, Outcome

TRANSACTION: Final = "txn"
_WRITES: Final = {"append": "txn-append", "w": "txn-write"}


def derive_effects(completed: Completed) -> list[Effect]:
    """Returns one row per micro-operation or element read. Raises ``ValueError`` naming an invalid micro-operation."""
    ok = completed.completion.outcome is Outcome.OK
    micros = completed.completion.result if ok else completed.operation.argument
    if not isinstance(micros, Sequence) or isinstance(micros, str):
        raise ValueError(f"operation {completed.index}: {micros!r} is no list of micro-operations")
    return [effect for micro in micros for effect in _derive_micro_effects(completed.index, micro, ok)]


def _derive_micro_effects(index: int, micro: Any, ok: bool) -> list[Effect]:
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
