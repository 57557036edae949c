"""Makes effects from the operations of another tool's workload, for the checks in SQL.

Jepsen's workloads name their operations and values as in its own code (``jepsen.tests.bank`` and so on).

The history of a *bank* does not record the initial balances. So an additional operation, before all others, opens the
accounts:

- The total is the given one, or the one that most reads show.
- The balance of each account is known only if a read returned before the first transfer was called.
- An account that a read lacks was empty, as in Jepsen. An account with a nil balance is missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from assay.harness.core import transactions
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase

OPENED_BY: Final = 2
"""Nanoseconds by which all operations are delayed, so that the opening of a bank comes before them."""


@dataclass(frozen=True)
class Recorded:
    """Operations with their effects. ``note`` has facts that the file lacks and that were inferred."""

    rows: Iterable[tuple[Completed, Sequence[Effect]]]
    note: str = ""


def operations(ops: pa.Table) -> list[Completed]:
    """Returns the rows of ``ops`` with values decoded from JSON as ``harness.foreign`` encodes them."""
    return [
        Completed(
            index=row["index"],
            process=row["process"],
            worker=row["worker"],
            operation=Operation(row["f"], row["key"], _decoded(row["argument"]), phase=Phase(row["phase"])),
            completion=Completion(Outcome(row["outcome"]), _decoded(row["result"]), row["error"]),
            call=row["call"],
            ret=row["ret"],
        )
        for row in ops.to_pylist()
    ]


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _plainly(done: Sequence[Completed]) -> list[Completed]:
    """Returns copies with plain values: a keyword becomes its name, a map a ``dict``."""
    return [
        msgspec.structs.replace(
            one,
            operation=msgspec.structs.replace(one.operation, argument=_plain(one.operation.argument)),
            completion=msgspec.structs.replace(one.completion, result=_plain(one.completion.result)),
        )
        for one in done
    ]


def _plain(value: Any) -> Any:
    match value:
        case {"keyword": str(name)} if len(value) == 1:
            return name
        case {"map": pairs} if len(value) == 1:
            named: dict[str, Any] = {}
            for key, one in pairs:
                name = _name(_plain(key))
                if name in named:
                    raise HistoryError(f"two keys of one map would have one name, {name}: {_name(value)}")
                named[name] = _plain(one)
            return named
        case [*elements]:
            return [_plain(element) for element in elements]
    return value


def _name(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def bank(done: Sequence[Completed], total: int | None) -> Recorded:
    """Makes the effects of banks. ``total`` is the sum of all balances; None: take the one that most reads show."""
    done = _plainly(done)
    banks: dict[str, list[Completed]] = {}
    for completed in done:
        banks.setdefault(_key(completed, "bank"), []).append(completed)
    opened, notes = list[Effect](), list[str]()
    accounts: dict[str, tuple[str, ...]] = {}
    for key, mine in banks.items():
        reads = [(read, _balances(read)) for read in mine if _is_ok(read, "read")]
        accounts[key] = tuple(dict.fromkeys(account for _, held in reads for account in held))
        totals = Counter(sum(value or 0 for value in held.values()) for _, held in reads)
        if not totals:
            continue
        whole = total if total is not None else totals.most_common(1)[0][0]
        if total is None:
            notes.append(f"{key} is taken to hold {whole}, as {totals[whole]} of {len(reads)} reads show")
        opened += _opening(key, accounts[key], whole, _untouched(mine, reads, whole))
    first = Completed(
        index=1 + max((completed.index for completed in done), default=0),
        process=1 + max((completed.process for completed in done), default=0),
        worker="opening",
        operation=Operation("open"),
        completion=Completion(Outcome.OK),
        call=0,
        ret=1,
    )
    return Recorded(
        [(first, opened), *((_later(completed), _of_bank(completed, accounts)) for completed in done)], "; ".join(notes)
    )


def _untouched(
    mine: Sequence[Completed], reads: Sequence[tuple[Completed, Mapping[str, int | None]]], whole: int
) -> Mapping[str, int | None] | None:
    """Returns the balances that a read showed before any transfer can have taken effect, or None."""
    moved = min((one.call for one in mine if one.operation.f == "transfer" and not _failed(one)), default=None)
    for read, held in reads:
        known = None not in held.values() and sum(value or 0 for value in held.values()) == whole
        if known and (moved is None or (read.ret is not None and read.ret < moved)):
            return held
    return None


def _opening(key: str, accounts: Sequence[str], whole: int, held: Mapping[str, int | None] | None) -> Iterable[Effect]:
    if held is None:
        yield Effect("bank-open", key, value=whole)
    for account in accounts:
        yield Effect("bank-open", key, owner=account, value=None if held is None else held.get(account, 0))


def _of_bank(completed: Completed, accounts: Mapping[str, Sequence[str]]) -> Sequence[Effect]:
    key = _key(completed, "bank")
    if completed.operation.f == "transfer":
        moved = completed.operation.argument
        source, target, amount = _name(moved["from"]), _name(moved["to"]), moved["amount"]
        return (Effect("bank-withdraw", key, owner=source, value=amount),
                Effect("bank-deposit", key, owner=target, value=amount))  # fmt: skip
    if not _is_ok(completed, "read"):
        return ()
    held = dict.fromkeys(accounts[key], 0) | dict(_balances(completed))
    return [
        Effect("bank-read", key, owner=account, value=value) for account, value in held.items() if value is not None
    ]


def _balances(read: Completed) -> Mapping[str, int | None]:
    held = read.completion.result
    balances: Mapping[str, int | None]
    balances = held if isinstance(held, dict) else {str(number): value for number, value in enumerate(held)}
    for account, value in balances.items():
        if not isinstance(value, int | None):
            raise HistoryError(f"operation {read.index}: account {account} holds {_name(value)}: no number of 64 bits")
    return balances


def monotonic(done: Sequence[Completed]) -> Recorded:
    """Makes the effects of counters. An increment returns the new values, like a read."""
    return Recorded([(completed, list(_seen(completed))) for completed in _plainly(done)])


def _seen(completed: Completed) -> Iterable[Effect]:
    if completed.completion.outcome is not Outcome.OK:
        return
    kind, shown = "read" if completed.operation.f == "read" else "add", completed.completion.result
    key = completed.operation.key
    if not isinstance(shown, dict):
        yield Effect(f"monotonic-{kind}", _key(completed, "counter"), value=shown)
        return
    for name, value in shown.items():
        yield Effect(f"monotonic-{kind}", name if key is None else f"{key}/{name}", value=value)


def transactional(done: Sequence[Completed]) -> Recorded:
    """Makes the effects of lists or registers, under any operation name. Raises ``HistoryError`` for other values."""
    _require_names(done)
    try:
        return Recorded([(completed, transactions.effects(completed)) for completed in _plainly(done)])
    except ValueError as error:
        raise HistoryError(str(error)) from error


def _require_names(done: Sequence[Completed]) -> None:
    """Raises ``HistoryError`` if two different keys would have one name."""
    exact: dict[str, Any] = {}
    for completed in done:
        for micros in (completed.operation.argument, completed.completion.result):
            for key in [micro[1] for micro in micros or ()]:
                name = str(_plain(key))
                if repr(exact.setdefault(name, key)) != repr(key):
                    raise HistoryError(
                        f"operation {completed.index}: the keys {_text(exact[name])} and {_text(key)} would have one "
                        f"name, {name}"
                    )


def unique_ids(done: Sequence[Completed]) -> Recorded:
    """Makes the effects of generated ids.

    An id is an int64 or a name. The name is a string id itself unless that is valid JSON; else it is the JSON of the
    id.
    """
    return Recorded([(completed, [_id(completed)]) for completed in done])


def _id(completed: Completed) -> Effect:
    key, got = _key(completed, "ids"), completed.completion.result
    if isinstance(got, int) and not isinstance(got, bool):
        return Effect("id-generate", key, value=got)
    return Effect("id-generate", key, name=None if got is None else _named(got))


def _named(id: Any) -> str:
    if not isinstance(id, str):
        return _text(id)
    try:
        msgspec.json.decode(id)
    except msgspec.DecodeError:
        return id
    return _text(id)  # quoted, because the same JSON may be the name of another id


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _later(completed: Completed) -> Completed:
    ret = None if completed.ret is None else completed.ret + OPENED_BY
    return msgspec.structs.replace(completed, call=completed.call + OPENED_BY, ret=ret)


def _key(completed: Completed, nameless: str) -> str:
    return nameless if completed.operation.key is None else str(completed.operation.key)


def _is_ok(completed: Completed, f: str) -> bool:
    return completed.operation.f == f and completed.completion.outcome is Outcome.OK


def _failed(completed: Completed) -> bool:
    return completed.completion.outcome is Outcome.FAIL
