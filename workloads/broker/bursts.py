"""Bursts: message sets sent by an asynchronous producer, several in flight at a time."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.callbacks import Callbacks, Envelope
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.client.queued_sender import OutcomeSummary
from assay.workloads.broker.log_messages import (
    SetOutcome,
    combine_outcomes,
    describe_set,
    get_values,
    make_records,
    measure_record,
    to_fields,
)
from assay.workloads.broker.log_names import describe_error, format_node, split_key
from assay.workloads.broker.log_operations import get_key
from assay.workloads.broker.producer_profiles import SINGLE, build_config, count_tries, waits_for_all
from assay.workloads.broker.verbs import Session, Verb

SHORTEST: Final = 4
"""Minimum number of messages in a burst."""
LONGEST: Final = 10
"""Maximum number of messages in a burst."""
PACE: Final = 0.01
"""Seconds between two messages of a burst: shorter than the producer's back-off before a retry."""
MAX_CALLS: Final = 100
"""A number above the number of atomic calls in any burst."""
CLOSING_SECONDS: Final = 0.05
"""Seconds that a closed producer waits for outcomes. Some arrive in that time, others do not."""

REQUIRED_SOURCES: Final = ("done", "stages")
"""Sources that must report every message. ``account`` only reports messages that were not certainly appended."""

Report = list[Any]
"""Notification about a message: value, source, outcome and offset."""


class CallbackRecorder(Callbacks):
    """Collects the producer's notifications about each message's outcome."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def after_sending(self, envelope: Envelope, result: SendResult) -> None:
        self.add_report("stages", envelope, result)

    def on_drop(self, envelope: Envelope, error: ClientError) -> None:
        self.add_report("stages", envelope, error)

    def add_report(self, source: str, envelope: Envelope, result: SendResult | ClientError) -> None:
        found = _to_outcome(result)
        self.reports.append([int(envelope.value), source, found["outcome"], found["offset"]])

    def add_summary(self, summary: OutcomeSummary) -> None:
        for outcome, envelopes in ((Outcome.FAIL, summary.failed), (Outcome.INFO, summary.unknown)):
            self.reports += [[int(envelope.value), "account", outcome, None] for envelope in envelopes]


class ReportingProducer:
    """A producer with one profile, and the recorder of its notifications."""

    def __init__(self, session: Session, profile: str) -> None:
        self.recorder = CallbackRecorder()
        self.producer = session.producer(build_config(profile), self.recorder)

    async def close(self) -> None:
        await self.producer.close(0.0)


class Burst(Verb):
    """Sends messages to one partition, one shortly after the other, without waiting for the outcomes of earlier ones.

    The argument is a list of values, one for each message, or ``{"values", ...}`` with any of

    ===============  =============================================================================================
    ``habit``        the profile of the producer (``producer_profiles``); by default a set for each message
    ``padding``      the number of bytes to which each value is padded
    ``then``         ``flush`` or ``close``: called as soon as all are sent; otherwise each outcome is awaited
    ``message_key``  key of all messages; the producer chooses a partition, which must be the operation's partition
    ``each``         the number of values in one atomic call of ``Producer.send_set``; all calls are made at once
    ===============  =============================================================================================

    The result is ``{"sets": [{"outcome", "offset", "node", "error"}, ...], "reports": [[value, source, outcome,
    offset], ...]}``. ``sets`` has the result of the future that each message's ``send`` returned, in the order of the
    values; unknown fields are null. ``reports`` exists if the argument was not a plain list. It has all other
    notifications about the messages, in the order of their arrival. The sources are ``done``, the function given to
    each ``send``; ``stages``, the callbacks of the producer; ``account``, the result of ``flush`` or ``close``.

    Acknowledged messages must be in the log in the order of sending. A burst is ``ok`` if any message is acknowledged,
    and ``fail`` if all messages certainly failed. Each message has an outcome of its own, too.
    """

    f = "burst"

    @staticmethod
    def draw(keys: Sequence[str]) -> Generator:
        """Yields bursts of new values to random partitions, for ever."""

        def step(following: int, context: Context) -> tuple[Operation, int]:
            count = SHORTEST + context.random_below(LONGEST - SHORTEST + 1, salt=1)
            values = list(range(following, following + count))
            return Operation(Burst.f, context.choose(keys, salt=2), values), following + count

        return unfold(step, 0)

    async def invoke(self, operation: Operation) -> Completion:
        key, argument, profile = str(operation.key), operation.argument, _get_profile(operation.argument)
        fields = to_fields(argument)
        if "each" in fields:
            plain = self.session.get_or_make(
                (Burst, "plain", profile), lambda: self.session.producer(build_config(profile).without_queue())
            )
            return combine_outcomes("sets", await _send_sets(plain, key, argument))
        reporting = self.session.get_or_make((Burst, profile), lambda: ReportingProducer(self.session, profile))
        producer, recorder = reporting.producer, reporting.recorder
        reports: list[Report] = []
        recorder.reports = reports
        futures = await _send_messages(producer, recorder, key, argument)
        if fields.get("then") == "flush":
            recorder.add_summary(await producer.flush())
        elif fields.get("then") == "close":
            self.session.forget((Burst, profile))
            recorder.add_summary(await producer.close(CLOSING_SECONDS))
        sets = [_to_outcome(found) for found in await asyncio.gather(*futures, return_exceptions=True)]
        return combine_outcomes("sets", sets, **({"reports": reports} if isinstance(argument, Mapping) else {}))

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        """Yields a row for each message, a row for each retry that may have appended it again, and the rows of
        ``reports``.
        """
        yield from _iterate_appends(completed)
        yield from _iterate_reports(completed)


async def _send_sets(producer: Producer, key: str, argument: Mapping[str, Any]) -> Sequence[SetOutcome]:
    """Sends the values in atomic calls. Returns each message's outcome, which is that of its call."""
    topic, partition = split_key(key)
    sent, each = make_records(argument), argument["each"]
    calls = [producer.send_set(topic, partition, sent[first : first + each]) for first in range(0, len(sent), each)]
    outcomes = [_to_outcome(found) for found in await asyncio.gather(*calls, return_exceptions=True)]
    return [_shift_offset(outcomes[rank // each], rank % each) for rank in range(len(sent))]


def _shift_offset(found: SetOutcome, rank: int) -> SetOutcome:
    return {**found, "offset": None if found["offset"] is None or found["offset"] < 0 else found["offset"] + rank}


async def _send_messages(
    producer: Producer, recorder: CallbackRecorder, key: str, argument: Any
) -> Sequence[asyncio.Future[SendResult]]:
    """Sends the messages and returns their futures. If a full queue rejects a message, its future has failed."""
    topic, index = split_key(key)
    message_key = to_fields(argument).get("message_key")
    # The partitioner chooses the partition of a message with a key.
    encoded_key, partition = (None, index) if message_key is None else (message_key.encode(), None)
    futures: list[asyncio.Future[SendResult]] = []
    for _, value in make_records(argument):
        if futures:
            await asyncio.sleep(PACE)
        try:
            done = partial(recorder.add_report, "done")
            futures.append(await producer.send(topic, encoded_key, value, partition=partition, on_done=done))
        except SendFailed as error:
            refused: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            futures.append(refused)
    return futures


def _iterate_appends(completed: Completed) -> Iterator[Effect]:
    argument, profile = completed.operation.argument, _get_profile(completed.operation.argument)
    settings, result = build_config(profile), completed.completion.result
    packing = settings.codec, settings.message_format
    sets = [_UNKNOWN] * len(get_values(argument)) if result is None else result["sets"]
    fields = to_fields(argument)
    each = fields.get("each")
    for rank, (value, record, one) in enumerate(zip(get_values(argument), make_records(argument), sets, strict=True)):
        outcome = Outcome(one["outcome"])
        # A record that only the leader acknowledged may be lost, so its append counts as unknown.
        stays = outcome is not Outcome.OK or waits_for_all(profile)
        row = Effect(
            "append",
            get_key(completed),
            position=one["offset"] if stays else None,
            value=value,
            request=None if each is None else _number_request(completed.index, rank // each),
            message_key=fields.get("message_key"),
            size=measure_record(record, packing) + len(fields.get("message_key", "")),
            node=one["node"],
            outcome=outcome if stays else Outcome.INFO,
            error=one["error"],
        )
        yield row
        if outcome is not Outcome.FAIL:
            for _ in range(count_tries(profile) - 1):
                yield msgspec.structs.replace(row, position=None, request=None, node=None, outcome=Outcome.INFO)


def _iterate_reports(completed: Completed) -> Iterator[Effect]:
    key, argument = get_key(completed), completed.operation.argument
    reports = (completed.completion.result or {}).get("reports")
    if reports is None:
        return
    missing = {(value, source): None for value in get_values(argument) for source in REQUIRED_SOURCES}
    for value, source, outcome, offset in reports:
        missing.pop((value, source), None)
        unsure = outcome == Outcome.OK and not waits_for_all(_get_profile(argument))
        yield Effect(
            "reported",
            key,
            position=None if unsure else offset,
            value=value,
            source=source,
            outcome=Outcome.INFO if unsure else Outcome(outcome),
        )
    for value, source in missing:
        yield Effect("unreported", key, value=value, source=source)


def _number_request(index: int, call: int) -> int:
    """Returns a unique negative number for each set of a burst. Requests of other operations have positive numbers."""
    return -1 - (index * MAX_CALLS + call)


_UNKNOWN: Final = describe_set(Outcome.INFO, error="timeout")


def _get_profile(argument: Any) -> str:
    return str(to_fields(argument).get("habit", SINGLE))


def _to_outcome(found: SendResult | BaseException) -> SetOutcome:
    if isinstance(found, SendResult):
        return describe_set(Outcome.OK, offset=found.base_offset, node=format_node(found.node))
    if not isinstance(found, ClientError):
        raise found
    return describe_set(Outcome.FAIL if isinstance(found, SendFailed) else Outcome.INFO, error=describe_error(found))
