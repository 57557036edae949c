"""FIFO queues, and sets whose reads return all elements.

A scene has the few operations that plant an anomaly, on a key of its own. They leave the object as it was, or move the
key on to a new object (``increments`` of the counter in the object's name). ``model`` explains turns and steps.
"""

import random
from collections import deque
from collections.abc import Iterator
from typing import Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.model import Model, Scene, Step, Turn, get_scene_value

OPERATIONS_PER_SET: Final = 50
"""Number of operations on one set. Then a new set replaces it, so that reads stay short."""


class QueueModel(Model):
    """Enqueue and dequeue. A dequeue from an empty queue fails.

    Half of the dequeues of unknown outcome took an element. Each section of the history (tile) but the last leaves its
    queues empty.
    """

    model = "queue"
    has_final_operation = True

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._queues: dict[int, deque[int]] = {}
        """Queues that are not empty."""
        self._waiting = 0
        """Number of elements in all queues."""

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        # A dequeue of unknown outcome could explain the loss of an element, so a scene's key has no such dequeue.
        enqueues = self.rng.random() < 0.48 or (turn.outcome is Outcome.INFO and key in self.scene_keys)
        if enqueues:
            if turn.takes_effect:
                self._queues.setdefault(key, deque()).append(turn.get_unique_value())
                self._waiting += 1
            return self._enqueue(key, turn.get_unique_value())
        if turn.takes_effect and key in self._queues:
            return self._dequeue(key, self._take(key), known=turn.ok)
        return self._dequeue(key, None, error="empty" if turn.ok else None)

    def step_to_initial_state(self, turn: Turn) -> Step | None:
        if turn.remaining > self._waiting + 1:
            return None
        if not self._queues:
            return self._dequeue(0, None, error="empty")
        key = next(iter(self._queues))
        return self._dequeue(key, self._take(key))

    def drain(self) -> Iterator[Step]:
        while self._queues:
            key = next(iter(self._queues))
            yield self._dequeue(key, self._take(key))

    def finish_key(self, key: int) -> Step:
        return Step("drained", self.name(key), (Effect("queue-drained", self.name(key)),))

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene whose element never enters the queue, so that the queue's content does not change."""
        value = get_scene_value()
        steps = {
            "queue-lost": (self._enqueue(key, value),),
            "queue-duplicate": (
                self._enqueue(key, value), self._dequeue(key, value, begin=2), self._dequeue(key, value, begin=4),
            ),
            "queue-phantom": (self._dequeue(key, value),),
        }[anomaly]  # fmt: skip
        return Scene(key=self.name(key), steps=steps, value=value)

    def _take(self, key: int) -> int:
        value = self._queues[key].popleft()
        self._waiting -= 1
        if not self._queues[key]:
            del self._queues[key]
        return value

    def _enqueue(self, key: int, value: int) -> Step:
        return Step("enqueue", self.name(key), (Effect("queue-enqueue", self.name(key), value=value),), argument=value)

    def _dequeue(
        self, key: int, value: int | None, *, known: bool = True, error: str | None = None, begin: int = 0
    ) -> Step:
        effect = Effect("queue-dequeue", self.name(key), value=value if known else None)
        return Step("dequeue", self.name(key), (effect,), result=value, error=error, begin=begin, end=begin + 1)


class SetModel(Model):
    """Adds, and reads of all elements. Each key has several sets, one after the other."""

    model = "set"

    def begin(self, rng: random.Random) -> None:
        super().begin(rng)
        self._sets: dict[int, list[int]] = {}
        self._uses: dict[int, int] = {}

    def step(self, turn: Turn) -> Step:
        key = self.draw_key()
        if self._uses.get(key) == OPERATIONS_PER_SET:
            self._replace(key)
        elements = self._sets.setdefault(key, [])
        self._uses[key] = self._uses.get(key, 0) + 1
        if self.rng.random() < 0.1:
            return self._read(key, elements)
        if turn.takes_effect:
            elements.append(turn.get_unique_value())
        return self._add(key, turn.get_unique_value())

    def end(self) -> None:
        for key in tuple(self._sets):
            self._replace(key)

    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns a scene in a new set, to which an element is added before the anomaly."""
        before, own = get_scene_value(), get_scene_value(1)
        both, first = [before, own], self._add(key, before)
        steps = {
            "set-lost": (first, self._add(key, own, 2), self._read(key, [before], 4)),
            "set-stale": (first, self._add(key, own, 2), self._read(key, [before], 4), self._read(key, both, 6)),
            "set-vanished": (first, self._add(key, own, 2), self._read(key, both, 4), self._read(key, [before], 6)),
            "set-phantom": (first, self._read(key, both, 2)),
        }[anomaly]
        next_set = {self.layout.object_counter(key): 1}
        return Scene(key=self.name(key), steps=steps, value=own, increments=next_set)

    def name(self, key: int) -> str:
        return f"set-{self.number(key)}-{self.encode_count(key)}"

    def _replace(self, key: int) -> None:
        del self._sets[key], self._uses[key]
        self.increase_counter(key)

    def _add(self, key: int, value: int, begin: int = 0) -> Step:
        effect = Effect("set-add", self.name(key), value=value)
        return Step("add", self.name(key), (effect,), argument=value, begin=begin, end=begin + 1)

    def _read(self, key: int, values: list[int], begin: int = 0) -> Step:
        # A read without elements has one effect, without a value.
        effects = tuple(Effect("set-read", self.name(key), value=value) for value in values or (None,))
        return Step("read", self.name(key), seen=effects, result=list(values), begin=begin, end=begin + 1)
