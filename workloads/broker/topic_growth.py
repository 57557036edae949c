"""A topic that grows under load: partitions are added in the middle of a run."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from assay.harness.core.generator import EXHAUSTED, PENDING, Answer, Context, Generator, Invoke, OperationEvent, Pending
from assay.harness.core.operation import Operation, Outcome, Phase
from assay.harness.core.timestamps import NANOSECONDS
from assay.workloads.broker.log_operations import LATEST, NEAR_END, End, Poll, Send
from assay.workloads.broker.mixed_traffic import ValueRange
from assay.workloads.broker.topic_admin import AddPartitions

GROWTH_INTERVAL: Final = 2 * NANOSECONDS
RETRY_INTERVAL: Final = NANOSECONDS // 2
MAX_TRIES: Final = 20


class Growth(Generator, frozen=True):
    """Grows ``topic`` from ``first`` to ``most`` partitions, with traffic on the new partitions.

    After each growth it requests fewer partitions, which must be rejected.

    - ``closing``: whether the generator adds the missing partitions without traffic, and then ends
    - ``partitions``: the acknowledged number of partitions, 0 before the first growth
    - ``asking``: whether a request is in flight
    - ``asked``: whether an earlier request for this growth had an unknown outcome
    - ``rejecting``: whether the next request, or the one in flight, must be rejected
    - ``tries``: number of requests so far
    - ``value``: next value to send
    - ``later``: time of the next request, in nanoseconds since the run began
    """

    topic: str
    first: int
    most: int
    closing: bool = False
    partitions: int = 0
    asked: bool = False
    asking: bool = False
    rejecting: bool = False
    tries: int = 0
    value: int = ValueRange.GROWN
    later: int = GROWTH_INTERVAL

    def op(self, context: Context) -> tuple[Answer, Generator]:
        have = max(self.partitions, self.first)
        done = have == self.most and not self.asking
        if self.closing and (done or self.tries == MAX_TRIES):
            return EXHAUSTED, self
        if not context.free:
            return PENDING, self
        if not self.asking and context.time >= self.later and (self.rejecting or have < self.most):
            wanted = have - 1 if self.rejecting else self.most if self.closing else have + 1
            phase = Phase.DRAIN if self.closing else Phase.MAIN
            operation = Operation(AddPartitions.f, self.topic, {"partitions": wanted}, phase)
            return Invoke(operation, context.pick()), replace(self, asking=True, tries=self.tries + 1)
        if self.closing or have == self.first:
            return Pending(self.later) if context.time < self.later else PENDING, self
        key = f"{self.topic}-{self.first + context.random_below(have - self.first, salt=61)}"
        verb = context.choose((Send.f, Send.f, Poll.f, Poll.f, Poll.f, End.f), salt=62)
        argument: Any = (
            (NEAR_END if context.random_below(2, salt=63) else {"start": LATEST}) if verb == Poll.f else None
        )
        if verb == Send.f:
            argument = {"values": [self.value, self.value + 1]}
        return Invoke(Operation(verb, key, argument), context.pick()), replace(self, value=self.value + 2)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        operation = event.operation
        if event.completed is None or operation.f != AddPartitions.f or operation.key != self.topic:
            return self
        completion, wanted = event.completed.completion, operation.argument["partitions"]
        if self.rejecting:
            return replace(self, asking=False, rejecting=False, later=context.time + GROWTH_INTERVAL)
        later = context.time + RETRY_INTERVAL
        done_before = (completion.error or "").startswith("invalid-partitions") and (self.asked or self.closing)
        if completion.outcome is Outcome.OK or done_before:
            return replace(self, asking=False, asked=False, rejecting=not self.closing, partitions=wanted, later=later)
        return replace(self, asking=False, asked=self.asked or completion.outcome is Outcome.INFO, later=later)
