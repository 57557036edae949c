"""Logs with offsets, as in Jepsen's and Maelstrom's kafka workloads.

An operation ``send``, ``poll`` or ``txn`` is a list of ``["send", key, value]`` and ``["poll"]``. In an answer, a send
is ``["send", key, [offset, value]]``, and a poll has a map of key to a list of ``[offset, value]``. ``assign`` and
``subscribe`` choose the keys of a process. Values are sent once to a key.

*Version order.* Acknowledged sends and polls say which value is at which offset. Offsets may have gaps, because markers
of transactions take offsets. So the values of a key in order of their offsets have dense *indexes*. All questions about
order compare indexes:

1. An offset has one value, and a value has one offset.
2. Every polled value was sent by an operation that did not fail. An operation does not poll a value that it sends.
3. Every acknowledged value was polled by someone by the end. A missing value is *lost* if a later value of its key was
   polled, and *unseen* otherwise.
4. Within an operation, and from one operation of a process to its next, polls go up by one index at a time. Sends go
   up, too.
5. No operations come before each other in a circle. A send comes before the polls of its value, and before the sends of
   later values of its key. An operation comes before those that were called after its return.

*Operations that did not end ok.* A poll shows only committed values, however its operation ended. So the offsets of all
polls count, and so does the order of the polls of one operation. But a process goes on polling from its last
acknowledged operation. In rule 3, and for a value whose send failed, only the polls of acknowledged operations count.
The offset of a send of unknown outcome counts if an acknowledged operation polled one of its values. The offset of a
failed send never counts.

*Allowances.* Sends of two transactions may interleave. So skips within a transaction's sends, and circles that need the
order of two operations' sends, are reported but do not fail the history. With ``--linearizable`` they fail it. As soon
as any process has subscribed, partitions move between processes, so the polls of successive operations may skip and go
back. The polls within one operation may do so for the keys of its ``:rebalance-log``, the partitions that moved
meanwhile. If no operation of the file has such a log, they may do so if their process has subscribed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_OPERATIONS
from assay.checkers.times import format_seconds
from assay.checkers.transactions.edges import WR, WW
from assay.checkers.transactions.graph import ORDER, Graph, ShortCycles, classify
from assay.checkers.transactions.real_time import order_in_real_time
from assay.checkers.transactions.words import to_links
from assay.checkers.workload_checks.visibility import freeze
from assay.checkers.workload_checks.workload_result import (
    ALWAYS,
    MOST_VALUES,
    NO_FIELDS,
    Fields,
    WorkloadAnomaly,
    WorkloadResult,
    describe_some,
    list_elements,
    name_object,
)
from assay.harness.core.history import HistoryError
from assay.harness.core.lazy_import import LazyModule
from assay.harness.core.operation import Completed, Outcome

if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")

INCONSISTENT: Final = "inconsistent-offset"
DUPLICATE: Final = "duplicate"
ABORTED: Final = "aborted-read"
PHANTOM: Final = "phantom"
PRECOMMITTED: Final = "precommitted-read"
LOST: Final = "lost-write"
UNSEEN: Final = "unseen"
POLL_SKIP, POLL_BACK = "poll-skip", "nonmonotonic-poll"
INNER_POLL_SKIP, INNER_POLL_BACK = "int-poll-skip", "int-nonmonotonic-poll"
SEND_BACK: Final = "nonmonotonic-send"
INNER_SEND_SKIP, INNER_SEND_BACK = "int-send-skip", "int-nonmonotonic-send"
CIRCLE, TIME_CIRCLE, SEND_CIRCLE = "G1c", "G1c-real-time", "send-cycle"

ANOMALIES: Final[Mapping[str, WorkloadAnomaly]] = {
    INCONSISTENT: WorkloadAnomaly(
        "two values were seen at one offset", "offsets that were seen", "if two answers show the offset"
    ),
    DUPLICATE: WorkloadAnomaly(
        "a value is at two offsets", "values whose offset was seen", "if two answers show the value"
    ),
    ABORTED: WorkloadAnomaly(
        "a value was polled although its send failed",
        "values whose sends failed",
        "if a poll of the key returned after the send was called",
    ),
    PHANTOM: WorkloadAnomaly("a value was polled that no one sent", "polled values", ALWAYS),
    PRECOMMITTED: WorkloadAnomaly(
        "a transaction polled a value that it sent itself",
        "operations that sent and polled values",
        "if the operation polled a key to which it sent",
    ),
    LOST: WorkloadAnomaly(
        "an acknowledged value was never polled, though a later one was",
        "values that were acknowledged, or sent together with a polled value",
        "if the send returned the offset, and a poll shows a later offset",
    ),
    UNSEEN: WorkloadAnomaly(
        "an acknowledged value at the end of a log was never polled",
        "acknowledged values",
        "if no poll shows an offset after that of the send",
    ),
    POLL_SKIP: WorkloadAnomaly(
        "a process skipped values between two operations",
        "polls of a key by a process that had polled the key before",
        "if the log has a value after the polled one",
    ),
    POLL_BACK: WorkloadAnomaly(
        "a process polled values again, or earlier ones, in a later operation",
        "polls of a key by a process that had polled the key before",
        ALWAYS,
    ),
    INNER_POLL_SKIP: WorkloadAnomaly(
        "the polls of one operation skipped values",
        "adjacent values that an operation polled without a subscribe",
        "if the log has a value after the second one",
    ),
    INNER_POLL_BACK: WorkloadAnomaly(
        "the polls of one operation went back", "adjacent values that an operation polled without a subscribe", ALWAYS
    ),
    SEND_BACK: WorkloadAnomaly(
        "a process sent a value, and the log has it before the process's earlier one",
        "sends to a key by a process that had sent to the key before",
        "if the offsets of both values are known",
    ),
    INNER_SEND_SKIP: WorkloadAnomaly(
        "between two sends of one operation, the log has a value of another one",
        "adjacent values that an operation sent to a key",
        "if the offsets of both values are known, and the log has a third value",
    ),
    INNER_SEND_BACK: WorkloadAnomaly(
        "the log has two sends of one operation in the wrong order",
        "adjacent values that an operation sent to a key",
        "if the offsets of both values are known",
    ),
    CIRCLE: WorkloadAnomaly(
        "operations polled each other's values in a circle",
        "operations that polled a value",
        "if another operation polled a value that the operation sent",
    ),
    TIME_CIRCLE: WorkloadAnomaly(
        "operations polled each other's values in an order that contradicts their times",
        "operations that polled a value",
        "if another operation polled a value that the operation sent, or was called later and sent a value",
    ),
    SEND_CIRCLE: WorkloadAnomaly(
        "operations come before each other in a circle of sends and polls",
        "operations that sent or polled a value",
        "if another operation sent to a key of the operation",
    ),
}
_INTERLEAVED: Final = "the sends of transactions may interleave"
_REBALANCED: Final = "after a subscribe, partitions move between processes"
ALWAYS_ALLOWED: Final[Mapping[str, str]] = {INNER_SEND_SKIP: _INTERLEAVED, SEND_CIRCLE: _INTERLEAVED}
ALLOWED_AFTER_SUBSCRIBE: Final[Mapping[str, str]] = {POLL_SKIP: _REBALANCED, POLL_BACK: _REBALANCED}

Values = dict[str, list[Any]]
"""Values by key, in the order of an operation."""


Place = tuple[str, int | None, Any]
"""Key, offset and value. The offset is None if it is unknown."""


@dataclass
class _Step:
    """An operation with its sent and polled values by key, and with the offsets of both."""

    operation: Completed
    sent: Values = field(default_factory=dict)
    polled: Values = field(default_factory=dict)
    sent_places: list[Place] = field(default_factory=list)
    polled_places: list[Place] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        return self.operation.completion.outcome is Outcome.OK


@dataclass
class _Log:
    """The values of one key.

    - ``offsets``: the values that were seen at each offset
    - ``order``: the values by offset. If an offset has several values, only the first is in the order.
    - ``index``: the place of each value in the order, the first one if a value has several offsets
    """

    offsets: dict[int, list[Any]] = field(default_factory=dict)
    order: list[Any] = field(default_factory=list)
    index: dict[Any, int] = field(default_factory=dict)
    places: dict[Any, list[int]] = field(default_factory=dict)
    """The offsets of each value."""
    rank: dict[int, int] = field(default_factory=dict)
    """The dense number of each offset, from 0. If a value has several offsets, its index is the lowest rank."""
    shown: Counter[int] = field(default_factory=Counter)
    """How often answers show each offset."""
    shown_values: Counter[Any] = field(default_factory=Counter)
    """How often answers show each value with its offset."""
    returned: dict[Any, int] = field(default_factory=dict)
    """The highest offset that a send of the value returned."""
    _seen: set[tuple[int, Any]] = field(default_factory=set)
    """Each offset with each of its values."""

    def record(self, offset: int | None, value: Any) -> None:
        if offset is None:
            return
        self.shown[offset] += 1
        self.shown_values[value] += 1
        if (offset, value) not in self._seen:
            self._seen.add((offset, value))
            self.offsets.setdefault(offset, []).append(value)
            self.places.setdefault(value, []).append(offset)

    def record_sent(self, offset: int | None, value: Any) -> None:
        """Records the offset that a send returned."""
        self.record(offset, value)
        if offset is not None:
            self.returned[value] = max(offset, self.returned.get(value, offset))

    def has_later(self, value: Any) -> bool:
        """Returns whether the log has a value after this one."""
        return self.index[value] + 1 < len(self.order)

    def sort_values(self) -> None:
        """Orders the values by offset, once all offsets were seen."""
        for offset in sorted(self.offsets):
            self.rank[offset] = len(self.order)
            value = self.offsets[offset][0]
            self.index.setdefault(value, len(self.order))
            self.order.append(value)

    def measure_jump(self, former: Any, value: Any) -> int:
        """Returns how many indexes ``value`` is above ``former``; 1 if one of the indexes is unknown."""
        if former not in self.index or value not in self.index:
            return 1
        return self.index[value] - self.index[former]

    def describe_between(self, former: Any, value: Any) -> str:
        """Returns the first values between two values, and the number of the others."""
        first, end = self.index[former] + 1, self.index[value]
        return describe_some(self.order[first : min(end, first + MOST_VALUES)], end - first)


def check_kafka(operations: Sequence[Completed], fields: Fields = NO_FIELDS, strict: bool = False) -> WorkloadResult:
    """Judges logs. Sends of unknown outcome count as committed if one of their values was polled.

    ``strict``: the sends of an operation may not interleave with those of others.
    """
    return _KafkaCheck(sorted(operations, key=lambda one: one.call), fields, strict).judge()


class _KafkaCheck:
    """The state of the check: the logs, and the operations of each (key, value)."""

    def __init__(self, operations: Sequence[Completed], fields: Fields, strict: bool) -> None:
        self.result = WorkloadResult(allowed={} if strict else dict(ALWAYS_ALLOWED))
        self.operations = operations
        self.rebalanced = {
            index: _read_rebalances(index, one[REBALANCES]) for index, one in fields.items() if REBALANCES in one
        }
        self.logs: dict[str, _Log] = {}
        self.steps = {one.index: _read_step(one) for one in operations if one.operation.f in _LOG_VERBS}
        committed = {
            pair for step in self.steps.values() if step.is_acknowledged for pair in _iterate_values(step.polled)
        }
        for step in self.steps.values():
            for key in (*step.sent, *step.polled):
                self.logs.setdefault(key, _Log())
            for key, offset, value in step.polled_places:
                self.logs[key].record(offset, value)
            has_failed = step.operation.completion.outcome is Outcome.FAIL
            if step.is_acknowledged or not (has_failed or committed.isdisjoint(_iterate_values(step.sent))):
                for key, offset, value in step.sent_places:
                    self.logs[key].record_sent(offset, value)
        for log in self.logs.values():
            log.sort_values()
        self.sender: dict[tuple[str, Any], _Step] = {}
        self.failed: dict[tuple[str, Any], _Step] = {}
        self.pollers: dict[tuple[str, Any], list[_Step]] = {}
        for step in self.steps.values():
            failed = step.operation.completion.outcome is Outcome.FAIL
            for key, value in _iterate_values(step.sent):
                (self.failed if failed else self.sender)[key, value] = step
            for key, value in _iterate_values(step.polled):
                self.pollers.setdefault((key, value), []).append(step)
        self.subscribers = {one.process for one in operations if one.operation.f == "subscribe"}
        if self.subscribers:
            self.result.allowed |= ALLOWED_AFTER_SUBSCRIBE

    def judge(self) -> WorkloadResult:
        self._check_offsets()
        self._check_polled()
        self._check_unpolled()
        for step in self.steps.values():
            self._check_inside(step)
        self._check_processes()
        self._check_circles()
        polls = sum(bool(step.polled) for step in self.steps.values())
        if not polls:
            self.result.doubts.append("nothing was ever polled")
        self.result.examined = dict.fromkeys(ANOMALIES, len(self.steps))
        return self.result

    def _find_showing_operations(self, key: str, value: Any) -> list[Completed]:
        """Returns the operations that show a value: its send, and the first that polled it."""
        steps = [self.sender.get((key, value)), *self.pollers.get((key, value), [])[:1]]
        return [step.operation for step in steps if step is not None]

    def _check_offsets(self) -> None:
        for key, log in self.logs.items():
            self.result.count_claims(INCONSISTENT, (count > 1 for count in log.shown.values()))
            self.result.count_claims(DUPLICATE, (count > 1 for count in log.shown_values.values()))
            for offset, values in log.offsets.items():
                if len(values) > 1:
                    shown_by = [one for value in values[:2] for one in self._find_showing_operations(key, value)]
                    claim = (
                        f"{key}: offset {offset} has {describe_some(values)}, by operations {_list_indexes(shown_by)}."
                    )
                    self.result.add_finding(INCONSISTENT, key, claim, shown_by)
            for value, offsets in log.places.items():
                if len(offsets) > 1:
                    shown_by = self._find_showing_operations(key, value)
                    claim = f"{key}: {value} is at the offsets {describe_some(offsets)}."
                    self.result.add_finding(DUPLICATE, key, claim, shown_by)

    def _check_polled(self) -> None:
        last: dict[str, int] = {}
        """By key, when the last poll of a value returned."""
        for (key, _), pollers in self.pollers.items():
            last[key] = max(last.get(key, -1), *(step.operation.ret or step.operation.call for step in pollers))
        rejected = (pair for pair in self.failed if pair not in self.sender)
        self.result.count_claims(
            ABORTED, (self.failed[pair].operation.call < last.get(pair[0], -1) for pair in rejected)
        )
        self.result.count_claims(PHANTOM, [True] * len(self.pollers))
        both = (step for step in self.steps.values() if step.sent and step.polled)
        self.result.count_claims(PRECOMMITTED, (not step.sent.keys().isdisjoint(step.polled) for step in both))
        for (key, value), pollers in self.pollers.items():
            acknowledged = [step for step in pollers if step.is_acknowledged]
            poller = (acknowledged or pollers)[0].operation
            if (key, value) not in self.sender:
                failed = self.failed.get((key, value))
                if failed is not None and not acknowledged:
                    continue  # as in Jepsen, only the polls of acknowledged operations are aborted reads
                by = f"{key}: {value} was polled by operation {poller.index} at {format_seconds(poller.ret or 0)}, but "
                if failed is None:
                    self.result.add_finding(PHANTOM, key, f"{by}no one sent it.", [poller])
                else:
                    sender = failed.operation
                    claim = f"{by}its send by operation {sender.index} at {format_seconds(sender.call)} had failed."
                    self.result.add_finding(ABORTED, key, claim, [sender, poller])
            elif self.sender[key, value] in pollers:
                own = self.sender[key, value].operation
                claim = f"{key}: operation {own.index} polled {value}, which it sent itself and had not committed."
                self.result.add_finding(PRECOMMITTED, key, claim, [own])

    def _check_unpolled(self) -> None:
        """Looks for committed values that no one polled: lost below the last polled value, else unseen."""
        last: dict[str, tuple[int, Any]] = {}
        polled_pairs = {pair for pair, pollers in self.pollers.items() if any(step.is_acknowledged for step in pollers)}
        for key, value in polled_pairs:
            log = self.logs[key]
            if value in log.places:
                first = log.rank[min(log.places[value])]
                last[key] = max(last.get(key, (-1, None)), (first, value), key=lambda pair: pair[0])
        readers = {
            pair: next(step.operation for step in self.pollers[pair] if step.is_acknowledged)
            for pair in {(key, shown) for key, (_, shown) in last.items()}
        }
        polled_of = {
            step.operation.index: polled_pairs.intersection(_iterate_values(step.sent))
            for step in self.steps.values()
            if not step.is_acknowledged
        }
        for (key, value), step in self.sender.items():
            one, is_ok = step.operation, step.is_acknowledged
            # A polled value proves that all values of its transaction were committed.
            is_committed = is_ok or len(polled_of[one.index]) > ((key, value) in polled_of[one.index])
            log, (highest, shown) = self.logs[key], last.get(key, (-1, None))
            if is_committed:
                place = log.rank[log.returned[value]] if value in log.returned else highest
                self.result.count_claims(LOST, [place < highest])
                self.result.count_claims(UNSEEN, [place >= highest] if is_ok else [])
            if (key, value) in polled_pairs or not is_committed:
                continue
            by = f"{key}: {value} was sent by operation {one.index} at {format_seconds(one.call)}"
            if value in log.places and log.rank[max(log.places[value])] <= highest:
                reader = readers[key, shown]
                claim = f"{by} and never polled, though operation {reader.index} polled {shown}, which comes after it."
                self.result.add_finding(LOST, key, claim, [one, reader])
            elif is_ok:
                self.result.add_finding(UNSEEN, key, f"{by} and acknowledged, and no one polled it by the end.", [one])

    def _check_inside(self, step: _Step) -> None:
        one = step.operation
        if one.completion.outcome is not Outcome.FAIL:
            self._compare_neighbours(step.sent, one, "sent", INNER_SEND_SKIP, INNER_SEND_BACK)
        moved = self.rebalanced.get(one.index, set())
        if self.rebalanced or one.process not in self.subscribers:
            unmoved = {key: values for key, values in step.polled.items() if key not in moved}
            self._compare_neighbours(unmoved, one, "polled", INNER_POLL_SKIP, INNER_POLL_BACK)

    def _compare_neighbours(self, values: Values, one: Completed, verb: str, skip: str, back: str) -> None:
        """Compares adjacent values of one operation. ``skip`` and ``back`` are the anomalies of a wrong order."""
        for key, of_key in values.items():
            log = self.logs[key]
            pairs = [(former in log.index and value in log.index, value) for former, value in pairwise(of_key)]
            may_have_third = verb == "polled" or len(log.order) > 2
            self.result.count_claims(
                skip, (known and may_have_third and (verb == "sent" or log.has_later(value)) for known, value in pairs)
            )
            self.result.count_claims(back, (known for known, _ in pairs))
            for former, value in pairwise(of_key):
                jump = log.measure_jump(former, value)
                if jump != 1:
                    why = (
                        f"between which the log has {log.describe_between(former, value)}"
                        if jump > 1
                        else "which go back"
                    )
                    claim = f"{key}: operation {one.index} {verb} {former} and then {value}, {why}."
                    self.result.add_finding(skip if jump > 1 else back, key, claim, [one])

    def _check_processes(self) -> None:
        """Compares each operation's first values with the last ones of its process."""
        polled: dict[int, dict[str, tuple[_Step, Any]]] = {}
        sent: dict[int, dict[str, tuple[_Step, Any]]] = {}
        for one in self.operations:
            if one.completion.outcome is Outcome.FAIL:
                if one.index in self.steps:
                    self._compare_with_last(one, "polled", polled)
                continue
            if one.operation.f in ("assign", "subscribe"):
                kept = set(map(name_key, list_elements(one.operation.argument or [])))
                for last in (polled, sent):
                    held = last.get(one.process, {})
                    last[one.process] = {key: value for key, value in held.items() if key in kept}
            elif one.index in self.steps:
                self._compare_with_last(one, "polled", polled)
                self._compare_with_last(one, "sent", sent)

    def _compare_with_last(
        self, one: Completed, verb: str, by_process: dict[int, dict[str, tuple[_Step, Any]]]
    ) -> None:
        """Compares an operation's first values with the last ones of its process. ``verb``: polled or sent."""
        step, last = self.steps[one.index], by_process.setdefault(one.process, {})
        polls = verb == "polled"
        values, skip, back = (step.polled, POLL_SKIP, POLL_BACK) if polls else (step.sent, None, SEND_BACK)
        for key, of_key in values.items():
            if key in last:
                former, value = last[key]
                log = self.logs[key]
                known = value in log.index and of_key[0] in log.index
                self.result.count_claims(back, [known])
                if skip is not None:
                    self.result.count_claims(skip, [known and log.has_later(of_key[0])])
                jump = log.measure_jump(value, of_key[0])
                if jump < 1 or (jump > 1 and skip is not None):
                    place = (
                        f"the log has {log.describe_between(value, of_key[0])} between them"
                        if jump > 1
                        else f"in the log, {of_key[0]} does not come after {value}"
                    )
                    claim = (
                        f"{key}: process {one.process} {verb} {value} last by operation {former.operation.index}, and "
                        f"then {of_key[0]} first by operation {one.index}; {place}."
                    )
                    self.result.add_finding(
                        back if skip is None or jump < 1 else skip, key, claim, [former.operation, one]
                    )
            if step.is_acknowledged or not polls:
                last[key] = (step, of_key[-1])

    def _check_circles(self) -> None:
        """Looks for circles of polls, then of polls and times, then also of sends. Each circle is reported once."""
        polls = {
            (sender.operation.index, poller.operation.index)
            for pair, pollers in self.pollers.items()
            if (sender := self.sender.get(pair)) is not None
            for poller in pollers
            if poller is not sender and poller.operation.completion.outcome is not Outcome.FAIL
        }
        sends = set()
        for key, log in self.logs.items():
            senders = [self.sender.get((key, value)) for value in log.order]
            for former, later in pairwise(one for one in senders if one is not None):
                if former is not later:
                    sends.add((former.operation.index, later.operation.index))
        self._expose_circles(polls)
        reported: set[int] = set()
        for anomaly, with_sends, with_time in (
            (CIRCLE, False, False), (TIME_CIRCLE, False, True), (SEND_CIRCLE, True, True),
        ):  # fmt: skip
            edges = [(*edge, WR) for edge in polls] + [(*edge, WW) for edge in sends if with_sends]
            for members, cycle in self._find_circles(edges, with_time=with_time):
                if reported.isdisjoint(members):
                    reported.update(members)
                    self._add_circle(anomaly, cycle, polls, sends)

    def _expose_circles(self, polls: set[tuple[int, int]]) -> None:
        """Counts operations that a circle may meet. Each one needs a way to another operation, and a way back."""
        were_polled = {sender for sender, _ in polls}
        senders: dict[str, set[int]] = {}
        last_call = -1
        done = [step for step in self.steps.values() if step.operation.completion.outcome is not Outcome.FAIL]
        for step in done:
            for key in step.sent:
                senders.setdefault(key, set()).add(step.operation.index)
            if step.sent:
                last_call = max(last_call, step.operation.call)
        for step in done:
            one = step.operation
            if step.polled:
                is_later = one.ret is not None and last_call > one.ret
                self.result.count_claims(CIRCLE, [one.index in were_polled])
                self.result.count_claims(TIME_CIRCLE, [one.index in were_polled or is_later])
            if step.polled or step.sent:
                others = (senders.get(key, set()) for key in {*step.sent, *step.polled})
                self.result.count_claims(SEND_CIRCLE, [any(len(ops) > (one.index in ops) for ops in others)])

    def _find_circles(
        self, edges: Sequence[tuple[int, int, int]], *, with_time: bool
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Yields the members and the shortest cycle of each component, as indexes of operations."""
        done = [step.operation for step in self.steps.values() if step.operation.completion.outcome is not Outcome.FAIL]
        if not edges or not done:
            return
        ops = np.array(sorted(one.index for one in done), np.int64)
        by_index = {one.index: one for one in done}
        call = np.array([by_index[op].call for op in ops.tolist()], np.int64)
        ret = np.array([by_index[op].ret or INFINITY for op in ops.tolist()], np.int64)
        source, target, kind = (np.array([edge[part] for edge in edges], np.int64) for part in range(3))
        nodes, times = ops, call
        if with_time:
            added = order_in_real_time(ops, call, ret, np.zeros_like(ops))
            nodes, times = np.concatenate([ops, added.nodes]), np.concatenate([call, added.times])
            kind = np.concatenate([kind, np.full(len(added.source), ORDER)])
            source, target = np.concatenate([source, added.source]), np.concatenate([target, added.target])
        classified = classify(Graph.of(nodes, times, source, target, kind))
        cycles = ShortCycles(classified)
        for component in classified.components:
            ids = classified.graph.nodes[component.members]
            yield ids[ids >= 0].tolist(), [link.source for link in to_links(cycles.find_shortest(component)[1])]

    def _add_circle(
        self, anomaly: str, cycle: Sequence[int], polls: set[tuple[int, int]], sends: set[tuple[int, int]]
    ) -> None:
        reasons = []
        for op, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            first, second = self.steps[op].operation, self.steps[following].operation
            if (op, following) in polls:
                reasons.append(f"operation {following} polled a value of operation {op}")
            elif (op, following) in sends:
                reasons.append(f"a log has a value of operation {op} right before one of operation {following}")
            else:
                ended, began = format_seconds(first.ret or 0), format_seconds(second.call)
                reasons.append(f"operation {op} had returned at {ended}, before {following} was called at {began}")
        claim = f"{len(cycle)} operations come before each other in a circle: {'; '.join(reasons[:6])}."
        operations = [self.steps[op].operation for op in cycle]
        listed = reasons if len(cycle) <= MOST_OPERATIONS else ()  # a longer circle is not drawn
        self.result.add_finding(anomaly, None, claim, operations, cycle=True, reasons=listed)


_LOG_VERBS: Final = ("send", "poll", "txn")
REBALANCES: Final = "rebalance-log"
"""The field of a completion with the partitions that moved during the operation, as a list of ``{:keys [...]}``."""


def _read_step(one: Completed) -> _Step:
    step, called = _Step(one), one.operation.argument or ()
    answered = called if one.completion.result is None else one.completion.result
    for place, micro in enumerate(answered):
        if micro[0] == "send":
            key, value = name_key(micro[1]), micro[2]
            # A send that was not answered repeats its call, whose value may itself be a list of two.
            has_offset = isinstance(value, list) and len(value) == 2 and [micro] != called[place : place + 1]
            offset, value = value if has_offset else (None, value)
            step.sent.setdefault(key, []).append(freeze(value))
            step.sent_places.append((key, offset, freeze(value)))
        elif len(micro) > 1:
            for key, pairs in (micro[1] or {}).items():
                for offset, value in pairs:
                    step.polled.setdefault(key, []).append(freeze(value))
                    step.polled_places.append((key, offset, freeze(value)))
    return step


def _read_rebalances(index: int, log: Any) -> set[str]:
    """Returns the keys that moved during an operation. Raises ``HistoryError`` for a log of another form."""
    events = [] if log is None else log
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise HistoryError(f"operation {index}: a :rebalance-log is a vector of maps with :keys, not {log}")
    return {name_key(key) for event in events for key in list_elements(event.get("keys") or [])}


def name_key(key: Any) -> str:
    """Returns the name of a key, as in the maps of polls."""
    return key if isinstance(key, str) else name_object(str(key))


def _iterate_values(values: Values) -> Iterable[tuple[str, Any]]:
    return ((key, value) for key, of_key in values.items() for value in of_key)


def _list_indexes(operations: Sequence[Completed]) -> str:
    return " and ".join(str(index) for index in dict.fromkeys(one.index for one in operations))
