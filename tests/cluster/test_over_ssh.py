"""However a cluster of real machines ends, what it made is taken away once, or stays in the journal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cluster import journal
from assay.cluster.journal import RemoveFile, UndoJournal
from assay.cluster.node import NodeError
from assay.cluster.over_ssh import SshCluster


class Made(SshCluster):
    """Makes two things, and no nodes."""

    kind = "here"
    leftover_error = NodeError

    def __init__(self, state: Path, work: Callable[[], None] | None = None, left: Sequence[str] = ()) -> None:
        system: Any = None
        super().__init__(system, run_id="run", seed=1, state_dir=state, progress=lambda line: None)
        self.work, self.left = work, left
        self.undone: list[Sequence[journal.Action]] = []

    async def _set_up(self) -> None:
        self._journal = UndoJournal(self._state, self.run_id, self._owner)
        for path in ("a", "b"):
            self._journal.append(RemoveFile(path))
        if self.work is not None:
            await self._in_thread(self.work)

    def _make_program(self, node: Any) -> Any:
        raise NotImplementedError

    def _undo(self, actions: Sequence[journal.Action]) -> list[str]:
        self.undone.append(actions)
        return list(self.left)


def entries(state: Path) -> list[journal.Action]:
    return [action for path in state.rglob("*.jsonl") for _, action in journal.read_journal(path).actions]


BOTH = [RemoveFile("b"), RemoveFile("a")]


def test_what_was_made_is_taken_away_once_and_the_journal_goes(tmp_path: Path) -> None:
    async def live() -> Made:
        cluster = Made(tmp_path)
        await cluster.start()
        assert entries(tmp_path) == BOTH
        await cluster.close()
        await cluster.close()
        await cluster.keep()
        return cluster

    assert asyncio.run(live()).undone == [BOTH]
    assert entries(tmp_path) == []


def test_what_cannot_be_taken_away_is_reported_and_stays_in_the_journal(tmp_path: Path) -> None:
    async def live() -> None:
        cluster = Made(tmp_path, left=["file a: is a folder", "file b: is busy"])
        await cluster.start()
        await cluster.close()

    with pytest.raises(NodeError) as raised:
        asyncio.run(live())
    assert str(raised.value) == "not undone: file a: is a folder; file b: is busy; `assay heal` tries again"
    assert entries(tmp_path) == BOTH


def test_what_is_kept_stays_in_the_journal(tmp_path: Path) -> None:
    async def live() -> Made:
        cluster = Made(tmp_path)
        await cluster.start()
        await cluster.keep()
        await cluster.close()
        return cluster

    assert asyncio.run(live()).undone == []
    assert entries(tmp_path) == BOTH


def test_a_start_that_fails_takes_away_what_it_had_made(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no room")

    cluster = Made(tmp_path, fail)
    with pytest.raises(OSError, match="no room"):
        asyncio.run(cluster.start())
    assert cluster.undone == [BOTH]
    assert entries(tmp_path) == []


def test_why_it_did_not_start_is_raised_also_where_something_is_left(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no room")

    said: list[str] = []
    cluster = Made(tmp_path, fail, left=["file a: is busy"])
    cluster._progress = said.append
    with pytest.raises(OSError, match="no room"):
        asyncio.run(cluster.start())
    assert said == ["not undone: file a: is busy; `assay heal` tries again"]
    assert entries(tmp_path) == BOTH


def test_what_is_under_way_ends_before_it_is_undone(tmp_path: Path) -> None:
    """A start that is cancelled leaves a thread behind that may yet make something."""
    begun, go_on, log = threading.Event(), threading.Event(), []

    def make() -> None:
        begun.set()
        go_on.wait()
        log.append("made")

    class Logged(Made):
        def _undo(self, actions: Sequence[journal.Action]) -> list[str]:
            log.append("undone")
            return super()._undo(actions)

        async def _disconnect(self) -> None:
            asyncio.get_running_loop().call_later(0.2, go_on.set)

    async def live() -> None:
        starting = asyncio.create_task(Logged(tmp_path, make).start())
        await asyncio.to_thread(begun.wait)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(live())
    assert log == ["made", "undone"]
