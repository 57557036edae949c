"""Generators that distribute workers: each process, reserve, by key.

Worker *i* belongs to endpoint *i* mod *n*, so a contiguous range of workers is spread evenly over the nodes.
"""

from collections.abc import Callable, Sequence

import msgspec

from assay.harness.core.generator.base import NOTHING, Generator, Source, Wrapper, as_generator
from assay.harness.core.generator.compose import Mix, transform
from assay.harness.core.generator.context import (
    EXHAUSTED,
    PENDING,
    Answer,
    Context,
    Exhausted,
    Invoke,
    OperationEvent,
    Pending,
    earlier_pending,
    iterate_bits,
)
from assay.harness.core.operation import Operation

_Copy = tuple[int, Generator] | None
"""The process that a copy is for, and the copy."""


class EachProcess(Wrapper, frozen=True):
    """See :func:`each_process`. ``copies`` is indexed by worker."""

    copies: tuple[_Copy, ...] = ()

    def op(self, context: Context) -> tuple[Answer, Generator]:
        copies = list(self.copies or (None,) * len(context.processes))
        pending: Pending | None = None
        for worker in context.free_in_turn():
            process, copy = context.processes[worker], self._get_current_copy(copies, worker, context)
            answer, after = copy.op(context.restrict(1 << worker))
            copies[worker] = (process, NOTHING if isinstance(answer, Exhausted) else after)
            if isinstance(answer, Invoke):
                return answer, EachProcess(self.source, tuple(copies))
            if isinstance(answer, Pending):
                pending = earlier_pending(pending, answer)
        following = EachProcess(self.source, tuple(copies))
        if pending is None and all(self._is_done(copies, worker, context) for worker in iterate_bits(context.workers)):
            return EXHAUSTED, NOTHING
        return pending or PENDING, following

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if event.worker >= len(self.copies) or not context.workers >> event.worker & 1:
            return self
        entry = self.copies[event.worker]
        if entry is None:
            return self
        copies = list(self.copies)
        copies[event.worker] = (entry[0], entry[1].update(context.restrict(1 << event.worker), event))
        return EachProcess(self.source, tuple(copies))

    def _get_current_copy(self, copies: Sequence[_Copy], worker: int, context: Context) -> Generator:
        entry = copies[worker]
        return entry[1] if entry is not None and entry[0] == context.processes[worker] else self.source

    def _is_done(self, copies: Sequence[_Copy], worker: int, context: Context) -> bool:
        """Returns whether a worker has finished. A busy worker has not.

        If its operation ends as ``info``, a new process takes over, and starts its own copy.
        """
        return self._get_current_copy(copies, worker, context) is NOTHING and not context.busy >> worker & 1


class Reserve(Generator, frozen=True):
    """See :func:`reserve`. ``parts`` are pairs of a worker mask and the generator that owns these workers."""

    parts: tuple[tuple[int, Generator], ...]

    def op(self, context: Context) -> tuple[Answer, Generator]:
        parts = list(self.parts)
        pending: Pending | None = None
        for index in self._list_parts_in_turn(context):
            mask, part = parts[index]
            answer, after = part.op(context.restrict(mask))
            parts[index] = (mask, NOTHING if isinstance(answer, Exhausted) else after)
            if isinstance(answer, Invoke):
                return answer, Reserve(tuple(parts))
            if isinstance(answer, Pending):
                pending = earlier_pending(pending, answer)
        if pending is None:
            return EXHAUSTED, NOTHING
        return pending, Reserve(tuple(parts))

    def _list_parts_in_turn(self, context: Context) -> list[int]:
        """Returns the indices of the parts, first the part of the next worker, so that no part starves the others."""
        first = context.pick() if context.free else context.cursor
        start = next((index for index, (mask, _) in enumerate(self.parts) if mask >> first & 1), 0)
        return [*range(start, len(self.parts)), *range(start)]

    def update(self, context: Context, event: OperationEvent) -> Generator:
        return Reserve(
            tuple(
                (mask, part.update(context.restrict(mask), event) if mask >> event.worker & 1 else part)
                for mask, part in self.parts
            )
        )

    @property
    def listens(self) -> bool:
        return any(part.listens for _, part in self.parts)


class ByKey(Generator, frozen=True):
    """See :func:`by_key`. ``groups`` has one generator per group of workers; ``next_key`` is an index in ``keys``."""

    keys: tuple[str, ...]
    make: Callable[[str], Source]
    size: int
    groups: tuple[Generator, ...] = ()
    next_key: int = 0

    def op(self, context: Context) -> tuple[Answer, Generator]:
        count = max(1, context.workers.bit_length() // self.size)
        groups = list(self.groups or (NOTHING,) * count)
        next_key = self.next_key
        pending: Pending | None = None
        first = (context.pick() if context.free else context.cursor) // self.size
        for offset in range(count):
            index = (first + offset) % count
            inner = context.restrict(self._make_mask(index, count))
            if not inner.workers:
                continue
            answer, after = groups[index].op(inner)
            while isinstance(answer, Exhausted) and next_key < len(self.keys):
                groups[index] = keyed(self.keys[next_key], self.make(self.keys[next_key]))
                next_key += 1
                answer, after = groups[index].op(inner)
            groups[index] = NOTHING if isinstance(answer, Exhausted) else after
            if isinstance(answer, Invoke):
                return answer, self._with_groups(groups, next_key)
            if isinstance(answer, Pending):
                pending = earlier_pending(pending, answer)
        if pending is None:
            return EXHAUSTED, NOTHING
        return pending, self._with_groups(groups, next_key)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if not self.groups:
            return self
        index = min(event.worker // self.size, len(self.groups) - 1)
        groups = list(self.groups)
        groups[index] = groups[index].update(context.restrict(self._make_mask(index, len(groups))), event)
        return self._with_groups(groups, self.next_key)

    def _make_mask(self, index: int, count: int) -> int:
        """Returns the worker mask of a group. The last group also has the workers left over."""
        first = index * self.size
        return -1 << first if index == count - 1 else ((1 << self.size) - 1) << first

    def _with_groups(self, groups: Sequence[Generator], next_key: int) -> Generator:
        return ByKey(self.keys, self.make, self.size, tuple(groups), next_key)


def each_process(source: Source) -> Generator:
    """Runs a copy of ``source`` for every process. A process that replaces another one starts its own copy.

    It is exhausted when the current process of every worker has exhausted its copy.
    """
    return EachProcess(as_generator(source))


def reserve(*shares: tuple[int, Source], default: Source = None) -> Generator:
    """Reserves workers: ``reserve((2, writes), (3, reads), default=mixed)``. All other workers run ``default``."""
    parts: list[tuple[int, Generator]] = []
    first = 0
    for count, source in shares:
        if count < 1:
            raise ValueError(f"reserve takes at least one worker for each share, not {count}")
        parts.append((((1 << count) - 1) << first, as_generator(source)))
        first += count
    parts.append((-1 << first, as_generator(default)))
    return Reserve(tuple(parts))


def by_key(keys: Sequence[str], make: Callable[[str], Source], workers: int | None = None) -> Generator:
    """Runs ``make(key)``, which must be pure, for each key. Operations without a key get this key.

    If ``workers`` is None, every worker serves all keys at once. Otherwise groups of that many workers take one key
    after the other, so one run yields many short histories that are cheap to check. A run with fewer workers has one
    group.
    """
    if workers is None:
        return Mix(tuple(keyed(key, make(key)) for key in keys)) if keys else NOTHING
    if workers < 1:
        raise ValueError(f"by_key takes at least one worker for each key, not {workers}")
    return ByKey(tuple(keys), make, workers)


def keyed(key: str, source: Source) -> Generator:
    """Gives ``key`` to the operations of ``source`` that have none."""

    def give(operation: Operation) -> Operation:
        return operation if operation.key is not None else msgspec.structs.replace(operation, key=key)

    return transform(give, source)
