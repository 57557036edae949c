"""Makes effects from the operations of another tool's workload, for the checks in SQL.

Jepsen's workloads name their operations and values as in its own code (``jepsen.tests.bank`` and so on).

The history of a *bank* does not record the initial balances. So an additional operation, before all others, opens the
accounts:

- The total is the given one, or the one that most reads show.
- The balance of each account is known only if a read returned before the first transfer was called.
- An account that a read lacks was empty, as in Jepsen. An account with a nil balance counts as not read.
- If no read shows an account and no total is given, reads of no account prove nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from assay.harness.core import transactions
from assay.harness.core.history import HistoryError
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.core.printable import count_noun
from assay.harness.foreign import to_edn
from assay.harness.stored.element_numbers import number_elements
from assay.harness.stored.initial_values import read_initial_values
from assay.harness.stored.keyed_transactions import separate_keys
from assay.harness.stored.transaction_reads import (
    apply_initial_values,
    count_unacknowledged,
    describe_unjudged,
    keep_known_reads,
)

LIMIT: Final = 2**63
"""Numbers of the checks in SQL are below this limit."""
MOST_EMPTY: Final = 5_000_000
"""Maximum number of balances that reads of a bank lack. Each of them counts as 0, and they take seconds."""
SHIFT: Final = 2
"""Nanoseconds by which the times of all operations are shifted, so that an added operation comes before them. It is the
opening of a bank, or the drain of a queue that need not be drained."""


@dataclass
class JudgedElements:
    """Counts of elements whose absence is allowed, so that the checks in SQL ignore it.

    ``claims`` and ``exposed`` are by anomaly, as the checks would count them (``checkers.exposure``).
    """

    number: int = 0
    claims: Counter[str] = field(default_factory=Counter)
    exposed: Counter[str] = field(default_factory=Counter)

    def count(self, anomaly: str, *, is_exposed: bool) -> None:
        self.claims[anomaly] += 1
        self.exposed[anomaly] += is_exposed


@dataclass(frozen=True)
class WorkloadEffects:
    """Operations with their effects. ``note`` describes facts that the file lacks and that were inferred."""

    rows: Iterable[tuple[Completed, Sequence[Effect]]]
    note: str = ""
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of elements that are no whole numbers, by the number that stands for each in the effects."""
    doubts: Sequence[str] = ()
    """Reasons not to pass."""
    added: tuple[Completed, Sequence[Effect]] | None = None
    """The row that stands for no operation of the file."""
    judged: JudgedElements | None = None
    """The elements that the checks in SQL take for removed, though no operation of the file removed them."""


def to_plain_values(done: Iterable[Completed]) -> list[Completed]:
    """Returns copies with plain values: a keyword becomes its name, a map a ``dict``, any integer an ``int``."""
    return [
        msgspec.structs.replace(
            one,
            operation=msgspec.structs.replace(one.operation, argument=_to_plain(one.operation.argument)),
            completion=msgspec.structs.replace(one.completion, result=_to_plain(one.completion.result)),
        )
        for one in done
    ]


def to_plain_fields(fields: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Returns copies of further fields with plain values, as ``to_plain_values`` does."""
    return {index: {name: _to_plain(value) for name, value in one.items()} for index, one in fields.items()}


def _to_plain(value: Any) -> Any:
    match value:
        case {"keyword": str(name)} if len(value) == 1:
            return name
        case {"integer": str(digits)} if len(value) == 1:
            return int(digits)
        case {"map": pairs} if len(value) == 1:
            named: dict[str, Any] = {}
            for key, one in pairs:
                name = _to_name(_to_plain(key))
                if name in named:
                    raise HistoryError(f"two keys of one map would have one name, {name}: {_to_name(value)}")
                named[name] = _to_plain(one)
            return named
        case [*elements]:
            return [_to_plain(element) for element in elements]
    return value


def _to_name(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class NameForms:
    """Values of a file by their names, to reject two values of one name. ``nouns`` says what they are, for errors."""

    def __init__(self, nouns: str, to_name: Callable[[Any], str] = _to_name) -> None:
        self._nouns = nouns
        self._to_name = to_name
        self._exact: dict[tuple[str | None, str], Any] = {}

    def require_one(self, index: int, key: str | None, value: Any) -> None:
        """Raises ``HistoryError`` if another value of ``key`` has the name of ``value``. ``index``: the operation."""
        name = self._to_name(_to_plain(value))
        exact = self._exact.setdefault((key, name), value)
        if repr(exact) != repr(value):
            both = " and ".join(to_edn(to_json(one)) for one in (exact, value))
            raise HistoryError(
                f"operation {index}: the {self._nouns} {both} would have one name, {name}; give them different names"
            )


def make_bank_effects(done: Sequence[Completed], total: int | None) -> WorkloadEffects:
    """Makes the effects of banks. ``total`` is the sum of all balances; None: the sum that most reads show."""
    exact, done = done, to_plain_values(done)
    _require_account_names(exact)
    banks: dict[str, list[Completed]] = {}
    for completed in done:
        banks.setdefault(find_key(completed, "bank"), []).append(completed)
    opening, notes = list[Effect](), list[str]()
    accounts: dict[str, tuple[str, ...]] = {}
    for key, operations in banks.items():
        reads = [(read, _read_balances(read)) for read in operations if is_ok(read, "read")]
        accounts[key] = tuple(dict.fromkeys(account for _, balances in reads for account in balances))
        _require_few_empty_accounts(key, accounts[key], [balances for _, balances in reads])
        if not reads or (total is None and not accounts[key]):
            continue
        complete = [balances for _, balances in reads if None not in balances.values()]
        shown = complete or [balances for _, balances in reads]
        totals = Counter(sum(value or 0 for value in balances.values()) for balances in shown)
        bank_total = total if total is not None else totals.most_common(1)[0][0]
        initial = _find_initial_balances(operations, reads, bank_total)
        if initial is None:
            require_64_bits(bank_total, f"the total of {key}")
        if total is None:
            notes.append(f"{key} is taken to hold {bank_total}, as {totals[bank_total]} of {len(reads)} reads show")
        opening += _make_opening_effects(key, accounts[key], bank_total, initial)
    first = make_added_operation(done, "opening", "open", 0)
    return WorkloadEffects(
        [
            (first, opening),
            *((shift_times(completed), _make_effects_of_bank(completed, accounts)) for completed in done),
        ],
        "; ".join(notes),
        added=(first, opening),
    )


def _require_account_names(done: Sequence[Completed]) -> None:
    """Raises ``HistoryError`` if two different accounts of a bank would have one name.

    The keys of a JSON object are strings, so a transfer may name the account of such a key by a number.
    """
    in_reads, in_transfers = NameForms("accounts"), NameForms("accounts")
    for completed in done:
        index, key = completed.index, find_key(completed, "bank")
        if is_ok(completed, "read"):
            for account, _ in _list_fields(completed.completion.result):
                in_reads.require_one(index, key, account)
                if isinstance(account, int):
                    in_transfers.require_one(index, key, account)
        elif completed.operation.f == "transfer":
            for field_name, account in _list_fields(completed.operation.argument):
                if _to_plain(field_name) in ("from", "to"):
                    in_transfers.require_one(index, key, account)


def _list_fields(value: Any) -> Sequence[tuple[Any, Any]]:
    """Returns the keys and values of a map, as the file has them; nothing for a vector or a number."""
    match value:
        case {"map": [*pairs]} if len(value) == 1:
            return [(key, one) for key, one in pairs]
        case {**named}:
            return list(named.items())
    return ()


def _require_few_empty_accounts(key: str, accounts: Sequence[str], reads: Sequence[Mapping[str, int | None]]) -> None:
    """Raises ``HistoryError`` if reads lack so many accounts that their balances of 0 would not fit into memory."""
    empty = sum(len(accounts) - len(balances) for balances in reads)
    if empty > MOST_EMPTY:
        raise HistoryError(
            f"the reads of {key} lack {empty:,} balances of its {len(accounts):,} accounts, and each would count as 0; "
            f"at most {MOST_EMPTY:,} can be judged: are the values [key value], which --keys=tuples separates?"
        )


def _find_initial_balances(
    operations: Sequence[Completed], reads: Sequence[tuple[Completed, Mapping[str, int | None]]], total: int
) -> Mapping[str, int | None] | None:
    """Returns the balances that a read showed before any transfer can have taken effect, or None."""
    first_transfer = min(
        (one.call for one in operations if one.operation.f == "transfer" and not is_failed(one)), default=None
    )
    for read, balances in reads:
        complete = None not in balances.values() and sum(value or 0 for value in balances.values()) == total
        if complete and (first_transfer is None or (read.ret is not None and read.ret < first_transfer)):
            return balances
    return None


def _make_opening_effects(
    key: str, accounts: Sequence[str], total: int, balances: Mapping[str, int | None] | None
) -> Iterable[Effect]:
    if balances is None:
        yield Effect("bank-open", key, value=total)
    for account in accounts:
        yield Effect("bank-open", key, owner=account, value=None if balances is None else balances.get(account, 0))


def _make_effects_of_bank(completed: Completed, accounts: Mapping[str, Sequence[str]]) -> Sequence[Effect]:
    key = find_key(completed, "bank")
    if completed.operation.f == "transfer":
        transfer = completed.operation.argument
        source, target, amount = _to_name(transfer["from"]), _to_name(transfer["to"]), transfer["amount"]
        require_64_bits(amount, f"operation {completed.index}: the amount")
        return (Effect("bank-withdraw", key, owner=source, value=amount),
                Effect("bank-deposit", key, owner=target, value=amount))  # fmt: skip
    if not is_ok(completed, "read"):
        return ()
    balances = dict.fromkeys(accounts[key], 0) | dict(_read_balances(completed))
    shown = [Effect("bank-read", key, owner=account, value=value) for account, value in balances.items()]
    return shown or [Effect("bank-read", key)]


def _read_balances(read: Completed) -> Mapping[str, int | None]:
    result = read.completion.result
    balances: Mapping[str, int | None]
    balances = result if isinstance(result, dict) else {str(number): value for number, value in enumerate(result)}
    for account, value in balances.items():
        if value is not None:
            require_64_bits(value, f"operation {read.index}: the balance of account {account}")
    return balances


def make_monotonic_effects(done: Sequence[Completed]) -> WorkloadEffects:
    """Makes the effects of counters. An increment returns the new values, like a read."""
    rows = [(completed, list(_make_counter_effects(completed))) for completed in to_plain_values(done)]
    names = NameForms("counters")
    for completed in done:
        for counter, _ in _list_fields(completed.completion.result):
            names.require_one(completed.index, completed.operation.key, counter)
    return WorkloadEffects(rows)


def _make_counter_effects(completed: Completed) -> Iterable[Effect]:
    if completed.completion.outcome is not Outcome.OK:
        return
    kind, shown = "read" if completed.operation.f == "read" else "add", completed.completion.result
    key = completed.operation.key
    if not isinstance(shown, dict):
        shown, key = {find_key(completed, "counter"): shown}, None
    for name, value in shown.items():
        if value is not None:
            require_64_bits(value, f"operation {completed.index}: the value of {name}")
        yield Effect(f"monotonic-{kind}", name if key is None else f"{key}/{name}", value=value)


def make_transaction_effects(
    done: Sequence[Completed],
    initial: Sequence[str] = (),
    *,
    has_lists: bool,
    all_reads: bool = False,
    by_session: bool = False,
) -> WorkloadEffects:
    """Makes the effects of lists or registers, under any operation name. Raises ``HistoryError`` for other values.

    ``has_lists``: whether all objects are lists. ``initial``: the values of ``--initial``. ``all_reads``: whether reads
    of failed and unknown transactions count. ``by_session``: whether the level orders the transactions of a process.
    """
    _require_names(done)
    done, sessions = separate_keys(done, by_session=by_session)
    unacknowledged, doubts = count_unacknowledged(done), list[str]()
    if all_reads:
        done = list(map(keep_known_reads, done))
    else:
        done = [one if is_ok(one, one.operation.f) else _without_result(one) for one in done]
    if initial:
        done, doubts = apply_initial_values(done, read_initial_values(initial))
    numbered, names = number_elements(done, reads_lists=has_lists)
    try:
        return WorkloadEffects(
            [
                (completed, transactions.derive_effects(completed, all_reads=all_reads))
                for completed in to_plain_values(numbered)
            ],
            names=names,
            doubts=doubts,
            note="; ".join(filter(None, (sessions, _describe_reads(done, unacknowledged, all_reads=all_reads)))),
        )
    except ValueError as error:
        raise HistoryError(str(error)) from error


def _without_result(one: Completed) -> Completed:
    return msgspec.structs.replace(one, completion=msgspec.structs.replace(one.completion, result=None))


def _describe_reads(done: Sequence[Completed], unacknowledged: int, *, all_reads: bool) -> str:
    """Returns the note on the reads of failed and unknown transactions; empty if there are none."""
    known = sum(one.completion.outcome is not Outcome.OK and one.completion.result is not None for one in done)
    unjudged = describe_unjudged(unacknowledged - known)
    if not all_reads:
        return unjudged and f"{unjudged}; --all-reads judges those that the file shows"
    judged = f"reads of {count_noun(known, 'failed or unknown transaction')} are judged as well"
    return f"{judged}; {unjudged}: the file does not show them" if unjudged else judged


def _require_names(done: Sequence[Completed]) -> None:
    """Raises ``HistoryError`` if two different keys would have one name."""
    keys = NameForms("keys", str)
    for completed in done:
        for micros in (completed.operation.argument, completed.completion.result):
            for micro in micros or ():
                keys.require_one(completed.index, None, micro[1])


def make_unique_id_effects(done: Sequence[Completed]) -> WorkloadEffects:
    """Makes the effects of generated ids.

    An id is an int64 or a name. A string that is no valid JSON is its own name. The name of any other id is its JSON.
    """
    return WorkloadEffects([(completed, [_make_id_effect(completed)]) for completed in done])


def _make_id_effect(completed: Completed) -> Effect:
    key, id = find_key(completed, "ids"), completed.completion.result
    if isinstance(id, int) and not isinstance(id, bool):
        return Effect("id-generate", key, value=id)
    return Effect("id-generate", key, name=None if id is None else _name_id(id))


def _name_id(id: Any) -> str:
    if not isinstance(id, str):
        return to_json(id)
    try:
        msgspec.json.decode(id)
    except (msgspec.DecodeError, RecursionError):
        return id
    return to_json(id)  # quoted, because the same JSON may be the name of another id


def to_json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def make_added_operation(done: Sequence[Completed], worker: str, f: str, call: int) -> Completed:
    """Returns an acknowledged operation that the file does not have, with a process of its own. It lasts 1 ns."""
    return Completed(
        index=1 + max((one.index for one in done), default=0),
        process=1 + max((one.process for one in done), default=0),
        worker=worker,
        operation=Operation(f),
        completion=Completion(Outcome.OK),
        call=call,
        ret=call + 1,
    )


def require_64_bits(number: int, name: str) -> None:
    """Raises ``HistoryError`` for a number that the checks in SQL cannot hold. ``name``: what the number is."""
    if not -LIMIT <= number < LIMIT:
        raise HistoryError(f"{name} is {number}, which has more than 64 bits; numbers of accounts and counters have 64")


def shift_times(completed: Completed) -> Completed:
    """Returns a copy whose times are later by ``SHIFT``."""
    ret = None if completed.ret is None else completed.ret + SHIFT
    return msgspec.structs.replace(completed, call=completed.call + SHIFT, ret=ret)


def find_key(completed: Completed, nameless: str) -> str:
    return nameless if completed.operation.key is None else str(completed.operation.key)


def is_ok(completed: Completed, f: str) -> bool:
    return completed.operation.f == f and completed.completion.outcome is Outcome.OK


def is_failed(completed: Completed) -> bool:
    return completed.completion.outcome is Outcome.FAIL
