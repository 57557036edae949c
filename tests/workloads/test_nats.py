"""The workload of NATS JetStream: what is published and read, and what becomes of errors; on streams made up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import NotFoundError, ServiceUnavailableError

from assay.checkers.judging.verdict import Verdict
from assay.checkers.objects.sets import SETS
from assay.harness.core.operation import Completion, Operation, Outcome
from assay.harness.run.experiment import find_experiment
from assay.workloads import test_nats as jetstream
from assay.workloads.generic import sets
from assay.workloads.systems import nats

from helpers.judging import TABLES, judge
from helpers.log_histories import effect, write


class Stream:
    """Holds ``elements``; ``trouble`` is raised instead of any answer."""

    def __init__(self, *elements: int, trouble: Exception | None = None) -> None:
        self.elements, self.trouble = list(elements), trouble
        self.subscribed = 0

    async def publish(self, subject: str, payload: bytes) -> None:
        if self.trouble:
            raise self.trouble
        self.elements.append(int(payload))

    async def stream_info(self, name: str) -> Any:
        if self.trouble:
            raise self.trouble
        return SimpleNamespace(state=SimpleNamespace(messages=len(self.elements)))

    async def subscribe(self, subject: str, *, ordered_consumer: bool) -> Stream:
        assert ordered_consumer
        self.subscribed += 1
        self._left = iter(enumerate(self.elements, 1))
        return self

    async def next_msg(self, *, timeout: float) -> Any:
        number, element = next(self._left)
        pending = len(self.elements) - number
        return SimpleNamespace(data=b"%d" % element, metadata=SimpleNamespace(num_pending=pending))

    async def unsubscribe(self) -> None:
        self.subscribed -= 1


def asked(stream: Stream, f: str, argument: int | None = None) -> Completion:
    client: Any = jetstream.NatsElements()
    client.stream = stream
    completion: Completion = asyncio.run(client.invoke(Operation(f, sets.KEY, argument)))
    assert stream.subscribed == 0
    return completion


def test_what_is_published_is_read_to_its_end() -> None:
    stream = Stream(3)
    assert asked(stream, sets.ADD, 5) == Completion(Outcome.OK)
    assert asked(stream, sets.READ) == Completion(Outcome.OK, [3, 5])
    assert asked(Stream(), sets.READ) == Completion(Outcome.OK, [])


def test_a_stream_that_is_gone_has_no_elements() -> None:
    assert asked(Stream(3, trouble=NotFoundError()), sets.READ) == Completion(Outcome.OK, [])


@pytest.mark.parametrize("trouble", [NoAnswer(), ServiceUnavailableError(), ConnectionResetError()])
def test_a_publication_without_an_answer_may_have_been_done(trouble: Exception) -> None:
    completion = asked(Stream(trouble=trouble), sets.ADD, 5)
    assert (completion.outcome, completion.error) == (Outcome.INFO, type(trouble).__name__)


def test_a_read_without_an_answer_is_followed_by_another_connection() -> None:
    """As every operation of unknown outcome is: a closed connection would answer none of the last reads."""
    assert asked(Stream(trouble=ConnectionResetError()), sets.READ).outcome is Outcome.INFO


def test_a_slip_of_the_client_is_no_trouble() -> None:
    with pytest.raises(KeyError):
        asked(Stream(trouble=KeyError()), sets.ADD, 5)


def test_each_server_knows_all_others() -> None:
    nodes = [SimpleNamespace(name=f"n{number}", address=f"198.18.0.{10 + number}") for number in (1, 2, 3)]
    system: Any = nats.JetStream()
    (text,) = system.files(nodes[1], SimpleNamespace(nodes=nodes)).values()
    assert "server_name: n2" in text.decode()
    assert all(f"nats://{node.address}:{nats.ROUTES}" in text.decode() for node in nodes)


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        (([7, 8], [7]), "set-vanished"),
        (([7], [7, 8]), "set-stale"),
        (([7], [7]), "set-lost"),
        (([7, 8], [7, 8]), None),
    ],
)
def test_readers_that_lag_behind_each_other_are_reported_and_what_none_of_them_shows_is_lost(
    tmp_path: Path, reads: tuple[list[int], ...], found: str | None
) -> None:
    made = find_experiment(jetstream.test_nats)
    assert made is not None
    rows = [effect(op, 0, "set-add", sets.KEY, 10 * op, 10 * op + 5, value=value) for op, value in enumerate((7, 8))]
    for op, elements in enumerate(reads, start=2):
        rows += [
            effect(op, sub, "set-read", sets.KEY, 10 * op, 10 * op + 5, value=value, phase="drain")
            for sub, value in enumerate(elements)
        ]
    contract = msgspec.structs.replace(made.contract, minimum_operations=1)
    judgement = judge(write(tmp_path, rows), contract, families=(*TABLES, SETS))
    assert judgement.anomalies == ({} if found is None else {found: 1})
    assert (judgement.verdict is Verdict.FAIL) is (found == "set-lost")
