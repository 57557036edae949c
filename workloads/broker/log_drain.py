"""The drain of a log: a sentinel in every partition, then a read from the beginning.

An unread record counts as lost only if a reader has passed its offset. So after the last heal:

1. A last record, the sentinel, is sent to each partition with acks=all.
2. A process reads the partition from its earliest offset until it has passed the sentinel.

Both steps are retried, as operations of their own, until they succeed or the deadline expires. The checks judge
partitions that could not be drained (``unseen``).

A *silent* drain sends no sentinel, because that would cause another flush. It reads to the end that the leader reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.generator import EXHAUSTED, Answer, Context, Generator, Invoke, OperationEvent, Pending
from assay.harness.core.operation import Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.log_operations import EARLIEST, End, Poll, Send

PAUSE: Final = NANOSECONDS // 5
"""Pause between two attempts at one partition."""


class PartitionDrain(msgspec.Struct, frozen=True):
    """Drain state of one partition.

    - ``keyed``: whether the sentinel has a message key
    - ``silent``: whether no sentinel is sent
    - ``attempts``: number of the last sentinel; the next sentinel's value is ``-(attempts + 1)``
    - ``sentinel``: offset past which a process must read
    - ``reader``: process that reads the partition
    - ``in_flight``: whether an operation on the partition is in flight
    - ``not_before``: time of the next operation
    - ``done``: whether a process has read past the sentinel
    """

    key: str
    keyed: bool = False
    silent: bool = False
    attempts: int = 0
    sentinel: int | None = None
    reader: int | None = None
    in_flight: bool = False
    not_before: int = 0
    done: bool = False

    def send_sentinel(self) -> tuple[Operation, PartitionDrain]:
        attempt = self.attempts + 1
        argument: Any = {"values": [-attempt], "keys": [f"sentinel{attempt}"]} if self.keyed else [-attempt]
        changed = msgspec.structs.replace(self, attempts=attempt, in_flight=True)
        return Operation(Send.f, self.key, argument, Phase.SENTINEL), changed


def replace_partition(partitions: Sequence[PartitionDrain], changed: PartitionDrain) -> tuple[PartitionDrain, ...]:
    return tuple(changed if changed.key == one.key else one for one in partitions)


class Drain(Generator, frozen=True):
    """Generator of :func:`drain`. The first call of ``op`` sets the deadline ``until``."""

    partitions: tuple[PartitionDrain, ...]
    seconds: float
    until: int | None = None

    def op(self, context: Context) -> tuple[Answer, Generator]:
        until = self.until if self.until is not None else context.time + int(self.seconds * NANOSECONDS)
        waiting = [partition for partition in self.partitions if not partition.done]
        if not waiting or (context.time >= until and not any(partition.in_flight for partition in waiting)):
            return EXHAUSTED, self
        if context.time < until:
            for partition in waiting:
                worker = self._choose_worker(partition, context)
                if worker is not None:
                    operation, after = self._make_operation(partition, context.processes[worker])
                    return Invoke(operation, worker), self._replace_partition(after, until)
        # ``op`` is called again after a completion, after the first pause, or at the deadline.
        times = [until, *(partition.not_before for partition in waiting if not partition.in_flight)]
        later = [time for time in times if time > context.time]
        return Pending(min(later, default=None)), Drain(self.partitions, self.seconds, until)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if event.completed is None or event.operation.phase is Phase.MAIN:
            return self
        for partition in self.partitions:
            if partition.key == event.operation.key and partition.in_flight:
                return self._replace_partition(_update_partition(partition, event), self.until)
        return self

    def _choose_worker(self, partition: PartitionDrain, context: Context) -> int | None:
        """Returns the worker for the next operation on this partition; None if the partition must wait.

        If the partition has a reader, only the worker of that process may continue.
        """
        if partition.in_flight or not context.free or partition.not_before > context.time:
            return None
        for worker in context.free_in_turn():
            if context.processes[worker] == partition.reader:
                return worker
        if partition.reader is not None and partition.reader in context.processes:
            return None
        return context.pick()

    def _make_operation(self, partition: PartitionDrain, process: int) -> tuple[Operation, PartitionDrain]:
        change = msgspec.structs.replace
        if partition.sentinel is None and partition.silent:
            return Operation(End.f, partition.key, phase=Phase.DRAIN), change(partition, in_flight=True)
        if partition.sentinel is None:
            return partition.send_sentinel()
        argument: dict[str, Any] = {"start": EARLIEST, "seek": partition.reader != process}
        if not partition.silent:
            argument["until"] = partition.sentinel
        return Operation(Poll.f, partition.key, argument, Phase.DRAIN), change(
            partition, reader=process, in_flight=True
        )

    def _replace_partition(self, changed: PartitionDrain, until: int | None) -> Drain:
        return Drain(replace_partition(self.partitions, changed), self.seconds, until)


def _update_partition(partition: PartitionDrain, event: OperationEvent) -> PartitionDrain:
    change = msgspec.structs.replace
    assert event.completed is not None
    completion = event.completed.completion
    if completion.outcome is not Outcome.OK:
        # After an unknown outcome the process and its position are gone. After a failed poll the position is unknown.
        return change(partition, in_flight=False, reader=None, not_before=event.time + PAUSE)
    if event.operation.f == Send.f:
        return change(partition, in_flight=False, sentinel=completion.result["offset"])
    if event.operation.f == End.f:
        return change(partition, in_flight=False, sentinel=completion.result["offset"] - 1)
    end = completion.result["end"]
    assert partition.sentinel is not None
    stuck = end == completion.result["begin"]
    return change(
        partition, in_flight=False, done=end > partition.sentinel, not_before=event.time + PAUSE if stuck else 0
    )


def drain(keys: Sequence[str], *, seconds: float, keyed: bool = False, silent: bool = False) -> Generator:
    """Sends sentinels and reads every partition from the beginning, within ``seconds``.

    ``keyed``: sentinels have a message key. ``silent``: no sentinels are sent.
    """
    return Drain(tuple(PartitionDrain(key, keyed, silent) for key in keys), seconds)
