"""Banks: transfers between the accounts of a bank, and reads of all its accounts.

Many transfers undo earlier ones, so that a tile (a list of operations that is copied many times, see ``history``) ends
with the balances with which it began. Two more accounts are used only in scenes (operations of planted anomalies), so
their balances are known exactly.
"""

import random
from typing import Final

from assay.harness.core.operation import Effect
from assay.harness.synthetic.model import Model, Scene, Step, Turn

BUSY: Final = 4
"""Number of accounts that ordinary transfers use."""
SOLVENT, SPARE = BUSY, BUSY + 1
"""Accounts that only scenes use."""
OPENED: Final = 10
"""Initial balance of each account."""
MOST_PENDING: Final = 30
"""Maximum number of transfers of a bank that are not undone yet."""


class BankModel(Model):
    """Plays transfers and reads. ``Model`` explains the methods, and the module ``model`` turns, steps and ticks."""

    model = "bank"
    has_opening = True

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._pending: dict[int, list[tuple[int, int, int]]] = {}
        """By bank, the transfers that must still be undone: source, target, amount."""
        self._pending_count = 0
        """Number of pending transfers of all banks."""

    def step(self, turn: Turn) -> Step:
        bank = self.draw_key()
        pending = self._pending.get(bank, [])
        if self.rng.random() < 0.3:
            return self._read(bank, self._balances(bank))
        if len(pending) >= MOST_PENDING or (pending and self.rng.random() < 0.5):
            return self._undo(bank, turn.takes_effect)
        balances = self._balances(bank)
        source, target = self.rng.sample(range(BUSY), 2)
        if not balances[source]:
            source, target = max(range(BUSY), key=balances.__getitem__), source
        transfer = source, target, min(balances[source], self.rng.randint(1, 5))
        if turn.takes_effect:
            self._pending.setdefault(bank, []).append(transfer)
            self._pending_count += 1
        return self._transfer(bank, *transfer)

    def step_to_initial_state(self, turn: Turn) -> Step | None:
        if turn.remaining > self._pending_count + 1:
            return None
        return self._undo(next(iter(self._pending)), True) if self._pending else self._read(0, self._balances(0))

    def open_key(self, key: int) -> Step:
        effects = tuple(
            Effect("bank-open", self.name(key), owner=str(account), value=OPENED) for account in range(BUSY + 2)
        )
        return Step("open", self.name(key), effects)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        balances = [OPENED] * (BUSY + 2)
        value, steps = {
            # The read sees half of the transfer, which is then undone.
            "bank-total": (
                sum(balances) - 3,
                (
                    self._transfer(key, 0, 1, 3, 0, 3),
                    self._read(key, [balances[0] - 3, *balances[1:]], 1),
                    self._transfer(key, 1, 0, 3, 4, 5),
                ),
            ),
            "bank-negative": (
                -1,
                (
                    self._transfer(key, 0, 1, OPENED + 1, 0, None),
                    self._read(key, [-1, 2 * OPENED + 1, *balances[2:]], 1),
                ),
            ),
            # The outcome of a transfer from the spare account is unknown. The last transfer restores the balances.
            "bank-unaccounted": (
                OPENED,
                (
                    self._transfer(key, SOLVENT, SPARE, 1, 0, 1),
                    self._transfer(key, SPARE, 0, 1, 2, None),
                    self._read(key, balances, 3),
                    self._transfer(key, SPARE, SOLVENT, 1, 5, 6),
                ),
            ),
        }[anomaly]  # fmt: skip
        return Scene(key=self.name(key), steps=steps, value=value)

    def _balances(self, bank: int) -> list[int]:
        balances = [OPENED] * (BUSY + 2)
        for source, target, amount in self._pending.get(bank, ()):
            balances[source] -= amount
            balances[target] += amount
        return balances

    def _undo(self, bank: int, takes_effect: bool) -> Step:
        source, target, amount = self._pending[bank][-1]
        if takes_effect:
            self._pending[bank].pop()
            self._pending_count -= 1
            if not self._pending[bank]:
                del self._pending[bank]
        return self._transfer(bank, target, source, amount)

    def _transfer(self, bank: int, source: int, target: int, amount: int, begin: int = 0, end: int | None = 1) -> Step:
        """``begin``, ``end``: ticks of a scene. If ``end`` is None, the outcome is unknown."""
        effects = tuple(
            Effect(kind, self.name(bank), owner=str(account), value=amount)
            for kind, account in (("bank-withdraw", source), ("bank-deposit", target))
        )
        return Step(
            "transfer", self.name(bank), effects, argument=[str(source), str(target), amount], begin=begin, end=end
        )

    def _read(self, bank: int, balances: list[int], begin: int = 0) -> Step:
        shown = {str(account): value for account, value in enumerate(balances)}
        effects = tuple(
            Effect("bank-read", self.name(bank), owner=owner, value=value) for owner, value in shown.items()
        )
        return Step("read", self.name(bank), seen=effects, result=shown, begin=begin, end=begin + 1)
