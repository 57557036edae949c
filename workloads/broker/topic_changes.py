"""Generators of an administrator's changes to permanent topics under load.

Each change is soon reverted, because a change and its reversal can fail in different ways. Sometimes an invalid change
is requested, which must be rejected, and the settings are read afterwards.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from assay.harness.core.generator import (
    Context,
    Generator,
    in_phase,
    limit,
    mix,
    phases,
    sequence,
    stagger,
    time_limit,
    unfold,
)
from assay.harness.core.operation import Operation, Phase
from assay.workloads.broker.log_operations import End, Glance, LookUp
from assay.workloads.broker.topic_admin import Alter, Describe, Elect, ListSettings, Move

CHANGES: Final = (
    ("segment.bytes", ("256", "1024")),
    ("index.interval.bytes", ("1", "64")),
    ("retention.ms", ("3600000", "-1")),
    ("retention.bytes", ("1000000000", "-1")),
    ("flush.messages", ("1",)),
    ("flush.ms", ("0", "50")),
    ("preallocate", ("true",)),
    ("max.message.bytes", ("100",)),  # large enough for a number, however it is packed
)
"""Settings and values that are set. None of them deletes a record or weakens a promise."""
INVALID: Final = (
    ("min.insync.replicas", "0"),
    ("retention.ms", "-2"),
    ("retention.bytes", "-2"),
    ("segment.bytes", "0"),
    ("max.message.bytes", "-1"),
    ("flush.messages", "-1"),
    ("segment.bytes", "many"),
    ("cleanup.policy", "burn"),
)
LIMITS: Final = ("retention.ms", "retention.bytes")
CHANGE_SECONDS: Final = 0.15
DESCRIPTIONS: Final = 4
"""Number of descriptions of each topic, and of its settings, after the last heal."""
DESCRIPTION_SECONDS: Final = 1.5
READS_PER_LEADER: Final = 32
"""Number of reads of each partition while one replica leads it."""
OFFSETS_PER_GLANCE: Final = 25
"""Number of offsets that each :class:`Glance` reads."""
SECONDS_PER_LEADER: Final = 5.0


def change_settings(topic: str) -> Generator:
    """Yields changes of settings, resets to the default, invalid changes, and reads of all settings, for ever."""

    def step(count: int, context: Context) -> tuple[Operation, int]:
        match count % 6:
            case 2:
                name, value = context.choose(INVALID, salt=1)
                return Operation(Alter.f, topic, {"name": name, "value": value}), count + 1
            case 3:
                return Operation(ListSettings.f, topic), count + 1
            case stage:  # sets a value in stages 0 and 4, and resets it to the default in stages 1 and 5
                position = count // 6 % len(CHANGES)
                name, values = CHANGES[position if stage < 2 else -1 - position]
                wanted = context.choose(values, salt=2) if stage in (0, 4) else None
                return Operation(Alter.f, topic, {"name": name, "value": wanted}), count + 1

    return unfold(step, 0)


def make_move(key: str, replicas: Iterable[int], brokers: int, phase: Phase = Phase.MAIN) -> Operation:
    """Returns a move of a partition. ``replicas``: indexes of brokers from 0, modulo the number of brokers."""
    return Operation(Move.f, key, {"replicas": [1 + replica % brokers for replica in replicas]}, phase)


def move_and_revert(keys: Sequence[str], brokers: int) -> Generator:
    """Yields moves of one partition after another to other replicas, each with an election, and reverted at once."""

    def step(count: int, context: Context) -> tuple[Operation, int]:
        position = count // 4 % len(keys)
        if count % 2:
            return Operation(Elect.f, keys[position]), count + 1
        away = count % 4 == 0
        first = position + (1 + context.random_below(max(1, brokers - 1), salt=1) if away else 0)
        number = min(3, brokers) - (context.random_below(2, salt=2) if away and brokers > 1 else 0)
        return make_move(keys[position], range(first, first + number), brokers), count + 1

    return unfold(step, 0)


def change_leaders(keys: Sequence[str], brokers: int, *, back: bool = False) -> Generator:
    """Elects another leader than the usual one for all partitions; with ``back``, then the usual leader again.

    With ``back``, the leader changes at least once, whichever broker led before. Elections are requested several times,
    because a move needs some time before the new replica can be elected.
    """

    number = min(3, brokers)

    def elect(shift: int) -> Generator:  # 0: the usual leaders; 1: the next broker of each
        moves = [make_move(key, range(first, first + number), brokers) for first, key in enumerate(keys, shift)]
        return sequence(*moves, *[Operation(Elect.f, key) for key in keys] * 3)

    return stagger(CHANGE_SECONDS / len(keys), sequence(elect(1), elect(0)) if back else elect(1))


def rotate_leaders(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """Makes the next replica of each partition leader, in turn. So a former or truncated leader soon leads again."""
    number = min(replication, brokers)

    def step(count: int, context: Context) -> tuple[Operation, int]:
        position = count // 2 % len(keys)
        if count % 2:
            return Operation(Elect.f, keys[position]), count + 1
        first = count // (2 * len(keys))
        replicas = (position + (first + rank) % number for rank in range(number))
        return make_move(keys[position], replicas, brokers), count + 1

    return unfold(step, 0)


def end_retention(topic: str) -> Generator:
    """Removes the retention limits, so that records remain to be read. Repeated, because an answer may be lost."""
    ends = [Operation(Alter.f, topic, {"name": name, "value": "-1"}, Phase.DRAIN) for name in LIMITS]
    return stagger(0.1, sequence(*ends * 3))


def describe_topics_at_end(*topics: str) -> Generator:
    """Describes the topics and lists their settings for some seconds after the last heal."""

    def step(count: int, context: Context) -> tuple[Operation, int]:
        f = (Describe.f, ListSettings.f)[count // len(topics) % 2]
        return Operation(f, topics[count % len(topics)], phase=Phase.DRAIN), count + 1

    return stagger(DESCRIPTION_SECONDS / (2 * len(topics)), limit(2 * DESCRIPTIONS * len(topics), unfold(step, 0)))


def read_each_replica(keys: Sequence[str], brokers: int, replication: int) -> Generator:
    """Makes each replica leader in turn and reads in many places of its log. This exposes errors that only this replica
    has, in its files or in its process's memory.
    """
    number = min(replication, brokers)

    def elect_and_read(shift: int) -> Generator:
        moves = [
            make_move(key, range(first, first + number), brokers, Phase.DRAIN) for first, key in enumerate(keys, shift)
        ]
        elections = [Operation(Elect.f, key, phase=Phase.DRAIN) for key in keys]
        reads = mix(Glance.draw(keys, steps=OFFSETS_PER_GLANCE), LookUp.draw(keys), End.draw(keys), weights=(4, 2, 1))
        return phases(
            stagger(0.02, sequence(*moves)),
            stagger(0.1, sequence(*elections * 3)),
            time_limit(SECONDS_PER_LEADER, in_phase(Phase.DRAIN, limit(READS_PER_LEADER * len(keys), reads))),
        )

    return phases(*map(elect_and_read, range(brokers)))
