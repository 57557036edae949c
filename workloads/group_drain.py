"""The end of a run of a consumer group: a sentinel in every partition, then a fresh group reads everything.

As ``workloads.log_drain``, but the reading is done as the workload does it, by all processes together as members of a
group. Nothing is committed in it, so whoever gets a partition reads it from the beginning. It is over when somebody was
past each sentinel, or when the deadline is; what could not be drained then is for the checks to judge (``unseen``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.core.generator import EXHAUSTED, PENDING, Answer, Context, Event, Generator, Invoke, Pending
from harness.core.operation import Operation, Outcome, Phase
from harness.core.stamps import NANOSECONDS
from workloads.group_operations import DRAIN
from workloads.log_drain import PAUSE
from workloads.log_operations import POLL, SEND


class Partition(msgspec.Struct, frozen=True):
    """How far the drain of one partition is. ``sentinel``: its offset once it is there."""

    key: str
    attempts: int = 0
    sentinel: int | None = None
    open: bool = False
    not_before: int = 0
    done: bool = False


class GroupDrain(Generator, frozen=True):
    """See :func:`drain`. ``until`` is set by the first question: the deadline counts from the drain's beginning."""

    partitions: tuple[Partition, ...]
    seconds: float
    until: int | None = None

    def op(self, context: Context) -> tuple[Answer, Generator]:
        until = self.until if self.until is not None else context.time + int(self.seconds * NANOSECONDS)
        following = self._with(self.partitions, until)
        if all(partition.done for partition in self.partitions) or context.time >= until:
            return EXHAUSTED, following
        if not context.free:
            return PENDING, following
        missing = [partition for partition in self.partitions if partition.sentinel is None]
        if not missing:
            sentinels = {partition.key: partition.sentinel for partition in self.partitions}
            argument = {"group": DRAIN, "until": sentinels}
            return Invoke(Operation(POLL, argument=argument, phase=Phase.DRAIN), context.pick()), following
        for partition in missing:
            if not partition.open and partition.not_before <= context.time:
                attempt = partition.attempts + 1
                operation = Operation(SEND, partition.key, [-attempt], Phase.SENTINEL)
                changed = msgspec.structs.replace(partition, attempts=attempt, open=True)
                return Invoke(operation, context.pick()), self._changed(changed, until)
        later = [partition.not_before for partition in missing if not partition.open]
        return Pending(min([until, *later])), following

    def update(self, context: Context, event: Event) -> Generator:
        if event.completed is None:
            return self
        completion = event.completed.completion
        if event.operation.phase is Phase.SENTINEL:
            sent = next(partition for partition in self.partitions if partition.key == event.operation.key)
            sentinel = completion.result["offset"] if completion.outcome is Outcome.OK else None
            return self._changed(
                msgspec.structs.replace(sent, open=False, sentinel=sentinel, not_before=event.time + PAUSE), self.until
            )
        if event.operation.phase is not Phase.DRAIN or completion.outcome is not Outcome.OK:
            return self
        ends = {read["key"]: read["end"] for read in completion.result["reads"] if "end" in read}
        partitions = tuple(
            msgspec.structs.replace(
                partition,
                done=partition.done
                or (partition.sentinel is not None and ends.get(partition.key, 0) > partition.sentinel),
            )
            for partition in self.partitions
        )
        return self._with(partitions, self.until)

    def _changed(self, changed: Partition, until: int | None) -> GroupDrain:
        return self._with(tuple(changed if changed.key == one.key else one for one in self.partitions), until)

    def _with(self, partitions: tuple[Partition, ...], until: int | None) -> GroupDrain:
        return GroupDrain(partitions, self.seconds, until)


def drain(keys: Sequence[str], *, seconds: float) -> Generator:
    """Sentinels and a whole read of every partition by the members of a fresh group, within ``seconds``."""
    return GroupDrain(tuple(Partition(key) for key in keys), seconds)
