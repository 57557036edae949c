"""However a cluster of real machines ends, what it made is taken away once, or stays in the journal."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cluster import journal, slow_steps
from assay.cluster.docker import DockerCluster
from assay.cluster.journal import RemoveFile, UndoJournal
from assay.cluster.node import NodeError
from assay.cluster.over_ssh import CLOCKS, CLOCKS_AT_END, SshCluster


class Made(SshCluster):
    """Makes two things, and no nodes."""

    kind = "here"
    leftover_error = NodeError

    def __init__(self, state: Path, work: Callable[[], None] | None = None, left: Sequence[str] = ()) -> None:
        system: Any = None
        self.lines: list[str] = []
        super().__init__(system, run_id="run", seed=1, state_dir=state, progress=self.lines.append)
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


@pytest.mark.parametrize("step", ["start", "removal"])
def test_a_step_that_takes_long_is_shown_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The step ends only when its line has been shown."""
    monkeypatch.setattr(slow_steps, "SLOW_SECONDS", 0.0)
    shown = threading.Event()

    class Slow(Made):
        async def _start_clocks(self) -> None:
            if step == "start":
                await self._in_thread(shown.wait, 20)

        def _undo(self, actions: Sequence[journal.Action]) -> list[str]:
            if step == "removal":
                shown.wait(20)
            return super()._undo(actions)

    async def live() -> None:
        cluster = Slow(tmp_path)
        cluster._progress = lambda line: (lines.append(line), shown.set())
        await cluster.start()
        await cluster.close()

    lines: list[str] = []
    asyncio.run(live())
    assert shown.is_set()
    expected = {"start": "measuring the clocks of the nodes ...", "removal": "removing the cluster ..."}
    assert expected[step] in lines


def test_a_step_that_ends_soon_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_steps, "SLOW_SECONDS", 3_600.0)

    async def live() -> Made:
        cluster = Made(tmp_path)
        await cluster.start()
        await cluster.close()
        return cluster

    assert asyncio.run(live()).lines == []


def test_items_are_shown_one_by_one_once_the_first_ones_took_long() -> None:
    now, lines = [0.0], list[str]()
    for item in slow_steps.iterate_noting(lines.append, "abcd", "removing {}".format, lambda: now[0]):
        lines.append(item)
        now[0] += 0.9 * slow_steps.SLOW_SECONDS
    assert lines == ["a", "b", "removing c ...", "c", "removing d ...", "d"]


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


class AheadNode:
    """A node whose machine has clocks that are ahead."""

    def __init__(self, name: str, wall: float, monotonic: float) -> None:
        self.name, self.wall, self.monotonic = name, wall, monotonic
        self.monotonic_ahead = self.wall_ahead = 0.0
        self.silent = False

    async def shell(self, command: str) -> str:
        if self.silent:
            raise NodeError(f"{self.name} does not answer")
        return f"{time.time() + self.wall} {time.monotonic() + self.monotonic}\n"

    async def close(self) -> None:
        pass


def start_with(cluster: SshCluster, *nodes: AheadNode) -> None:
    async def set_up() -> None:
        cluster._all_nodes[:] = nodes  # type: ignore[assignment]

    cluster._set_up = set_up  # type: ignore[method-assign]
    asyncio.run(cluster.start())


def docker_cluster(tmp_path: Path) -> DockerCluster:
    class Nothing:
        name, roles = "nothing", ("broker",)

    system: Any = Nothing()
    return DockerCluster(system, {"broker": 2}, run_id="run", seed=1, state_dir=tmp_path)


def test_the_clocks_of_each_host_are_measured_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    cluster, right, wrong = Made(tmp_path), AheadNode("n1", 0, 0), AheadNode("n2", 5, -900)
    start_with(cluster, right, wrong)
    assert (right.wall_ahead, right.monotonic_ahead) == (0, 0), "within the error"
    assert wrong.wall_ahead == pytest.approx(5, abs=0.5)
    assert wrong.monotonic_ahead == pytest.approx(-900, abs=0.5)
    assert CLOCKS_AT_END not in cluster.description
    (line,) = cluster.lines
    assert re.match(r"the clock of n2 is wrong: \+(5\.0|4\.9)", line)
    assert cluster.clock_difference == pytest.approx(5, abs=0.5)
    wrong.wall = 8
    asyncio.run(cluster.measure_clocks_again())
    assert re.fullmatch(r"n1 .*within.*, n2 \+(5\.0|4\.9).*within.*", cluster.description[CLOCKS])
    assert re.fullmatch(r"n1 .*within.*, n2 \+(8\.0|7\.9).*within.*", cluster.description[CLOCKS_AT_END])
    assert cluster.clock_difference == pytest.approx(8, abs=0.5)
    (line,) = cluster.lines[1:]
    assert re.match(r"the clocks of n2 have changed during the run, from \+(5\.0|4\.9).* to \+(8\.0|7\.9)", line)


def test_all_containers_have_the_clocks_of_their_engine(tmp_path: Path) -> None:
    """An engine on another machine has other clocks. Without its offset, events would have senseless times."""
    cluster, nodes = docker_cluster(tmp_path), [AheadNode("n1", 5, -900), AheadNode("n2", 5, -900)]
    start_with(cluster, *nodes)
    assert cluster.description[CLOCKS].startswith(("engine +5.0", "engine +4.9"))
    assert "," not in cluster.description[CLOCKS]
    assert len({(node.wall_ahead, node.monotonic_ahead) for node in nodes}) == 1
    assert nodes[1].monotonic_ahead == pytest.approx(-900, abs=0.5)


def test_containers_on_this_kernel_have_no_offset(tmp_path: Path) -> None:
    cluster, node = docker_cluster(tmp_path), AheadNode("n1", 0, 0)
    start_with(cluster, node)
    assert (node.wall_ahead, node.monotonic_ahead) == (0, 0)


def test_a_node_that_does_not_answer_hides_the_clocks_only_if_it_is_the_last(tmp_path: Path) -> None:
    cluster, nodes = docker_cluster(tmp_path), [AheadNode("n1", 5, -900), AheadNode("n2", 5, -900)]
    start_with(cluster, *nodes)
    nodes[0].silent = True
    asyncio.run(cluster.measure_clocks_again())
    assert cluster.description[CLOCKS_AT_END].startswith("engine +")
    nodes[1].silent = True
    asyncio.run(cluster.measure_clocks_again())
    assert cluster.description[CLOCKS_AT_END] == "unknown: n1 does not answer"
