"""Reads of transactions that need care before effects are derived: initial values, and reads without a commit.

**Initial values** (``--initial``). The checks know one initial value, null. So a read of a register's initial value
becomes a read of null, if no transaction wrote this value. If one did, the read has no single writer: it is left out,
and a doubt names the value. If the initial value is not null, a read of null shows a value that no one wrote.

**Reads of failed and unknown transactions** (``--all-reads``). They are taken from the value of the completion, if it
repeats the micro-operations of the call. A read of nil is left out, because the transaction may not have come that
far. A read of a key that the transaction wrote before is left out as well.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from assay.checkers.judging.verdict import limit_reasons
from assay.checkers.linearizability.model import InitialValues
from assay.harness.core.operation import Completed, Outcome
from assay.harness.core.printable import count_noun
from assay.harness.foreign import to_edn
from assay.harness.run.settings import SettingsError

NIL: Final[Mapping[str, str]] = {"symbol": "nil"}
"""Replaces null in reads if null is not the initial value. The checks then see a value that no one wrote. No file has
such a value."""
_READS: Final = ("r", {"keyword": "r"})
_WRITES: Final = ("w", {"keyword": "w"}, "append", {"keyword": "append"})


def apply_initial_values(done: Sequence[Completed], values: InitialValues) -> tuple[list[Completed], list[str]]:
    """Returns copies in which reads of initial values are reads of null, and reasons not to pass.

    Raises ``SettingsError`` for an initial value of a key that the history does not have.
    """
    keys = {name_key(micro[1]) for one in done for micro in list_micros(one.operation.argument)}
    missing = set(values.by_key) - keys
    if missing:
        raise SettingsError(f"--initial gives values to {', '.join(sorted(missing))}, and the history has no such key")
    written = _list_written(done)
    doubtful: set[tuple[str, str]] = set()
    replaced = [_replace_reads(one, values, written, doubtful) for one in done]
    doubts = [
        f"{to_edn(value)} was written to {key}, and is its initial value, so reads of it have no single writer and are "
        "not judged"
        for key, value in sorted(doubtful)
    ]
    return replaced, limit_reasons(doubts, "values")


def _list_written(done: Sequence[Completed]) -> set[tuple[str, str]]:
    return {
        (name_key(micro[1]), _to_text(micro[2]))
        for one in done
        if one.completion.outcome is not Outcome.FAIL
        for micro in list_micros(one.operation.argument)
        if micro[0] in _WRITES
    }


def _replace_reads(
    one: Completed, values: InitialValues, written: Collection[tuple[str, str]], doubtful: set[tuple[str, str]]
) -> Completed:
    called, answered = one.operation.argument, one.completion.result
    is_ok = one.completion.outcome is Outcome.OK
    if not isinstance(answered, list) or not isinstance(called, list) or (is_ok and len(called) != len(answered)):
        return one
    pairs = []
    for call, micro in zip(called if is_ok else answered, answered, strict=True):
        if not isinstance(micro, list) or len(micro) != 3 or not is_read(micro):
            pairs.append((call, micro))
            continue
        key, value = name_key(micro[1]), _to_text(micro[2])
        initial = _to_text(values.find(key))
        if value != initial:
            pairs.append((call, [*micro[:2], NIL] if micro[2] is None else micro))
        elif (key, value) in written:
            doubtful.add((key, value))
        else:
            pairs.append((call, [*micro[:2], None]))
    return _with_micros(one, [call for call, _ in pairs] if is_ok else called, [micro for _, micro in pairs])


def count_unacknowledged(done: Sequence[Completed]) -> int:
    """Returns the number of failed and unknown transactions that read."""
    return sum(
        one.completion.outcome is not Outcome.OK and any(map(is_read, list_micros(one.operation.argument)))
        for one in done
    )


def keep_known_reads(one: Completed) -> Completed:
    """Returns a failed or unknown transaction with a result that has only the reads that its completion shows.

    The result is None if the completion shows no read.
    """
    if one.completion.outcome is Outcome.OK:
        return one
    called, answered = list_micros(one.operation.argument), list_micros(one.completion.result)
    kept = []
    own: set[str] = set()
    if [_identify(micro) for micro in called] == [_identify(micro) for micro in answered]:
        for micro in answered:
            key = name_key(micro[1])
            if not is_read(micro):
                own.add(key)
                kept.append(micro)
            elif micro[2] is not None and key not in own:
                kept.append(micro)
    if not any(map(is_read, kept)):
        return _with_micros(one, one.operation.argument, None)
    return _with_micros(one, one.operation.argument, kept)


def describe_unjudged(count: int) -> str:
    """Returns the note on ``count`` transactions whose reads are not judged; empty for none."""
    if not count:
        return ""
    transactions = count_noun(count, "transaction")
    return f"reads of {transactions} that failed or {'has' if count == 1 else 'have'} no known outcome are not judged"


def suggest_for_transactions(done: Sequence[Completed]) -> str:
    """Returns a sentence that suggests ``--initial`` for transactions of registers, or an empty string.

    A key suggests a value if its first read shows it, and no transaction wrote it, not even a failed one.
    """
    written = {
        (name_key(micro[1]), _to_text(micro[2]))
        for one in done
        for micro in list_micros(one.operation.argument)
        if micro[0] in _WRITES
    }
    first: dict[str, str] = {}
    for one in sorted(done, key=lambda one: one.ret or 0):
        if one.completion.outcome is Outcome.OK:
            for micro in list_micros(one.completion.result):
                if is_read(micro):
                    first.setdefault(name_key(micro[1]), _to_text(micro[2]))
    found = {key: value for key, value in first.items() if value != "null" and (key, value) not in written}
    if not found:
        return ""
    key, value = next(iter(found.items()))
    shown = to_edn(value)
    given = f"--initial={shown}" if len(set(found.values())) == 1 else f"--initial={key}={shown}"
    return (
        f"the first read of {key} shows {shown}, which no one had written: if the register began with {shown}, say "
        f"{given}"
    )


def list_micros(micros: Any) -> list[Any]:
    """Returns the micro-operations with a key and a value; none for anything else."""
    return [one for one in micros if isinstance(one, list) and len(one) == 3] if isinstance(micros, list) else []


def name_key(key: Any) -> str:
    """Returns the name of a key as the effects have it."""
    match key:
        case {"keyword": str(name)} if len(key) == 1:
            return name
    return str(key)


def is_read(micro: Any) -> bool:
    """Returns whether a micro-operation is a read."""
    return micro[0] in _READS


def _identify(micro: Any) -> str:
    return _to_text(micro[:2] if is_read(micro) else micro)


def _to_text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _with_micros(one: Completed, called: Any, answered: Any) -> Completed:
    return msgspec.structs.replace(
        one,
        operation=msgspec.structs.replace(one.operation, argument=called),
        completion=msgspec.structs.replace(one.completion, result=answered),
    )
