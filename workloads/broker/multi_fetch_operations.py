"""Fetch requests for several partitions and in all versions, long polls, and the oldest version of ListOffsets."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.generator import Context, Generator, as_generator
from assay.harness.core.operation import Completed, Completion, Effect, Operation
from assay.system_under_test.client.consumer import EARLIEST, FETCH_VERSION, LATEST, FetchResult, SimpleConsumer
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker.log_names import format_error, split_key
from assay.workloads.broker.log_operations import End, Read, iterate_observed, make_out_of_range, to_poll_result
from assay.workloads.broker.verbs import Session, Verb, fail, ok

WAIT_MS: Final = 1500
"""Milliseconds of a wait, less than the shortest operation timeout (2 s)."""
PATIENT_SECONDS: Final = 3.2
"""Timeout of the consumer, more than twice a wait. A consumer lets its broker wait for at most half of its timeout."""
SWEEP_SECONDS: Final = 1.6


class MultiPartitionFetch(Verb):
    """Reads several partitions in one request. Its positions are independent of the client's polls.

    Argument: ``{"keys", "back": {key: number of offsets}, "version", "max_bytes", "min_bytes", "wait": seconds}``. With
    ``back`` it goes back from its position, often to the middle of a compressed set.

    Result: ``{"reads": [...], "refusals"}``. ``reads`` has a poll's result, with its ``key``, for each partition.
    ``refusals`` has the positions that were out of range.
    """

    f = "sweep"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._positions: dict[str, tuple[int, int]] = {}
        """Next offset and number of the assignment, by partition."""
        self._starts: dict[str, int] = {}

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields reads of several partitions, and sometimes of a list of offsets, for ever."""

        def sweep(context: Context) -> Operation:
            first, count = context.random_below(len(keys), salt=31), 1 + context.random_below(len(keys), salt=32)
            chosen = [keys[(first + rank) % len(keys)] for rank in range(count)]
            if not context.random_below(6, salt=37):
                return Operation(ListOffsets.f, chosen[0], {"count": 1 + context.random_below(4, salt=38)})
            back = {key: context.random_below(30, salt=40 + rank) for rank, key in enumerate(chosen)}
            argument = {
                "keys": chosen,
                "back": {key: far for key, far in back.items() if far % 3 == 1},
                "version": context.choose((0, 1, 2, 3, 3, 3), salt=33),
                "max_bytes": context.choose((1, 60, 500, 1 << 20), salt=34),
                "min_bytes": context.choose((1, 1, 200), salt=35),
                "wait": context.choose((0.0, 0.05, 0.3), salt=36),
            }
            return Operation(MultiPartitionFetch.f, chosen[0], argument)

        return as_generator(sweep)

    async def invoke(self, operation: Operation) -> Completion:
        argument = operation.argument
        consumer = self.session.consumer(SWEEP_SECONDS, argument["version"])
        sought = [key for key in argument["keys"] if key not in self._positions or key in argument["back"]]
        for key in sought:
            await self._seek(consumer, key, argument["back"].get(key, 0))
        begins = {key: self._positions[key] for key in argument["keys"]}
        found = await consumer.multi_fetch(
            {split_key(key): position for key, (position, _) in begins.items()},
            argument["max_bytes"],
            max_wait=argument["wait"],
            min_bytes=argument["min_bytes"],
        )
        reads: list[dict[str, Any]] = []
        refusals: list[list[Any]] = []
        for key, (begin, assignment) in begins.items():
            fetched = found[split_key(key)]
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                del self._positions[key]
                refusals.append([key, begin])
            if fetched.error is ErrorCode.NONE:
                reads.append(self._advance(key, begin, assignment, fetched, key in sought))
        if not reads:
            problem = format_error(next(iter(found.values())).error)
            return fail(problem, {"refusals": refusals})
        return ok({"reads": reads, "refusals": refusals})

    async def _seek(self, consumer: SimpleConsumer, key: str, back: int) -> None:
        """Moves the position ``back`` offsets. Without a position, or after one out of range, takes the log start."""
        if key not in self._positions:
            self._starts[key] = await consumer.offsets(*split_key(key), EARLIEST)
        position = self._positions[key][0] if key in self._positions else self._starts[key]
        self._positions[key] = max(self._starts[key], position - back), next(self.session.assignment_numbers)

    def _advance(self, key: str, begin: int, assignment: int, fetched: FetchResult, sought: bool) -> dict[str, Any]:
        """Moves the position to the end of an answer. Returns the answer in the form of a poll's result."""
        read = to_poll_result(begin, fetched, assignment)
        self._positions[key] = read["end"], assignment
        return read | {"sought": sought, "key": key}

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        """Yields the rows of a poll for each partition that was read, and a row for each position out of range."""
        result = completed.completion.result or {}
        for read in result.get("reads", ()):
            yield from iterate_observed(read["key"], read)
        for key, position in result.get("refusals", ()):
            yield make_out_of_range(key, position)


class LongPoll(Read):
    """A long poll: a fetch at the log's end that waits for a record.

    Argument: ``{"wait": milliseconds}``. Result: that of a poll, with ``slept``, the milliseconds until the answer.
    """

    f = "wait"

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields long polls of random partitions, for ever."""
        return as_generator(lambda context: Operation(LongPoll.f, context.choose(keys, salt=39), {"wait": WAIT_MS}))

    async def invoke(self, operation: Operation) -> Completion:
        loop, partition = asyncio.get_running_loop(), split_key(str(operation.key))
        consumer = self.session.consumer(PATIENT_SECONDS)
        begin = await consumer.offsets(*partition, LATEST)
        begun = loop.time()
        fetched = await consumer.fetch(*partition, begin, max_wait=operation.argument["wait"] / 1000)
        if fetched.error is not ErrorCode.NONE:
            return fail(format_error(fetched.error))
        slept = round(1000 * (loop.time() - begun))
        return ok(
            to_poll_result(begin, fetched, next(self.session.assignment_numbers)) | {"sought": True, "slept": slept}
        )

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        yield from iterate_observed(key, result)
        yield Effect(
            "waited",
            key,
            position=result["begin"],
            max_wait_ms=operation.argument["wait"],
            waited_ms=result["slept"],
            empty=not result["records"],
        )


class ListOffsets(End):
    """Requests the log's end and the starts of segments, in the oldest version of ListOffsets.

    Argument: ``{"count"}``, the maximum number of offsets. Result: that of an ``end``.
    """

    f = "list"

    async def invoke(self, operation: Operation) -> Completion:
        consumer = self.session.consumer(SWEEP_SECONDS, FETCH_VERSION)
        found = await consumer.offsets_before(*split_key(str(operation.key)), LATEST, operation.argument["count"])
        return ok({"offset": found[0]}) if found else fail("empty")
