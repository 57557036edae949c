"""The drain of a consumer group: a sentinel in every partition, then a new group reads all records.

The drain works like ``assay.workloads.broker.log_drain``, but all processes read together as members of one group. This
group commits nothing, so the owner of a partition reads it from the beginning. The drain ends when some member has read
past each sentinel, or at the deadline. The checks judge an incomplete drain (``unseen``).

A new group shows the content of the log, but nothing about the earlier members: one of them may have stopped reading.
So the earlier members must catch up afterwards, in these steps (:func:`catch_up`):

1. A member leaves and rejoins, so the new owner of a partition resumes at the committed offset.
2. After the group has settled, every partition gets another sentinel, for these members alone.
3. The members read from their positions up to the sentinels. A sentinel that they never read is ``unseen``, even if the
   new group has read it.

Each join and leave makes the group reassign all partitions. So only a group without joins and leaves shows whether
members notice by themselves that their topic has grown: see :func:`drain_after_growth`.
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
from assay.workloads.broker.group_operations import DRAIN_GROUP, WORKERS, Die, LeaveGroup, PollGroup
from assay.workloads.broker.log_drain import PAUSE, PartitionDrain, replace_partition

SETTLING_SECONDS: Final = 3.0
"""Seconds for a group to settle: twice the rebalance timeout of members."""
STEADY_SECONDS: Final = 9.0
"""Seconds of :func:`stay_in_group`.

This phase and :func:`catch_up`, which runs before it, must together last longer than half of the contract's group
deadline. Until then the check ``restless-group`` accepts new generations.
"""
STEADY_EVERY: Final = 0.05
REJOINED_POLLS: Final = 15
"""Number of polls of each worker. Each takes about 0.2 s, so a rebalance ends during these polls."""
VALUES_PER_DRAIN: Final = 1_000_000
"""Size of each drain's range of sentinel values, so that the sentinels of different drains have different values."""


class GroupDrain(Generator, frozen=True):
    """Generator of a group's drain; see :func:`drain`.

    The first call of ``op`` sets the deadline ``until``, so that it counts from the beginning of the drain.
    """

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
            if not partition.in_flight and partition.not_before <= context.time:
                operation, changed = partition.send_sentinel()
                return Invoke(operation, context.pick()), following._replace_partition(changed)
        later = [partition.not_before for partition in missing if not partition.in_flight]
        return Pending(min([until, *later])), following

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if event.completed is None:
            return self
        completion = event.completed.completion
        if event.operation.phase is Phase.SENTINEL:
            sent = next(partition for partition in self.partitions if partition.key == event.operation.key)
            sentinel = completion.result["offset"] if completion.outcome is Outcome.OK else None
            not_before = event.time + PAUSE
            return self._replace_partition(
                msgspec.structs.replace(sent, in_flight=False, sentinel=sentinel, not_before=not_before)
            )
        if event.operation.phase is not Phase.DRAIN or completion.outcome is not Outcome.OK:
            return self
        ends = {read["key"]: read["end"] for read in completion.result["reads"] if "end" in read}
        following = self
        for partition in self.partitions:
            if partition.sentinel is not None and ends.get(partition.key, 0) > partition.sentinel:
                following = following._replace_partition(msgspec.structs.replace(partition, done=True))
        return following

    def _replace_partition(self, changed: PartitionDrain) -> GroupDrain:
        return msgspec.structs.replace(self, partitions=replace_partition(self.partitions, changed))


def drain(keys: Sequence[str], *, seconds: float) -> Generator:
    """Sends sentinels. Then the members of a new group must read every partition within ``seconds``."""
    return GroupDrain(tuple(PartitionDrain(key) for key in keys), DRAIN_GROUP, seconds)


def drain_after_deaths(keys: Sequence[str], *, seconds: float, group: str, dying: int, meanwhile: Source) -> Generator:
    """Lets ``dying`` members die at once for good, while ``meanwhile`` runs. The others must reach sentinels within
    ``seconds``.

    No member joins or leaves. So the others get the partitions only when the sessions of the dead members have expired.
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
    """Adds the partitions ``late`` by ``growth``, after ``group`` has read all others and settled. The members must
    reach sentinels in the new partitions within ``seconds``.

    No member joins or leaves afterwards. So members get the new partitions only if they notice them by themselves.
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


def _drain_to_sentinels(keys: Sequence[str], ordinal: int, group: str, seconds: float) -> Generator:
    """Returns a drain of these partitions. ``ordinal``: its number in the run, which makes sentinels' values unique.

    The value of a sentinel is ``-(attempts + 1)``, where ``attempts`` counts from the beginning of the drain's range.
    """
    return GroupDrain(tuple(PartitionDrain(key, attempts=ordinal * VALUES_PER_DRAIN) for key in keys), group, seconds)


def catch_up(keys: Sequence[str], *, seconds: float, group: str = WORKERS) -> Generator:
    """Forces a rebalance of ``group`` after the drain. Then its members must read from their positions up to sentinels
    within ``seconds``.
    """
    leave = Operation(LeaveGroup.f, argument={"group": group}, phase=Phase.DRAIN)
    settling = time_limit(SETTLING_SECONDS, in_phase(Phase.DRAIN, PollGroup.draw(group)))
    return phases(leave, settling, _drain_to_sentinels(keys, 1, group, seconds))


def leave_and_rejoin(group: str, **mode: Any) -> Generator:
    """Lets all members leave and rejoin. ``mode``: arguments of polls.

    The new owners begin to read at the final committed offsets. If no partition changed its owner any more, a committed
    offset that was lost after the last rebalance would not be noticed.
    """
    leave = Operation(LeaveGroup.f, argument={"group": group}, phase=Phase.DRAIN)
    poll = Operation(PollGroup.f, argument={"group": group, **mode}, phase=Phase.DRAIN)
    return each_process([leave, repeat(poll, REJOINED_POLLS), leave])


def stay_in_group(group: str = WORKERS) -> Generator:
    """Lets all members of ``group`` poll now and then. The group must keep its generation (``restless-group``)."""
    return time_limit(STEADY_SECONDS, in_phase(Phase.DRAIN, stagger(STEADY_EVERY, PollGroup.draw(group))))
