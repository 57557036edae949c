"""Client of the broker's log through its client library; each client is a process of the history.

The library classifies errors: a send that was certainly not appended is ``fail``, any other send without an
acknowledgement is ``info``. Reads change nothing, so a failed read is ``fail`` and leaves no effect. The library
retries definite failures within its time limits, which are below the usual operation timeout (5 s).

A client keeps its own positions: a new process starts again at the position that the operation names.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES, ProducerConfig
from assay.system_under_test.client.consumer import EARLIEST as EARLIEST_TIME
from assay.system_under_test.client.consumer import LATEST as LATEST_TIME
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.errors import DamagedAnswer, ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker import (
    burst_client,
    log_operations,
    multi_fetch_operations,
    multi_partition_requests,
    topic_admin,
)
from assay.workloads.broker.burst_client import BURST, BurstProducers
from assay.workloads.broker.log_ends import LogEnds
from assay.workloads.broker.log_messages import (
    ALL,
    NEWCOMER,
    PLAIN,
    Packing,
    Record,
    choose_create_time,
    get_acks,
    get_client,
    get_packing,
    make_plain_records,
    make_records,
)
from assay.workloads.broker.log_names import describe_error, format_error, format_node, split_key
from assay.workloads.broker.log_operations import EARLIEST, END, GLANCE, LOOK_UP, POLL, SEND, THOUSAND
from assay.workloads.broker.multi_fetch_operations import LIST, SWEEP, WAIT, MultiFetchClient, to_poll_result
from assay.workloads.broker.multi_partition_requests import WIDE, MultiPartitionProducer
from assay.workloads.broker.producer_profiles import SEND_SECONDS
from assay.workloads.broker.topic_admin import ADMIN, TopicAdmin

READ_SECONDS: Final = 2.0
LONGEST_WAIT: Final = 0.1
"""Seconds that a poll waits at the end of a partition; short, because the worker has other work."""
FETCH_BYTES: Final = "fetch_bytes"
"""Client option: the number of bytes that a poll requests."""
KEEPS: Final = "keeps"
"""Client option: the probability that a client keeps its connections after an unknown outcome."""
GLANCE_BYTES: Final = 512
"""Bytes that a glance requests: a few records, so that the next glance begins elsewhere."""
STEP_BYTES: Final = 100
"""Bytes of each step of a glance with many steps."""


class LogClient:
    """Client of a log; operations as in ``assay.workloads.broker.log_operations``, ``burst_client``,
    ``multi_partition_requests``, ``multi_fetch_operations`` and ``topic_admin``.

    ``numbers`` are those of its assignments, unique among the readers of the same process.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._positions: dict[str, int] = {}
        self._assignments: dict[str, int] = {}

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Connections are made on first use."""
        bootstrap = list(endpoint.all)
        self._runtime = runtime
        self._endpoint = endpoint
        self.keeps = KEEPS in endpoint.options and runtime.random.random() < endpoint.options[KEEPS]
        self._fetch_bytes = endpoint.options.get(FETCH_BYTES, DEFAULT_FETCH_BYTES)
        self._producers = {(PLAIN, ALL): self._producer(PLAIN, ALL)}
        # Reads must show damage as it is: the checks report it as a phantom, so no CRC error may hide it.
        self._consumer = SimpleConsumer(bootstrap, runtime=runtime, timeout=READ_SECONDS, check_crcs=False)
        self._ends = LogEnds(bootstrap, runtime.random, timeout=READ_SECONDS)
        self._admin = TopicAdmin(bootstrap, runtime)
        self._bursts = BurstProducers(endpoint, runtime)
        self._wide = MultiPartitionProducer(endpoint, runtime)
        self._sweeps = MultiFetchClient(endpoint, runtime, self._numbers)

    async def close(self) -> None:
        for part in (self._bursts, self._wide, self._sweeps):
            await part.close()
        for producer in self._producers.values():
            await producer.close()
        await self._consumer.close()
        await self._ends.close()
        await self._admin.close()

    async def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None, f"{operation.f} on a log without a partition"
        if operation.f in ADMIN:
            return await self._admin.invoke(operation)
        try:
            match operation.f:
                case "send":
                    return await self._send(operation.key, operation.argument)
                case "burst":
                    return await self._bursts.invoke(operation.key, operation.argument)
                case "wide":
                    return await self._wide.invoke(operation.key, operation.argument)
                case "sweep":
                    return await self._sweeps.invoke(operation.argument)
                case "wait":
                    return await self._sweeps.waited(operation.key, operation.argument["wait"])
                case "list":
                    return await self._sweeps.listed(operation.key, operation.argument["count"])
                case "poll":
                    return await self._poll(operation.key, operation.argument)
                case "glance":
                    argument = operation.argument
                    return await self._glance(operation.key, argument["thousandths"], argument.get("steps", 1))
                case "end":
                    return await self._end(operation.key)
                case "look-up":
                    return await self._look_up(operation.key, operation.argument["age"])
        except ReadFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        known = ", ".join((SEND, BURST, WIDE, POLL, GLANCE, SWEEP, WAIT, END, LIST, LOOK_UP))
        raise ValueError(f"the operations on a log are {known}, not {operation.f!r}")

    def _producer(self, packed: Packing, acks: int) -> Producer:
        codec, message_format = packed
        config = ProducerConfig(acks=acks, timeout=SEND_SECONDS, codec=codec, message_format=message_format)
        traits = select_client_traits(self._endpoint.defects)
        return Producer(list(self._endpoint.all), config, runtime=self._runtime, traits=traits)

    async def _send(self, key: str, argument: Any) -> Completion:
        topic, partition = split_key(key)
        kind = get_packing(argument), get_acks(argument)
        newcomer = get_client(argument) == NEWCOMER
        if kind not in self._producers:
            self._producers[kind] = self._producer(*kind)
        producer = self._producer(*kind) if newcomer else self._producers[kind]
        stamp = {"timestamp": choose_create_time(argument, self._runtime.wall_clock())}
        try:
            result = await producer.send_set(topic, partition, make_records(argument, self.records), **stamp)
        except SendFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        except SendUnknown as error:
            return Completion(Outcome.INFO, stamp, error=describe_error(error))
        finally:
            if newcomer:
                await producer.close()
        return Completion(Outcome.OK, stamp | {"offset": result.base_offset, "node": format_node(result.node)})

    @staticmethod
    def records(values: Sequence[int]) -> Sequence[Record]:
        """Returns the messages for these values; readers use the value alone."""
        return make_plain_records(values)

    async def _poll(self, key: str, argument: dict[str, Any]) -> Completion:
        topic, partition = split_key(key)
        place = key if (reader := argument.get("reader")) is None else f"{key} of {reader}"
        start: int | None = None
        sought = argument.get("seek", False) or place not in self._positions
        if sought:
            self._positions.pop(place, None)
            earliest = argument["start"] == EARLIEST
            position = await self._consumer.offsets(topic, partition, EARLIEST_TIME if earliest else LATEST_TIME)
            start = position if earliest else None
            self._assignments[place] = next(self._numbers)
            self._positions[place] = position
        begin = self._positions[place]
        try:
            fetched = await self._consumer.fetch(topic, partition, begin, self._fetch_bytes, max_wait=LONGEST_WAIT)
        except DamagedAnswer as error:
            return _fail_illegible(error, begin)
        if fetched.error is not ErrorCode.NONE:
            # The usual error is out of range: the reader starts again, like a consumer with auto.offset.reset.
            del self._positions[place]
            return _reject_offset(fetched.error, begin)
        result = to_poll_result(begin, fetched, self._assignments[place])
        self._positions[place] = result["end"]
        if sought:
            result["sought"] = True
        if start is not None:
            result["start"] = start
        return Completion(Outcome.OK, result)

    async def _glance(self, key: str, thousandths: int, steps: int) -> Completion:
        topic, partition = split_key(key)
        first = await self._consumer.offsets(topic, partition, EARLIEST_TIME)
        known = self._positions.get(key)
        last = known if known is not None else await self._consumer.offsets(topic, partition, LATEST_TIME)
        begin = first + max(0, last - first) * thousandths // THOUSAND
        polls: list[dict[str, Any]] = []
        for offset in range(begin, begin + 1 if steps == 1 else min(begin + steps, last)):
            size, wait = (GLANCE_BYTES, LONGEST_WAIT) if steps == 1 else (STEP_BYTES, 0.0)
            try:
                fetched = await self._consumer.fetch(topic, partition, offset, size, max_wait=wait)
            except DamagedAnswer as error:
                return _fail_illegible(error, offset)
            if fetched.error is not ErrorCode.NONE:
                return _reject_offset(fetched.error, offset)
            polls.append(to_poll_result(offset, fetched, next(self._numbers)) | {"sought": True})
        for poll in polls[:1]:
            poll["start"] = first
        return Completion(Outcome.OK, polls[0] if steps == 1 else {"polls": polls})

    async def _end(self, key: str) -> Completion:
        topic, partition = split_key(key)
        end = await self._ends.ask(topic, partition)
        return Completion(
            Outcome.OK,
            {
                "offset": end.offset,
                "start": end.start,
                "epoch": end.epoch,
                "node": format_node(end.node),
                "incarnation": end.incarnation,
            },
        )

    async def _look_up(self, key: str, age: int) -> Completion:
        topic, partition = split_key(key)
        time = int(self._runtime.wall_clock() * 1000) - age
        offset = await self._consumer.offsets(topic, partition, time)
        return Completion(Outcome.OK, {"timestamp": time, "offset": None if offset < 0 else offset})

    @classmethod
    def effects(cls, completed: Completed) -> Sequence[Effect]:
        if completed.operation.f in ADMIN:
            return topic_admin.effects(completed)
        if completed.operation.f in _OTHERS:
            return _OTHERS[completed.operation.f](completed)
        return [*log_operations.effects(completed, cls.records), *iterate_tries(completed)]


def iterate_tries(completed: Completed) -> Iterator[Effect]:
    """Yields the row that ``assay.checkers.liveness.client_progress`` reads, if the operation was a try."""
    operation = completed.operation
    client = get_client(operation.argument)
    if client is not None and operation.key is not None:
        yield Effect("tried", operation.key, client=client)


def _reject_offset(error: ErrorCode, position: int) -> Completion:
    result = {"refused": position} if error is ErrorCode.OFFSET_OUT_OF_RANGE else None
    return Completion(Outcome.FAIL, result, error=f"{format_error(error)}: at offset {position}")


def _fail_illegible(error: DamagedAnswer, position: int) -> Completion:
    return Completion(Outcome.FAIL, {"illegible": position}, error=describe_error(error))


_OTHERS: Final = {
    BURST: burst_client.effects,
    WIDE: multi_partition_requests.effects,
    SWEEP: multi_fetch_operations.effects,
    WAIT: multi_fetch_operations.effects,
}
"""Effects of the operations that are defined in other modules."""
