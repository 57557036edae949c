"""Doubts that several anomalies share are one sentence, whose verbs and pronouns go with their number."""

from __future__ import annotations

from assay.reports.failure_text import join_reasons

NO_DATA = "is forbidden, but its check had no data"
NOTHING = "is forbidden, but the history has no data for it"


def test_of_one_anomaly_the_words_are_those_of_the_judge() -> None:
    assert join_reasons([f"stale {NO_DATA}", f"lost {NOTHING}"]) == [f"stale {NO_DATA}", f"lost {NOTHING}"]


def test_of_several_they_are_plural_and_stand_where_the_first_stood() -> None:
    reasons = [
        f"a {NO_DATA}",
        "the run was interrupted",
        f"b {NOTHING}",
        f"c {NO_DATA}",
        f"d {NOTHING}",
        f"e {NO_DATA}",
    ]
    assert join_reasons(reasons) == [
        "a, c and e are forbidden, but their checks had no data",
        "the run was interrupted",
        "b and d are forbidden, but the history has no data for them",
    ]


def test_the_words_of_older_verdicts_are_plural_as_well() -> None:
    old = "is forbidden, but the history has nothing to which it applies"
    assert join_reasons([f"b {old}", f"d {old}"]) == [
        "b and d are forbidden, but the history has nothing to which they apply"
    ]


def test_a_traceback_that_has_the_words_is_left_as_it_is() -> None:
    traceback = f"1 unexpected exception\nValueError: x {NO_DATA}"
    assert join_reasons([traceback, f"x {NO_DATA}"]) == [traceback, f"x {NO_DATA}"]
