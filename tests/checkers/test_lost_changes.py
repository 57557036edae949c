"""Tests what was acknowledged and is not there.

The anomaly of each kind, its legal neighbours, and every pair of many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.checkers.administration.lost_changes import DONE_BUT_LOST, LOST_CHANGES
from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.looks import fault
from helpers.lost_histories import DEADLINE, Changes, at_rest, lost, row, seen, shown

CONTRACT = Contract(obedience_deadline=DEADLINE)


def found(folder: Path, rows: list[Row], looks: Sequence[Row] = (), faults: Sequence[Row] = ()) -> list[Finding]:
    with opened(write(folder / "history", rows, looks=looks, faults=faults)) as engine:
        assert engine.rows(LOST_CHANGES.applies)[0]["examined"]
        register_contract(engine, CONTRACT)
        create_views(engine, (*LOST_CHANGES.views, *DONE_BUT_LOST.views))
        return read_findings(engine, DONE_BUT_LOST)


def setting(op: int, when: tuple[int, int | None], value: int | None, **given: str) -> Row:
    return row(op, "setting", when, value, **{"name": "a", **given})


def grown(op: int, when: tuple[int, int | None], value: int, **given: str) -> Row:
    return row(op, "partitions-add", when, value, **given)


def made(op: int, when: tuple[int, int | None], value: int, **given: str) -> Row:
    return row(op, "topic-create", when, value, **given)


def gone(op: int, when: tuple[int, int | None], **given: str) -> Row:
    return row(op, "topic-delete", when, **given)


SET = [setting(1, (0, 1), 9), setting(2, (2, 3), 5)]
OLD_SEEN = [*shown(7, (40, 41), a=9), *shown(8, (42, 43), a=9)]
NONE_SEEN = [*shown(7, (40, 41)), *shown(8, (42, 43), b=3)]
GREW = [made(1, (0, 1), 4), grown(2, (2, 3), 8)]
FEW = [seen(7, (40, 41), 4), seen(8, (42, 43), 4)]
SEEN = "by process 8 and the look before it from 40.000 s to 43.000 s"
REST = "by all looks from 50.100 s to 51.000 s"
CLAIMS: dict[str, tuple[str, str, list[Row], list[Row]]] = {
    "a setting": (
        "setting a of orders had been set to 5 (process 2, acknowledged at 3.000 s)", f"it was 9 {SEEN}",
        [*SET, *OLD_SEEN], [],
    ),
    "back to the default": (
        "setting a of orders had been set back to its default (process 2, acknowledged at 3.000 s)", f"it was 9 {SEEN}",
        [SET[0], setting(2, (2, 3), None), *OLD_SEEN], [],
    ),
    "still the default": (
        "setting a of orders had been set to 5 (process 2, acknowledged at 3.000 s)", f"it was at its default {SEEN}",
        [*SET, *NONE_SEEN], [],
    ),
    "growth": (
        "topic orders was to have 8 partitions (process 2, acknowledged at 3.000 s)", f"it had 4 {SEEN}",
        [*GREW, *FEW], [],
    ),
    "growth at rest": (
        "topic orders was to have 8 partitions (process 2, acknowledged at 3.000 s)", f"it had 4 {REST}",
        GREW, at_rest(50, 4, 4),
    ),
    "creation": (
        "topic orders was to have 4 partitions (process 1, acknowledged at 1.000 s)", f"there was none {REST}",
        GREW[:1], at_rest(50, 0, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("done", "shows", "rows", "looks"), CLAIMS.values(), ids=CLAIMS)
def test_it_is_found_and_reported_with_what_was_asked_for(
    done: str, shows: str, rows: list[Row], looks: list[Row], tmp_path: Path
) -> None:
    (finding,) = found(tmp_path, rows, looks)
    assert (finding.anomaly, finding.key) == ("done-but-lost", "orders")
    assert finding.claim == f"The {done}, but {shows}, and no one had asked for that since."


HAVE: dict[str, tuple[list[Row], list[Row]]] = {
    "what was asked for was unknown before": ([setting(1, (0, None), 7), *SET, *OLD_SEEN], []),
    "what it was at first": ([SET[1], *OLD_SEEN], []),
    "and other settings stay": (
        [*SET, setting(3, (4, 5), 1, name="b"), *shown(7, (40, 41), a=9, b=1), *shown(8, (42, 43), a=9, b=1)], [],
    ),
    "a rejected one is no excuse": ([*SET, setting(3, (4, 5), 9, outcome="fail"), *OLD_SEEN], []),
    "deleted before": ([gone(0, (0, 1)), *[one | {"call": one["call"] + 2} for one in SET], *OLD_SEEN], []),
    "in the topic's next life": (
        [made(1, (0, 1), 4), gone(2, (2, 3)), made(3, (4, 5), 8, key="orders#2")], at_rest(50, 4, 4),
    ),
    "none of the next life": (
        [made(1, (0, 1), 4), gone(2, (2, 3)), made(3, (4, 5), 4, key="orders#2")], at_rest(50, 0, 0),
    ),
}  # fmt: skip
HAVE_NOT: dict[str, tuple[list[Row], list[Row]]] = {
    "a setting that is there": ([*SET, *shown(7, (40, 41), a=5), *shown(8, (42, 43), a=5)], []),
    "only one look": ([*SET, *shown(7, (40, 41), a=9), *shown(8, (42, 43), a=5)], []),
    "never twice in a row": (
        [*SET, *shown(7, (40, 41), a=9), *shown(8, (42, 43), a=5), *shown(9, (44, 45), a=9)], [],
    ),
    "a later change": ([*SET, setting(3, (4, 5), 9), *OLD_SEEN], []),
    "a later change that was lost, too, to what it was": ([*SET, setting(3, (4, None), 9), *OLD_SEEN], []),
    "an earlier one of unknown outcome": ([setting(1, (0, None), 9), SET[1], *OLD_SEEN], []),
    "two that overlap": ([setting(1, (0, 3), 9), SET[1], *OLD_SEEN], []),
    "not acknowledged": ([SET[0], setting(2, (2, None), 5), *OLD_SEEN], []),
    "a look that shows not all": (
        [*SET, *shown(7, (40, 41), complete=False, b=3), *shown(8, (42, 43), complete=False, b=3)], [],
    ),
    "what is no number": ([*SET, *shown(7, (40, 41), a=None), *shown(8, (42, 43), a=None)], []),
    "the settings of another topic": (
        [*SET, *shown(7, (40, 41), key="others", a=9), *shown(8, (42, 43), key="others", a=9)], [],
    ),
    "looks while it was at work": ([*SET, *({**one, "phase": "main"} for one in OLD_SEEN)], []),
    "the topic was deleted": ([*SET, gone(3, (4, 5)), *NONE_SEEN], []),
    "the topic may be deleted at any time": ([gone(0, (0, None)), *GREW, *FEW], at_rest(50, 0, 0)),
    "the topic's next life has less": (
        [*GREW, gone(3, (4, 5)), made(4, (6, 7), 2, key="orders#2")], at_rest(50, 2, 2),
    ),
    "as many as asked for": (GREW, at_rest(50, 8, 8)),
    "more, by someone": (GREW, at_rest(50, 9, 9)),
    "one look at rest": (GREW, at_rest(50, 4)),
    "one look at rest, and then it is there": (GREW, at_rest(50, 4, 8)),
    "another topic's": (GREW, [*at_rest(50, 8, 8), *({**one, "key": "orders-x-0"} for one in at_rest(50, 1, 1)
                                                     if one["what"] == "partition")]),
    "a growth of unknown outcome": ([GREW[0], grown(2, (2, None), 8), *FEW], at_rest(50, 4, 4)),
    "metadata that may be late after the change": (
        [GREW[0], grown(2, (2, 31), 8), *FEW], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("history", HAVE.values(), ids=HAVE)
def test_it_is_found(history: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, *history)] == ["done-but-lost"]


@pytest.mark.parametrize("history", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(history: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    assert found(tmp_path, *history) == []


@pytest.mark.parametrize(
    ("healed", "settings", "metadata", "rest"),
    [(5, True, True, True), (35, True, False, True), (46, False, False, True), (None, False, False, False)],
    ids=["long ago", "shortly before", "after the looks of the drain", "never"],
)
def test_looks_count_once_faults_are_over(
    healed: int | None, settings: bool, metadata: bool, rest: bool, tmp_path: Path
) -> None:
    """Metadata by the deadline, what ZooKeeper has at once."""
    faults = fault([("injected", 4), *([("healed", healed)] if healed else [])])
    assert bool(found(tmp_path / "settings", [*SET, *OLD_SEEN], [], faults)) is settings
    assert bool(found(tmp_path / "metadata", [*GREW, *FEW], [], faults)) is metadata
    assert bool(found(tmp_path / "rest", GREW, at_rest(50, 4, 4), faults)) is rest


def test_it_says_what_looking_at_every_pair_says(tmp_path: Path) -> None:
    histories = [Changes(f"t{number}", random.Random(number), 1000 * number) for number in range(500)]
    by_force = {
        (one.topic, *instance) for one in histories for instance in lost(one.rows, one.left)
    }  # fmt: skip
    looks = [one for history in histories for one in history.looks if one["what"] != "look"]
    looks += [one for one in histories[0].looks if one["what"] == "look"]
    rows = [one for history in histories for one in history.rows]
    with opened(write(tmp_path / "history", rows, looks=looks)) as engine:
        register_contract(engine, CONTRACT)
        create_views(engine, (*LOST_CHANGES.views, *DONE_BUT_LOST.views))
        by_sql = engine.rows(f"select * from {DONE_BUT_LOST.found}")
    found = {(one["key"], one["name"], "at rest" if one["look_op"] is None else "looks") for one in by_sql}
    assert found == by_force
    assert len(by_sql) == len(found)
    for kind in (("a", "looks"), ("", "looks"), ("", "at rest")):
        assert 15 < sum(instance[1:] == kind for instance in by_force) < 400, kind
