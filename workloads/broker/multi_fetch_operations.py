"""Fetch requests for many partitions, in the protocol's oldest and newest versions.

- ``sweep`` reads several partitions. The argument is ``{"keys", "back": {key: number of offsets}, "version",
  "max_bytes", "min_bytes", "wait": seconds}``. With ``back`` it reads again from before its position, often from the
  middle of a compressed set. The result is ``{"reads": [...], "refusals"}``: a poll's result with its ``key`` for each
  partition, and the positions that were out of range. A sweep has positions of its own, apart from its client's polls.
- ``wait`` is a fetch at the log's end that waits for a record. The argument is ``{"wait": milliseconds}``. The result
  is that of a poll, with ``slept``, the milliseconds until the answer.
- ``list`` asks for the starts of segments and the log's end, in the request's oldest version. The argument is
  ``{"count"}``, the result that of an ``end``.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Outcome
from assay.system_under_test.client.consumer import EARLIEST, LATEST, FetchResult, SimpleConsumer
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker.log_messages import to_result
from assay.workloads.broker.log_names import format_error, format_node, split_key
from assay.workloads.broker.log_operations import iterate_observed, make_out_of_range

SWEEP: Final = "sweep"
LIST: Final = "list"
WAIT: Final = "wait"
WAIT_MS: Final = 1500
"""Within the shortest operation timeout (2 s)."""
PATIENT_SECONDS: Final = 3.2
"""A consumer lets its broker wait for no more than half of its own timeout."""
NEWEST: Final = 3
"""Newest version of the fetch request."""
SWEEP_SECONDS: Final = 1.6
LARGEST: Final = 2**63 - 1
"""A damaged record may claim any offset, and positions are 64 bits wide."""


class MultiFetchClient:
    """The fetches of one client. ``numbers`` are those of its assignments."""

    def __init__(self, endpoint: Endpoint, runtime: Any, numbers: Iterator[int]) -> None:
        self._bootstrap = list(endpoint.all)
        self._runtime = runtime
        self._numbers = numbers
        self._consumers: dict[int, SimpleConsumer] = {}
        self._places: dict[str, tuple[int, int]] = {}
        """Position and assignment."""
        self._starts: dict[str, int] = {}
        self._patient: SimpleConsumer | None = None

    async def close(self) -> None:
        for consumer in (*self._consumers.values(), self._patient):
            if consumer is not None:
                await consumer.close()

    async def invoke(self, argument: Mapping[str, Any]) -> Completion:
        """Executes a sweep. Raises ``ReadFailed``."""
        consumer = self._consumer(argument["version"])
        sought = [key for key in argument["keys"] if key not in self._places or key in argument["back"]]
        for key in sought:
            await self._seek(consumer, key, argument["back"].get(key, 0))
        begins = {key: self._places[key] for key in argument["keys"]}
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
                del self._places[key]
                refusals.append([key, begin])
            if fetched.error is ErrorCode.NONE:
                reads.append(self._read(key, begin, assignment, fetched, key in sought))
        if not reads:
            problem = format_error(next(iter(found.values())).error)
            return Completion(Outcome.FAIL, {"refusals": refusals}, error=problem)
        return Completion(Outcome.OK, {"reads": reads, "refusals": refusals})

    async def listed(self, key: str, count: int) -> Completion:
        """Executes a list. Raises ``ReadFailed``."""
        found = await self._consumer(NEWEST).offsets_before(*split_key(key), LATEST, count)
        return Completion(Outcome.OK, {"offset": found[0]}) if found else Completion(Outcome.FAIL, error="empty")

    async def waited(self, key: str, milliseconds: int) -> Completion:
        """Executes a wait. Raises ``ReadFailed``."""
        loop = asyncio.get_running_loop()
        if self._patient is None:
            self._patient = SimpleConsumer(
                self._bootstrap, runtime=self._runtime, timeout=PATIENT_SECONDS, check_crcs=False
            )
        consumer = self._patient
        begin = await consumer.offsets(*split_key(key), LATEST)
        asked = loop.time()
        fetched = await consumer.fetch(*split_key(key), begin, max_wait=milliseconds / 1000)
        if fetched.error is not ErrorCode.NONE:
            return Completion(Outcome.FAIL, error=format_error(fetched.error))
        slept = round(1000 * (loop.time() - asked))
        return Completion(
            Outcome.OK, to_poll_result(begin, fetched, next(self._numbers)) | {"sought": True, "slept": slept}
        )

    def _consumer(self, version: int) -> SimpleConsumer:
        if version not in self._consumers:
            self._consumers[version] = SimpleConsumer(
                self._bootstrap, runtime=self._runtime, timeout=SWEEP_SECONDS, fetch_version=version, check_crcs=False
            )
        return self._consumers[version]

    async def _seek(self, consumer: SimpleConsumer, key: str, back: int) -> None:
        """Moves ``back`` offsets before the position, or to the log's start if the position is unknown or was out of
        range.
        """
        if key not in self._places:
            self._starts[key] = await consumer.offsets(*split_key(key), EARLIEST)
        position = self._places[key][0] if key in self._places else self._starts[key]
        self._places[key] = max(self._starts[key], position - back), next(self._numbers)

    def _read(self, key: str, begin: int, assignment: int, fetched: FetchResult, sought: bool) -> dict[str, Any]:
        read = to_poll_result(begin, fetched, assignment)
        self._places[key] = read["end"], assignment
        return read | {"sought": sought, "key": key}


def to_poll_result(begin: int, fetched: FetchResult, assignment: int) -> dict[str, Any]:
    """Returns the result of a poll from ``begin``."""
    return {
        "begin": begin,
        "records": [to_result(message) for message in fetched.messages],
        "end": min(fetched.messages[-1].offset + 1, LARGEST) if fetched.messages else begin,
        "assignment": assignment,
        "node": format_node(fetched.node),
    }


def effects(completed: Completed) -> Sequence[Effect]:
    """Returns the rows of a poll for each partition that was read."""
    result, key = completed.completion.result or {}, completed.operation.key
    if completed.operation.f == WAIT:
        assert key is not None
        return [*iterate_observed(key, result), _make_waited(completed, result)] if result else []
    rows = [row for read in result.get("reads", ()) for row in iterate_observed(read["key"], read)]
    return rows + [make_out_of_range(key, position) for key, position in result.get("refusals", ())]


def _make_waited(completed: Completed, result: Mapping[str, Any]) -> Effect:
    return Effect(
        "waited",
        str(completed.operation.key),
        position=result["begin"],
        max_wait_ms=completed.operation.argument["wait"],
        waited_ms=result["slept"],
        empty=not result["records"],
    )
