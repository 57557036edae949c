"""Leases: clients acquire, renew and release them, and run operations guarded by fencing tokens.

A few clients compete for each lease. An acquire succeeds with the next token if the lease has expired. The former owner
learns of its loss when an operation with its stale token is rejected. A client that continues as a new process has no
token.
"""

import random
from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.model import Model, Scene, Step, Turn

RIVALS: Final = 2
"""Number of clients that compete for a lease, if there are so many."""
HELD_SHARE: Final = 0.3
"""Share of acquires that are rejected because another client has the lease."""


class LeaseModel(Model):
    model = "lease"

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._tokens: dict[tuple[int, int], int] = {}
        """By process and lease, the token."""

    def step(self, turn: Turn) -> Step:
        # Each client uses the lease with its own number, and some leases after it.
        leases_per_client = min(self.plan.keys, max(1, -(-RIVALS * self.plan.keys // self.plan.clients)))
        key = (turn.client + self.rng.randrange(leases_per_client)) % self.plan.keys
        holder, owner = (turn.process, key), f"client-{self.client(turn)}"
        f = self.rng.choices(("acquire", "renew", "guarded", "release"), (8, 15, 72, 5))[0]
        if f == "acquire" or holder not in self._tokens:
            if turn.ok and self.rng.random() < HELD_SHARE:
                return self._make_step("acquire", key, None, owner, error="held")
            token = self.encode_count(key, 1)
            self.increase_counter(key, turn.takes_effect)
            if turn.ok:
                self._tokens[holder] = token
            return self._make_step("acquire", key, turn.known(token), owner)
        token = self._tokens[holder]
        stale = turn.ok and token < self.encode_count(key)
        if stale or (f == "release" and turn.ok):
            del self._tokens[holder]
        return self._make_step(f, key, token, owner, error="stale-epoch" if stale else None)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene with the anomaly. Its first token is the next one of the lease."""
        name, old, new = self.name(key), self.encode_count(key, 1), self.encode_count(key, 2)
        turns: tuple[tuple[str, int | None, str], ...]
        value: int | None
        if anomaly == "fencing-violation":
            # A guarded operation with a token is accepted after a newer token was granted.
            turns = (("acquire", old, "a"), ("guarded", old, "a"), ("acquire", new, "b"), ("guarded", old, "a"))
            value, increments = new, 2
        elif self.rng.random() < 0.5:
            # Two owners hold a lease without tokens at the same time.
            turns = (("acquire", None, "a"), ("acquire", None, "b"), ("renew", None, "a"), ("renew", None, "b"))
            name, value, increments = f"{name}-lock", None, 0
        else:
            turns, value, increments = (("acquire", old, "a"), ("acquire", old, "b")), old, 1
        steps = tuple(
            build_lease_step(
                f, name, token, f"scene-{owner}", begin=2 * turn, process=ord(owner) - ord("a"), assignment=1
            )
            for turn, (f, token, owner) in enumerate(turns)
        )
        return Scene(key=name, steps=steps, value=value, increments={self.layout.object_counter(key): increments})

    def _make_step(self, f: str, key: int, token: int | None, owner: str, error: str | None = None) -> Step:
        return build_lease_step(f, self.name(key), token, owner, error)


def build_lease_step(
    f: str,
    lease: str,
    token: int | None,
    owner: str,
    error: str | None = None,
    begin: int = 0,
    process: int | None = None,
    assignment: int | None = None,
) -> Step:
    """Returns an operation on a lease. If it is rejected as stale, it also has an effect ``lost`` with outcome ok."""
    hold = token or assignment
    effects = [Effect(f, lease, token=token, owner=owner, assignment=hold)]
    if error == "stale-epoch":
        effects.append(Effect("lost", lease, token=token, owner=owner, assignment=hold, outcome=Outcome.OK))
    return Step(
        f, lease, tuple(effects), None if f == "acquire" else token, error=error, begin=begin, end=begin + 1,
        process=process,
    )  # fmt: skip
