"""Lines of event logs as events of the history; topics of one name, one after the other, have keys of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.history.in_memory import HistoryInMemory
from assay.harness.core.timestamps import Stamps
from assay.harness.run.event_logs import UNREADABLE, EventLogCollector, TopicKeys


def test_lives_of_a_topic_are_numbered_as_they_are_heard_of() -> None:
    lives = TopicKeys()
    heard = [("orders-0", 40), ("orders-1", 40), ("bills-0", 41), ("orders-0", 77), ("orders-0", 40), ("orders-2", 77)]
    assert [lives.to_history_key(*one) for one in heard] == [
        "orders-0", "orders-1", "bills-0", "orders#2-0", "orders-0", "orders#2-2",
    ]  # fmt: skip


def test_one_that_was_missed_is_none_of_those_that_were_counted() -> None:
    lives = TopicKeys()
    assert [lives.to_history_key("orders-0", life) for life in (40, 90, 77, 95)] == [
        "orders-0", "orders#2-0", "orders#0-0", "orders#3-0",
    ]  # fmt: skip


def test_what_says_no_topic_stays_as_it_is() -> None:
    lives = TopicKeys()
    assert [lives.to_history_key(None, None), lives.to_history_key("workers", None), lives.to_history_key(None, 5)] == [
        None,
        "workers",
        None,
    ]


class Saying:
    """A node that says these lines."""

    name = "n1"

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    async def events(self) -> AsyncIterator[str]:
        for line in self.lines:
            yield line


class Torn(Saying):
    """It goes on after its lines, until it is no longer followed; ``rest`` is then known."""

    unfinished_event = ""

    def __init__(self, rest: str) -> None:
        super().__init__([])
        self.rest = rest

    async def events(self) -> AsyncIterator[str]:
        try:
            await asyncio.Event().wait()
            yield ""
        finally:
            self.unfinished_event = self.rest


@pytest.mark.parametrize("rest", ["", '{"time": 1.0, "seq": 1, "event": "led"}', '{"time": 1.0, "seq": 1, "ev'])
def test_a_last_line_without_a_line_feed_is_recorded_if_it_is_whole_and_else_named(rest: str) -> None:
    history = HistoryInMemory()

    async def collect() -> list[str]:
        nodes: list[Any] = [Torn(rest)]
        collector = EventLogCollector(nodes, history, Stamps(), None)
        collector.start()
        await collector.stop()
        return collector.problems

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        problems = runner.run(collect())
    events = history.columns()["events"]
    assert len(events[0] if events else []) == rest.endswith("}")
    left_out = [f"events of n1: the last line is not whole, so it was left out: {rest}"]
    assert problems == (left_out if rest.endswith("ev") else [])


@pytest.mark.parametrize("ahead", [0.0, 900.0, -900.0])
def test_an_event_has_the_time_of_the_right_clock(ahead: float) -> None:
    history = HistoryInMemory()

    class Ahead(Saying):
        monotonic_ahead = ahead

    async def collect() -> None:
        stamps = Stamps()
        read = stamps.to_loop_time(0) + 2.0 + ahead
        nodes: list[Any] = [Ahead([json.dumps({"time": read, "seq": 1, "event": "led"})])]
        collector = EventLogCollector(nodes, history, stamps, None)
        collector.start()
        await collector.stop()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(collect())
    assert history.columns()["events"][0] == [2_000_000_000]


@pytest.mark.parametrize(
    ("odd", "taken"),
    [
        ({"epoch": 2**63 - 1}, True),
        ({"epoch": 2**63}, False),
        ({"seq": -(2**64)}, False),
        ({"incarnation": 1 << 70}, False),
        ({"isr": [1, 1 << 70]}, False),
        ({"time": 1e30}, False),
        ({"time": -1e300}, False),
        ({"event": 7}, False),
    ],
)
def test_a_line_that_the_history_does_not_take_is_kept_as_unreadable(odd: dict[str, Any], taken: bool) -> None:
    """A system may write anything to its log: it must not cost the run its history."""
    history = HistoryInMemory()

    async def collect() -> None:
        nodes: list[Any] = [Saying([json.dumps({"time": 1.0, "seq": 1, "event": "led"} | odd)])]
        collector = EventLogCollector(nodes, history, Stamps(), None)
        collector.start()
        await collector.stop()
        assert collector.problems == []

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(collect())
    events = history.columns()["events"]
    assert events[4] == (["led"] if taken else [UNREADABLE])
    assert all(-(2**63) <= value < 2**63 for column in events for value in column if isinstance(value, int))
