"""Traffic of correct banks: transfers between the accounts of a bank, and reads of all its accounts.

A bank repeats a cycle of ``PERIOD`` transfers that ends with the initial balances. So the balances are a function of
the number of transfers. Two more accounts have transfers in scenes only, so their balances are known exactly.
"""

import random
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows, segments
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.state import RunningTotal
from assay.harness.synthetic.timeline import OPENING_PROCESS
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

TRANSFER, READ = range(2)
BUSY: Final = 4
"""Accounts that ordinary transfers use."""
ACCOUNTS: Final = tuple(str(number) for number in range(BUSY + 2))
OPENED: Final = 10
"""Initial balance of each account."""
AT_A_TIME: Final = 1000
"""Banks that one operation opens."""


def _build_transfer_cycle(steps: int) -> list[tuple[int, int, int]]:
    """Returns transfers (source, target, amount) that overdraw no account, followed by their reversal."""
    chance, held, done = random.Random(7), [OPENED] * BUSY, list[tuple[int, int, int]]()
    while len(done) < steps:
        source, target = chance.sample(range(BUSY), 2)
        amount = min(held[source], chance.randint(1, 5))
        if amount:
            held[source], held[target] = held[source] - amount, held[target] + amount
            done.append((source, target, amount))
    return [*done, *((target, source, amount) for source, target, amount in reversed(done))]


TRANSFERS: Final = np.array(_build_transfer_cycle(32), dtype=np.int64)
PERIOD: Final = len(TRANSFERS)


def _compute_balances() -> segments.Ints:
    """Returns the balance of each account after each number of transfers of a period."""
    held = np.full((PERIOD, len(ACCOUNTS)), OPENED, dtype=np.int64)
    for number, (source, target, amount) in enumerate(TRANSFERS[:-1].tolist(), 1):
        held[number] = held[number - 1]
        held[number, source] -= amount
        held[number, target] += amount
    return held


HELD: Final = _compute_balances()


def _to_json(held: list[int]) -> str:
    return "{" + ",".join(f'"{account}":{value}' for account, value in zip(ACCOUNTS, held, strict=True)) + "}"


class BankTraffic(Traffic):
    model = "bank"
    verbs = ("transfer", "read")
    weights = (0.7, 0.3)
    bulk = 3

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._done = RunningTotal(plan.keys)

    def begin(self, writer: HistoryWriter) -> None:
        """Opens all banks, ``AT_A_TIME`` in one operation."""
        groups = -(-self.plan.keys // AT_A_TIME)
        ops = self.schedule.before(np.arange(groups, dtype=np.int64), OPENING_PROCESS)
        bank = np.arange(self.plan.keys, dtype=np.int64)
        writer.batch("ops", rows.build_operations(ops, np.ones(groups, np.bool_), {
            "worker": "0", "f": "open", "argument": "null", "result": "null",
        }))  # fmt: skip
        each = np.repeat(bank, len(ACCOUNTS))
        account = np.tile(np.arange(len(ACCOUNTS)), self.plan.keys)
        rows.write_effects(writer, ops, [
            rows.Part(
                "bank-open", each // AT_A_TIME, rows.DictionaryColumn(each, self.names),
                {"owner": rows.DictionaryColumn(account, ACCOUNTS), "value": np.full(len(each), OPENED)},
                sub=each % AT_A_TIME * len(ACCOUNTS) + account,
            ),
        ])  # fmt: skip

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        held = HELD[at.count % PERIOD].tolist()

        def transfer(source: int, target: int, amount: int, begin: int, end: int | None) -> SceneStep:
            moved = tuple(Effect(f"bank-{kind}", at.key, owner=ACCOUNTS[account], value=amount)
                          for kind, account in (("withdraw", source), ("deposit", target)))  # fmt: skip
            return SceneStep("transfer", begin, end, moved, argument=[ACCOUNTS[source], ACCOUNTS[target], amount])

        def read(changed: dict[int, int], begin: int) -> SceneStep:
            shown = {name: held[number] + changed.get(number, 0) for number, name in enumerate(ACCOUNTS)}
            effects = tuple(Effect("bank-read", at.key, owner=name, value=value) for name, value in shown.items())
            return SceneStep("read", begin, begin + 1, effects, result=shown)

        source, target, amount = TRANSFERS[at.count % PERIOD].tolist()
        more = held[0] + 1
        known, spare = BUSY, BUSY + 1
        steps, takes, value = {
            # The read sees half of the transfer.
            "bank-total": (
                (transfer(source, target, amount, 0, 3), read({source: -amount}, 1)), 1, sum(held) - amount,
            ),
            "bank-negative": ((transfer(0, 1, more, 0, None), read({0: -more, 1: more}, 1)), 0, -1),
            # It is unknown what the spare account gave away. The last transfer restores the balances.
            "bank-unaccounted": (
                (transfer(known, spare, 1, 0, 1), transfer(spare, 0, 1, 2, None), read({}, 3),
                 transfer(spare, known, 1, 5, 6)), 0, held[known],
            ),
        }[anomaly]  # fmt: skip
        return Scene(key=at.key, steps=steps, value=value, takes=takes)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, verb, key = block.slots, block.verb, rows.DictionaryColumn(block.key, self.names)
        count = self._done.follow(block.key, (block.landed & (verb == TRANSFER)).astype(np.int64) + block.takes)
        turn, keep = count % PERIOD, block.keep
        moves = np.flatnonzero(keep & (verb == TRANSFER))
        looks = np.flatnonzero(keep & (verb == READ) & slots.ok)
        reads, account = segments.expand_ranks(looks, np.full(len(looks), len(ACCOUNTS)))
        source, target, amount = TRANSFERS[turn[moves]].T
        parts = [
            rows.Part("bank-withdraw", moves, key.at(moves), {"owner": rows.DictionaryColumn(source, ACCOUNTS),
            "value": amount}),
            rows.Part(
                "bank-deposit", moves, key.at(moves), {"owner": rows.DictionaryColumn(target, ACCOUNTS),
                "value": amount}, sub=1
            ),
            rows.Part(
                "bank-read", reads, key.at(reads),
                {"owner": rows.DictionaryColumn(account, ACCOUNTS), "value": HELD[turn[reads], account]}, sub=account,
            ),
        ]  # fmt: skip
        moved = pa.array([f'["{ACCOUNTS[a]}","{ACCOUNTS[b]}",{much}]' for a, b, much in TRANSFERS.tolist()])
        shown = pa.array([_to_json(held) for held in HELD.tolist()])
        at, doing = pa.array(turn[keep]), verb[keep]
        return ChunkEffects(
            verb=verb,
            key=key,
            parts=parts,
            count=count,
            argument=pc.if_else(doing == TRANSFER, moved.take(at), "null"),
            result=pc.if_else((slots.ok & (verb == READ))[keep], shown.take(at), rows.NONE),
        )
