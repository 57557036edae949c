"""Tests what was rejected and done all the same: the anomaly of each kind, and its legal neighbours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.administration.rejected_changes import REFUSED_BUT_DONE, REJECTED_CHANGES
from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.verdict import Finding

from helpers.commit_histories import Members
from helpers.fault_rows import impact
from helpers.judging import opened
from helpers.log_histories import Row, effect, write
from helpers.nightly import by_night

S = 1_000_000_000


def row(op: int, kind: str, value: int | None, call: int, ret: int | None, outcome: str = "ok", **given: Any) -> Row:
    given = {"key": "orders", "process": op, **given}
    key = given.pop("key")
    return effect(op, 0, kind, key, call * S, None if ret is None else ret * S, value=value, outcome=outcome, **given)


def found(folder: Path, rows: list[Row], faults: Sequence[Row] = ()) -> list[Finding]:
    with opened(write(folder / "history", rows, faults=faults)) as engine:
        assert engine.rows(REJECTED_CHANGES.applies)[0]["examined"]
        create_views(engine, REFUSED_BUT_DONE.views)
        return read_findings(engine, REFUSED_BUT_DONE)


def commit(op: int, value: int, call: int, ret: int | None, outcome: str = "ok", key: str = "g/t-0") -> Row:
    return row(op, "commit", value, call, ret, outcome, key=key, position=5)


def fetched(op: int, value: int | None, call: int, ret: int) -> Row:
    return row(op, "fetched", value, call, ret, key="g/t-0", position=5)


def setting(op: int, value: int | None, call: int, ret: int | None, outcome: str = "ok", name: str = "a") -> Row:
    return row(op, "setting", value, call, ret, outcome, name=name)


def setting_seen(op: int, value: int | None, call: int, ret: int, name: str = "a") -> Row:
    return row(op, "setting-seen", value, call, ret, name=name)


def seen(op: int, value: int | None, call: int, ret: int, key: str = "orders") -> Row:
    return row(op, "topic-seen", value, call, ret, key=key)


def move(op: int, replicas: str, call: int, ret: int | None, outcome: str = "ok") -> Row:
    return row(op, "move", None, call, ret, outcome, key="orders-0", replicas=replicas)


def replicas_seen(op: int, replicas: str, call: int, ret: int) -> Row:
    return row(op, "replicas-seen", None, call, ret, key="orders-0", replicas=replicas)


def whole(*shown: Row, op: int = 1) -> list[Row]:
    """A look that shows all settings that the topic has of its own."""
    return [row(op, "setting-seen", None, 0, 1), *(one | {"sub": sub} for sub, one in enumerate(shown, 1))]


OTHER = setting_seen(1, 7, 0, 1, name="b")
"""Another setting that the look at a topic saw."""
HAVE = {
    "process 2 asked for the commit with the number 7 to g/t-0, called at 2.000 s, and it was certainly rejected, but "
    "process 3 found it done by 5.000 s.": [commit(2, 7, 2, 3, "fail"), fetched(3, 7, 4, 5)],
    "process 2 asked to set a of orders to -2, called at 2.000 s, and it was certainly rejected, but process 3 found "
    "it done by 5.000 s.": [*whole(OTHER), setting(2, -2, 2, 3, "fail"), setting_seen(3, -2, 4, 5)],
    "process 2 asked that orders has 8 partitions, called at 2.000 s, and it was certainly rejected, but process 3 "
    "found it done by 5.000 s.": [
        seen(1, 4, 0, 1), row(2, "partitions-add", 8, 2, 3, "fail"), seen(3, 8, 4, 5),
    ],
    "process 2 asked that new has 8 partitions, called at 2.000 s, and it was certainly rejected, but process 3 found "
    "it done by 5.000 s.": [
        seen(1, None, 0, 1, "new"), row(2, "topic-create", 8, 2, 3, "fail", key="new", error="invalid-config"),
        seen(3, 8, 4, 5, "new"),
    ],
    "process 2 asked to move orders-0 to the replicas 3,1, called at 2.000 s, and it was certainly rejected, but "
    "process 3 found it done by 5.000 s.": [
        replicas_seen(1, "1,2", 0, 1), move(2, "3,1", 2, 3, "fail"), replicas_seen(3, "3,1", 4, 5),
    ],
}  # fmt: skip
HAVE_NOT = {
    "a commit of unknown outcome": [commit(2, 7, 2, None, "info"), fetched(3, 7, 4, 5)],
    "another try of the commit was accepted": [
        commit(1, 7, 1, 3, "fail"), commit(2, 7, 2, 3), fetched(3, 7, 4, 5),
    ],
    "of another group": [commit(2, 7, 2, 3, "fail", key="h/t-0"), fetched(3, 7, 4, 5)],
    "seen before it was asked for": [fetched(1, 7, 0, 1), commit(2, 7, 2, 3, "fail")],
    "a change to the same value": [
        *whole(OTHER), setting(2, -2, 2, 3, "fail"), setting(3, -2, 3, None, "info"), setting_seen(4, -2, 4, 5),
    ],
    "there from the beginning": [
        *whole(setting_seen(1, -2, 0, 1)), setting(2, -2, 2, 3, "fail"), setting_seen(3, -2, 4, 5),
    ],
    "a look that does not show all settings": [
        OTHER, setting(2, -2, 2, 3, "fail"), *whole(setting_seen(3, -2, 4, 5), op=3),
    ],
    "what was there from the beginning is not known": [setting(2, -2, 2, 3, "fail"), setting_seen(3, -2, 4, 5)],
    "it may have been there before it was changed": [
        setting(1, 9, 0, 1), setting_seen(2, 9, 1, 2), setting(3, -2, 2, 3, "fail"), setting_seen(4, -2, 4, 5),
    ],
    "another setting": [*whole(OTHER), setting(2, -2, 2, 3, "fail"), setting_seen(3, -2, 4, 5, name="c")],
    "it has as many already": [seen(1, 8, 0, 1), row(2, "partitions-add", 8, 2, 3, "fail"), seen(3, 8, 4, 5)],
    "the first try was of unknown outcome": [
        seen(1, 4, 0, 1), row(2, "partitions-add", 8, 1, None, "info"), row(3, "partitions-add", 8, 2, 3, "fail"),
        seen(4, 8, 4, 5),
    ],
    "rejected because it exists": [
        seen(1, None, 0, 1), row(2, "topic-create", 8, 2, 3, "fail", error="topic-already-exists"), seen(3, 8, 4, 5),
    ],
    "the incarnation before is still there": [
        seen(1, None, 0, 1, "t#2"), row(2, "topic-create", 8, 2, 3, "fail", key="t#2", error="no-controller"),
        seen(3, 8, 4, 5, "t#2"),
    ],
    "while another move is under way": [
        replicas_seen(1, "1,2", 0, 1), move(2, "1,2,3", 2, 3, "fail"), move(3, "2,3", 2, 3),
        replicas_seen(4, "1,2,3", 4, 5),
    ],
    "a look that lacks a topic is old": [
        seen(1, 4, 0, 1), row(2, "topic-delete", None, 2, 3, "fail"), seen(3, None, 4, 5),
    ],
}  # fmt: skip


@pytest.mark.parametrize("claim", HAVE, ids=["commit", "setting", "growth", "creation", "move"])
def test_it_is_found_and_reported_with_both_operations(claim: str, tmp_path: Path) -> None:
    (finding,) = found(tmp_path, HAVE[claim])
    assert (finding.claim, finding.operations) == (claim, (2, 3))


def test_a_setting_of_a_topic_that_had_none_at_all_is_found(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [*whole(), setting(2, -2, 2, 3, "fail"), setting_seen(3, -2, 4, 5)])
    assert finding.operations == (2, 3)


def fault(name: str, *phases: str, at: int = 2, stage: str | None = None) -> list[Row]:
    row = {"id": 1, "fault": name, "targets": '["n1"]', "detail": "{}", "stage": stage, **impact(name)}
    return [{**row, "phase": phase, "time": at * S + turn} for turn, phase in enumerate(phases)]


MOVED = [replicas_seen(1, "1,2", 0, 1), move(2, "3,1", 2, 3, "fail"), replicas_seen(3, "3,1", 4, 5)]


@pytest.mark.parametrize(
    "faults",
    [
        fault("move-replicas", "intended", "injected"),
        fault("membership-remove", "intended", "failed", stage="inject"),
        fault("membership-add", "intended"),
    ],
    ids=["a move", "half a change of members", "one that is not heard of again"],
)
def test_a_fault_that_moves_replicas_may_have_done_what_was_rejected(tmp_path: Path, faults: list[Row]) -> None:
    assert found(tmp_path, MOVED, faults) == []


@pytest.mark.parametrize(
    "faults",
    [
        fault("move-replicas", "intended", "injected", at=6),
        fault("membership-add", "intended", "failed", stage="target"),
        fault("kill", "intended", "injected"),
    ],
    ids=["it came later", "it found no target", "it moves nothing"],
)
def test_another_fault_has_not(tmp_path: Path, faults: list[Row]) -> None:
    (finding,) = found(tmp_path, MOVED, faults)
    assert finding.operations == (2, 3)


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


@pytest.mark.parametrize("groups", [150, by_night(400)])
def test_it_says_of_commits_what_looking_at_every_pair_says(tmp_path: Path, groups: int) -> None:
    histories = [Members(f"g{number}", random.Random(number), number * 1000).run(24) for number in range(groups)]
    rows = [one for history in histories for one in history]
    with opened(write(tmp_path / "history", rows)) as engine:
        create_views(engine, REFUSED_BUT_DONE.views)
        by_sql = {one["asked_op"] for one in engine.rows(f"select * from {REFUSED_BUT_DONE.found}")}
    by_force = set()
    for history in histories:
        commits = [one for one in history if one["kind"] == "commit"]
        for asked in commits:
            looks = [one["ret"] for one in history if one["kind"] == "fetched" and one["outcome"] == "ok"
                     and one["value"] == asked["value"] and one["ret"] > asked["call"]]  # fmt: skip
            if (
                asked["outcome"] == "fail"
                and looks
                and not any(
                    one["outcome"] != "fail" and one["value"] == asked["value"] and one["call"] <= min(looks)
                    for one in commits
                )
            ):
                by_force.add(asked["op"])
    assert by_sql == by_force
    assert len(by_sql) > groups // 20
