"""Base class of the sequential models, and the types they use.

- A *step* is an operation with its effects.
- A *turn* is the client, the outcome and the effectiveness that were drawn for the next operation.
- A *scene* has the steps of one planted anomaly.

A model plays one object per key, one operation after the other, in plain Python.

A history consists of copies of short pieces, called tiles (``tiles``). The model plays each tile once. When a tile
begins, all its objects are in their initial state. At the end of the tile an object must be in its initial state again,
except for its counters. Numbers in a tile are *relative*: each is a distance from the value of a counter, so it differs
from copy to copy.
"""

import abc
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from assay.harness.core.operation import Effect, Outcome
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.tiles import UNIQUE, Layout, relative

SCENE_SLOTS: Final = 64
"""Number of slots of each scene. A tick of a scene is one slot."""


@dataclass(frozen=True)
class Step:
    """An operation with its effects.

    In a scene it lasts from tick ``begin`` to tick ``end``. If ``end`` is None, it times out.
    """

    f: str
    key: str | None
    effects: tuple[Effect, ...] = ()
    argument: Any = None
    result: Any = None
    """Recorded only if the operation is ok, or if the object rejects it with an ``error``."""
    seen: tuple[Effect, ...] = ()
    """Further effects, recorded only if the operation is ok."""
    error: str | None = None
    """Error with which the object rejects the operation."""
    outcome: Outcome | None = None
    """The outcome, if it differs from the drawn one."""
    begin: int = 0
    end: int | None = 1
    process: int | None = None
    """The number of the process within the scene. None: a process with no other step."""


@dataclass(frozen=True)
class Event:
    """A line of a node's event log, written at tick ``begin`` of a scene, or during an operation of a tile."""

    event: str
    begin: int
    node: str
    order: int = 0
    """Order of the events of one tick."""
    key: str | None = None
    epoch: int | None = None
    controller_epoch: int | None = None
    position: int | None = None
    incarnation: int = 1


@dataclass(frozen=True)
class Turn:
    """The client and the outcome that were drawn for the next operation of a tile, and whether it takes effect."""

    number: int
    remaining: int
    """Number of remaining operations of the tile, including this one."""
    client: int
    process: int
    outcome: Outcome
    takes_effect: bool
    """Whether a write takes effect: true for ok, and for half of the timeouts."""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def get_unique_value(self, rank: int = 0) -> int:
        """Returns a number that only this operation has, each time the same. ``rank`` chooses one of four."""
        return relative(UNIQUE, 4 * self.number + rank)

    def known(self, number: int | None) -> int | None:
        """Returns a number that the client learns from the answer; None if there is no answer."""
        return number if self.ok else None


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The steps of a planted anomaly, and the key, offset and value that its finding must name."""

    key: str | None
    """The key that the finding names."""
    steps: tuple[Step, ...]
    position: int | None = None
    value: int | None = None
    events: tuple[Event, ...] = ()
    increments: Mapping[int, int] = field(default_factory=dict)
    """By counter: its increase in the scene."""
    counters_afterwards: Mapping[int, int] = field(default_factory=dict)
    """By counter: its value after the scene, as a relative number."""
    drain: tuple[Step, ...] = ()
    diverges: bool = False
    """Whether one replica has another record at ``position``."""
    min_duration: int = 0
    """Nanoseconds that the scene must last; 0: any time. Shortly before and after a scene that needs time, no operation
    times out.
    """

    @property
    def clients(self) -> int:
        """The largest number of operations that are in progress at once."""
        return max(
            sum(step.begin <= tick < (step.begin + 1 if step.end is None else step.end) for step in self.steps)
            for tick in range(SCENE_SLOTS)
        )


class Model(abc.ABC):
    """Plays objects of one kind. ``scene_keys``: the keys in which anomalies are planted."""

    model: ClassVar[str]
    """Name in the catalogue."""
    initial_counts: ClassVar[tuple[int, ...]] = (0,)
    """First value of each counter of a key."""
    key_spacing: int = 1
    """Scenes use only keys whose numbers are multiples of this."""
    has_opening: ClassVar[bool] = False
    """Whether each key has an operation before the main phase (``open_key``)."""
    has_sentinel: ClassVar[bool] = False
    """Whether each key has a last write after the main phase (``write_sentinel``)."""
    has_final_operation: ClassVar[bool] = False
    """Whether each key has an operation after the drain (``finish_key``)."""
    has_replicas: ClassVar[bool] = False
    """Whether the history has replicas on disks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layout = Layout(plan.clients, plan.keys)
        self.scene_keys: frozenset[int] = frozenset()
        self.begin(random.Random(0))

    def begin(self, rng: random.Random) -> None:
        """Begins a tile."""
        self.rng = rng
        self.counts: dict[int, int] = defaultdict(int)
        """By counter, its increase in this tile so far."""
        self.counters_afterwards: dict[int, int] = {}
        """By counter, a number that replaces it after this tile."""
        self.events: list[Event] = []

    @abc.abstractmethod
    def step(self, turn: Turn) -> Step:
        """Plays an operation."""

    @abc.abstractmethod
    def make_scene(self, anomaly: str, key: int) -> Scene:
        """Returns the scene of an anomaly. The key's object is in its initial state."""

    def step_to_initial_state(self, turn: Turn) -> Step | None:
        """Returns the next operation on the way back to the initial state, or None if it is too early for that.

        The way back begins when the tile has only as many operations left as it needs. The operation's outcome will be
        ok.
        """
        return None

    def end(self) -> None:
        """Ends a tile."""
        return

    def drain(self) -> Iterator[Step]:
        """Yields operations after the main phase that read what this tile has left in the objects."""
        return iter(())

    def open_key(self, key: int) -> Step:
        raise NotImplementedError

    def write_sentinel(self, key: int) -> Step:
        raise NotImplementedError

    def finish_key(self, key: int) -> Step:
        raise NotImplementedError

    def draw_key(self) -> int:
        return self.rng.randrange(self.plan.keys)

    def name(self, key: int) -> str:
        return f"{self.model}-{self.number(key)}"

    def number(self, key: int) -> int:
        """Returns the number of a key, relative, because it differs between copies."""
        return relative(self.layout.key_counter(key))

    def encode_count(self, key: int, more: int = 0, which: int = 0) -> int:
        """Returns a counter's current value plus ``more``, as a relative number."""
        counter = self.layout.object_counter(key, which)
        return relative(counter, self.counts[counter] + more)

    def encode_current(self, key: int, which: int = 0) -> int:
        """Returns a counter's current value as a relative number, which is null as long as the counter is 0."""
        increase = self.get_increase_in_tile(key, which)
        return relative(self.layout.object_counter(key, which), increase, optional=not increase)

    def get_increase_in_tile(self, key: int, which: int = 0) -> int:
        """Returns a counter's increase since the tile began."""
        return self.counts[self.layout.object_counter(key, which)]

    def increase_counter(self, key: int, amount: int = 1, which: int = 0) -> None:
        """Increases a counter."""
        self.counts[self.layout.object_counter(key, which)] += amount

    def client(self, turn: Turn) -> int:
        """Returns the number of the turn's client, relative, because it differs between copies."""
        return relative(self.layout.client_counter(turn.client))


def get_scene_value(number: int = 0) -> int:
    """Returns a value that only this scene has."""
    return relative(UNIQUE, number)
