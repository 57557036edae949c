"""Bank workload (as in Jepsen): transfers between accounts with a constant total, for any system with transactions.

A client executes three operations, each in a transaction of its own. It uses this module's ``effects``.

- ``open`` gives each account of ``ACCOUNTS`` the balance ``BALANCE``
- ``transfer`` moves an amount (``[source, target, amount]``)
- ``read`` returns all balances by account
"""

from collections.abc import Sequence
from typing import Final

from assay import (
    BANK_ANOMALIES,
    Completed,
    Context,
    Contract,
    Effect,
    Generator,
    Operation,
    Phase,
    forbid,
    phases,
    sequence,
    unfold,
    until_ok,
)  # fmt: skip

BANK: Final = "bank"
ACCOUNTS: Final = tuple(str(number) for number in range(8))
BALANCE: Final = 50
OPEN, TRANSFER, READ = "open", "transfer", "read"
LEVELS: Final = ("serializable", "snapshot isolation", "read committed")


def step(number: int, context: Context) -> tuple[Operation, int]:
    """Returns the next operation: two transfers follow each read."""
    if number % 3 == 0:
        return Operation(READ, BANK), number + 1
    source = context.random_below(len(ACCOUNTS), salt=1)
    target = (source + 1 + context.random_below(len(ACCOUNTS) - 1, salt=2)) % len(ACCOUNTS)
    return Operation(
        TRANSFER, BANK, [ACCOUNTS[source], ACCOUNTS[target], 1 + context.random_below(5, salt=3)]
    ), number + 1


def traffic() -> Generator:
    """Returns the generator: opens the accounts, then transfers and reads, and reads again after the last heal."""
    read = Operation(READ, BANK, phase=Phase.DRAIN)
    return phases(Operation(OPEN, BANK), unfold(step, 0)) | sequence(until_ok(read), [read] * 2)


def effects(completed: Completed) -> Sequence[Effect]:
    argument = completed.operation.argument
    if completed.operation.f == OPEN:
        return [Effect("bank-open", BANK, owner=account, value=BALANCE) for account in ACCOUNTS]
    if completed.operation.f == TRANSFER:
        source, target, amount = argument
        return [Effect("bank-withdraw", BANK, owner=source, value=amount),
                Effect("bank-deposit", BANK, owner=target, value=amount)]  # fmt: skip
    shown = completed.completion.result or {None: None}
    return [Effect("bank-read", BANK, owner=account, value=balance) for account, balance in shown.items()]


def build_contract(level: str, *, may_stall: Sequence[str] = ()) -> Contract:
    """Returns the contract of an isolation level (one of ``LEVELS``). Raises ``ValueError`` for another level.

    It is for transfers that read balances and then write new ones. ``may_stall``: faults under which no request is
    served.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown isolation level {level}; use one of {', '.join(LEVELS)}")
    contract = forbid(*BANK_ANOMALIES, may_stall=may_stall)
    if level != "read committed":
        return contract
    because = "two transfers that read the same balance lose one of their updates at read committed"
    return contract.tolerate(*BANK_ANOMALIES, because=because)
