"""Traffic of correct leases: clients acquire, renew and release them, and run operations guarded by fencing tokens.

A few clients compete for each lease. An acquire succeeds with the next token if the lease has expired. The former owner
learns of its loss when an operation with its stale token is rejected. A client that continues as a new process has no
token.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.harness.core.operation import Effect
from assay.harness.synthetic import rows
from assay.harness.synthetic.anomaly_template import Opening, Scene, SceneStep
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.state import LatestValues, RunningTotal
from assay.harness.synthetic.timeline import FAIL, OK
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic

ACQUIRE, RENEW, GUARDED, RELEASE = range(4)
RIVALS: Final = 2
"""Clients that compete for a lease, if there are as many."""
NO_TOKEN: Final = 0
"""No token, in the arrays; the first one is 1."""
FAILURES: Final = ("held", "stale-epoch")
HELD, STALE = range(2)
LOST: Final = "lost"
"""Effect that a failed operation reports, with the outcome ok."""


class LeaseTraffic(Traffic):
    model = "lease"
    verbs = ("acquire", "renew", "guarded", "release")
    weights = (0.08, 0.15, 0.72, 0.05)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._owners = [f"client-{number}" for number in range(plan.clients)]
        self._each = min(plan.keys, max(1, -(-RIVALS * plan.keys // plan.clients)))
        """Number of leases that each client wants: the one of its own number and those after it."""
        self._tokens = RunningTotal(plan.keys)
        # By client and lease: the last token granted, and the process that got it.
        self._given = LatestValues(plan.clients * self._each, NO_TOKEN)
        self._holders = LatestValues(plan.clients * self._each, NO_TOKEN)
        # By client and lease: the last token with which an operation was rejected.
        self._rejected = LatestValues(plan.clients * self._each, NO_TOKEN)

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        """Returns a scene whose first token is the next one of the lease."""
        old, new, lease = at.count + 1, at.count + 2, f"{at.key}-lock"
        if anomaly == "fencing-violation":
            # A guarded operation with a token is accepted after a newer token was granted.
            turns = (("acquire", old, "a"), ("guarded", old, "a"), ("acquire", new, "b"), ("guarded", old, "a"))
            return Scene(key=at.key, steps=_build_consecutive_steps(at.key, *turns), value=new, takes=2)
        # Two owners get the same token or, in odd slots, hold a lease without tokens at the same time.
        if at.slot % 2:
            tokenless = (("acquire", None, "a"), ("acquire", None, "b"), ("renew", None, "a"), ("renew", None, "b"))
            return Scene(key=lease, steps=_build_consecutive_steps(lease, *tokenless))
        steps = _build_consecutive_steps(at.key, ("acquire", old, "a"), ("acquire", old, "b"))
        return Scene(key=at.key, steps=steps, value=old, takes=1)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, drawn = block.slots, block.verb
        wish = self.rng.integers(0, self._each, len(drawn))
        key = self.drawn_key(block, (slots.client + wish) % self.plan.keys)
        names = rows.DictionaryColumn(key, self.names)
        taken = block.landed & (drawn == ACQUIRE)
        before = self._tokens.follow(key, taken.astype(np.int64) + block.takes)
        token = before + taken
        known = self._known(block, slots.client * self._each + wish, before, token)
        # A process without a token can only try to acquire the lease, which fails because the lease is held.
        verb = np.where(known == NO_TOKEN, ACQUIRE, drawn)
        held, stale = (verb == ACQUIRE) & (drawn != ACQUIRE), (verb != ACQUIRE) & (known < before)
        rejected = (slots.outcome == OK) & (held | stale)
        outcome = np.where(rejected, FAIL, slots.outcome).astype(np.int8)
        used = np.where(verb == ACQUIRE, token, known)
        shown = (verb != ACQUIRE) | (outcome == OK)
        lost = rejected & stale
        return ChunkEffects(
            verb=verb,
            key=names,
            parts=[
                *(
                    self._part(block, names, verb == number, kind, used, shown)
                    for number, kind in enumerate(self.verbs)
                ),
                self._part(block, names, lost, LOST, used, shown, sub=1),
            ],
            count=before,
            outcome=outcome,
            failures=rows.Failures(np.where(rejected, np.where(held, HELD, STALE), -1), FAILURES),
            argument=rows.to_json_numbers(used[block.keep], (verb != ACQUIRE)[block.keep]),
        )

    def _known(self, block: DrawnChunk, wisher: Ints, before: Ints, token: Ints) -> Ints:
        """Returns the token that each operation's process has for its lease."""
        slots, drawn = block.slots, block.verb
        given = block.keep & (drawn == ACQUIRE) & slots.ok
        over = block.keep & (drawn == RELEASE) & slots.ok
        known, _ = self._given.follow(wisher, given | over, np.where(given, token, NO_TOKEN))
        holder, _ = self._holders.follow(wisher, given, slots.process)
        known = np.where(holder == slots.process, known, NO_TOKEN)
        # A stale token stays stale, and only its first rejection is reported.
        stale = block.keep & (drawn != ACQUIRE) & slots.ok & (known != NO_TOKEN) & (known < before)
        rejected, _ = self._rejected.follow(wisher, stale, known)
        return np.where(rejected == known, NO_TOKEN, known)

    def _part(
        self,
        block: DrawnChunk,
        key: rows.DictionaryColumn,
        mine: Flags,
        kind: str,
        used: Ints,
        shown: Flags,
        sub: int = 0,
    ) -> rows.Part:
        at: NDArray[np.int64] = np.flatnonzero(block.keep & mine)
        token = rows.MaskedColumn(used[at], shown[at])
        return rows.Part(kind, at, key.at(at), {
            "token": token, "assignment": token, "owner": rows.DictionaryColumn(block.slots.client[at], self._owners),
        }, sub=sub, outcome=np.zeros(len(at), np.int8) if kind == LOST else None)  # fmt: skip


def _build_consecutive_steps(lease: str, *turns: tuple[str, int | None, str]) -> tuple[SceneStep, ...]:
    """Returns consecutive steps of (operation, token or None, owner ``a`` or ``b``)."""
    return tuple(
        SceneStep(
            f,
            2 * turn,
            2 * turn + 1,
            (Effect(f, lease, token=token, owner=f"scene-{owner}", assignment=token or 1),),
            process=ord(owner) - ord("a"),
            argument=None if f == "acquire" else token,
        )
        for turn, (f, token, owner) in enumerate(turns)
    )
