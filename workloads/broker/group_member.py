"""A member of a consumer group, which uses the client library and reports its ownership changes.

A member learns of its assignments and revocations while it polls. It reports them in the result of that poll, or in the
next result.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES, ConsumerConfig
from assay.system_under_test.client.group_consumer import ConsumerRecord, GroupConsumer, GroupListener
from assay.system_under_test.client.membership import Generation
from assay.system_under_test.client.traits import select_client_traits
from assay.workloads.broker.log_messages import decode_key, parse_number
from assay.workloads.broker.log_operations import LARGEST
from assay.workloads.broker.verbs import FETCH_BYTES

TOPIC: Final = "orders"
TOPICS: Final = "topics"
"""Client option: additional topics to which members subscribe."""
ASSIGNOR: Final = "assignor"
"""Client option: the assignment strategy, ``range`` by default."""
SESSION_SECONDS: Final = 2.0
REBALANCE_SECONDS: Final = 1.5
"""A member that does not rejoin within this time is dropped from the group."""
CALL_SECONDS: Final = 2.0
"""Time limit of a call. It is longer than a rebalance, so that a join is answered.

A join, an offset fetch and a read fit into the timeout of an operation (5 s), unless all three reach their limits.
"""
UNAWARE_SECONDS: Final = 0.5
"""Seconds that a resumed member works before its first heartbeat shows that its session has expired."""
POLL_SECONDS: Final = 0.1
"""Maximum seconds that a poll waits at the end of the partitions. A member also waits this long after a failure.

An immediate retry would fail again, thousands of times.
"""


def get_topics(endpoint: Endpoint) -> list[str]:
    """Returns the topics to which a client's members subscribe."""
    return [TOPIC, *endpoint.options.get(TOPICS, ())]


@dataclass
class PartitionHold:
    """Ownership of a partition, from the time at which the member learned of it.

    - ``assignment``: the number of this hold
    - ``position``: the offset to read next
    - ``chain``: the assignment number of its reads; a reset or a rewind begins a new one
    """

    generation: int
    owner: str
    assignment: int
    position: int
    chain: int


class GroupMember:
    """A member of one group, and its unreported events. ``assignment_numbers`` yields numbers for its holds."""

    def __init__(self, endpoint: Endpoint, group: str, runtime: Any, assignment_numbers: Iterator[int]) -> None:
        self._assignment_numbers = assignment_numbers
        self._holds: dict[Partition, PartitionHold] = {}
        self._resets: dict[Partition, int] = {}
        """Unreported positions at which reading resumes after an offset was out of range."""
        self._notes: list[dict[str, Any]] = []
        self._end_kind = "lost"
        """Kind of the notes about holds that end: ``lost``, or ``release`` once the member leaves."""
        listener = GroupListener(self._on_assigned, self._on_revoked, on_reset=self._resets.__setitem__)
        self._consumer = self.make_consumer(endpoint, group, runtime, listener)

    @staticmethod
    def make_consumer(endpoint: Endpoint, group: str, runtime: Any, listener: GroupListener) -> GroupConsumer:
        """Returns a consumer as an application would configure it."""
        return GroupConsumer(
            endpoint.all,
            group,
            get_topics(endpoint),
            ConsumerConfig(
                assignors=(endpoint.options.get(ASSIGNOR, "range"),),
                session_timeout=SESSION_SECONDS,
                rebalance_timeout=REBALANCE_SECONDS,
                timeout=CALL_SECONDS,
                fetch_bytes=endpoint.options.get(FETCH_BYTES, DEFAULT_FETCH_BYTES),
            ),
            runtime=runtime,
            listener=listener,
            traits=select_client_traits(endpoint.defects),
        )

    def report_holds_again(self) -> None:
        """Reports all holds again under new numbers; see ``assay.workloads.broker.group_operations``."""
        for partition, hold in self._holds.items():
            if hold.assignment not in {note["assignment"] for note in self._notes}:
                hold.assignment = hold.chain = next(self._assignment_numbers)
                self._notes.append(_make_note("acquire", partition, hold) | {"begin": hold.position, "offset": None})

    def take_notes(self) -> list[dict[str, Any]]:
        """Returns the ownership changes since the last call."""
        notes, self._notes = self._notes, []
        return notes

    async def poll(self) -> list[dict[str, Any]]:
        """Returns the new records of each partition. Raises ``JoinFailed`` or ``ReadFailed``."""
        received = await self._consumer.poll(POLL_SECONDS)
        reads: list[dict[str, Any]] = []
        for partition, hold in self._holds.items():
            found = [record for record in received if (record.topic, record.partition) == partition]
            begin, hold.position = hold.position, min(self._consumer.position(partition), LARGEST)
            if (start := self._resets.pop(partition, None)) is not None:
                reads.append(
                    {
                        "key": _format_key(partition),
                        "reset": start,
                        "from": begin,
                        "assignment": next(self._assignment_numbers),
                    }
                )
                hold.chain, begin = reads[-1]["assignment"], start
            reads.append(
                {
                    "key": _format_key(partition),
                    "begin": begin,
                    "records": [
                        [record.offset, parse_number(record.value), _get_create_time(record), decode_key(record.key)]
                        for record in found
                    ],
                    "end": hold.position,
                    "assignment": hold.chain,
                }
            )
        return reads

    def describe_commit(self, behind: int) -> dict[str, Any] | None:
        """Returns generation, owner and positions of a commit, or None if the member owns nothing."""
        if not self._holds:
            return None
        first = next(iter(self._holds.values()))
        positions = [
            [_format_key(one), max(0, hold.position - behind), hold.chain] for one, hold in self._holds.items()
        ]
        return {"generation": first.generation, "owner": first.owner, "positions": positions}

    async def commit(self, number: int, behind: int) -> None:
        """Commits positions ``behind`` records before the read positions. Raises ``CommitFailed``."""
        offsets = {one: max(0, hold.position - behind) for one, hold in self._holds.items()} if behind else None
        await self._consumer.commit(str(number), offsets=offsets)

    def rewind(self, back: int) -> list[list[Any]]:
        """Moves the position in each partition ``back`` records. Returns the new positions and assignment numbers."""
        sought: list[list[Any]] = []
        for partition, hold in self._holds.items():
            hold.position, hold.chain = max(0, hold.position - back), next(self._assignment_numbers)
            self._consumer.seek(partition, hold.position)
            sought.append([_format_key(partition), hold.position, hold.chain])
        return sought

    async def fall_silent(self, seconds: float) -> None:
        self._consumer.fall_silent(seconds + UNAWARE_SECONDS)
        await asyncio.sleep(seconds)

    async def leave(self) -> None:
        """Leaves the group, and notifies its coordinator."""
        self._end_kind = "release"
        await self._consumer.close()

    async def die(self) -> None:
        """Stops without a notification of the coordinator."""
        self._end_holds()
        await self._consumer.close(leave=False)

    def _on_assigned(self, partitions: Sequence[Partition]) -> None:
        generation = self._consumer.generation
        assert generation is not None, "assigned without a generation"
        for partition in partitions:
            committed, position = self._consumer.committed_at_assignment(partition), self._consumer.position(partition)
            hold = self._holds[partition] = self._make_hold(generation, position)
            number = parse_number(committed.metadata.encode())
            resumed = {"begin": position, "offset": committed.offset, "number": number}
            self._notes.append(_make_note("acquire", partition, hold) | resumed)
        if not partitions:
            self._notes.append(_make_note("acquire", None, self._make_hold(generation, -1)))

    def _make_hold(self, generation: Generation, position: int) -> PartitionHold:
        assignment = next(self._assignment_numbers)
        return PartitionHold(generation.number, generation.member_id, assignment, position, assignment)

    def _on_revoked(self, partitions: Sequence[Partition]) -> None:
        self._end_holds()

    def _end_holds(self) -> None:
        self._notes += [_make_note(self._end_kind, partition, hold) for partition, hold in self._holds.items()]
        self._holds.clear()
        self._resets.clear()


def _get_create_time(record: ConsumerRecord) -> int | None:
    return None if record.is_append_time else record.timestamp


def _format_key(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _make_note(kind: str, partition: Partition | None, hold: PartitionHold) -> dict[str, Any]:
    return {
        "kind": kind,
        "key": None if partition is None else _format_key(partition),
        "generation": hold.generation,
        "owner": hold.owner,
        "assignment": hold.assignment,
    }
