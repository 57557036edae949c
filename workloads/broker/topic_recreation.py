"""A topic that is deleted and recreated under its name throughout a run, with traffic in each incarnation.

The history distinguishes the incarnations: ``brief-0``, ``brief#2-0``, ``brief#3-0``. So it must be known which
incarnation an operation met:

- Before a deletion is requested, all operations on this incarnation must have ended. Then the incarnation is read once
  more.
- Operations between the request of a deletion and the acknowledged creation of the next incarnation are *adrift*. They
  prove nothing about any incarnation. For example, such a send may have reached any later incarnation.
- A send of unknown outcome may also reach a later incarnation, because a broker may receive it late.
- A deletion or creation without an answer may take effect at any time. Then another name is used for the topic, which
  begins with its first incarnation.

This topic is not drained at the end, because most of its incarnations are deleted by then.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from assay.harness.core.generator import PENDING, Answer, Context, Generator, Invoke, OperationEvent, Pending
from assay.harness.core.operation import Operation, Outcome
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.log_names import format_incarnation, strip_incarnation
from assay.workloads.broker.log_operations import EARLIEST, LATEST, End, Poll, Send
from assay.workloads.broker.mixed_traffic import ValueRange
from assay.workloads.broker.topic_admin import AddPartitions, Create, Delete, ListSettings

NAME: Final = "brief"
PARTITIONS: Final = 2
LATER_INCARNATIONS: Final = 10
"""Number of later incarnations that a late send may reach. The argument ``lives`` of a send lists them."""
SHORTEST_INCARNATION: Final = NANOSECONDS
PAUSE: Final = NANOSECONDS // 4
"""Nanoseconds between two requested changes, or between two reads of the settings."""
ADRIFT_PACE: Final = NANOSECONDS // 5
MAX_ADRIFT: Final = 2
"""Maximum adrift operations at a time, because they take long without a topic."""
UNANSWERED: Final = ("no-answer", "timeout")


class IncarnationStage:
    """Stage of a topic's incarnation.

    - ``CREATING``: the creation is requested, until it is acknowledged
    - ``LIVING``: operations use the incarnation
    - ``ENDING``: no operation starts any more; those in flight are awaited
    - ``READING``: all operations have ended, and the incarnation is read once more
    - ``DELETING``: the deletion is requested, until it is acknowledged
    - ``VERIFYING_DELETION``: the outcome of a deletion is unknown; the topic's settings are read until it is gone
    """

    CREATING, LIVING, ENDING, READING, DELETING, VERIFYING_DELETION = range(6)


class TopicIncarnations(Generator, frozen=True):
    """Generator of the incarnations; see the module.

    - ``name_number``: number of the topic's name
    - ``changing``: a change is requested and has not returned
    - ``adrift``: number of unfinished adrift operations
    - ``read``: number of partitions read once more
    - ``value``: next value to send
    - ``uncertain``: an earlier request for this change has an unknown outcome, so the change may take effect later
    - ``in_flight``: number of unfinished operations on this incarnation
    - ``stage_end``: time at which the present stage may end
    - ``next_time``: time of the next operation
    """

    replication: int
    min_insync: int
    name_number: int = 1
    incarnation: int = 1
    stage: int = IncarnationStage.CREATING
    partitions: int = PARTITIONS
    uncertain: bool = False
    changing: bool = False
    in_flight: int = 0
    adrift: int = 0
    read: int = 0
    value: int = ValueRange.RECREATED
    stage_end: int = 0
    next_time: int = 0

    @property
    def topic(self) -> str:
        return format_incarnation(f"{NAME}{self.name_number}", self.incarnation)

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if not context.free:
            return PENDING, self
        if self.stage == IncarnationStage.LIVING and context.time >= self.stage_end:
            return replace(self, stage=IncarnationStage.ENDING).op(context)
        if self.stage == IncarnationStage.ENDING and not self.in_flight:
            return replace(self, stage=IncarnationStage.READING).op(context)
        if self.stage == IncarnationStage.READING and self.read == self.partitions and not self.in_flight:
            return replace(self, stage=IncarnationStage.DELETING).op(context)
        if self.stage == IncarnationStage.LIVING:
            return self._use_incarnation(context)
        if self.stage == IncarnationStage.READING and self.read < self.partitions:
            argument = {"start": EARLIEST, "seek": True}
            operation = Operation(Poll.f, f"{self.topic}-{self.read}", argument)
            return Invoke(operation, context.pick()), replace(self, read=self.read + 1, in_flight=self.in_flight + 1)
        if (
            self.stage in (IncarnationStage.CREATING, IncarnationStage.DELETING, IncarnationStage.VERIFYING_DELETION)
            and not self.changing
        ):
            if context.time < self.next_time:
                return Pending(self.next_time), self
            return Invoke(self._make_change(), context.pick()), replace(self, changing=True)
        if self.stage != IncarnationStage.READING and self.adrift < MAX_ADRIFT:
            if context.time < self.next_time:
                return Pending(self.next_time), self
            operation = self._make_traffic(context, adrift=True)
            next_time = context.time + ADRIFT_PACE
            return Invoke(operation, context.pick()), replace(
                self, adrift=self.adrift + 1, value=self.value + 1, next_time=next_time
            )
        return PENDING, self

    def _use_incarnation(self, context: Context) -> tuple[Answer, Generator]:
        if self.partitions == PARTITIONS and not context.random_below(20, salt=41):
            operation = Operation(AddPartitions.f, self.topic, {"partitions": PARTITIONS + 1})
            return Invoke(operation, context.pick()), replace(self, in_flight=self.in_flight + 1)
        operation = self._make_traffic(context, adrift=False)
        return Invoke(operation, context.pick()), replace(self, in_flight=self.in_flight + 1, value=self.value + 3)

    def _make_traffic(self, context: Context, *, adrift: bool) -> Operation:
        key = f"{self.topic}-{context.random_below(self.partitions, salt=42)}"
        lives = [
            f"{format_incarnation(strip_incarnation(self.topic), self.incarnation + more)}-{key.rpartition('-')[2]}"
            for more in range(LATER_INCARNATIONS)
        ]
        verb = context.choose((Send.f, Send.f, Send.f, Poll.f, Poll.f, Poll.f, End.f), salt=43)
        mark: dict[str, Any] = {"adrift": True} if adrift else {}
        if verb == Send.f:
            count = 1 if adrift else 1 + context.random_below(3, salt=44)
            values = list(range(self.value, self.value + count))
            return Operation(Send.f, key, {"values": values, "lives": lives} | mark)
        if verb == Poll.f:
            start = EARLIEST if context.random_below(2, salt=45) else LATEST
            return Operation(Poll.f, key, {"start": start} | mark)
        return Operation(End.f, key, mark or None)

    def _make_change(self) -> Operation:
        if self.stage == IncarnationStage.CREATING:
            configs = {"min.insync.replicas": str(self.min_insync)}
            shape = {"partitions": PARTITIONS, "replication": self.replication, "configs": configs}
            return Operation(Create.f, self.topic, shape)
        return Operation(Delete.f if self.stage == IncarnationStage.DELETING else ListSettings.f, self.topic)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        operation = event.operation
        if event.completed is None or operation.key is None or not operation.key.startswith(NAME):
            return self
        if isinstance(operation.argument, dict) and operation.argument.get("adrift"):
            return replace(self, adrift=self.adrift - 1)
        completion = event.completed.completion
        if operation.f in (Create.f, Delete.f, ListSettings.f):
            error = (completion.error or "").partition(":")[0]
            lost = completion.outcome is Outcome.INFO and error in UNANSWERED
            return self._end_change(context, operation.f, completion.outcome, completion.result, error, lost=lost)
        grown = operation.f == AddPartitions.f and completion.outcome is Outcome.OK
        return replace(self, in_flight=self.in_flight - 1, partitions=PARTITIONS + 1 if grown else self.partitions)

    def _end_change(
        self, context: Context, f: str, outcome: Outcome, result: Any, error: str, *, lost: bool
    ) -> Generator:
        """Returns the state after a change ended. ``lost``: there was no answer."""
        retried = replace(self, changing=False, next_time=context.time + PAUSE)
        if lost and f != ListSettings.f:
            return replace(
                retried,
                name_number=self.name_number + 1,
                incarnation=1,
                stage=IncarnationStage.CREATING,
                uncertain=False,
            )
        if f == Create.f:
            if outcome is Outcome.OK or (error == "topic-already-exists" and self.uncertain):
                duration = SHORTEST_INCARNATION + context.random_below(2 * NANOSECONDS, salt=46)
                return replace(
                    self,
                    changing=False,
                    uncertain=False,
                    stage=IncarnationStage.LIVING,
                    partitions=PARTITIONS,
                    read=0,
                    stage_end=context.time + duration,
                )
        elif (
            f == Delete.f and (outcome is Outcome.OK or (error == "unknown-topic-or-partition" and self.uncertain))
        ) or (f == ListSettings.f and outcome is Outcome.OK and result["settings"] is None):
            return replace(
                self,
                changing=False,
                uncertain=False,
                stage=IncarnationStage.CREATING,
                incarnation=self.incarnation + 1,
            )
        elif f == Delete.f and outcome is Outcome.INFO:
            return replace(retried, stage=IncarnationStage.VERIFYING_DELETION)
        return replace(retried, uncertain=self.uncertain or outcome is Outcome.INFO)
