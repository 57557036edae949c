"""Registers with compare-and-set (CAS), and committed offsets of groups, which are registers, too.

The n-th write to a register that takes effect writes n. CAS operations form chains that start at the initial value or
at a write. A CAS expects the current value. To fail, it expects the previous one. Half of the failed CAS operations
return the current value, which is recorded as a read.

A history is made of copies of short tiles, and counters go on from tile to tile (``model``).
"""

import random
from dataclasses import replace
from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.model import Model, Scene, Step, Turn

CAS_FAILS: Final = 0.3
"""Probability that a CAS fails."""
CAS_SHOWS: Final = 0.5
"""Probability that a failed CAS returns the current value."""

OFFSETS: Final = 1000
"""Number of different offsets that rewinding groups commit."""
MOST_READ: Final = 5
"""Maximum distance between two consecutive commits of a reader."""
SCENE_ADVANCE: Final = MOST_READ + 2
"""Distance by which a scene advances, so that even its lower offset is above every earlier commit.

Otherwise a late commit of unknown outcome could explain the lower offset.
"""
READER, POSITION = 1, 2
"""Counters besides the number of commits: the offset of ``reader-n``, and the last committed offset of ``group-n``."""


class RegisterModel(Model):
    model = "register"

    def step(self, turn: Turn) -> Step:
        key, f = self.draw_key(), self.rng.choices(("read", "write", "cas"), (2, 1, 1))[0]
        if f == "read":
            return self.read(key, self.encode_current(key))
        rejected = f == "cas" and turn.ok and self.rng.random() < CAS_FAILS
        current = self.encode_current(key)
        former = self.encode_count(key, -1) if self.get_increase_in_tile(key) > 1 else turn.get_unique_value(rank=1)
        takes_effect = turn.takes_effect and not rejected
        value = self.encode_count(key, 1) if takes_effect else turn.get_unique_value()
        self.increase_counter(key, takes_effect)
        if f == "write":
            return self.write(key, value)
        if not rejected:
            return self.cas(key, current, value)
        shows = self.rng.random() < CAS_SHOWS
        swap = Effect("register-cas", self.name(key), value=value, expected=former)
        shown = Effect("register-read", self.name(key), value=current, outcome=Outcome.OK)
        return Step(
            "cas", self.name(key), (swap, shown) if shows else (swap,), [former, value], current if shows else None,
            error="mismatch",
        )  # fmt: skip

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene whose first and last writes are plain, so that no chain of CAS operations leads into the
        scene or out of it."""
        a, b, c, d = (self.encode_count(key, number) for number in (1, 2, 3, 4))
        first = self.write(key, a, 0)
        scenes: dict[str, tuple[int, tuple[Step, ...]]] = {
            "missing-writer": (b, (first, self.read(key, b, 2), self.write(key, d, 4))),
            "future-read": (d, (first, self.read(key, d, 2), self.write(key, d, 4))),
            "stale-read": (a, (first, self.write(key, d, 2), self.read(key, a, 4))),
        }
        if anomaly == "lost-update":
            scenes[anomaly] = a, (first, self.cas(key, a, b, 2, 4), self.cas(key, a, c, 3, 5), self.write(key, d, 6))
        value, steps = scenes[anomaly]
        return Scene(key=self.name(key), steps=steps, value=value, increments={self.layout.object_counter(key): 4})

    def write(self, key: int, value: int, begin: int = 0) -> Step:
        return _build_step("write", Effect("register-write", self.name(key), value=value), value, begin, writes=True)

    def read(self, key: int, value: int, begin: int = 0) -> Step:
        return _build_step("read", Effect("register-read", self.name(key), value=value), value, begin, writes=False)

    def cas(self, key: int, expected: int, value: int, begin: int = 0, end: int = 1) -> Step:
        effect = Effect("register-cas", self.name(key), value=value, expected=expected)
        return Step("cas", self.name(key), (effect,), argument=[expected, value], begin=begin, end=end)


class OffsetsModel(RegisterModel):
    """Committed offsets. Each group commits in one partition, and key n has two groups.

    - ``group-n`` rewinds. Its committed offset is a register.
    - ``reader-n`` only moves forward, so its offset never decreases.
    """

    model = "offsets"
    initial_counts = (0, 0, -1)

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._offsets: dict[int, int] = {}
        """By the value of a commit, its offset."""

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        f = self.rng.choices(("commit", "fetch", "advance", "resume"), (25, 30, 30, 15))[0]
        if f == "commit":
            value = self.encode_count(key, 1) if turn.takes_effect else turn.get_unique_value()
            self.increase_counter(key, turn.takes_effect)
            if turn.takes_effect:
                self.counters_afterwards[self.layout.object_counter(key, POSITION)] = self._offset(key, value)
            return self.write(key, value)
        if f == "fetch":
            return self.read(key, self.encode_current(key))
        step = self.rng.randint(1, MOST_READ) if f == "advance" else 0
        offset = self.encode_count(key, step, READER)
        self.increase_counter(key, step * turn.takes_effect, READER)
        return self._read_on(f, key, offset)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        if anomaly != "offset-regression":
            last = {self.layout.object_counter(key, POSITION): self._offset(key, self.encode_count(key, 4))}
            return replace(super().make_scene(anomaly, key), counters_afterwards=last)
        offset = self.encode_count(key, SCENE_ADVANCE, READER)
        steps = (self._read_on("advance", key, offset), self._read_on("resume", key, offset - 1, 2))
        return Scene(
            key=steps[0].key,
            steps=steps,
            position=offset,
            increments={self.layout.object_counter(key, READER): SCENE_ADVANCE},
        )

    def name(self, key: int) -> str:
        return f"group-{self.number(key)}/orders-{self.number(key)}"

    def write(self, key: int, value: int, begin: int = 0) -> Step:
        return self._commit("commit", key, value, begin)

    def read(self, key: int, value: int, begin: int = 0) -> Step:
        return self._commit("fetch", key, value, begin)

    def _commit(self, f: str, key: int, value: int, begin: int) -> Step:
        effect = Effect(
            "commit" if f == "commit" else "fetched", self.name(key), position=self._offset(key, value), value=value,
            group=f"group-{self.number(key)}",
        )  # fmt: skip
        return _build_step(f, effect, value, begin, writes=f == "commit")

    def _read_on(self, f: str, key: int, offset: int, begin: int = 0) -> Step:
        group = f"reader-{self.number(key)}"
        effect = Effect(f, f"{group}/orders-{self.number(key)}", position=offset, group=group)
        return _build_step(f, effect, offset, begin, writes=f == "advance")

    def _offset(self, key: int, value: int) -> int:
        """Returns the offset of a commit. The counter ``POSITION`` has that of the last commit before this tile."""
        if self.get_increase_in_tile(key) == 0 and value == self.encode_current(key):
            return self.encode_count(key, which=POSITION)
        return self._offsets.setdefault(value, self.rng.randrange(OFFSETS))


def _build_step(f: str, effect: Effect, value: int, begin: int, *, writes: bool) -> Step:
    if writes:
        return Step(f, effect.key, (effect,), argument=value, begin=begin, end=begin + 1)
    return Step(f, effect.key, seen=(effect,), result=value, begin=begin, end=begin + 1)
