"""Counters, id generators, max registers, and pairs of counters that only grow.

The whole state of such an object is in numbers that a tile calls counters, too (``tiles``). ``model`` explains steps,
turns and scenes.
"""

from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.model import Model, Scene, Step, Turn

DOWN: Final = 6
UP: Final = 2
"""How far below and above the largest value the values for a max register are drawn."""


class CounterModel(Model):
    """Reads, and fetch-and-add(1), which returns the count before the add."""

    model = "counter"

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        count = self.encode_count(key)
        # The scene ``counter-phantom`` plants a count that no add explains. An add of unknown outcome would explain it,
        # so a scene's key has no such add.
        if self.rng.random() < 0.4 or (turn.outcome is Outcome.INFO and key in self.scene_keys):
            return Step("read", self.name(key), seen=(self._effect("read", key, count),), result=count)
        self.increase_counter(key, turn.takes_effect)
        return Step("add", self.name(key), (self._effect("add", key, turn.known(count)),), result=count)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        def step(f: str, more: int, begin: int, end: int) -> Step:
            value = self.encode_count(key, more)
            return Step(f, self.name(key), (self._effect(f, key, value),), result=value, begin=begin, end=end)

        steps, increments, value = {
            "counter-duplicate": ((step("add", 0, 0, 2), step("add", 0, 1, 3)), 1, 0),
            # A read of ``count + 1`` belongs between the adds that returned ``count`` and ``count + 1``.
            "counter-order": ((step("add", 0, 0, 1), step("add", 1, 2, 3), step("read", 1, 4, 5)), 2, 1),
            "counter-phantom": ((step("add", 1, 0, 1),), 2, 1),
        }[anomaly]
        return Scene(
            key=self.name(key),
            steps=steps,
            value=self.encode_count(key, value),
            increments={self.layout.object_counter(key): increments},
        )

    def _effect(self, f: str, key: int, value: int | None) -> Effect:
        return Effect(f"counter-{f}", self.name(key), value=value)


class IdModel(Model):
    """Ids that are generated, each once."""

    model = "unique-ids"

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        step = self._generate(key, self.encode_count(key), turn.ok)
        self.increase_counter(key, turn.takes_effect)
        return step

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene whose two operations both get the next id."""
        value = self.encode_count(key)
        steps = tuple(self._generate(key, value, True, begin) for begin in (0, 2))
        return Scene(key=self.name(key), steps=steps, value=value, increments={self.layout.object_counter(key): 1})

    def _generate(self, key: int, value: int, known: bool, begin: int = 0) -> Step:
        effect = Effect("id-generate", self.name(key), value=value if known else None)
        return Step("generate", self.name(key), (effect,), result=value, begin=begin, end=begin + 1)


class MaxRegisterModel(Model):
    """Writes, and reads of the largest value written so far.

    Many writes are below the maximum, and some values are written more than once.
    """

    model = "max-register"

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        largest = self.get_increase_in_tile(key)
        if self.rng.random() < 0.5:
            return self._read(key, self.encode_current(key))
        # A scene writes values above the maximum, which no other operation may have written. So a write without effect
        # stays at the maximum or below it.
        more = self.rng.randint(max(-DOWN, 1 - largest), UP) if turn.takes_effect else -min(largest, DOWN)
        value = self.encode_count(key, more)
        self.increase_counter(key, max(0, more))
        return self._write(key, value)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene after which the register holds the scene's second value."""
        first, second = self.encode_count(key, 1), self.encode_count(key, 2)
        steps = {
            "max-phantom": (self._read(key, first), self._write(key, second, 2)),
            "max-order": (self._write(key, first), self._write(key, second, 2), self._read(key, first, 4)),
        }[anomaly]
        return Scene(key=self.name(key), steps=steps, value=first, increments={self.layout.object_counter(key): 2})

    def _write(self, key: int, value: int, begin: int = 0) -> Step:
        effect = Effect("max-write", self.name(key), value=value)
        return Step("write", self.name(key), (effect,), argument=value, begin=begin, end=begin + 1)

    def _read(self, key: int, value: int, begin: int = 0) -> Step:
        effect = Effect("max-read", self.name(key), value=value)
        return Step("read", self.name(key), seen=(effect,), result=value, begin=begin, end=begin + 1)


class MonotonicModel(Model):
    """Adds to one counter of a pair, and reads of both counters. An add returns the counter's new value."""

    model = "monotonic"
    initial_counts = (0, 0)

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        if self.rng.random() < 0.5:
            return self._read(key, 0, 0)
        which = self.rng.randrange(2)
        value = self.encode_count(key, 1, which)
        self.increase_counter(key, turn.takes_effect, which)
        return self._add(key, which, value, turn.ok)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene that adds 1 to both counters."""
        x, y = range(2)

        def add(which: int, begin: int, end: int) -> Step:
            return self._add(key, which, self.encode_count(key, 1, which), True, begin, end, process=which)

        steps, which = {
            "nonmonotonic-read": ((add(x, 0, 1), add(y, 2, 3), self._read(key, 0, 1, 4, process=0)), x),
            "monotonic-cycle": (
                (add(x, 0, 6), add(y, 1, 7), self._read(key, 1, 0, 2, process=2), self._read(key, 0, 1, 4, process=3)),
                y,
            ),
        }[anomaly]
        return Scene(
            key=self._part(key, which),
            steps=steps,
            value=self.encode_count(key, 1, which),
            increments={self.layout.object_counter(key, x): 1, self.layout.object_counter(key, y): 1},
        )

    def _part(self, key: int, which: int) -> str:
        return f"{self.name(key)}-{'xy'[which]}"

    def _add(
        self, key: int, which: int, value: int, known: bool, begin: int = 0, end: int = 1, process: int | None = None
    ) -> Step:
        effect = Effect("monotonic-add", self._part(key, which), value=value if known else None)
        return Step(
            "add", self.name(key), (effect,), argument="xy"[which], result=value, begin=begin, end=end, process=process
        )

    def _read(self, key: int, x: int, y: int, begin: int = 0, process: int | None = None) -> Step:
        """Returns a read of both counters. It shows their current values plus ``x`` and ``y``."""
        seen = {"x": self.encode_count(key, x, 0), "y": self.encode_count(key, y, 1)}
        effects = tuple(
            Effect("monotonic-read", f"{self.name(key)}-{part}", value=value) for part, value in seen.items()
        )
        return Step("read", self.name(key), seen=effects, result=seen, begin=begin, end=begin + 1, process=process)
