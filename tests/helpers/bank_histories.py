"""Histories of a bank: by hand, and at random, right and wrong ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from helpers.log_histories import Row, effect

Times = tuple[int, int | None]


class Bank:
    """Rows, one operation after the other as they are given. ``split``: is it known how much each account has?"""

    def __init__(
        self, *opened: int, outcome: str = "ok", opened_in: Times = (0, 1), key: str = "bank", first: int = 0,
        split: bool = True,
    ) -> None:  # fmt: skip
        self.key, self.rows, self.op = key, list[Row](), first
        whole = [] if split else [("bank-open", None, sum(opened))]
        each = [("bank-open", str(number), value if split else None) for number, value in enumerate(opened)]
        self._add([*whole, *each], opened_in, outcome)

    def transfer(self, source: int, target: int, amount: int, when: Times, outcome: str = "ok") -> Bank:
        return self._add([("bank-withdraw", str(source), amount), ("bank-deposit", str(target), amount)], when, outcome)

    def read(self, balances: Sequence[int | None], when: Times) -> Bank:
        return self._add([("bank-read", str(number), value) for number, value in enumerate(balances)], when, "ok")

    def read_nothing(self, when: Times) -> Bank:
        return self._add([("bank-read", None, None)], when, "ok")

    def _add(self, effects: Sequence[tuple[str, str | None, int | None]], when: Times, outcome: str) -> Bank:
        ret = None if outcome == "info" else when[1]
        for sub, (kind, owner, value) in enumerate(effects):
            given = {"owner": owner, "value": value, "outcome": outcome, "process": self.op}
            self.rows.append(effect(self.op, sub, kind, self.key, when[0], ret, **given))
        self.op += 1
        return self


def at_random(seed: int, *, wrong: bool, **given: Any) -> Bank:
    """Operations of one moment each, between call and return; ``wrong``: some reads show what was not so."""
    chance = random.Random(seed)
    accounts = chance.randint(2, 4)
    bank = Bank(*([20] * accounts), **given)
    balances = [20] * accounts
    spans = []
    for _ in range(chance.randint(4, 16)):
        moment = chance.uniform(3, 60)
        spans.append((moment - chance.uniform(0, 9), moment, moment + chance.uniform(0, 9)))
    stamps = {
        time: 2 + rank for rank, time in enumerate(sorted(time for call, _, ret in spans for time in (call, ret)))
    }
    plans = [(moment, stamps[call], stamps[ret], chance.random()) for call, moment, ret in spans]
    rows = []
    for _, call, ret, kind in sorted(plans):
        if kind < 0.4:
            shown = list(balances)
            if wrong and chance.random() < 0.5:
                shown[chance.randrange(accounts)] += chance.choice((-30, -2, -1, 1, 2))
            rows.append((call, lambda b, c=call, r=ret, s=shown: b.read(s, (c, r))))
            continue
        source, target = chance.sample(range(accounts), 2)
        amount = chance.randint(-min(2, balances[target]), min(5, balances[source]))
        outcome = chance.choices(("ok", "info", "fail"), (6, 2, 1))[0]
        if outcome == "ok" or (outcome == "info" and chance.random() < 0.5):
            balances[source] -= amount
            balances[target] += amount
        rows.append(
            (call, lambda b, c=call, r=ret, s=source, t=target, a=amount, o=outcome: b.transfer(s, t, a, (c, r), o))
        )
    for _, add in sorted(rows, key=lambda row: row[0]):
        add(bank)
    return bank
