"""Produce requests for several partitions, which this project's producer does not make.

Each partition of such a request has an outcome of its own.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client import errors
from assay.system_under_test.client.connection import CallError, NotSent
from assay.system_under_test.client.pool import Address
from assay.system_under_test.client.producer import pack
from assay.system_under_test.protocol import produce as messages
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.header import encode_request
from assay.workloads.broker.log_messages import (
    CODECS,
    SetOutcome,
    combine_outcomes,
    describe_set,
    get_values,
    iterate_client_tries,
    make_records,
    measure_record,
)
from assay.workloads.broker.log_names import format_error, format_node, split_key, to_outcome
from assay.workloads.broker.producer_profiles import SHORT_SECONDS
from assay.workloads.broker.verbs import Leaders, Verb, fail

NAME: Final = "assay-wide"
ANSWER_SECONDS: Final = 1.2
"""Maximum seconds until the answer. An operation, with its metadata request, takes at most ``SHORT_SECONDS``."""
BROKER_MILLISECONDS: Final = 1000
SILENT_SECONDS: Final = 0.5
"""Seconds that a ``silent`` client waits before it closes the connection of a broken-off request."""
THOUSAND: Final = 1000
STRANGE: Final = (("orders", 4711), ("no-such-topic", 0), ("__consumer_offsets", 0))
"""Partitions that the broker must reject."""
WIDEST: Final = 6
"""Maximum number of partitions in one request."""
FROM_THE_END: Final = 3
"""Distance of the damaged byte from the end of a message set. The byte is in the value of the last message."""

Part = Mapping[str, Any]


class MultiPartitionSend(Verb):
    """Sends a Produce request to the leader of ``key``.

    Argument: ``{"parts": [{"key", "values", "padding"?, "damaged"?}, ...], "astray", "acks", "codec", "version",
    "strange"}``. Result: ``{"parts": [{"outcome", "offset", "node", "error"}, ...]}``.

    - Parts of partitions with another leader are left out. With ``astray`` the first of them is sent, and the broker
      must reject it.
    - ``damaged``: the part's set does not match its checksum.
    - ``strange``: the request also contains partitions that do not exist, and the offsets topic, to which no client may
      send.
    - ``client``: the request is a *try*, which must succeed. Any answer counts as success, because a broker may reject
      records but must read the request.
    - ``broken_off``: only this number of thousandths of the request is sent, on a connection of its own. Then the
      client closes the connection, with ``silent`` a moment later, and does not wait for an answer. The outcome is
      unknown, unless no connection could be opened.
    """

    f = "wide"

    @staticmethod
    def draw(keys: Sequence[str], first: int) -> Generator:
        """Yields requests for several partitions, for ever. Some parts are invalid and must be rejected.

        ``first``: the first value to send.
        """

        def step(following: int, context: Context) -> tuple[Operation, int]:
            parts: list[dict[str, Any]] = []
            place = context.random_below(len(keys), salt=71)
            for rank in range(min(WIDEST, len(keys))):
                count = 1 + context.random_below(3, salt=80 + rank)
                part = {"key": keys[(place + rank) % len(keys)], "values": list(range(following, following + count))}
                following += count
                parts.append(part | {"damaged": not context.random_below(8, salt=90 + rank)})
            argument = {
                "parts": parts,
                "acks": context.choose((-1, -1, -1, -1, 1, 2), salt=73),
                "codec": context.choose(CODECS, salt=74),
                "version": context.random_below(3, salt=75),
                "strange": not context.random_below(4, salt=76),
                "astray": not context.random_below(3, salt=77),
            }
            return Operation(MultiPartitionSend.f, parts[0]["key"], argument), following

        return unfold(step, first)

    async def invoke(self, operation: Operation) -> Completion:
        loop, partition, argument = asyncio.get_running_loop(), split_key(str(operation.key)), operation.argument
        parts: Sequence[Part] = argument["parts"]
        deadline = loop.time() + SHORT_SECONDS
        leaders = self.session.leaders(NAME)
        try:
            leader = await leaders.metadata.leader(*partition, loop.time() + SHORT_SECONDS - ANSWER_SECONDS)
            sent = _select_sent(leaders, parts, leader.id, argument["astray"])
            if "broken_off" in argument:
                return await self._break_off(leader.address, argument, self._request(argument, sent))
            connection = await leaders.pool.get(leader.address, deadline - loop.time())
            left = min(ANSWER_SECONDS, deadline - loop.time())
            response = await connection.call(self._request(argument, sent), argument["version"], left)
        except CallError as error:
            leaders.metadata.forget(*partition)
            outcome = Outcome.FAIL if isinstance(error, NotSent) else Outcome.INFO
            return Completion(outcome, error=f"{type(error).__name__}: {error}")
        found = {(topic.topic, one.partition): one for topic in response.topics for one in topic.partitions}
        known = [
            _to_outcome(found.get(split_key(part["key"])), format_node(leader.id)) if part in sent else _NOT_SENT
            for part in parts
        ]
        if any(one["error"] == format_error(ErrorCode.NOT_LEADER_FOR_PARTITION) for one in known):
            leaders.metadata.forget(*partition)
        return combine_outcomes("parts", known)

    @staticmethod
    async def _break_off(address: Address, argument: Mapping[str, Any], request: messages.ProduceRequest) -> Completion:
        frame = encode_request(request, argument["version"], 1, NAME)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (TimeoutError, OSError) as error:
            return fail(f"no connection to {address}: {error}")
        closed = False
        try:
            writer.write(frame[: len(frame) * argument["broken_off"] // THOUSAND])
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
            if not closed:  # in Python 3.11, a late write to a closed socket raises an error
                writer.transport.abort()
        return Completion(Outcome.INFO, error="broken-off")

    def _request(self, argument: Mapping[str, Any], parts: Sequence[Part]) -> messages.ProduceRequest:
        stamp = int(self.session.runtime.wall_clock() * 1000)
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

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        """Yields a row for each value of each part."""
        argument, completion = completed.operation.argument, completed.completion
        parts: Sequence[Part] = argument["parts"]
        nothing = describe_set(completion.outcome, error=completion.error)
        known = (completion.result or {}).get("parts") or [nothing] * len(parts)
        packed = argument["codec"], min(1, argument["version"] // 2)
        for part, one in zip(parts, known, strict=True):
            outcome = Outcome(one["outcome"])
            # A record that only the leader acknowledged may be lost, so its append counts as unknown.
            stays = outcome is not Outcome.OK or argument["acks"] == -1
            for rank, (value, record) in enumerate(zip(get_values(part), make_records(part), strict=True)):
                yield Effect(
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
        yield from iterate_client_tries(completed.operation, None if completion.result is None else Outcome.OK)


_NOT_SENT: Final = describe_set(Outcome.FAIL, error="not-sent")


def _select_sent(leaders: Leaders, parts: Sequence[Part], broker: int, astray: bool) -> Sequence[Part]:
    """Returns the parts that this broker leads, and with ``astray`` one part that it does not lead."""
    known = [leaders.metadata.get_cached_leader(*split_key(part["key"])) for part in parts]
    elsewhere = [part for part, node in zip(parts, known, strict=True) if node is None or node.id != broker]
    left_out = elsewhere[1:] if astray else elsewhere
    return [part for part in parts if part not in left_out]


def _to_outcome(answer: messages.ProducePartitionResponse | None, node: str) -> SetOutcome:
    code = ErrorCode.UNKNOWN if answer is None else ErrorCode.of(answer.error_code)
    known = errors.classify_error(code, errors.PRODUCE_NOT_DONE)
    if answer is not None and known is errors.Certainty.DONE:
        return describe_set(Outcome.OK, offset=answer.base_offset, node=node)
    return describe_set(to_outcome(known), error=format_error(code))
