"""How long a system is looked at after a run: until it is at rest twice, or until its deadlines are over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.checkers.liveness.snapshots import MAX_PAUSE
from assay.cluster.sim.loop import SimLoop
from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.timestamps import Stamps
from assay.harness.run.observers import QuiescenceWatch

SECOND = 1_000_000_000
RUNTIME = SimpleNamespace(wall_clock=lambda: 1_700_000_000.0)


class Looked:
    """A system that needs ``unrest`` looks, of which some fail or take long."""

    def __init__(
        self, unrest: int, failing: int = 0, slow: Callable[[int], float] = lambda _: 0.1, epochs: int = 1
    ) -> None:
        self.left, self.failing, self.slow, self.times, self.epochs = unrest, failing, slow, 0, epochs

    async def look(self, cluster: Any, runtime: Any) -> list[Any]:
        self.times += 1
        await asyncio.sleep(self.slow(self.times))
        if self.failing:
            self.failing -= 1
            raise OSError("no answer from n2")
        seen = {"what": "answer", "node": "n1", "epoch": min(self.times, self.epochs)}
        return [seen]

    def unsettled(self, seen: Any, wall_ms: int) -> int:
        self.left -= 1
        return max(0, self.left + 1)


def watched(
    folder: Path,
    system: Looked,
    patience: float = 10,
    stopped: Callable[[], bool] = lambda: False,
    offsets: Sequence[float] = (),
) -> tuple[list[dict[str, Any]], str | None]:
    """The rows ``look``, and what was in the way."""
    loop = SimLoop(1)

    async def go() -> str | None:
        history = HistoryWriter(folder / "history")
        nodes = [SimpleNamespace(wall_ahead=offset) for offset in offsets]
        cluster = SimpleNamespace(nodes=nodes[:1], spares=nodes[1:])
        watch = QuiescenceWatch(system, cluster, RUNTIME, history, Stamps())  # type: ignore[arg-type]
        trouble = await watch.wait_until_at_rest(int(patience * SECOND), stopped)
        history.close()
        return trouble

    try:
        trouble = loop.run_until_complete(go())
    finally:
        loop.close()
    rows = HistoryReader(folder / "history").table("looks").to_pylist()
    assert sum(row["what"] == "answer" for row in rows) == sum(row["what"] == "look" for row in rows)
    return [row for row in rows if row["what"] == "look"], trouble


def test_what_is_at_rest_is_looked_at_twice(tmp_path: Path) -> None:
    looks, trouble = watched(tmp_path, Looked(0))
    assert [(row["look"], row["unsettled"], row["wall_ms"]) for row in looks] == [
        (1, 0, 1_700_000_000_000),
        (2, 0, 1_700_000_000_000),
    ]
    assert looks[1]["ended"] < SECOND, "at once"
    assert trouble is None


@pytest.mark.parametrize(
    ("offsets", "ahead"), [([5.0, 5.0], 5), ([5.0, 0.0], 0), ([0.0, -7.0], -7), ([5.0, 9.0], 5), ([0.0], 0)]
)
def test_the_time_of_day_is_that_of_the_slowest_node(tmp_path: Path, offsets: list[float], ahead: int) -> None:
    """A segment is due by the clocks of the servers. If they are behind, it is not due yet."""
    looks, _ = watched(tmp_path, Looked(0), offsets=offsets)
    assert {row["wall_ms"] for row in looks} == {1_700_000_000_000 + 1000 * ahead}


def test_what_comes_to_rest_is_looked_at_until_then(tmp_path: Path) -> None:
    looks, _ = watched(tmp_path, Looked(3))
    assert [row["unsettled"] for row in looks] == [3, 2, 1, 0, 0]
    assert 3 * SECOND < looks[3]["time"] < 4 * SECOND


def test_what_looks_complete_under_another_epoch_each_time_is_not_at_rest(tmp_path: Path) -> None:
    looks, _ = watched(tmp_path, Looked(0, epochs=4))
    assert [row["unsettled"] for row in looks] == [0] * 6


def test_what_never_does_is_looked_at_for_as_long_as_it_may_take(tmp_path: Path) -> None:
    looks, _ = watched(tmp_path, Looked(1000))
    assert 9.9 * SECOND < looks[-1]["ended"] - looks[0]["time"] < 12 * SECOND
    assert all(later["time"] - look["ended"] < MAX_PAUSE for look, later in itertools.pairwise(looks))


def test_after_a_stall_of_the_harness_it_begins_again_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, naps = asyncio.sleep, iter([1.0] * 6 + [9.0])

    async def stalling(seconds: float) -> None:
        await sleep(next(naps, 1.0) if seconds == 1.0 else seconds)

    monkeypatch.setattr("assay.harness.run.observers.asyncio.sleep", stalling)
    looks, _ = watched(tmp_path / "once", Looked(1000))
    (at,) = [n for n in range(1, len(looks)) if looks[n]["time"] - looks[n - 1]["ended"] > MAX_PAUSE]
    assert looks[-1]["ended"] - looks[at]["time"] >= 10 * SECOND - 1

    async def always(seconds: float) -> None:
        await sleep(6.0 if seconds == 1.0 else seconds)

    monkeypatch.setattr("assay.harness.run.observers.asyncio.sleep", always)
    looks, _ = watched(tmp_path / "always", Looked(1000))
    assert 30 * SECOND < looks[-1]["ended"] < 40 * SECOND


def test_a_look_that_fails_leaves_no_rows_and_is_tried_again(tmp_path: Path) -> None:
    looks, trouble = watched(tmp_path / "twice", Looked(0, failing=2))
    assert [row["look"] for row in looks] == [1, 2]
    assert trouble is None
    looks, trouble = watched(tmp_path / "always", Looked(0, failing=1000))
    assert looks == []
    assert trouble == "the system at rest could not be looked at: no answer from n2"
    looks, trouble = watched(tmp_path / "too slow", Looked(0, slow=lambda number: 60.0), patience=30)
    assert looks == []
    assert trouble == "the system at rest could not be looked at: no answer in time"


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    assert watched(tmp_path, Looked(1000), stopped=lambda: True) == ([], None)
