"""A consumer that shares topics with the other members of its group: each reads the partitions that it is given.

A partition is read on from what the group has committed, or from where ``reset`` says when that is nothing, or nothing
that is still there. Positions are committed when the caller says so: what was returned before a commit is not returned
to the group again after it, what was returned since may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from system_under_test.client.assignors import Partition
from system_under_test.client.consumer import EARLIEST, LATEST, SimpleConsumer
from system_under_test.client.errors import ReadFailed
from system_under_test.client.membership import Generation, Membership, Position
from system_under_test.protocol.errors import ErrorCode
from system_under_test.runtime import Runtime

LONGEST_WAIT = 0.1
"""Seconds that one fetch waits at the end of its partition."""
NO_OFFSET = -1

Told = Callable[[Sequence[Partition]], None]


class Members(Protocol):
    """Of one member: :class:`Membership`, or that of another design."""

    generation: Generation | None

    async def enter(self) -> Generation: ...

    async def leave(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, offsets: Mapping[Partition, Position], generation: Generation | None = None) -> None: ...

    async def committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]: ...


@dataclass(frozen=True, slots=True)
class Received:
    """One record; ``timestamp`` in milliseconds, None where there is none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None


class GroupConsumer:
    """See the module.

    ``on_revoked`` hears of what was owned, before the group is joined again; ``on_assigned`` of what is owned then. A
    member whose generation is over has lost its partitions already, whatever it does in ``on_revoked``.

    ``reset``: ``earliest`` or ``latest``. Timeouts in seconds. ``membership`` stands for one of this design, which the
    settings about members would make.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Sequence[str],
        *,
        runtime: Runtime,
        reset: str = "earliest",
        session_timeout: float = 6.0,
        rebalance_timeout: float = 10.0,
        timeout: float = 5.0,
        assignors: Sequence[str] = ("range",),
        on_assigned: Told = lambda partitions: None,
        on_revoked: Told = lambda partitions: None,
        membership: Members | None = None,
    ) -> None:
        if reset not in ("earliest", "latest"):
            raise ValueError(f"reset is earliest or latest, not {reset!r}")
        self._reset = EARLIEST if reset == "earliest" else LATEST
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._membership: Members = membership or Membership(
            bootstrap,
            group,
            runtime=runtime,
            topics=topics,
            assignors=assignors,
            session_timeout=session_timeout,
            rebalance_timeout=rebalance_timeout,
            timeout=timeout,
        )
        self._consumer = SimpleConsumer(bootstrap, runtime=runtime, timeout=timeout)
        self._generation: Generation | None = None
        self._positions: dict[Partition, int] = {}

    @property
    def generation(self) -> Generation | None:
        """What it was last told to own; None before the first time, and after it left."""
        return self._generation

    def position(self, partition: Partition) -> int:
        """The offset that is read next. Raises ``KeyError`` for a partition that is not owned."""
        return self._positions[partition]

    def seek(self, partition: Partition, offset: int) -> None:
        """Reads on from there. Raises ``KeyError`` for a partition that is not owned."""
        if partition not in self._positions:
            raise KeyError(partition)
        self._positions[partition] = offset

    async def poll(self, timeout: float = 1.0) -> list[Received]:
        """What comes within ``timeout`` seconds, in each partition's order; joins the group first, if it has to.

        Raises ``JoinFailed``, ``ReadFailed`` when no partition could be read.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self._membership.generation is None or self._membership.generation is not self._generation:
            await self._enter()
        while True:
            owned = list(self._positions)
            brought = await asyncio.gather(*(self._read(partition) for partition in owned), return_exceptions=True)
            received: list[Received] = []
            failures: list[BaseException] = []
            for found in brought:
                if isinstance(found, BaseException):
                    failures.append(found)
                else:
                    received += found
            for failure in failures:
                if not isinstance(failure, ReadFailed) or len(failures) == len(owned):
                    raise failure
            if received or loop.time() >= deadline or self._membership.generation is None:
                return received
            if not owned:
                await asyncio.sleep(min(LONGEST_WAIT, max(0.0, deadline - loop.time())))

    async def commit(self) -> None:
        """The positions of all partitions owned, in the generation in which they are. Raises ``CommitFailed``."""
        if self._positions and self._generation is not None:
            positions = {partition: Position(offset) for partition, offset in self._positions.items()}
            await self._membership.commit(positions, self._generation)

    async def close(self, *, leave: bool = True) -> None:
        """Without ``leave`` the others learn of it when its session is over."""
        if leave and self._generation is not None:
            self._revoke()
            await self._membership.leave()
        await self._membership.close()
        await self._consumer.close()

    def _revoke(self) -> None:
        before, self._generation, self._positions = self._generation, None, {}
        if before is not None:
            self._on_revoked(before.partitions)

    async def _enter(self) -> None:
        self._revoke()
        await self._take(await self._membership.enter())

    async def _take(self, entered: Generation) -> None:
        """Begins to read what it owns."""
        found = await self._membership.committed(entered.partitions) if entered.partitions else {}
        positions = {}
        for partition in entered.partitions:
            offset = found[partition].offset
            positions[partition] = await self._start(partition) if offset == NO_OFFSET else offset
        self._generation, self._positions = entered, positions
        self._on_assigned(entered.partitions)

    async def _start(self, partition: Partition) -> int:
        return await self._consumer.offsets(*partition, self._reset)

    async def _read(self, partition: Partition) -> list[Received]:
        begin = self._positions[partition]
        fetched = await self._consumer.fetch(*partition, begin, max_wait=LONGEST_WAIT)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = await self._start(partition)
            return []
        if fetched.error is not ErrorCode.NONE:
            raise ReadFailed(f"{partition[0]}-{partition[1]}: {fetched.error.name}", error=fetched.error)
        if self._positions.get(partition) != begin:  # it was sought elsewhere meanwhile
            return []
        if fetched.messages:
            self._positions[partition] = fetched.messages[-1].offset + 1
        return [Received(*partition, m.offset, m.key, m.value, m.timestamp) for m in fetched.messages]
