"""The drain of a consumer group: a sentinel in every partition, then a fresh group reads everything.

Like ``assay.workloads.broker.log_drain``, but all processes read together as members of one group. Nothing is
committed, so the owner of a partition reads it from the beginning. The drain ends when some member has read past each
sentinel, or at the deadline; the checks judge an incomplete drain (``unseen``).

A fresh group shows the content of the log, but nothing about the earlier members: one of them may have stopped reading.
So they must catch up afterwards, in these steps (:func:`catch_up`):

1. A member leaves and rejoins, so the new owner of a partition resumes at the committed offset.
2. After the group has settled, every partition gets another sentinel, for these members alone.
3. They read up to it from their positions. A sentinel that they never read is ``unseen``, even if the fresh group has
   drained everything.

Each join and leave makes the group reassign everything. So only a group without joins and leaves shows whether members
notice by themselves that their topic has grown: see :func:`drain_after_growth`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.generator import (
    EXHAUSTED,
    PENDING,
    Answer,
    Context,
    Generator,
    Invoke,
    OperationEvent,
    Pending,
    Source,
    each_process,
    in_phase,
    limit,
    phases,
    repeat,
    sequence,
    stagger,
    time_limit,
)
from assay.harness.core.operation import Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.group_operations import DRAIN, WORKERS, Die, LeaveGroup, PollGroup
from assay.workloads.broker.log_drain import PAUSE, PartitionDrain, replace_partition

SETTLING_SECONDS: Final = 3.0
"""Twice the rebalance timeout of members."""
STEADY_SECONDS: Final = 9.0
"""Together with :func:`catch_up`, half of a group's deadline and the time of some rebalances."""
STEADY_EVERY: Final = 0.05
REJOINED_POLLS: Final = 15
"""Polls of each worker: each takes about 0.2 s, so a rebalance ends within them."""
VALUES_PER_DRAIN: Final = 1_000_000
"""More than a drain makes, so that the sentinels of different drains have different values."""


class GroupDrain(Generator, frozen=True):
    """See :func:`drain`. The first ``op`` sets the deadline ``until``, so that it counts from the drain's beginning."""

    partitions: tuple[PartitionDrain, ...]
    group: str
    seconds: float
    until: int | None = None

    def op(self, context: Context) -> tuple[Answer, Generator]:
        until = self.until if self.until is not None else context.time + int(self.seconds * NANOSECONDS)
        following = msgspec.structs.replace(self, until=until)
        if all(partition.done for partition in self.partitions) or context.time >= until:
            return EXHAUSTED, following
        if not context.free:
            return PENDING, following
        missing = [partition for partition in self.partitions if partition.sentinel is None]
        if not missing:
            sentinels = {partition.key: partition.sentinel for partition in self.partitions}
            argument = {"group": self.group, "until": sentinels}
            return Invoke(Operation(PollGroup.f, argument=argument, phase=Phase.DRAIN), context.pick()), following
        for partition in missing:
            if not partition.open and partition.not_before <= context.time:
                operation, changed = partition.send_sentinel()
                return Invoke(operation, context.pick()), following._change(changed)
        later = [partition.not_before for partition in missing if not partition.open]
        return Pending(min([until, *later])), following

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if event.completed is None:
            return self
        completion = event.completed.completion
        if event.operation.phase is Phase.SENTINEL:
            sent = next(partition for partition in self.partitions if partition.key == event.operation.key)
            sentinel = completion.result["offset"] if completion.outcome is Outcome.OK else None
            not_before = event.time + PAUSE
            return self._change(msgspec.structs.replace(sent, open=False, sentinel=sentinel, not_before=not_before))
        if event.operation.phase is not Phase.DRAIN or completion.outcome is not Outcome.OK:
            return self
        ends = {read["key"]: read["end"] for read in completion.result["reads"] if "end" in read}
        following = self
        for partition in self.partitions:
            if partition.sentinel is not None and ends.get(partition.key, 0) > partition.sentinel:
                following = following._change(msgspec.structs.replace(partition, done=True))
        return following

    def _change(self, changed: PartitionDrain) -> GroupDrain:
        return msgspec.structs.replace(self, partitions=replace_partition(self.partitions, changed))


def drain(keys: Sequence[str], *, seconds: float) -> Generator:
    """Sends sentinels and reads every partition by the members of a fresh group, within ``seconds``."""
    return GroupDrain(tuple(PartitionDrain(key) for key in keys), DRAIN, seconds)


def drain_after_deaths(keys: Sequence[str], *, seconds: float, group: str, dying: int, meanwhile: Source) -> Generator:
    """Lets ``dying`` members die at once for good, while ``meanwhile`` runs. No one joins or leaves, so only the end of
    their sessions gives their partitions to the others, who must reach sentinels within ``seconds``.
    """
    argument = {"group": group, "for_good": True}
    deaths = limit(dying, lambda context: Operation(Die.f, argument=argument, phase=Phase.DRAIN))
    return phases(
        time_limit(SETTLING_SECONDS, in_phase(Phase.DRAIN, PollGroup.draw(group))),
        sequence(deaths, in_phase(Phase.DRAIN, meanwhile)),
        _drain_to_sentinels(keys, 2, group, seconds),
    )


def drain_after_growth(
    keys: Sequence[str], late: Sequence[str], *, seconds: float, group: str, growth: Source
) -> Generator:
    """Adds the partitions ``late`` by ``growth``, after ``group`` has read all others and settled. No one joins or
    leaves afterwards, so members get them only by a look at the topic. They must reach sentinels in them within
    ``seconds``.
    """
    return phases(
        _drain_to_sentinels(keys, 3, group, seconds),
        time_limit(SETTLING_SECONDS, in_phase(Phase.DRAIN, PollGroup.draw(group))),
        growth,
        _drain_to_sentinels(late, 3, group, seconds),
    )


def drain_backlog(keys: Sequence[str], *, seconds: float, group: str) -> Generator:
    """Sends sentinels that the members of ``group`` must reach within ``seconds``, however far behind they are."""
    return _drain_to_sentinels(keys, 4, group, seconds)


def _drain_to_sentinels(keys: Sequence[str], time: int, group: str, seconds: float) -> Generator:
    """Returns the ``time``-th drain of these partitions in a run. Its number makes all sentinels' values unique."""
    return GroupDrain(tuple(PartitionDrain(key, attempts=time * VALUES_PER_DRAIN) for key in keys), group, seconds)


def catch_up(keys: Sequence[str], *, seconds: float, group: str = WORKERS) -> Generator:
    """Forces a rebalance of ``group`` after the drain. Then its members must reach sentinels within ``seconds`` from
    their positions.
    """
    leave = Operation(LeaveGroup.f, argument={"group": group}, phase=Phase.DRAIN)
    settling = time_limit(SETTLING_SECONDS, in_phase(Phase.DRAIN, PollGroup.draw(group)))
    return phases(leave, settling, _drain_to_sentinels(keys, 1, group, seconds))


def leave_and_rejoin(group: str, **mode: Any) -> Generator:
    """Lets all members leave and rejoin, so that new owners begin at the final offsets. ``mode``: arguments of polls.

    Otherwise an offset that was lost after the last rebalance would never be read.
    """
    leave = Operation(LeaveGroup.f, argument={"group": group}, phase=Phase.DRAIN)
    poll = Operation(PollGroup.f, argument={"group": group, **mode}, phase=Phase.DRAIN)
    return each_process([leave, repeat(poll, REJOINED_POLLS), leave])


def stay_in_group(group: str = WORKERS) -> Generator:
    """Polls now and then by all members of ``group``, which must keep its generation (``restless-group``)."""
    return time_limit(STEADY_SECONDS, in_phase(Phase.DRAIN, stagger(STEADY_EVERY, PollGroup.draw(group))))
