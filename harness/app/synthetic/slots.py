"""Times, processes and outcomes of a synthetic run, chunk by chunk.

Operation i takes effect at slot i, so what happened is decided by going through the slots in order; around its slot it
stretches at random, as far as the same client's neighbours allow. Calls and returns have places of their own in each
slot, by client, so that no two stamps are equal. Operation i belongs to client i % clients; after an info the client
goes on as a new process. Timeouts come in clusters: some blocks of slots are bad, and after each the leaders change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.app.synthetic.plan import Plan
from harness.app.synthetic.segments import Flags, Ints

OK: Final = 0
INFO: Final = 1
FAIL: Final = 2
OUTCOMES: Final = ("ok", "info", "fail")

CHUNK: Final = 200_000
BLOCK: Final = 500
"""Slots that are good or bad together."""
FAILS: Final = 0.2
"""Definite failures for each timeout."""

SCENE_SLOTS: Final = 64
"""Slots that a planted scene has for itself, one for each of its ticks."""

SCENE_PROCESS: Final = 2_000_000_000
SENTINEL_PROCESS: Final = 2_100_000_000
DRAIN_PROCESS: Final = 2_100_000_001


@dataclass(frozen=True)
class Slots:
    """Arrays of one chunk; ``ret`` counts for ok and fail only. ``epoch`` rises after each bad block."""

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


class Schedule:
    """The slots of a plan. ``scene``: the first of those that a planted scene has for itself, or None."""

    def __init__(self, plan: Plan, rng: np.random.Generator) -> None:
        self._plan = plan
        self._rng = rng
        self.width = max(20_000, 4 * plan.clients + 1000)
        """Nanoseconds per slot."""
        self.scene: int | None = None
        if plan.plant is not None:
            low, high = plan.operations // 4, 3 * plan.operations // 4
            self.scene = int(rng.integers(low, high - SCENE_SLOTS))

    def chunks(self) -> Iterator[Slots]:
        """In order; the slots of the scene are in them, too."""
        size = max(1, CHUNK // self._plan.clients) * self._plan.clients
        infos, epoch = np.zeros(self._plan.clients, dtype=np.int64), 1
        for begin in range(0, self._plan.operations, size):
            chunk, infos, epoch = self._chunk(begin, min(begin + size, self._plan.operations), infos, epoch)
            yield chunk

    def opening(self, slot: int) -> int:
        """A stamp in the middle of a slot, that no ordinary operation has."""
        return (slot + self._plan.clients) * self.width + self.width // 2

    def alone(self, slot: Ints) -> tuple[Ints, Ints]:
        """Call and return of operations after the main phase, one a slot."""
        begin = (slot + 2 * self._plan.clients) * self.width
        return begin, begin + self.width // 2

    def _chunk(self, begin: int, end: int, infos: Ints, epoch: int) -> tuple[Slots, Ints, int]:
        clients, rng = self._plan.clients, self._rng
        index = np.arange(begin, end, dtype=np.int64)
        client = index % clients
        block = (index - begin) // BLOCK
        outcome, bad = self._outcomes(block)
        timed_out = np.zeros((-(-len(index) // clients), clients), dtype=np.int64)
        timed_out.reshape(-1)[: len(index)] = outcome == INFO
        so_far = np.cumsum(timed_out, axis=0) - timed_out + infos
        early = rng.integers(0, (clients - 1) // 2 + 1, len(index))
        late = rng.integers(0, clients - 1 - (clients - 1) // 2 + 1, len(index))
        slots = Slots(
            index=index,
            client=client,
            process=client + clients * so_far.reshape(-1)[: len(index)],
            outcome=outcome,
            epoch=epoch + (np.cumsum(bad) - bad)[block],
            call=(index + clients - early) * self.width + client,
            ret=(index + clients + late) * self.width + clients + 1 + client,
        )
        return slots, infos + timed_out.sum(axis=0), epoch + int(bad.sum())

    def _outcomes(self, block: Ints) -> tuple[NDArray[np.int8], Ints]:
        """Half of the operations of a bad block time out, so twice the share of blocks is bad."""
        share = self._plan.info_share
        bad = (self._rng.random(int(block[-1]) + 1) < min(1.0, 2 * share)).astype(np.int64)
        within = max(0.5, share) if share else 0.0
        draw = self._rng.random(len(block))
        outcome = np.where(draw < within, INFO, np.where(draw > 1 - min(FAILS * within, 1 - within), FAIL, OK))
        return np.where(bad[block] == 1, outcome, OK).astype(np.int8), bad
