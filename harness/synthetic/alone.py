"""What comes after the main phase: one operation after the other, key by key, written in blocks of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.harness.synthetic.segments import Ints
from assay.harness.synthetic.slots import OK, Schedule

BLOCK: Final = 50_000
"""Operations made at a time."""


@dataclass(frozen=True)
class Turns:
    """Some operations: ``number`` among all of them, ``key``, and ``rank`` among those of the key."""

    number: Ints
    key: Ints
    rank: Ints


def blocks(count: Ints, size: int = BLOCK) -> Iterator[Turns]:
    """As many operations for each key as ``count`` says, which is at least one."""
    ends = np.cumsum(count)
    total = int(ends[-1])
    for begin in range(0, total, size):
        number = np.arange(begin, min(begin + size, total), dtype=np.int64)
        key = np.searchsorted(ends, number, side="right")
        yield Turns(number, key, number - (ends - count)[key])


@dataclass(frozen=True)
class Alone:
    """Operations of one process, one after the other, that all end well."""

    index: Ints
    process: Ints
    outcome: NDArray[np.int8]
    call: Ints
    ret: Ints

    @classmethod
    def of(cls, schedule: Schedule, index: Ints, process: int) -> Alone:
        call, ret = schedule.alone(index)
        return cls(index, np.full_like(index, process), np.full(len(index), OK, np.int8), call, ret)
