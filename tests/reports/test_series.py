"""Rates and latencies: nothing is lost or invented by drawing it in few points."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.checkers.judging.history_views import open_history
from assay.harness.core.history import HistoryWriter
from assay.harness.core.operation import Effect, Outcome
from assay.reports.history_db import HistoryDatabase
from assay.reports.series import (
    LEAST_WIDTH,
    MOST_POINTS,
    GroupOwnership,
    choose_interval,
    compute_series,
    count_errors,
    count_operations,
    count_ownership,
)

from helpers.examples import some_of
from helpers.run_folders import SECOND, completed, ordinary, write_history


@given(st.integers(0, 10**18), st.integers(1, 1000))
def test_an_interval_is_the_least_round_width_that_gives_few_enough_points(span: int, most: int) -> None:
    width = choose_interval(span, most)
    assert str(width).rstrip("0") in ("1", "2", "5")
    assert span <= width * most
    smaller = width // 2 if str(width)[0] in "12" else width * 2 // 5
    assert width == LEAST_WIDTH or span > smaller * most


@settings(max_examples=some_of(20), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 900 * SECOND), st.sampled_from(list(Outcome)), st.integers(0, 9 * SECOND)),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_every_operation_counts_once_in_at_most_240_intervals(rows: list[tuple[int, Outcome, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "history"
        with HistoryWriter(history) as writer:
            for index, (call, outcome, took) in enumerate(rows):
                writer.completed(completed(index, call, outcome=outcome, took=took))
        with HistoryDatabase(open_history(history)) as recording:
            found = compute_series(recording, recording.end())
    assert len(found.time) <= MOST_POINTS + 1
    for name in Outcome:
        total = sum(1 for _, outcome, _ in rows if outcome is name)
        assert np.isclose(getattr(found, name).sum() * found.width, total)
    known = ~np.isnan(found.longest)
    slack = 1 + 1e-9
    assert (found.median[known] <= found.p99[known] * slack).all()
    assert (found.p99[known] <= found.longest[known] * slack).all()
    longest = max((took for _, outcome, took in rows if outcome is Outcome.OK), default=None)
    if longest is None:
        assert not known.any()
    else:
        assert np.isclose(np.nanmax(found.longest), max(longest, 1000) / 1e6)


def test_a_latency_counts_from_when_the_operation_was_due(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.completed(completed(0, 3 * SECOND, scheduled=SECOND, took=SECOND))
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        found = compute_series(recording, recording.end())
    assert np.nanmax(found.longest) == pytest.approx(3000.0)
    assert found.time[int(np.nanargmax(found.longest))] == pytest.approx(1.0, abs=found.width)


def test_latencies_of_an_open_loop_that_is_behind_are_drawn_to_its_end(tmp_path: Path) -> None:
    """Operation n was due after n / 10 s and called after n / 2 s: the last is called at 19.5 s, 15.6 s behind."""
    with HistoryWriter(tmp_path / "late") as writer:
        for number in range(40):
            writer.completed(
                completed(number, number * SECOND // 2, scheduled=number * SECOND // 10, took=SECOND // 10)
            )
    with HistoryDatabase(open_history(tmp_path / "late")) as recording:
        found = compute_series(recording, recording.end())
    shown = found.time[~np.isnan(found.longest)]
    assert shown[-1] == pytest.approx(19.5, abs=found.width)
    assert np.nanmax(found.longest) == pytest.approx(15_700.0)
    assert found.longest[found.time.searchsorted(1.0)] == pytest.approx(4_100.0), "still where it was due"


@pytest.mark.parametrize("behind", [0, SECOND // 2])
def test_latencies_of_an_open_loop_in_time_are_where_the_operations_were_due(tmp_path: Path, behind: int) -> None:
    """The first is late; all others are called when they are due."""
    with HistoryWriter(tmp_path / "h") as writer:
        for number in range(20):
            due = number * SECOND
            writer.completed(completed(number, due + (0 if number else behind), scheduled=due, took=SECOND // 10))
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        found = compute_series(recording, recording.end())
    assert (~np.isnan(found.longest)).sum() == 20
    assert found.time[~np.isnan(found.longest)] == pytest.approx(np.arange(20.0), abs=found.width)


def test_verbs_and_errors_are_counted(tmp_path: Path) -> None:
    write_history(tmp_path / "h", ordinary())
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        by_name = {verb.f: verb for verb in count_operations(recording)}
        errors = count_errors(recording)
    assert (by_name["send"].total, by_name["send"].ok) == (30, 30)
    assert (by_name["poll"].total, by_name["poll"].fail, by_name["poll"].info) == (30, 3, 3)
    assert by_name["send"].longest == pytest.approx(4.0)
    assert {(one.f, one.outcome, one.error, one.count) for one in errors} == {
        ("poll", "fail", "timeout", 3), ("poll", "info", "timeout", 3)
    }  # fmt: skip


def test_a_group_has_its_generations_and_its_holds_counted_and_who_left(tmp_path: Path) -> None:
    def owned(kind: str, key: str, generation: int | None, group: str) -> Effect:
        return Effect(kind, key, generation=generation, owner="m", group=group, assignment=1, outcome=Outcome.OK)

    def claim(key: str, seen: int) -> Effect:
        return Effect("claim", key, owner="m", version=seen, value=seen + 1, group="old", outcome=Outcome.OK)

    with HistoryWriter(tmp_path / "h") as writer:
        of_new = {"key": None, "argument": {"group": "new"}}
        writer.completed(
            completed(0, SECOND, f="poll", **of_new),
            [owned("acquire", "t-0", 1, "new"), owned("acquire", "t-1", 1, "new"), owned("acquire", "new", 1, "new")],
        )
        writer.completed(
            completed(1, 2 * SECOND, f="poll", **of_new),
            [owned("lost", "t-0", 1, "new"), owned("acquire", "t-0", 2, "new")],
        )
        writer.completed(completed(2, 3 * SECOND, f="leave", **of_new), [owned("release", "t-1", 1, "new")])
        writer.completed(completed(3, 4 * SECOND, f="leave", outcome=Outcome.FAIL, **of_new))
        old = {"key": None, "argument": {"group": "old"}}
        writer.completed(
            completed(4, 5 * SECOND, f="poll", result={"effort": {"watches": 3, "rebalances": 2}}, **old),
            [owned("acquire", "t-0", None, "old"), claim("t-0", 7), claim("t-1", 7)],
        )
        writer.completed(
            completed(
                5, 6 * SECOND, f="poll", result={"effort": {"watches": 1, "rebalances": 4, "unchanged": 4}}, **old
            ),
            [claim("t-0", 9)],
        )
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        assert count_ownership(recording) == (
            GroupOwnership("new", partings=1, generations=2, acquired=3, released=1, lost=1),
            GroupOwnership(
                "old",
                partings=0,
                generations=0,
                acquired=1,
                released=0,
                lost=0,
                changes=2,
                watches=4,
                rebalances=6,
                unchanged=4,
            ),
        )


def test_what_a_workload_of_ones_own_calls_an_effort_is_none_and_costs_no_report(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        about = {"argument": {"group": "g"}, "result": {"effort": {"watches": "many"}}}
        hold = Effect("acquire", "t-0", group="g", generation=1)
        writer.completed(completed(0, SECOND, f="poll", **about), [hold])
    with HistoryDatabase(open_history(tmp_path / "h")) as recording:
        assert [one.watches for one in count_ownership(recording)] == [0]
