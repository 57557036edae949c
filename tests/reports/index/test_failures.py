"""Each failure has one entry, which says how often it was seen, since when, and between which versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from assay.reports.index.board import (
    build_histories,
    build_matrix,
    count_detections,
    count_verdicts,
    find_newest_runs,
    group_unknowns,
)
from assay.reports.index.entry import CellKey, Entry, EntryFigures, NightEntry, RunVerdict, StoreContents, sanitize_text
from assay.reports.index.failures import Failure, group_failures
from assay.reports.index.known import KnownFailures, Mark

KILL = CellKey("broker", "test_log", "kill", "sim", "")
LOST = ("lost-write",)


def entry(day: int, verdict: RunVerdict = RunVerdict.PASS, anomalies: tuple[str, ...] = (), **changes: object) -> Entry:
    """A run of the night of that day of November."""
    stamp = f"2026-11-{day:02}"
    made = Entry(name=f"t/{stamp}", address=f"t/{stamp}", cell=KILL, night=stamp, started=f"{stamp}T01:00:00.000+00:00",
                 verdict=verdict, status="finished", anomalies=anomalies, version=f"v{day}")  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def failed(day: int, anomalies: tuple[str, ...] = LOST, **changes: object) -> Entry:
    return entry(day, RunVerdict.FAIL, anomalies, **changes)


def store(*entries: Entry) -> StoreContents:
    first = {one.night: one.started for one in reversed(entries)}
    nights = tuple(NightEntry(name=name, started=first[name], planned=1) for name in sorted(first))
    return StoreContents(name="store", entries=tuple(sorted(entries, key=lambda one: one.started)), nights=nights)


def found(*entries: Entry, known: KnownFailures = KnownFailures(today=date(2026, 11, 24))) -> list[Failure]:  # noqa: B008 - frozen
    return group_failures(store(*entries), known)


def test_runs_that_fail_alike_are_one_failure() -> None:
    other = KILL._replace(nemesis="stop")
    one, two = found(failed(1), failed(2, cell=other), failed(2, ("vanished",)), entry(1), entry(2))
    by_anomaly = {failure.anomalies: failure for failure in (one, two)}
    assert [run.night for run in by_anomaly[LOST].entries] == ["2026-11-02", "2026-11-01"]
    assert by_anomaly[LOST].nights == 2
    assert by_anomaly[("vanished",)].entries[0].night == "2026-11-02"


@pytest.mark.parametrize("part", ["system", "workload"])
def test_systems_and_workloads_are_apart(part: str) -> None:
    assert len(found(failed(1), failed(1, cell=KILL._replace(**{part: "other"})))) == 2


def test_a_failure_of_a_defect_is_none() -> None:
    assert found(failed(1, cell=KILL._replace(defect="forgetful"))) == []


def test_shapes_are_apart_and_a_schedule_that_was_not_shrunk_goes_with_the_only_one() -> None:
    one = failed(1, shape=("kill", "stop"))
    assert [len(failure.entries) for failure in found(one, failed(2))] == [2]
    assert len(found(one, failed(2, shape=("stop", "kill")))) == 2
    assert len(found(one, failed(2, shape=("stop", "kill")), failed(3))) == 3


def test_the_rate_is_of_the_decided_runs_of_its_cells_alone() -> None:
    elsewhere = KILL._replace(nemesis="stop")
    doubtful = (entry(3, RunVerdict.UNKNOWN), entry(4, RunVerdict.NONE))
    (one,) = found(failed(1), *(entry(day) for day in range(2, 6)), *doubtful, entry(2, cell=elsewhere))
    assert (one.rate.failed, one.rate.runs) == (1, 5)
    (late,) = found(entry(1), entry(2), failed(3), entry(4))
    assert (late.rate.runs, late.since.failed, late.since.runs) == (4, 1, 2)
    low, high = one.rate.confidence_interval()
    assert (round(low, 4), round(high, 4)) == (0.0362, 0.6245), "Wilson's of 1 in 5"


def test_new_ones_come_first_then_those_of_tonight_then_those_not_seen_again() -> None:
    new, open_, quiet = ("a",), ("b",), ("c",)
    order = found(failed(1, quiet), failed(1, open_), failed(2, open_), failed(2, new))
    assert [failure.anomalies for failure in order] == [new, open_, quiet]
    assert [(failure.new, failure.tonight) for failure in order] == [(True, True), (False, True), (False, False)]


def test_versions_are_those_after_the_last_pass_before_the_first_failure() -> None:
    elsewhere = KILL._replace(workload="test_group")
    (one,) = found(entry(1), entry(2), entry(3, cell=elsewhere), failed(4), entry(5), failed(6))
    assert (one.last_pass_version, one.suspects) == ("v2", ("v3", "v4"))
    (never,) = found(failed(1), entry(2))
    assert (never.last_pass_version, never.suspects) == ("", ())
    (same,) = found(entry(1, version="v"), failed(2, version="v"))
    assert (same.last_pass_version, same.suspects) == ("v", ())
    (unstated,) = found(entry(1, version=""), failed(2))
    assert (unstated.last_pass_version, unstated.suspects) == ("", ())


def test_a_defect_in_a_plain_cell_and_a_found_schedule_were_green_where_their_cell_was() -> None:
    defect = KILL._replace(system="broker with isr-of-one")
    (one,) = found(entry(1), failed(2, cell=defect, base_system="broker"))
    assert (one.last_pass_version, one.suspects, one.system) == ("v1", ("v2",), "broker with isr-of-one")
    assert (one.rate.failed, one.rate.runs) == (1, 1), "the correct one's passes are not of its rate"
    (other,) = found(entry(1), failed(2, cell=defect._replace(workload="test_group"), base_system="broker"))
    assert (other.last_pass_version, other.suspects) == ("", ())
    searched = entry(1, cell=KILL._replace(nemesis="any"), night_cell="explore/test_log/any/sim")
    (one,) = found(searched, failed(2, night_cell=searched.night_cell))
    assert (one.last_pass_version, one.suspects) == ("v1", ("v2",))
    (unplanned,) = found(replace(searched, night_cell=""), failed(2))
    assert unplanned.last_pass_version == "", "no name is no common name"


def test_a_variant_was_green_where_its_own_cell_was_not_where_the_plain_system_is_in_another() -> None:
    cell = KILL._replace(system="broker with isr-of-one")
    red = failed(3, cell=cell, base_system="broker", night_cell="run/watched/test_log/kill/sim", version="v3")
    own = entry(1, night_cell=red.night_cell)
    plain = entry(2, night_cell="run/test_log/kill/sim", version="v3")
    (one,) = found(own, plain, red)
    assert (one.last_pass_version, one.suspects) == ("v1", ("v3",))
    (alone,) = found(plain, red)
    assert alone.last_pass_version == "v3"
    (by_hand,) = found(own, entry(2), replace(red, cell=KILL, base_system=""))
    assert by_hand.last_pass_version == "v2", "of the plain system every pass of the cell counts"


def test_commits_are_those_of_all_nights_after_the_green_one() -> None:
    made = store(entry(1), entry(2, RunVerdict.UNKNOWN), entry(3, RunVerdict.UNKNOWN), failed(4), failed(5))
    said = [("v1", "", ()), ("v2", "v1", ("b",)), ("v2", "v2", ()), ("v4", "v2", ("d", "c")), ("v5", "v4", ("e",))]
    nights = [
        replace(night, version=version, previous_version=after, commits=commits)
        for night, (version, after, commits) in zip(made.nights, said, strict=True)
    ]
    (one,) = group_failures(replace(made, nights=tuple(nights)), KnownFailures())
    assert (one.last_pass_version, one.commits) == ("v1", ("d", "c", "b"))
    nights[1] = replace(nights[1], previous_version="")
    (gap,) = group_failures(replace(made, nights=tuple(nights)), KnownFailures())
    assert gap.commits == (), "a night that is missing may have had others"


def test_the_run_to_repeat_is_small_then_simulated_then_the_latest() -> None:
    docker = KILL._replace(cluster="docker")
    (one,) = found(failed(1), failed(2), failed(3, cell=docker))
    assert one.example.night == "2026-11-02"
    (one,) = found(failed(1, shape=("kill",)), failed(2), failed(3, cell=docker))
    assert one.example.night == "2026-11-01"


def test_a_mark_covers_until_it_expires() -> None:
    def known(day: int) -> KnownFailures:
        mark = Mark(system="broker", workload="test_log", anomalies=LOST, reason="r", expires=date(2026, 11, day))
        return KnownFailures((mark,), date(2026, 11, 24))

    (covered,) = found(failed(1), known=known(24))
    assert (covered.fails_night, covered.expired) == (False, False)
    (over,) = found(failed(1), known=known(23))
    assert (over.fails_night, over.expired) == (True, True)
    (unmarked,) = found(failed(1, ("vanished",)), known=known(24))
    assert (unmarked.fails_night, unmarked.mark) == (True, None)


def test_the_newest_night_is_a_recorded_one_even_if_someone_ran_tests_later() -> None:
    later = entry(9)
    made = store(entry(1), failed(2), later)
    made = replace(made, nights=(*made.nights[:2], replace(made.nights[2], planned=0)))
    assert made.tonight is not None
    assert made.tonight.name == "2026-11-02"
    assert [one.night for one in find_newest_runs(made)] == ["2026-11-02"]


def test_a_matrix_keeps_the_worst_when_it_is_cut() -> None:
    cells = [KILL._replace(nemesis=f"n{number}") for number in range(5)]
    runs = [entry(1, cell=cell) for cell in cells] + [
        failed(1, cell=cells[4]),
        entry(1, RunVerdict.UNKNOWN, cell=cells[3]),
    ]
    board = build_matrix(runs, 2)
    assert (board.columns, board.left_out) == (("n3", "n4"), 3)
    assert str(board.cells["test_log", "n4"]) == "1 fail, 1 pass"
    assert board.cells["test_log", "n4"].worst is RunVerdict.FAIL
    assert count_verdicts(runs).total == 7


def test_reasons_that_differ_in_numbers_are_one() -> None:
    runs = [entry(day, RunVerdict.UNKNOWN, reason=f"only {day} operations") for day in (1, 2)]
    runs += [entry(1, RunVerdict.NONE, status="hung", reason="only 1 operations")]
    one, two = group_unknowns(runs)
    assert (one.reason, len(one.entries)) == ("only 2 operations", 2)
    assert two.status == "hung"


def test_detection_counts_what_was_judged() -> None:
    cell = KILL._replace(defect="forgetful")
    runs = [failed(1, cell=cell, caught=True), entry(2, cell=cell, caught=False), entry(3, RunVerdict.NONE, cell=cell)]
    caught = count_detections(store(*runs, failed(4)))["forgetful"]["test_log"]
    assert (caught.caught, caught.runs, caught.unjudged) == (1, 2, 1)


def test_a_cells_history_has_medians_of_each_night() -> None:
    runs = [entry(1, figures=EntryFigures(operations=number, p99=None)) for number in (1, 5, 9)] + [failed(2)]
    assert build_histories(store(*runs)) == {
        KILL: [[0, 0, 0, 0, 3, 5, None, None, None, None], [1, 1, 0, 0, 0, None, None, None, None, None]]
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n b\x1b[0m", "a b\\x1b[0m"),
        ("x\u202ey", "x\\u202ey"),
        ("\udcff", "\\udcff"),
        ("שלום", "שלום"),
        ("a" * 9, "aaaa…"),
    ],
)
def test_text_is_short_and_harmless(text: str, shown: str) -> None:
    assert sanitize_text(text, 5 if len(text) == 9 else 300) == shown
