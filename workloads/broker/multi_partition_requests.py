"""Produce requests for many partitions, as only other clients' producers make them: each partition has its own outcome.

``wide`` is one Produce request to the leader of ``key``. The argument is ``{"parts": [{"key", "values", "padding"?,
"damaged"?}, ...], "astray", "acks", "codec", "version", "strange"}``. The result is ``{"parts": [{"outcome", "offset",
"node", "error"}, ...]}``.

- Parts with another leader are not sent. With ``astray`` the first of them is sent, and the broker must reject it.
- ``damaged``: the set does not match its checksum.
- ``strange``: the request also contains missing partitions, and the offsets topic, to which no client may send.
- ``client``: the request is a try, which succeeds with any answer: a broker may reject records, but must read the
  request.
- ``broken_off``: only so many thousandths of the request are sent, on a connection of its own. The client closes the
  connection, with ``silent`` a moment later, and waits for no answer. The outcome is unknown, unless there was no
  connection.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Outcome
from assay.system_under_test.client import errors
from assay.system_under_test.client.connection import CallError, NotSent
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Address, Pool
from assay.system_under_test.client.producer import pack
from assay.system_under_test.protocol import produce as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.header import encode_request
from assay.workloads.broker.log_messages import get_client, get_values, make_records, measure_record
from assay.workloads.broker.log_names import describe_error, format_error, format_node, split_key, to_outcome
from assay.workloads.broker.producer_profiles import SHORT_SECONDS

WIDE: Final = "wide"
NAME: Final = "assay-wide"
ANSWER_SECONDS: Final = 1.2
"""Within ``SHORT_SECONDS``, together with the preceding metadata request."""
BROKER_MILLISECONDS: Final = 1000
SILENT_SECONDS: Final = 0.5
WHOLE: Final = 1000
"""In thousandths."""
STRANGE: Final = (("orders", 4711), ("no-such-topic", 0), ("__consumer_offsets", 0))
FROM_THE_END: Final = 3
"""Distance of the damaged byte from the end: in the value of the last message."""

Part = Mapping[str, Any]


class MultiPartitionProducer:
    """The produce requests of one client."""

    def __init__(self, endpoint: Endpoint, runtime: Any) -> None:
        self._runtime = runtime
        self._pool = Pool(NAME)
        self._metadata = Metadata(list(endpoint.all), self._pool, runtime.random)

    async def close(self) -> None:
        await self._pool.close()

    async def invoke(self, key: str, argument: Mapping[str, Any]) -> Completion:
        loop = asyncio.get_running_loop()
        parts: Sequence[Part] = argument["parts"]
        deadline = loop.time() + SHORT_SECONDS
        try:
            leader = await self._metadata.leader(*split_key(key), loop.time() + SHORT_SECONDS - ANSWER_SECONDS)
            sent = self._sent(parts, leader.id, argument["astray"])
            if "broken_off" in argument:
                return await self._break_off(leader.address, argument, self._request(argument, sent))
            connection = await self._pool.get(leader.address, deadline - loop.time())
            left = min(ANSWER_SECONDS, deadline - loop.time())
            response = await connection.call(self._request(argument, sent), argument["version"], left)
        except ReadFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        except CallError as error:
            self._metadata.forget(*split_key(key))
            outcome = Outcome.FAIL if isinstance(error, NotSent) else Outcome.INFO
            return Completion(outcome, error=f"{type(error).__name__}: {error}")
        found = {(topic.topic, one.partition): one for topic in response.topics for one in topic.partitions}
        known = [
            _to_outcome(found.get(split_key(part["key"])), format_node(leader.id)) if part in sent else _NOT_SENT
            for part in parts
        ]
        if any(one["error"] == format_error(ErrorCode.NOT_LEADER_FOR_PARTITION) for one in known):
            self._metadata.forget(*split_key(key))
        outcomes = {one["outcome"] for one in known}
        whole = next(one for one in (Outcome.OK, Outcome.INFO, Outcome.FAIL) if one in outcomes)
        problem = next((one["error"] for one in known if one["error"]), None)
        return Completion(whole, {"parts": known}, error=None if whole is Outcome.OK else problem)

    @staticmethod
    async def _break_off(address: Address, argument: Mapping[str, Any], request: messages.ProduceRequest) -> Completion:
        frame = encode_request(request, argument["version"], 1, NAME)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (TimeoutError, OSError) as error:
            return Completion(Outcome.FAIL, error=f"no connection to {address}: {error}")
        closed = False
        try:
            writer.write(frame[: len(frame) * argument["broken_off"] // WHOLE])
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(ANSWER_SECONDS - SILENT_SECONDS):
                    await writer.drain()
            if argument["silent"]:
                await asyncio.sleep(SILENT_SECONDS)
            writer.close()
            with contextlib.suppress(TimeoutError, OSError):  # the remaining bytes still have to go out
                async with asyncio.timeout(SILENT_SECONDS):
                    await writer.wait_closed()
                closed = True
        finally:
            if not closed:  # Python 3.11 fails on a closed socket with a late write
                writer.transport.abort()
        return Completion(Outcome.INFO, error="broken-off")

    def _sent(self, parts: Sequence[Part], broker: int, astray: bool) -> Sequence[Part]:
        """Returns the parts that this broker leads, and with ``astray`` one part that it does not lead."""
        leaders = [self._metadata.cached(*split_key(part["key"])) for part in parts]
        elsewhere = [part for part, node in zip(parts, leaders, strict=True) if node is None or node.id != broker]
        left_out = elsewhere[1:] if astray else elsewhere
        return [part for part in parts if part not in left_out]

    def _request(self, argument: Mapping[str, Any], parts: Sequence[Part]) -> messages.ProduceRequest:
        stamp = int(self._runtime.wall_clock() * 1000)
        version = min(1, argument["version"] // 2)
        topics: dict[str, list[messages.ProducePartition]] = {}

        def add(topic: str, partition: int, data: bytes) -> None:
            topics.setdefault(topic, []).append(messages.ProducePartition(partition=partition, records=data))

        for part in parts:
            sent = [(key, value, stamp) for key, value in make_records(part)]
            data = pack(sent, version, argument["codec"])
            if part.get("damaged"):
                data = data[:-FROM_THE_END] + bytes([data[-FROM_THE_END] ^ 1]) + data[1 - FROM_THE_END :]
            add(*split_key(part["key"]), data)
            if argument["strange"]:
                for topic, partition in STRANGE:
                    if not any(one.partition == partition for one in topics.get(topic, ())):
                        add(topic, partition, pack([(None, b"strange", stamp)], version, 0))
        return messages.ProduceRequest(
            acks=argument["acks"],
            timeout_ms=BROKER_MILLISECONDS,
            topics=[messages.ProduceTopic(topic=topic, partitions=found) for topic, found in topics.items()],
        )


_NOT_SENT: Final = {"outcome": Outcome.FAIL, "offset": None, "node": None, "error": "not-sent"}


def _to_outcome(answer: messages.ProducePartitionResponse | None, node: str) -> dict[str, Any]:
    code = ErrorCode.UNKNOWN if answer is None else ErrorCode.of(answer.error_code)
    known = errors.classify_error(code, errors.PRODUCE_NOT_DONE)
    if answer is not None and known is errors.Certainty.DONE:
        return {"outcome": Outcome.OK, "offset": answer.base_offset, "node": node, "error": None}
    return {"outcome": to_outcome(known), "offset": None, "node": None, "error": format_error(code)}


def effects(completed: Completed) -> Sequence[Effect]:
    """Returns a row for each value of each part."""
    argument, completion = completed.operation.argument, completed.completion
    nothing = {"outcome": completion.outcome, "offset": None, "node": None, "error": completion.error}
    parts: Sequence[Part] = argument["parts"]
    known = (completion.result or {}).get("parts") or [nothing] * len(parts)
    packed = argument["codec"], min(1, argument["version"] // 2)
    rows = []
    for part, one in zip(parts, known, strict=True):
        outcome = Outcome(one["outcome"])
        stays = outcome is not Outcome.OK or argument["acks"] == -1
        for rank, (value, record) in enumerate(zip(get_values(part), make_records(part), strict=True)):
            rows.append(
                Effect(
                    "append",
                    part["key"],
                    position=one["offset"] + rank if stays and one["offset"] is not None else None,
                    value=value,
                    request=completed.index,
                    node=one["node"],
                    size=measure_record(record, packed),
                    outcome=outcome if stays else Outcome.INFO,
                    error=one["error"],
                )
            )
    client, key = get_client(argument), completed.operation.key
    if client is not None and key is not None:
        answered = Outcome.OK if completion.result is not None else None
        rows.append(Effect("tried", key, client=client, outcome=answered))
    return rows
