"""A run that is judged while it goes on: what is found when, and that no one is accused of what is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Verdict
from assay.cluster import owner
from assay.cluster.owner import current_owner
from assay.harness.core.history.live_manifest import UNFINISHED
from assay.harness.run import store
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.live_check import SilentRunError, WatchJudgement, find_running_run, watch_run

from helpers.growing_run import GrowingRun

DEAD = str(replace(current_owner(), started=1))


def looks(run: GrowingRun, *steps: Callable[[], None]) -> Iterator[WatchJudgement]:
    """Does a step of the run each time that the watch waits; the last one must end it."""
    to_do = list(steps)

    def sleep(seconds: float) -> None:
        assert to_do, "the watch waits, and the run does nothing any more"
        to_do.pop(0)()

    return watch_run(run.path, Engines("duckdb"), Registry.standard(), sleep)


def found(look: WatchJudgement) -> dict[str, int]:
    return {name: many for name, many in look.judgement.anomalies.items() if name in look.judgement.forbidden}


def test_a_run_that_writes_nothing_is_reported_and_not_waited_for_if_it_is_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = GrowingRun(tmp_path)
    said: list[str] = []
    sleeps = iter([*[lambda: None] * 700, run.end])
    registry = Registry.standard()
    watch = watch_run(run.path, Engines("duckdb"), registry, lambda _: next(sleeps)(), said.append)
    assert [one.ended for one in watch] == [True]
    assert len(said) == 2
    assert "has written nothing for 60 s; it is the run of process" in said[0]

    other = GrowingRun(tmp_path / "other")
    info = store.read_info(other.path)
    assert info is not None
    monkeypatch.setattr(store, "read_info", lambda _: msgspec.structs.replace(info, machine="elsewhere"))
    monkeypatch.setattr(owner, "read_machine_id", lambda: "here")
    with pytest.raises(SilentRunError, match=r"of machine elsewhere; look there"):
        list(watch_run(other.path, Engines("duckdb"), registry, lambda _: None, said.append))


def test_a_run_that_writes_now_and_then_is_not_reported_as_silent(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    said: list[str] = []
    pause = [lambda: None] * 200  # 40 s

    def write() -> None:
        run.add(1)
        run.history.flush()

    sleeps = iter([*pause, write, *pause, run.end])
    watch = watch_run(run.path, Engines("duckdb"), Registry.standard(), lambda _: next(sleeps)(), said.append)
    assert [one.ended for one in watch] == [False, True]
    assert said == []


def test_a_loss_is_found_before_the_end_of_the_run(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)

    def good() -> None:
        run.add(1)
        run.read(1)
        run.history.flush()

    def bad() -> None:
        run.read()
        run.history.flush()

    one, two, three = looks(run, good, bad, run.end)
    assert found(one) == {}
    assert one.judgement.operations == 2
    assert one.until == pytest.approx(0.01)
    assert found(two) == {"set-vanished": 1}
    assert not two.ended
    assert two.text.startswith("FAIL set-vanished: ")
    assert three.ended
    assert three.judgement.verdict is Verdict.FAIL
    assert found(three) == found(two)


def test_what_is_under_way_may_have_been_done(tmp_path: Path) -> None:
    """Without it the element would be one that no one had added."""
    run = GrowingRun(tmp_path)

    def seen_before_it_is_acknowledged() -> None:
        run.adding(7)
        run.read(7)
        run.history.flush()

    first, *_ = looks(run, seen_before_it_is_acknowledged, run.end)
    assert found(first) == {}
    assert "set-phantom" in {one.check for one in first.judgement.examined if one.rows}


def test_an_element_that_no_one_has_called_to_add_is_found_at_once(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)

    def phantom() -> None:
        run.add(1)
        run.read(1, 7)
        run.history.flush()

    first, *_ = looks(run, phantom, run.end)
    assert found(first) == {"set-phantom": 1}


def test_no_part_is_judged_twice(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)

    def one() -> None:
        run.add(1)
        run.history.flush()

    def nothing() -> None:
        """It waits for more."""

    every = list(looks(run, one, nothing, nothing, run.end))
    assert [look.ended for look in every] == [False, True]


def test_files_that_go_while_they_are_copied_are_waited_for(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)

    def quick() -> None:
        run.adding(1)
        run.history.flush()
        for path in (run.folder.history / UNFINISHED).glob("*under-way*"):
            path.unlink()

    def slower() -> None:
        run.read()
        run.history.flush()

    every = list(looks(run, quick, slower, run.end, run.end))
    assert [look.ended for look in every] == [False, True]


def test_a_run_whose_process_has_died_is_judged_as_what_it_is(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, owner=DEAD)
    run.add(1)
    run.read()
    run.history.flush()
    run.history.abandon()
    (only,) = looks(run)
    assert only.ended
    assert found(only) == {"set-lost": 1}
    assert "had not come to its end" in " ".join(only.judgement.unknown)


def test_of_a_store_the_newest_run_that_goes_on_is_meant(tmp_path: Path) -> None:
    over = GrowingRun(tmp_path)
    over.end()
    with pytest.raises(SettingsError, match="no run goes on"):
        find_running_run(tmp_path)
    assert find_running_run(over.path) == over.path
    run = GrowingRun(tmp_path)
    GrowingRun(tmp_path, owner=DEAD)
    assert find_running_run(tmp_path) == run.path
    with pytest.raises(SettingsError, match="neither a run nor a store"):
        find_running_run(tmp_path / "nothing")


def test_the_last_judgement_is_that_of_the_run_as_it_was_stored(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    run.add(1)
    run.read(1)
    run.end(store.INTERRUPTED)
    (only,) = looks(run)
    assert only.ended
    assert only.judgement.verdict is Verdict.UNKNOWN
    assert "interrupted" in " ".join(only.judgement.unknown)
    assert str(current_owner()) == run.info.owner
