"""The history of correct leases: clients acquire, renew and release them, and do things under their tokens.

Each lease has a few clients that want it. One gets it, with the next token, when it asks and the lease has run out, and
those before it learn of that only when they are refused: so some work on under a token that is stale. A client that
goes on as a new process knows no token any more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.app.synthetic import rows
from harness.app.synthetic.lease_scenes import LEASE_SCENES
from harness.app.synthetic.plan import Plan
from harness.app.synthetic.scene import Opening, Scene
from harness.app.synthetic.segments import Flags, Ints
from harness.app.synthetic.slots import FAIL, OK
from harness.app.synthetic.state import Latest, Tally
from harness.app.synthetic.traffic import Acts, Block, Traffic

ACQUIRE: Final = 0
RENEW: Final = 1
GUARDED: Final = 2
RELEASE: Final = 3
RIVALS: Final = 3
"""Clients that want a lease, if there are so many."""
NOTHING: Final = 0
"""No token, in the arrays; the first one is 1."""
FAILURES: Final = ("held", "stale-epoch")
HELD: Final = 0
STALE: Final = 1


class LeaseTraffic(Traffic):
    model = "lease"
    verbs = ("acquire", "renew", "guarded", "release")
    weights = (0.15, 0.15, 0.6, 0.1)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._owners = [f"client-{number}" for number in range(plan.clients)]
        self._each = min(plan.keys, max(1, -(-RIVALS * plan.keys // plan.clients)))
        """Leases that each client wants: those of its number, and as many after that."""
        self._tokens = Tally(plan.keys)
        # By client and lease: the token it was given last, and the process that was given it.
        self._given = Latest(plan.clients * self._each, NOTHING)
        self._holders = Latest(plan.clients * self._each, NOTHING)

    def stage(self, anomaly: str, at: Opening) -> Scene:
        return LEASE_SCENES[anomaly](at)

    def act(self, block: Block) -> Acts:
        slots, drawn = block.slots, block.verb
        wish = self.rng.integers(0, self._each, len(drawn))
        key = self.drawn_key(block, (slots.client + wish) % self.plan.keys)
        names = rows.Named(key, self.names)
        taken = block.landed & (drawn == ACQUIRE)
        before = self._tokens.follow(key, taken.astype(np.int64) + block.takes)
        token = before + taken
        known = self._known(block, slots.client * self._each + wish, token)
        # Who has no token can but ask for one, and gets none, for the lease is held.
        verb = np.where(known == NOTHING, ACQUIRE, drawn)
        held, stale = (verb == ACQUIRE) & (drawn != ACQUIRE), (verb != ACQUIRE) & (known < before)
        refused = (slots.outcome == OK) & (held | stale)
        outcome = np.where(refused, FAIL, slots.outcome).astype(np.int8)
        used = np.where(verb == ACQUIRE, token, known)
        told = (verb != ACQUIRE) | (outcome == OK)
        return Acts(
            verb=verb,
            key=names,
            parts=[
                self._part(block, names, verb == number, kind, used, told) for number, kind in enumerate(self.verbs)
            ],
            count=before,
            outcome=outcome,
            failures=rows.Failures(np.where(refused, np.where(held, HELD, STALE), -1), FAILURES),
            argument=rows.numbers(used[block.keep], (verb != ACQUIRE)[block.keep]),
        )

    def _known(self, block: Block, wisher: Ints, token: Ints) -> Ints:
        """The token that each operation's process has of its lease."""
        slots, drawn = block.slots, block.verb
        given = block.keep & (drawn == ACQUIRE) & slots.ok
        over = block.keep & (drawn == RELEASE) & slots.ok
        known, _ = self._given.follow(wisher, given | over, np.where(given, token, NOTHING))
        holder, _ = self._holders.follow(wisher, given, slots.process)
        return np.where(holder == slots.process, known, NOTHING)

    def _part(self, block: Block, key: rows.Named, mine: Flags, kind: str, used: Ints, told: Flags) -> rows.Part:
        at: NDArray[np.int64] = np.flatnonzero(block.keep & mine)
        token = rows.Known(used[at], told[at])
        return rows.Part(kind, at, key.at(at), {
            "epoch": token, "assignment": token, "owner": rows.Named(block.slots.client[at], self._owners),
        })  # fmt: skip
