"""Tests what a member of a group tells, whatever its consumer does: no cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.client.group_consumer import ConsumerRecord
from assay.system_under_test.client.membership import CommitFailed, Generation, JoinFailed, Position
from assay.system_under_test.client.traits import CORRECT, ClientTraits, select_client_traits
from assay.workloads.broker import group_member
from assay.workloads.broker.group_client import GroupClient

ZERO, ONE = ("orders", 0), ("orders", 1)
Step = Callable[["ScriptedConsumer"], Sequence[ConsumerRecord]]


class ScriptedConsumer:
    """Does at each poll what the next step says."""

    steps: list[Step]
    commits: list[tuple[str, dict[Any, int]]]
    refusal: CommitFailed | None
    traits: ClientTraits | None = None

    def __init__(self, *_: Any, listener: Any, traits: ClientTraits, **__: Any) -> None:
        type(self).traits = traits
        self.on_assigned, self.on_revoked = listener.on_assigned, listener.on_revoked
        self.on_reset = listener.on_reset
        self.generation: Generation | None = None
        self.positions: dict[Any, int] = {}

    def own(self, number: int, positions: dict[Any, int]) -> None:
        if self.generation is not None:
            self.on_revoked(self.generation.partitions)
        self.generation = Generation(number, "m", tuple(positions))
        self.positions = dict(positions)
        self.on_assigned(tuple(positions))

    def committed_at_assignment(self, partition: Any) -> Position:
        return Position(self.positions[partition], "77") if self.positions[partition] else Position(-1)

    def position(self, partition: Any) -> int:
        return self.positions[partition]

    async def poll(self, timeout: float) -> Sequence[ConsumerRecord]:
        return self.steps.pop(0)(self)

    async def commit(self, metadata: str, *, offsets: None = None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.commits.append((metadata, dict(self.positions)))

    async def close(self, *, leave: bool = True) -> None:
        if leave and self.generation is not None:
            self.on_revoked(self.generation.partitions)


def owning(number: int, positions: dict[Any, int], *then: ConsumerRecord) -> Step:
    def step(consumer: ScriptedConsumer) -> Sequence[ConsumerRecord]:
        consumer.own(number, positions)
        return reading(*then)(consumer)

    return step


def reading(*records: ConsumerRecord, **moved: int) -> Step:
    """``moved``: positions without records, by ``zero`` and ``one``."""

    def step(consumer: ScriptedConsumer) -> Sequence[ConsumerRecord]:
        for record in records:
            consumer.positions[record.topic, record.partition] = record.offset + 1
        for name, offset in moved.items():
            consumer.positions[{"zero": ZERO, "one": ONE}[name]] = offset
        return records

    return step


def set_back(partition: tuple[str, int], offset: int, *then: ConsumerRecord) -> Step:
    """Its place was gone."""

    def step(consumer: ScriptedConsumer) -> Sequence[ConsumerRecord]:
        consumer.positions[partition] = offset
        consumer.on_reset(partition, offset)
        return reading(*then)(consumer)

    return step


def failing(consumer: ScriptedConsumer) -> Sequence[ConsumerRecord]:
    consumer.own(9, {})
    raise JoinFailed("too late")


def record(partition: tuple[str, int], offset: int, value: int) -> ConsumerRecord:
    return ConsumerRecord(*partition, offset, None, str(value).encode(), None)


def recorded(
    monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step], *then: Operation, later: Sequence[Step] = ()
) -> list[Completion]:
    """The answers to a poll for each step, and to ``then``; ``later``: the steps of the polls in there."""
    monkeypatch.setattr(group_member, "GroupConsumer", ScriptedConsumer)
    ScriptedConsumer.steps, ScriptedConsumer.commits = [*steps, *later], []

    async def play() -> list[Completion]:
        client = GroupClient()
        await client.open(Endpoint("n1", "h:1", ("h:1",), defects=("silent-consumer",)), None)
        polls = [Operation("poll", argument={"group": "g"})] * len(steps)
        return [await client.invoke(operation) for operation in (*polls, *then)]

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def no_refusal() -> None:
    ScriptedConsumer.refusal = None


COMMIT = Operation("commit", argument={"group": "g", "number": 5, "keys": []})


def test_what_is_read_goes_on_from_where_the_hold_began(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = recorded(
        monkeypatch,
        [owning(3, {ZERO: 10, ONE: 0}, record(ZERO, 10, 4), record(ZERO, 12, 5)), reading(record(ONE, 0, 6))],
    )
    hold = {"generation": 3, "owner": "m"}
    assert first.result["ownership"] == [
        {"kind": "acquire", "key": "orders-0", **hold, "assignment": 1, "begin": 10, "offset": 10, "number": 77},
        {"kind": "acquire", "key": "orders-1", **hold, "assignment": 2, "begin": 0, "offset": -1, "number": None},
    ]
    assert first.result["reads"] == [
        {
            "key": "orders-0",
            "begin": 10,
            "records": [[10, 4, None, None], [12, 5, None, None]],
            "end": 13,
            "assignment": 1,
        },
        {"key": "orders-1", "begin": 0, "records": [], "end": 0, "assignment": 2},
    ]
    assert second.result == {
        "ownership": [],
        "reads": [
            {"key": "orders-0", "begin": 13, "records": [], "end": 13, "assignment": 1},
            {"key": "orders-1", "begin": 0, "records": [[0, 6, None, None]], "end": 1, "assignment": 2},
        ],
    }


def test_who_began_again_elsewhere_did_not_read_between_but_who_went_on_did(monkeypatch: pytest.MonkeyPatch) -> None:
    _, back, on, far, lost = recorded(
        monkeypatch,
        [
            owning(3, {ZERO: 10}),
            set_back(ZERO, 2, record(ZERO, 2, 4)),
            reading(zero=9),
            set_back(ZERO, 50),
            owning(4, {}),
        ],
    )
    assert back.result["reads"] == [
        {"key": "orders-0", "reset": 2, "from": 10, "assignment": 2},
        {"key": "orders-0", "begin": 2, "records": [[2, 4, None, None]], "end": 3, "assignment": 2},
    ]
    assert on.result["reads"] == [{"key": "orders-0", "begin": 3, "records": [], "end": 9, "assignment": 2}]
    assert far.result["reads"] == [
        {"key": "orders-0", "reset": 50, "from": 9, "assignment": 3},
        {"key": "orders-0", "begin": 50, "records": [], "end": 50, "assignment": 3},
    ]
    hold = {"kind": "lost", "key": "orders-0", "generation": 3, "owner": "m", "assignment": 1}
    nothing = {"kind": "acquire", "key": None, "generation": 4, "owner": "m", "assignment": 4}
    assert lost.result == {"ownership": [hold, nothing], "reads": []}


def test_what_is_switched_on_reaches_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, [owning(3, {})])
    assert ScriptedConsumer.traits == select_client_traits(("silent-consumer",)) != CORRECT


def test_a_failed_poll_tells_of_ownership(monkeypatch: pytest.MonkeyPatch) -> None:
    _, failed = recorded(monkeypatch, [owning(3, {ZERO: 0}), failing])
    assert failed.outcome is Outcome.FAIL
    assert [(note["kind"], note["key"]) for note in failed.result["ownership"]] == [
        ("lost", "orders-0"),
        ("acquire", None),
    ]


@pytest.mark.parametrize(("f", "kind"), [("leave", "release"), ("die", "lost")])
def test_who_parts_owns_no_more_and_is_another_member_then(f: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parting = Operation(f, argument={"group": "g"})
    _, parted, again, commit = recorded(monkeypatch, [owning(3, {ZERO: 0})], parting, parting, COMMIT)
    assert [(note["kind"], note["assignment"]) for note in parted.result["ownership"]] == [(kind, 1)]
    assert (again.outcome, commit.outcome) == (Outcome.FAIL, Outcome.FAIL)


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (None, Outcome.OK),
        (CommitFailed("x", Certainty.NOT_DONE, {}), Outcome.FAIL),
        (CommitFailed("x", Certainty.UNKNOWN, {}), Outcome.INFO),
    ],
)
def test_a_commit_tells_what_it_is_of_whatever_becomes_of_it(
    refusal: CommitFailed | None, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedConsumer.refusal = refusal
    *_, commit = recorded(monkeypatch, [owning(3, {ZERO: 0}), reading(record(ZERO, 0, 4))], COMMIT)
    assert commit.outcome is outcome
    assert commit.result == {"generation": 3, "owner": "m", "positions": [["orders-0", 1, 1]]}
    assert ScriptedConsumer.commits == ([("5", {ZERO: 1})] if refusal is None else [])


POLL = Operation("poll", argument={"group": "g"})


def test_the_next_process_of_one_that_goes_on_reports_what_it_holds_once_and_as_nothing_that_was_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ScriptedConsumer.refusal = CommitFailed("x", Certainty.UNKNOWN, {})
    first = owning(3, {ZERO: 10, ONE: 0}, record(ZERO, 10, 4))
    _, unknown, again, after = recorded(
        monkeypatch, [first], COMMIT, POLL, POLL, later=[reading(record(ZERO, 11, 5)), reading()]
    )
    assert unknown.outcome is Outcome.INFO
    hold = {"kind": "acquire", "generation": 3, "owner": "m", "offset": None}
    assert again.result["ownership"] == [
        hold | {"key": "orders-0", "assignment": 3, "begin": 11},
        hold | {"key": "orders-1", "assignment": 4, "begin": 0},
    ]
    assert [(read["begin"], read["assignment"]) for read in again.result["reads"]] == [(11, 3), (0, 4)]
    rows = GroupClient.effects(Completed(7, 16, "w0", POLL, again, call=1, ret=2))
    assert [row.kind for row in rows][:4] == ["acquire", "seek", "acquire", "seek"]
    assert after.result["ownership"] == []


def test_who_owns_nothing_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, commit = recorded(monkeypatch, [owning(3, {})], COMMIT)
    assert (commit.outcome, commit.result) == (Outcome.FAIL, None)


def test_another_operation_is_a_mistake() -> None:
    async def ask() -> None:
        client = GroupClient()
        await client.open(Endpoint("n1", "h:1", ("h:1",)), _Runtime())
        try:
            await client.invoke(Operation("dance"))
        finally:
            await client.close()

    with pytest.raises(ValueError, match="silence, not 'dance'"):
        asyncio.run(ask())


class _Runtime:
    random = random.Random(0)
