"""Times, processes and outcomes of a synthetic run, chunk by chunk.

1. Operation i takes effect at slot i, so the order of the slots is a legal order of the operations.
2. Operation i belongs to client i % clients. After an info the client continues as a new process.
3. The call precedes the slot and the return follows it, by random times that the client's other operations allow.
4. Within a slot each client has its own stamps for calls and returns, so no two stamps are equal.
5. Timeouts come in bursts: windows in which most operations of all clients time out, as when a fault cuts the
   network. After each burst the leaders change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.harness.synthetic.plan import CLUSTER, Plan
from assay.harness.synthetic.segments import Flags, Ints, Number

OK, INFO, FAIL = range(3)
OUTCOMES: Final = ("ok", "info", "fail")

CHUNK: Final = 100_000
"""Operations made at a time; they determine the memory that is needed."""
BLOCK: Final = 50_000
"""Operations made at a time after the main phase."""
FATAL: Final = 0.8
"""Share of the operations of a burst that time out, unless the share of the whole history is higher."""
FAILS: Final = 0.2
"""Definite failures for each timeout."""

SCENE_SLOTS: Final = 64
"""Slots reserved for each planted scene, one per tick."""

EVENTS: Final = 4
"""Lines reserved for each slot in each node's event log."""

SCENE_PROCESS: Final = 2_000_000_000
SENTINEL_PROCESS: Final = 2_100_000_000
DRAIN_PROCESS: Final = 2_100_000_001
OPENING_PROCESS: Final = 2_100_000_002


@dataclass(frozen=True)
class OperationArrays:
    """The operations of a chunk, as arrays. ``ret`` is meaningless for info; ``epoch`` rises after each burst."""

    index: Ints
    client: Ints
    process: Ints
    outcome: NDArray[np.int8]
    epoch: Ints
    call: Ints
    ret: Ints

    @property
    def ok(self) -> Flags:
        return np.asarray(self.outcome == OK)


@dataclass(frozen=True)
class KeyOperations:
    """Operations in the order of their keys: ``number`` counts all, ``rank`` those of the same key."""

    number: Ints
    key: Ints
    rank: Ints


def iterate_operations_by_key(count: Ints, size: int | None = None) -> Iterator[KeyOperations]:
    """Yields ``count`` (at least 1) operations for each key, key by key, ``size`` or ``BLOCK`` at a time."""
    size = size or BLOCK
    ends = np.cumsum(count)
    total = int(ends[-1])
    for begin in range(0, total, size):
        number = np.arange(begin, min(begin + size, total), dtype=np.int64)
        key = np.searchsorted(ends, number, side="right")
        yield KeyOperations(number, key, number - (ends - count)[key])


class Timeline:
    """The slots of a plan. ``scenes``: the first slot of each planted scene."""

    def __init__(
        self, plan: Plan, rng: np.random.Generator, *, lasts: int = 0, quiet: Sequence[bool] | None = None
    ) -> None:
        """``lasts``: minimum nanoseconds of a scene. ``quiet``: per scene, whether no timeout may surround it."""
        self._plan = plan
        self._rng = rng
        self.width = max(20_000, 4 * plan.clients + 1000, -(-lasts // SCENE_SLOTS))
        """Nanoseconds per slot."""
        self.scenes = self._scenes()
        self._quiet = [scene for scene, wanted in zip(self.scenes, quiet or (), strict=False) if wanted]
        bursts = max(1, plan.operations // CLUSTER) if plan.bursts is None else plan.bursts
        self._bursts, self._length = self._windows(bursts if plan.info_share else 0)

    def chunks(self, bulk: int = 1) -> Iterator[OperationArrays]:
        """Yields the chunks in order, with the slots of scenes. ``bulk``: divisor of the chunk size."""
        size = max(1, CHUNK // bulk // self._plan.clients) * self._plan.clients
        infos = np.zeros(self._plan.clients, dtype=np.int64)
        for begin in range(0, self._plan.operations, size):
            chunk, infos = self._chunk(begin, min(begin + size, self._plan.operations), infos)
            yield chunk

    def opening(self, slot: Number) -> Number:
        """Returns a stamp in the middle of each slot, which no ordinary operation has."""
        return (slot + self._plan.clients) * self.width + self.width // 2

    def alone(self, index: Ints, process: int) -> OperationArrays:
        """Returns successful operations of one process after the main phase, one per slot."""
        begin, none = (index + 2 * self._plan.clients) * self.width, np.zeros_like(index)
        outcome = np.full(len(index), OK, np.int8)
        return OperationArrays(index, none, np.full_like(index, process), outcome, none, begin, begin + self.width // 2)

    def before(self, number: Ints, process: int) -> OperationArrays:
        """Returns up to some thousand successful operations of one process before the main phase.

        Their indexes follow all others. They fit because no operation of the main phase is called in the first
        ``width`` nanoseconds.
        """
        none, index = np.zeros_like(number), self._plan.operations + number
        outcome = np.full(len(number), OK, np.int8)
        return OperationArrays(index, none, np.full_like(index, process), outcome, none, 2 * number, 2 * number + 1)

    def _scenes(self) -> tuple[int, ...]:
        """Draws a first slot for each scene, one in each part of the middle half of the run."""
        count, low = len(self._plan.plant), self._plan.operations // 4
        step = self._plan.operations // 2 // max(1, count)
        return tuple(
            low + number * step + int(self._rng.integers(0, step - SCENE_SLOTS + 1)) for number in range(count)
        )

    def _windows(self, bursts: int) -> tuple[Ints, int]:
        """Draws the first slot of each burst, one in each part of the run. Also returns the slots per burst."""
        if not bursts:
            return np.zeros(0, dtype=np.int64), 0
        operations = self._plan.operations
        share = max(FATAL, self._plan.info_share)
        part = operations // bursts
        length = min(part, max(1, round(operations * self._plan.info_share / share / bursts)))
        return np.arange(bursts) * part + self._rng.integers(0, part - length + 1, bursts), length

    def _chunk(self, begin: int, end: int, infos: Ints) -> tuple[OperationArrays, Ints]:
        clients, rng = self._plan.clients, self._rng
        index = np.arange(begin, end, dtype=np.int64)
        client = index % clients
        burst = np.searchsorted(self._bursts, index, side="right") - 1
        outcome, over = self._outcomes(index, burst)
        timed_out = np.zeros((-(-len(index) // clients), clients), dtype=np.int64)
        timed_out.reshape(-1)[: len(index)] = outcome == INFO
        so_far = np.cumsum(timed_out, axis=0) - timed_out + infos
        early = rng.integers(0, (clients - 1) // 2 + 1, len(index))
        late = rng.integers(0, clients - 1 - (clients - 1) // 2 + 1, len(index))
        slots = OperationArrays(
            index=index,
            client=client,
            process=client + clients * so_far.reshape(-1)[: len(index)],
            outcome=outcome,
            epoch=1 + burst + over,
            call=(index + clients - early) * self.width + client,
            ret=(index + clients + late) * self.width + clients + 1 + client,
        )
        return slots, infos + timed_out.sum(axis=0)

    def _outcomes(self, index: Ints, burst: Ints) -> tuple[NDArray[np.int8], Ints]:
        """Returns the outcomes, and 1 for each operation after the end of the burst before it, else 0."""
        share = self._plan.info_share
        if len(self._bursts):
            inside = (burst >= 0) & (index - self._bursts[burst] < self._length)
            within = max(FATAL, share)
        else:
            inside, within = np.ones(len(index), dtype=np.bool_), share
        draw = self._rng.random(len(index))
        failed = draw > 1 - min(FAILS * within, 1 - within)
        outcome = np.where(inside & (draw < within), INFO, np.where(inside & failed, FAIL, OK)).astype(np.int8)
        reach = 3 * self._plan.clients + SCENE_SLOTS  # beyond each client's last operation before, and first after
        for scene in self._quiet:
            outcome[(index >= scene - reach) & (index < scene + SCENE_SLOTS + reach)] = OK
        return outcome, ((burst >= 0) & ~inside).astype(np.int64)
