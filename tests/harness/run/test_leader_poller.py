"""Who leads, asked while a run goes on: changes alone are written, and no answer, late or wrong, ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.timestamps import NANOSECONDS, Stamps
from assay.harness.run.observers import LeaderPoller

NODES = [SimpleNamespace(name=f"n{number}") for number in (1, 2, 3)]


class Asked:
    """Answers in turn, and the last for ever: a node's number, None, an exception to raise, or seconds of silence."""

    def __init__(self, answers: Sequence[Any], keys: Sequence[str] = (), event_log: str | None = None) -> None:
        self._answers = list(answers)
        self._keys = keys
        self._event_log = event_log

    def keys(self) -> Sequence[str]:
        return self._keys

    def event_log(self, node: Any) -> str | None:
        return self._event_log

    async def find(self, cluster: Any, what: str, key: str | None) -> Any:
        assert what == "leader"
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return NODES[answer - 1] if isinstance(answer, int) else None


def seen(
    system: Asked, seconds: float, *, room: int = 100, problems: tuple[str, ...] = ()
) -> list[tuple[int, str, str, str]]:
    """Rows of (second, event, node, key) in a history that has ``room`` for so many; and ``problems`` are named."""
    rows: list[tuple[int, str, str, str]] = []

    def event(*, time: int, node: str, event: str, key: str, **others: Any) -> None:
        if len(rows) == room:
            raise OSError("no room")
        rows.append((round(time / NANOSECONDS), event, node, key))

    async def run() -> None:
        sightings: Any = LeaderPoller(
            system,
            SimpleNamespace(nodes=NODES),
            SimpleNamespace(event=event),
            Stamps(),  # type: ignore[arg-type]
        )
        sightings.start()
        await asyncio.sleep(seconds)
        await sightings.stop()
        await sightings.stop()
        assert sightings.problems == list(problems)

    loop = SimLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return rows


def test_changes_are_written_once() -> None:
    assert seen(Asked([1, 1, 2, 2, None, None, 2]), 8.0) == [
        (1, "seen-leading", "n1", "leader"),
        (3, "seen-gone", "n1", "leader"),
        (3, "seen-leading", "n2", "leader"),
        (5, "seen-gone", "n2", "leader"),
        (7, "seen-leading", "n2", "leader"),
    ]


@pytest.mark.parametrize("trouble", [OSError("away"), 30.0, "n1"], ids=["raises", "silent", "no node"])
def test_what_does_not_answer_leads_no_one_and_is_asked_again(trouble: Any) -> None:
    found = seen(Asked([3, trouble, 3]), 4.5)
    assert [row[1:3] for row in found] == [("seen-leading", "n3"), ("seen-gone", "n3"), ("seen-leading", "n3")]


def test_each_key_has_a_leader_of_its_own() -> None:
    assert seen(Asked([1, 2], keys=("a", "b")), 1.5) == [(1, "seen-leading", "n1", "a"), (1, "seen-leading", "n2", "b")]


def test_a_system_with_event_logs_is_not_asked() -> None:
    assert seen(Asked([1, 1, 1], event_log="/var/log/events.jsonl"), 3.0) == []


def test_a_history_that_takes_no_more_is_a_problem_of_the_run() -> None:
    problem = "who led was not recorded to the end: OSError: no room"
    assert seen(Asked([1, 2, 1]), 4.0, room=1, problems=(problem,)) == [(1, "seen-leading", "n1", "leader")]
