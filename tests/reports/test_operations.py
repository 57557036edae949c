"""The bars of the timeline: all that findings name, a bounded number of the rest, each where it belongs."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Finding, Verdict
from assay.harness.core.history import SCHEMAS, HistoryWriter
from assay.harness.core.operation import Effect, Outcome
from assay.reports.history_db import HistoryDatabase
from assay.reports.operations import (
    LONGEST_TEXT,
    MOST_AROUND,
    MOST_LANES,
    MOST_SAMPLED,
    choose_lanes,
    find_operations,
    find_possible_dequeues,
    merge_spans,
    to_python_notation,
)
from assay.reports.page import render

from helpers.run_folders import SECOND, completed, judgement, ordinary, write_history, write_run


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1]))))
def test_merged_intervals_are_disjoint_and_cover_the_same_moments(spans: list[tuple[int, int]]) -> None:
    joined = merge_spans(spans)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(joined))

    def covered(intervals: list[tuple[int, int]]) -> set[int]:
        return {moment for start, stop in intervals for moment in range(start, stop + 1)}

    assert covered(joined) == covered(spans)


def test_a_small_run_is_drawn_whole_and_an_unknown_end_lasts_to_the_workers_next_call(tmp_path: Path) -> None:
    write_history(tmp_path / "h", ordinary(60))
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        reported = choose_lanes(recording, list(find_operations(recording, [4, 5]).values()), recording.end())
    assert reported.complete
    assert reported.workers == ("w0", "w1", "w2")
    by_index = {bar.row.index: bar for bar in reported.bars}
    assert [index for index, bar in by_index.items() if bar.named] == [4, 5]
    assert by_index[19].row.ret is None
    assert by_index[19].stop == 22 * SECOND // 10
    assert by_index[59].stop == 59 * SECOND // 10, "nothing follows: to the end of the run"
    assert all(bar.stop == bar.row.ret for bar in reported.bars if bar.row.ret is not None)


def test_a_long_run_is_sampled_but_keeps_what_findings_name_and_their_neighbours(tmp_path: Path) -> None:
    count, workers, lone = 200_000, 60, 123_457
    synthetic(tmp_path / "h", count, workers)
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        named = list(find_operations(recording, [lone]).values())
        reported = choose_lanes(recording, named, recording.end())
    assert len(reported.bars) <= MOST_AROUND + MOST_SAMPLED + 3
    assert len(reported.workers) == MOST_LANES
    assert (reported.operations, reported.all_workers) == (count, workers)
    assert f"w{lone % workers}" in reported.workers
    indexes = {bar.row.index for bar in reported.bars}
    assert lone in indexes
    near = {index for index in range(lone - 90, lone + 91) if f"w{index % workers}" in reported.workers}
    assert near <= indexes
    assert max(indexes) - min(indexes) > 0.99 * count


def test_long_texts_are_cut_before_they_reach_python(tmp_path: Path) -> None:
    write_history(tmp_path / "h", [completed(0, 1, argument="x" * 100_000)])
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        row = find_operations(recording, [0, 99])[0]
    assert len(row.argument) == LONGEST_TEXT
    assert row.argument.endswith("…")


def test_operations_that_the_history_lacks_are_not_found(tmp_path: Path) -> None:
    write_history(tmp_path / "h", [completed(0, 1, outcome=Outcome.OK)])
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        assert find_operations(recording, [7]) == {}
        assert find_operations(recording, []) == {}


def synthetic(folder: Path, count: int, workers: int) -> None:
    """Writes an operation per millisecond, by the workers in turn, each lasting half a millisecond."""
    for name in SCHEMAS:
        (folder / name).mkdir(parents=True)
        pq.write_table(SCHEMAS[name].empty_table(), folder / name / "part-0.parquet")
    index = np.arange(count)
    names = pa.array([f"w{number}" for number in range(workers)])
    table = pa.table(
        [
            pa.array(index), pa.array((index % workers).astype(np.int32)), names.take(pa.array(index % workers)),
            pa.repeat("send", count), pa.repeat("orders-0", count), pa.repeat("[1]", count), pa.repeat("{}", count),
            pa.array(index * 1_000_000), pa.array(index * 1_000_000 + 500_000), pa.repeat("ok", count),
            pa.nulls(count, pa.string()), pa.repeat("main", count), pa.nulls(count, pa.int64()),
        ],
        schema=SCHEMAS["ops"],
    )  # fmt: skip
    pq.write_table(table, folder / "ops" / "part-1.parquet")


@pytest.mark.parametrize("count", [1, 7_000, 7_001])
def test_the_number_of_bars_is_bounded_at_the_limit_too(tmp_path: Path, count: int) -> None:
    synthetic(tmp_path / "h", count, 3)
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        reported = choose_lanes(recording, [], recording.end())
    assert len(reported.bars) == count if count <= 7_000 else len(reported.bars) <= MOST_SAMPLED + 1


def queue_history(folder: Path) -> Finding:
    """Element 1 is enqueued at 1 s and lost; the drain is at 9 s. Dequeues of each outcome are between them."""
    with HistoryWriter(folder) as writer:

        def write(index: int, second: float, f: str, outcome: Outcome, *effects: Effect) -> None:
            done = completed(
                index, int(second * SECOND), f=f, key="jobs", argument=None, outcome=outcome, worker=index,
                error=None if outcome is Outcome.OK else "timeout",
            )  # fmt: skip
            writer.completed(done, effects)

        take = Effect("queue-dequeue", "jobs")
        write(0, 0.5, "dequeue", Outcome.FAIL, take)
        write(1, 1, "enqueue", Outcome.OK, Effect("queue-enqueue", "jobs", value=1))
        write(2, 2, "enqueue", Outcome.INFO, Effect("queue-enqueue", "jobs", value=2))
        write(3, 3, "dequeue", Outcome.INFO)
        write(4, 4, "dequeue", Outcome.FAIL, take)
        write(5, 5, "dequeue", Outcome.INFO, take)
        write(6, 6, "dequeue", Outcome.INFO, Effect("queue-dequeue", "jobs", value=2, outcome=Outcome.OK))
        write(7, 7, "dequeue", Outcome.OK, take)
        write(8, 9, "drain", Outcome.OK, Effect("queue-drained", "jobs"))
    return Finding(
        anomaly="queue-lost", key="jobs", claim="1 is lost", operations=(1, 8), since=SECOND, until=9 * SECOND
    )


def test_a_lost_element_is_shown_with_all_that_may_have_taken_it_and_what_their_effects_say(tmp_path: Path) -> None:
    finding = queue_history(tmp_path / "history")
    with HistoryDatabase(open_history(tmp_path / "history")) as recording:
        takes = find_possible_dequeues(recording, finding)
        assert find_possible_dequeues(recording, msgspec.structs.replace(finding, anomaly="queue-duplicate")) is None
    assert takes is not None
    assert takes.total == 4
    assert {take.row.index: take.effects for take in takes.first} == {
        3: "no effect: to the check, it took nothing",
        4: "queue-dequeue fail: it took nothing",
        5: "queue-dequeue info: it may have taken one element",
        6: "queue-dequeue ok: it took 2",
    }


def test_the_page_of_a_lost_element_shows_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.FAIL, queue_history(tmp_path / "history")))
    (tmp_path / "history").rename(run / "history")
    page = render(run).read_text()
    assert "4 dequeues or drains of jobs did not end ok in that time. The check believes their effects:" in page
    assert page.count("no effect: to the check, it took nothing") == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[["r","x",null],["append","a, null",1]]', '[["r", "x", None], ["append", "a, null", 1]]'),
        ('[["w","x",true],["r","nul…', '[["w", "x", True], ["r", "nul…'),
        ('["r",null]', '["r",null]'),
        ("[[1,null]]", "[[1,null]]"),
    ],
)
def test_micro_operations_of_our_workloads_are_shown_as_python(text: str, shown: str) -> None:
    assert to_python_notation(text) == shown
