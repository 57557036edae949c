"""Tests what operations are made, and the effects that they leave in a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.harness.core.generator import Context, Invoke
from assay.harness.core.operation import Completed, Completion, Operation, Outcome, Phase
from assay.workloads.broker.log_messages import Record
from assay.workloads.broker.log_operations import Glance, Poll, Send, effects, traffic

KEYS = ("orders-0", "orders-1")


def operations(generator: Any, count: int) -> list[Operation]:
    made = []
    for number in range(count):
        answer, generator = generator.op(Context(number, 1, 0, 1, (0,), random=number * 0x9E3779B97F4A7C15 % 2**64))
        assert isinstance(answer, Invoke)
        made.append(answer.operation)
    return made


def completed(operation: Operation, outcome: Outcome, result: Any = None) -> Completed:
    return Completed(41, 3, "w3", operation, Completion(outcome, result), 10, None if outcome is Outcome.INFO else 20)


def test_values_are_unique_over_all_partitions() -> None:
    values = [value for operation in operations(Send.draw(KEYS), 500) for value in operation.argument]
    assert len(values) == len(set(values))
    assert min(values) >= 0


def test_traffic_reaches_every_partition_with_every_operation() -> None:
    made = operations(traffic(KEYS), 2_000)
    assert {(operation.f, operation.key) for operation in made} == {
        (f, key) for f in ("send", "poll", "end") for key in KEYS
    }
    assert {len(operation.argument) for operation in made if operation.f == "send"} == {1, 2, 3}


def test_some_readers_begin_at_the_beginning_and_most_at_the_end() -> None:
    starts = [operation.argument["start"] for operation in operations(Poll.draw(KEYS), 1_000)]
    assert 150 < starts.count("earliest") < 350


def test_an_acknowledged_set_has_consecutive_offsets_and_one_request() -> None:
    rows = effects(
        completed(Operation("send", "orders-0", [5, 6, 7]), Outcome.OK, {"offset": 100, "epoch": 2, "node": "n1"})
    )
    assert [(row.kind, row.position, row.value, row.request, row.leader_epoch, row.node) for row in rows] == [
        ("append", 100, 5, 41, 2, "n1"),
        ("append", 101, 6, 41, 2, "n1"),
        ("append", 102, 7, 41, 2, "n1"),
    ]


def test_a_send_of_any_other_outcome_tells_its_values_and_no_offset() -> None:
    for outcome in (Outcome.FAIL, Outcome.INFO):
        rows = effects(completed(Operation("send", "orders-0", [5]), outcome))
        assert [(row.value, row.position) for row in rows] == [(5, None)]


def test_a_poll_tells_where_it_began_what_it_saw_and_where_it_ended() -> None:
    result = {"begin": 4, "records": [[4, 40], [5, 50]], "end": 6, "assignment": 2, "sought": True, "start": 0}
    rows = effects(completed(Operation("poll", "orders-0", {"start": "earliest"}), Outcome.OK, result))
    assert [(row.kind, row.position, row.value, row.assignment) for row in rows] == [
        ("start", 0, None, 2),
        ("seek", 4, None, 2),
        ("observe-begin", 4, None, 2),
        ("observe", 4, 40, 2),
        ("observe", 5, 50, 2),
        ("observe-end", 6, None, 2),
    ]


def test_a_message_says_its_create_time_its_key_and_how_large_it_is() -> None:
    sent = completed(Operation("send", "orders-0", [5, 60]), Outcome.INFO, {"timestamp": 1_700})

    class KeyedSend(Send):
        @staticmethod
        def records(values: Sequence[int]) -> Sequence[Record]:
            return [(b"k", str(value).encode()) for value in values]

    rows = list(KeyedSend.effects(sent))
    assert [(row.value, row.timestamp, row.message_key, row.size) for row in rows] == [
        (5, 1_700, "k", 36),
        (60, 1_700, "k", 37),
    ]
    seen = {"begin": 4, "records": [[4, 40, 1_700, "k"], [5, 50, None, None]], "end": 6, "assignment": 2}
    rows = effects(completed(Operation("poll", "orders-0", {"start": "latest"}), Outcome.OK, seen))
    assert [(row.timestamp, row.message_key) for row in rows if row.kind == "observe"] == [(1_700, "k"), (None, None)]


def test_a_failed_poll_has_no_effect() -> None:
    assert effects(completed(Operation("poll", "orders-0", {"start": "latest"}), Outcome.FAIL)) == []


def test_an_answer_that_is_no_messages_is_a_record_that_cannot_be_decoded() -> None:
    for operation in (Operation("poll", "orders-0", {"start": "latest"}), Operation("glance", "orders-0", {})):
        (row,) = effects(completed(operation, Outcome.FAIL, {"illegible": 7}))
        assert (row.kind, row.key, row.position, row.value) == ("observe", "orders-0", 7, None)


def test_only_a_drain_that_has_passed_the_sentinel_says_drained() -> None:
    for phase, end, drained in (
        (Phase.DRAIN, 10, False),
        (Phase.DRAIN, 11, True),
        (Phase.DRAIN, 15, True),
        (Phase.MAIN, 11, False),
    ):
        operation = Operation("poll", "orders-0", {"start": "earliest", "until": 10}, phase)
        rows = effects(completed(operation, Outcome.OK, {"begin": 0, "records": [], "end": end, "assignment": 0}))
        assert [row.position for row in rows if row.kind == "drained"] == ([11] if drained else [])


def test_glances_are_anywhere_and_those_of_the_end_are_evenly_spread() -> None:
    anywhere = [operation.argument["thousandths"] for operation in operations(Glance.draw(KEYS), 2_000)]
    assert min(anywhere) < 20
    assert max(anywhere) in range(980, 1000)
    made = operations(Glance.draw_evenly(KEYS, each=4, seconds=60), 8)
    assert {operation.phase for operation in made} == {Phase.DRAIN}
    for key in KEYS:
        places = [operation.argument["thousandths"] for operation in made if operation.key == key]
        assert places == [125, 375, 625, 875]


def test_a_glance_is_a_poll_of_its_own_assignment() -> None:
    result = {"begin": 4, "records": [[4, 40]], "end": 5, "assignment": 9, "sought": True, "start": 0}
    rows = effects(completed(Operation("glance", "orders-0", {"thousandths": 500}), Outcome.OK, result))
    assert [(row.kind, row.position, row.assignment) for row in rows] == [
        ("start", 0, 9),
        ("seek", 4, 9),
        ("observe-begin", 4, 9),
        ("observe", 4, 9),
        ("observe-end", 5, 9),
    ]


def test_what_the_leader_alone_acknowledged_has_no_offset_and_no_known_fate() -> None:
    rows = effects(completed(Operation("send", "orders-0", {"values": [5], "acks": 1}), Outcome.OK, {"offset": 7}))
    assert [(row.value, row.position, row.outcome) for row in rows] == [(5, None, Outcome.INFO)]
    rows = effects(completed(Operation("send", "orders-0", {"values": [5], "acks": 1}), Outcome.FAIL))
    assert [row.outcome for row in rows] == [Outcome.FAIL]


def test_each_step_of_a_walk_is_a_poll_of_its_own() -> None:
    (operation,) = operations(Glance.draw(KEYS, steps=2), 1)
    assert operation.argument["steps"] == 2
    polls = [
        {"begin": 7, "records": [[7, 70]], "end": 8, "assignment": 1, "sought": True, "start": 3},
        {"begin": 8, "records": [], "end": 8, "assignment": 2, "sought": True},
    ]
    rows = effects(completed(operation, Outcome.OK, {"polls": polls}))
    assert [(row.kind, row.position, row.assignment) for row in rows] == [
        ("start", 3, 1), ("seek", 7, 1), ("observe-begin", 7, 1), ("observe", 7, 1), ("observe-end", 8, 1),
        ("seek", 8, 2), ("observe-begin", 8, 2), ("observe-end", 8, 2),
    ]  # fmt: skip


def test_a_tombstone_has_its_number_as_its_time_also_where_no_client_says_so() -> None:
    argument = {"values": [500], "keys": ["k"], "tombstones": True}
    rows = effects(completed(Operation("send", "ledger-0", argument), Outcome.INFO))
    assert [(row.value, row.timestamp, row.tombstone) for row in rows] == [(500, 500, True)]
    rows = effects(completed(Operation("send", "ledger-0", {"values": [500], "keys": ["k"]}), Outcome.INFO))
    assert [(row.value, row.timestamp, row.tombstone) for row in rows] == [(500, None, False)]
