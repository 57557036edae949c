"""Files of Jepsen's workloads, as its store holds them: one map for each event of a history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Event = tuple[int, str, str, str]
"""Process, type, f and value, the last as EDN."""


def edn(events: Iterable[Event]) -> str:
    return "".join(
        f"{{:type :{type}, :f :{f}, :value {value}, :process {process}, :time {1000 * number}, :index {number}}}\n"
        for number, (process, type, f, value) in enumerate(events)
    )


def done(process: int, f: str, called: str, returned: str | None = None, type: str = "ok") -> list[Event]:
    """A call and its completion, one right after the other."""
    return [(process, "invoke", f, called), (process, type, f, called if returned is None else returned)]


def balances(held: Sequence[int]) -> str:
    return "{" + ", ".join(f"{account} {value}" for account, value in enumerate(held)) + "}"


def transfer(source: int, target: int, amount: int) -> str:
    return f"{{:from {source}, :to {target}, :amount {amount}}}"
