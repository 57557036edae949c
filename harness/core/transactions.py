"""Transactions of micro-operations in the notation of Elle and Jepsen, and their effects.

An operation has f ``txn``. Its argument is a list of micro-operations: ``["append", key, value]``, ``["w", key,
value]`` and ``["r", key, null]``. Its result is this list with the reads filled in: a list for a list key, else the
value, or null if the key was never written. ``derive_effects`` returns these effects, with each key as text:

- ``txn-append`` and ``txn-write`` have the ``value``.
- ``txn-read`` of a register has the ``value``, and no ``list_index``.
- ``txn-read`` of a list has one row per element, with its ``list_index`` from 0 and consecutive ``sub``.
- ``txn-read`` of an empty list, or of a register without a value, is one row with neither.

Results of reads are known only if the transaction ended ok. Otherwise only its writes are recorded. The result of an ok
transaction must repeat the micro-operations of its argument. If a write is missing or different, its effect is unknown.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.operation import Completed, Effect, Outcome

TRANSACTION: Final = "txn"
_WRITES: Final = {"append": "txn-append", "w": "txn-write"}


def derive_effects(completed: Completed, *, all_reads: bool = False) -> list[Effect]:
    """Returns one row per micro-operation or element read. ``all_reads``: also the reads that the result of a failed or
    unknown transaction has.

    Raises ``ValueError`` for an invalid micro-operation, or if the result of an ok transaction does not repeat those of
    its argument.
    """
    ok = completed.completion.outcome is Outcome.OK
    called = _require_list(completed.index, completed.operation.argument)
    micros = called
    knows_reads = ok or (all_reads and completed.completion.result is not None)
    if knows_reads:
        micros = _require_list(completed.index, completed.completion.result)
    effects = [effect for micro in micros for effect in _derive_micro_effects(completed.index, micro, knows_reads)]
    if ok and list(map(_identify, micros)) != list(map(_identify, called)):
        raise ValueError(
            f"operation {completed.index} was called with {called!r} and ended ok with {micros!r}, which are other "
            "micro-operations: which of them took effect is unknown"
        )
    return effects


def _require_list(index: int, micros: Any) -> Sequence[Any]:
    if not isinstance(micros, Sequence) or isinstance(micros, str):
        raise ValueError(f"operation {index}: {micros!r} is no list of micro-operations")
    return micros


def _identify(micro: Any) -> object:
    """Returns the part of a micro-operation that its result repeats."""
    match micro:
        case ["r", key, _]:
            return "r", str(key)
        case [f, key, value]:
            return f, str(key), value
    return micro


def _derive_micro_effects(index: int, micro: Any, knows_reads: bool) -> list[Effect]:
    match micro:
        case [("append" | "w") as f, key, int(value)]:
            return [Effect(_WRITES[f], str(key), value=value)]
        case ["r", _, _] if not knows_reads:
            return []
        case ["r", key, None | int() as value]:
            return [Effect("txn-read", str(key), value=value)]
        case ["r", key, []]:
            return [Effect("txn-read", str(key))]
        case ["r", key, [*values]] if all(isinstance(value, int) for value in values):
            return [Effect("txn-read", str(key), value=value, list_index=place) for place, value in enumerate(values)]
    raise ValueError(
        f"operation {index}: {micro!r} is no micro-operation; there are [append, key, integer], [w, key, integer] and "
        "[r, key, result]"
    )
