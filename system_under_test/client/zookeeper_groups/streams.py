"""Message streams: each reads the messages of the partitions that its thread owns at the moment."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from assay.system_under_test.client.assignors import Partition
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES
from assay.system_under_test.client.consumer import EARLIEST, LATEST, SimpleConsumer
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.records.message import Message

MAX_FETCH_WAIT = 0.1
"""Seconds that one fetch waits for new messages."""
RESETS = {"smallest": EARLIEST, "largest": LATEST}
"""``auto.offset.reset``: the start if no offset is committed, or if it is no longer in the log."""


@dataclass
class Hold:
    """A thread's ownership of a partition, from a claim to its end. ``number`` is unique in its connector."""

    partition: Partition
    thread: str
    number: int
    position: int
    """The offset to read next, and to commit: all messages before it were returned."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Result of one fetch of one partition: all messages from offset ``begin`` to before ``end``.

    ``hold``: the number of the hold under which the partition was fetched.
    """

    topic: str
    partition: int
    hold: int
    begin: int
    messages: Sequence[Message]
    end: int


@dataclass(eq=False)
class MessageStream:
    """The stream of one thread, read by one task.

    - ``holds`` returns the thread's current holds; it is called before and after each fetch
    - ``reset``: where to start without a valid committed offset; a value of ``RESETS``
    - ``fetch_bytes`` is the size of one fetch
    """

    thread: str
    consumer: SimpleConsumer
    holds: Callable[[], Sequence[Hold]]
    reset: int
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    _has_more: bool = field(default=False, init=False)
    """Whether the last fetches returned messages. The next ones then do not wait for new messages, because a waiting
    fetch delays all later fetches on its connection."""
    closed: bool = field(default=False, init=False)
    """Whether the connector has shut down, so that the stream returns no more messages."""

    async def receive(self, timeout: float = 1.0) -> list[Chunk]:
        """Waits up to ``timeout`` seconds for messages, and returns one chunk for each partition that was read.

        Returned messages count as consumed: the next commit includes them. After the connector's shutdown the result is
        empty. Raises ``ReadFailed`` if no partition can be read.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self.closed:
            owned = self.holds()
            wait, self._has_more = 0.0 if self._has_more else MAX_FETCH_WAIT, False
            found = await asyncio.gather(*(self._read(hold, wait) for hold in owned), return_exceptions=True)
            if self.closed:
                break
            failures = [one for one in found if isinstance(one, BaseException)]
            for failure in failures:
                if not isinstance(failure, ReadFailed) or len(failures) == len(owned):
                    raise failure
            # From here on there must be no await, because the thread could lose a partition meanwhile.
            current = {hold.number for hold in self.holds()}
            chunks = [chunk for chunk in found if isinstance(chunk, Chunk) and chunk.hold in current]
            for hold in owned:
                for chunk in chunks:
                    if chunk.hold == hold.number:
                        hold.position = chunk.end
            self._has_more = any(chunk.messages for chunk in chunks)
            if self._has_more or loop.time() >= deadline:
                return chunks
            if not owned:
                await asyncio.sleep(min(MAX_FETCH_WAIT, max(0.0, deadline - loop.time())))
        return []

    async def __aiter__(self) -> AsyncIterator[tuple[str, int, Message]]:
        """Yields topic, partition and message, until the connector is shut down."""
        while not self.closed:
            for chunk in await self.receive():
                for message in chunk.messages:
                    yield chunk.topic, chunk.partition, message

    async def close(self) -> None:
        self.closed = True
        await self.consumer.close()

    async def start(self, partition: Partition) -> int:
        """Returns the offset at which to start without a committed one. Raises ``ReadFailed``."""
        return await self.consumer.offsets(*partition, self.reset)

    async def _read(self, hold: Hold, wait: float) -> Chunk | None:
        begin = hold.position
        topic, index = hold.partition
        fetched = await self.consumer.fetch(topic, index, begin, self.fetch_bytes, max_wait=wait)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            hold.position = await self.start(hold.partition)
            return None
        if fetched.error is not ErrorCode.NONE:
            raise ReadFailed(f"{topic}-{index}: {fetched.error.name}", error=fetched.error, node=fetched.node)
        end = fetched.messages[-1].offset + 1 if fetched.messages else begin
        return Chunk(topic, index, hold.number, begin, fetched.messages, end)
