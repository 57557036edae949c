"""Schedules the search of keys: first in this process, then in several processes.

Starting a process costs one or two seconds of processor time, and the time to search a key is not known in advance. So
this process searches for the first seconds. If more than one key is then left, as many processes as there are cores
search the rest.

No key gets much time while others have had none. So each key first gets a short *first look*, short keys before long
ones. Then the keys that the first look did not decide are searched to their limits. If one key has no legal order, the
history fails. So the other keys get no more than the first look, unless ``Limits.every_key`` asks for it.

The result for a key does not depend on where it was searched. Each of n processes has an n-th of the memory. A key that
needs more memory is searched again, alone, with all of the memory and the rest of its time.
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from assay.checkers.linearizability.encode import EncodedHistory
from assay.checkers.linearizability.key_result import KeyResult, to_unfinished_result
from assay.checkers.linearizability.key_search import search_history
from assay.checkers.linearizability.limits import Limits
from assay.checkers.linearizability.pool import Chunk, NotPortableError, WorkerPool

PATIENCE: Final = 2.0
"""Seconds after which other processes are started."""
CHUNK: Final = 2000
"""Maximum number of operations in a chunk, unless one key has more."""
ROUNDS: Final = 8
"""Minimum number of chunks per process, if there are enough keys, so that few keys wait behind a hard key."""

Results = Generator[tuple[int, KeyResult]]


@dataclass(frozen=True)
class LocalSearch:
    """Searches keys on this machine.

    ``workers``: maximum number of processes; None means one per core. ``patience``: seconds before they are started.
    """

    workers: int | None = None
    patience: float = PATIENCE

    def search(self, encoded: EncodedHistory, keys: Sequence[int], limits: Limits) -> Results:
        """Yields the result of each key, in any order. Closing the iterator ends all processes."""
        workers = min(self.workers or os.cpu_count() or 1, len(keys))
        look = limits.take_first_look() if len(keys) > 1 else None
        easy_first = sorted(keys, key=lambda number: (encoded.length(number), number))
        hard: dict[int, KeyResult] = {}  # keys that the first look did not decide
        wrong = False
        with WorkerPool(encoded.model, workers) as pool:
            for number, found in self._search_all(pool, encoded, easy_first, look or limits, self.patience):
                if look is not None and found.out_of_time:
                    hard[number] = found
                else:
                    wrong |= found.finding is not None
                    yield number, found
            if hard and (limits.every_key or not wrong):
                with closing(self._search_all(pool, encoded, list(hard), limits, 0.0)) as results:
                    for number, found in results:
                        del hard[number]
                        yield number, found
                        if found.finding is not None and not limits.every_key:
                            break
        for number, found in hard.items():
            yield number, to_unfinished_result(encoded.keys[number], found, limits.first_look)

    def _search_all(
        self, pool: WorkerPool, encoded: EncodedHistory, keys: Sequence[int], limits: Limits, patience: float
    ) -> Results:
        """Yields the result of each key. ``patience``: seconds before other processes take over."""
        left = dict.fromkeys(keys)
        if pool.max_workers > 1 and patience > 0:
            for number, found in _search_for_some_time(encoded, keys, limits, patience):
                del left[number]
                yield number, found
        workers = min(pool.max_workers, len(left))
        if workers > 1:
            try:
                for number, found in _search_in_parallel(pool, encoded, list(left), limits, workers):
                    del left[number]
                    yield number, found
            except NotPortableError:
                pass  # keys that other processes cannot load are searched in this process
        for number in left:
            yield number, search_history(encoded.history(number), limits)


def _search_for_some_time(encoded: EncodedHistory, keys: Sequence[int], limits: Limits, patience: float) -> Results:
    """Yields the results that this process finds within ``patience`` seconds."""
    end = time.perf_counter() + patience
    for number in keys:
        remaining = end - time.perf_counter()
        if remaining <= 0:
            return
        hurried = limits.seconds is None or limits.seconds > remaining  # has less time here than its limit
        found = search_history(encoded.history(number), replace(limits, seconds=remaining) if hurried else limits)
        if found.out_of_time and hurried:
            return  # other processes search this key again from the start
        yield number, found


def _search_in_parallel(
    pool: WorkerPool, encoded: EncodedHistory, keys: Sequence[int], limits: Limits, at_once: int
) -> Results:
    """Searches ``at_once`` keys in parallel, each with a share of the memory. Keys that need more are then searched
    again, one by one.
    """
    need_more_memory: list[tuple[int, KeyResult]] = []
    chunks = divide_into_chunks({number: encoded.length(number) for number in keys}, at_once, CHUNK)
    for number, found in pool.search(encoded, chunks, limits.divide_by(at_once), at_once):
        if found.out_of_memory and at_once > 1:
            need_more_memory.append((number, found))
        else:
            yield number, found
    for number, found in sorted(need_more_memory, key=lambda one: one[0]):
        yield from pool.search(encoded, [(number,)], limits.deduct(found.seconds), 1)


def divide_into_chunks(lengths: Mapping[int, int], at_once: int, most: int) -> list[Chunk]:
    """Divides whole keys, longest first, into chunks of at most ``most`` operations, unless one key has more."""
    enough = min(most, sum(lengths.values()) // (at_once * ROUNDS))
    found: list[Chunk] = []
    chunk: list[int] = []
    operations = 0
    for number in sorted(lengths, key=lambda number: (-lengths[number], number)):
        chunk.append(number)
        operations += lengths[number]
        if operations >= enough:
            found.append(tuple(chunk))
            chunk, operations = [], 0
    return [*found, tuple(chunk)] if chunk else found
