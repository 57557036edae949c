"""Who held what: each anomaly, its nearest legal neighbour, and every instant of thousands of small histories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.family import GENERATIONS, ORPHANS
from assay.checkers.groups.orphans import ORPHANED_PARTITION
from assay.checkers.groups.ownership_intervals import DOUBLE_OWNERSHIP, HOLD_VIEWS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.fault_rows import impact
from helpers.hold_histories import DEADLINE, Consumers, Orphans, overlapping, owned_twice
from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write

CONTRACT = Contract(rebalance_deadline=DEADLINE / 1000)
APART = 10_000
S = 1_000_000_000


def histories(count: int) -> list[Consumers]:
    return [
        Consumers(f"g{number}", random.Random(f"holds/{number}"), number * 1000, number * APART).run(120)
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.long)])
def test_every_instant_of_many_histories(count: int, tmp_path: Path) -> None:
    some = histories(count)
    rows = [row for one in some for row in one.rows]
    faults = [row for one in some for row in one.faults]
    with opened(write(tmp_path / "history", rows, faults=faults)) as engine:
        register_contract(engine, CONTRACT)
        create_views(engine, (*HOLD_VIEWS, *DOUBLE_OWNERSHIP.views, *ORPHANED_PARTITION.views))
        found = engine.rows(f"select group_name, key, term, begun from {DOUBLE_OWNERSHIP.found}")
        twice = {(row["group_name"], row["key"], row["term"]) for row in found if row["term"] is not None}
        beside = {(row["group_name"], row["key"], row["begun"]) for row in found if row["term"] is None}
        assert len(found) == len(twice) + len(beside)
        orphaned = {
            (row["group_name"], row["key"], row["since"], row["until"])
            for row in engine.rows(f"select group_name, key, since, until from {ORPHANED_PARTITION.found}")
        }
    assert twice == {instance for one in some for instance in owned_twice(one.rows)}
    assert beside == {instance for one in some for instance in overlapping(one.rows, one.faults)}
    assert orphaned == {instance for one in some for instance in Orphans(one.rows, one.faults).found()}
    for what in (twice, beside, orphaned):
        assert count // 16 < len({name for name, *_ in what}) < count - count // 16, "some are right, some are wrong"


class Book:
    """Rows of group ``g`` by hand. Times are seconds; ``who`` is process, worker and owner in one."""

    def __init__(self, generation: int | None = None) -> None:
        self.rows: list[Row] = []
        self.generation = generation

    def add(self, who: int, when: tuple[float, float | None], *reported: tuple[Any, ...], **given: Any) -> Book:
        """``reported``: (kind, key, assignment) each, and an outcome where it is not the operation's."""
        op = len({row["op"] for row in self.rows})
        call, ret = int(when[0] * S), None if when[1] is None else int(when[1] * S)
        more: dict[str, Any] = {"process": who, "worker": f"w{who % 10}", "group": "g", "owner": f"c{who}"}
        known = "ok" if ret is not None else "info"
        for sub, (kind, key, assignment, *outcome) in enumerate(reported):
            row = effect(
                op, sub, kind, key, call, ret, assignment=assignment, generation=self.generation, **(more | given)
            )
            self.rows.append(row | {"outcome": outcome[0] if outcome else known, "op_outcome": known})
        return self

    def reading(self, who: int, key: str, assignment: int, begun: int, ended: int) -> Book:
        """A look at a partition each second, which takes half of one."""
        for second in range(begun, ended):
            self.add(who, (second + who / 100, second + 0.5 + who / 100), ("observe-begin", key, assignment))
        return self


def held(first: tuple[float, float | None] = (1, 2), second: tuple[float, float | None] = (5, 6)) -> Book:
    """c1 owns t-0 and reads it at 8 s for the last time; c2 acquires it at ``second``, and reads it at 9 s."""
    book = Book().add(1, first, ("acquire", "t-0", 1)).add(2, second, ("acquire", "t-0", 1))
    book.add(1 if first[1] else 11, (8, 8.5), ("observe-begin", "t-0", 1))
    return book.add(2 if second[1] else 12, (9, 9.5), ("observe-begin", "t-0", 1))


def judged(folder: Path, rows: list[Row], contract: Contract, faults: list[Row] | None = None) -> list[Finding]:
    """By these two checks alone."""
    number = {op: at for at, op in enumerate(dict.fromkeys(row["op"] for row in sorted(rows, key=lambda r: r["call"])))}
    rows = [row | {"op": number[row["op"]]} for row in rows]
    with opened(write(folder / "history", rows, faults=faults or [])) as engine:
        register_contract(engine, contract)
        create_views(engine, (*HOLD_VIEWS, *DOUBLE_OWNERSHIP.views, *ORPHANED_PARTITION.views))
        return [finding for check in (DOUBLE_OWNERSHIP, ORPHANED_PARTITION) for finding in read_findings(engine, check)]


def fault(name: str, target: str, times: dict[str, float]) -> list[Row]:
    return [
        {"id": 1, "fault": name, "targets": f'["{target}"]', "phase": phase, "time": int(time * S), "detail": "{}",
         "took_effect": True if phase == "healed" else None, "on_clients": "client" in target} | impact(name)
        for phase, time in times.items()
    ]  # fmt: skip


def test_two_that_certainly_own_a_partition_at_once_are_reported_with_their_times(tmp_path: Path) -> None:
    (reported,) = judged(tmp_path, held().rows, Contract())
    assert reported.claim == (
        "t-0 of g had two owners from 6.000 s to 8.000 s: c1 (process 1) owned it from 2.000 s to at least 8.000 s, "
        "and c2 (process 2) from 6.000 s to at least 9.000 s."
    )
    assert reported.operations == (1, 0, 2), "who came, who was there, and what shows that he still was"


def _given_up(kind: str, when: tuple[float, float | None], *outcome: str) -> Book:
    book = Book().add(1, (1, 2), ("acquire", "t-0", 1)).add(1, when, (kind, "t-0", 1, *outcome))
    return book.add(2, (5, 6), ("acquire", "t-0", 1)).add(2, (9, 9.5), ("observe-begin", "t-0", 1))


SINGLE = {
    "the first was heard of for the last time before": held(second=(7, 8.2)),
    "the first's acquire is of unknown outcome": held(first=(1, None)),
    "the second's acquire is of unknown outcome": held(second=(5, None)),
    "a release was called before, whatever became of it": _given_up("release", (5.5, None), "info"),
    "a release failed": _given_up("release", (5.5, 7), "fail"),
    "a loss was noticed in an operation called before": _given_up("lost", (5.5, 7)),
    "another partition": Book(),
    "an answer that never came is no sign of life": Book()
    .add(1, (1, 2), ("acquire", "t-0", 1))
    .add(2, (5, 6), ("acquire", "t-0", 1))
    .add(1, (8, None), ("observe-begin", "t-0", 1))
    .add(2, (9, 9.5), ("observe-begin", "t-0", 1)),
    "a sign of life under another hold": Book()
    .add(1, (1, 2), ("acquire", "t-0", 1))
    .add(2, (5, 6), ("acquire", "t-0", 1))
    .add(1, (8, 8.5), ("observe-begin", "t-0", 2))
    .add(2, (9, 9.5), ("observe-begin", "t-0", 1)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_who_may_have_let_go_is_no_second_owner(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, SINGLE[name].rows or held().rows[:1], Contract()) == []


@pytest.mark.parametrize("book", [_given_up("release", (6.5, 7)), _given_up("lost", (6.5, 7))])
def test_who_lets_go_a_little_later_is_one(tmp_path: Path, book: Book) -> None:
    (reported,) = judged(tmp_path, book.rows, Contract())
    assert "two owners from 6.000 s to 6.500 s" in reported.claim


def test_the_same_owner_and_other_groups_and_partitions_are_no_second_owner(tmp_path: Path) -> None:
    for number, change in enumerate(({"owner": "c1"}, {"group": "h"}, {"key": "t-1"})):
        rows = [row | (change if row["process"] == 2 else {}) for row in held().rows]
        assert judged(tmp_path / str(number), rows, Contract()) == []


def test_an_owner_that_may_have_been_killed_is_none(tmp_path: Path) -> None:
    """It says afterwards, at 7 s, that it lost the partition; but the killed one cannot have held it at 6 s."""
    rows = _given_up("lost", (7, 7.5)).rows
    times = {"intended": 3.0, "injected": 3.1, "healed": 3.5, "recovered": 3.9}
    assert len(judged(tmp_path / "no", rows, Contract())) == 1
    assert judged(tmp_path / "kill", rows, Contract(), fault("kill", "client1", times)) == []
    assert len(judged(tmp_path / "broker", rows, Contract(), fault("kill", "n1", times))) == 1
    for sparing in ("stop", "stop-consumer", "cut-consumer", "consumer-from-zookeeper", "partition-one"):
        assert len(judged(tmp_path / sparing, rows, Contract(), fault(sparing, "client1", times))) == 1
    assert judged(tmp_path / "kill-consumer", rows, Contract(), fault("kill-consumer", "client1", times)) == []
    silent = [row | {"ends_process": None} for row in fault("stop", "client1", times)]
    assert judged(tmp_path / "silent", rows, Contract(), silent) == [], "it does not say whether it ends processes"
    around = {"intended": 5.5, "injected": 6.2, "healed": 6.4, "recovered": 6.6}
    assert judged(tmp_path / "around", rows, Contract(), fault("kill", "client1", around)) == []
    late = times | {"intended": 7.2, "injected": 7.3, "healed": 7.4, "recovered": 7.5}
    assert len(judged(tmp_path / "late", rows, Contract(), fault("kill", "client1", late))) == 1
    book = Book()
    book.rows = list(rows)
    alive = _tell(book, 1, (6.5, 6.6), ("observe-begin", "t-0", 1)).rows
    (reported,) = judged(tmp_path / "alive", alive, Contract(), fault("kill", "client1", times))
    assert "from 6.000 s to 6.500 s" in reported.claim


def as_recorded(name: str, target: str, times: dict[str, float]) -> list[Row]:
    """As a run writes it: all is intended at the start, of no one yet, and injected once it has been done."""
    rows = fault(name, target, times)
    rows[0] |= {"time": 0, "targets": "[]", "on_clients": False, "not_before": int(times["intended"]) * S}
    return rows


def test_a_kill_may_have_come_before_it_was_reported(tmp_path: Path) -> None:
    """c1 may have died at 5.5 s, before c2 acquired; the kill is recorded at 7.2 s, after the last operation of c1."""
    rows = _given_up("release", (7, None)).rows
    assert len(judged(tmp_path / "no", rows, Contract())) == 1
    times = {"intended": 5.5, "injected": 7.2, "healed": 9.4, "recovered": 9.6}
    assert judged(tmp_path / "kill", rows, Contract(), as_recorded("kill-consumer", "client1", times)) == []
    late = times | {"intended": 7.1}
    assert len(judged(tmp_path / "late", rows, Contract(), as_recorded("kill-consumer", "client1", late))) == 1


@pytest.mark.parametrize("term", ["generation", "token"])
def test_generations_and_tokens_tell_owners_apart_whenever_they_own(tmp_path: Path, term: str) -> None:
    """Giving a partition up does not make room for another in the same generation."""
    rows = held().rows
    assert judged(tmp_path / "next", [row | {term: row["process"]} for row in rows], Contract()) == []
    released = [row | {term: 3} for row in _given_up("release", (3, 4)).rows]
    (reported,) = judged(tmp_path / "same", released, Contract())
    assert reported.claim == "t-0 of g had two owners in generation 3: c1 (process 1) and c2 (process 2)."
    again = [row | {"owner": "c1"} for row in released]
    assert judged(tmp_path / "again", again, Contract()) == []


def test_a_group_that_was_forgotten_once_may_give_each_generation_twice(tmp_path: Path) -> None:
    forgotten = {"time": 1, "node": "n1", "incarnation": 1, "seq": 1, "event": "group-forgotten", "key": "g",
                 "detail": "{}"}  # fmt: skip
    rows = [row | {"generation": 3} for row in held().rows]
    third = Book(3).add(3, (20, 21), ("acquire", "t-0", 1)).rows
    third[0]["op"] = 9
    for number, (some, many) in enumerate(((rows, 0), ([*rows, *third], 1))):
        reported = judge(write(tmp_path / str(number) / "history", some, events=[forgotten]), Contract())
        assert reported.anomalies.get("double-ownership", 0) == many
    assert "3 owners in generation 3" in reported.findings[0].claim


def orphan(until: int = 40, again: float | None = None) -> Book:
    """c1 and c2 own a partition each and look at it each second; c1 gives t-0 up at 10 s."""
    book = Book().add(1, (1, 1.5), ("acquire", "t-0", 1)).add(2, (2, 2.5), ("acquire", "t-1", 1))
    book.reading(1, "t-0", 1, 3, 10).add(1, (10, 10.4), ("release", "t-0", 1))
    book.reading(2, "t-1", 1, 3, until)
    if again is not None:
        book.add(3, (again - 1, again - 0.9), ("acquire", "g", 1))
        book.add(3, (again, again + 0.1), ("acquire", "t-0", 2))
    for who in (1, 3):  # they go on telling of the group, and of nothing new
        book.add(who, (until + who / 10, until + who / 10 + 0.05), ("observe-begin", "g", 7))
    return book


DEADLINED = Contract(rebalance_deadline=20.0)


def test_a_partition_that_is_not_taken_over_is_orphaned(tmp_path: Path) -> None:
    (reported,) = judged(tmp_path, orphan().rows, DEADLINED)
    assert reported.anomaly == "orphaned-partition"
    assert reported.key == "t-0"
    assert reported.claim == (
        "No one of g owned t-0 from 10.400 s to 39.020 s, 28.620 s, while others of the group were there; the "
        "contract's deadline is 20.000 s. The last owner was process 1."
    )


def _without(book: Book, who: int, since: float, until: float = 1000) -> Book:
    book.rows = [row for row in book.rows if row["process"] != who or not since * S <= row["call"] < until * S]
    return book


def _tell(book: Book, who: int, when: tuple[float, float | None], *reported: tuple[Any, ...], **given: Any) -> Book:
    """Adds an operation to the book."""
    for row in Book().add(who, when, *reported, **given).rows:
        book.rows.append(row | {"op": 1000 + len(book.rows)})
    return book


NO_ORPHAN = {
    "some process took it in time": orphan(again=20),
    "not for long enough": orphan(until=30),
    "it was never given up for certain": Book(),
    "no one else was there": _without(orphan(), 2, 20, 35),
    "the others looked rarely": Book(),
    "only of another topic": Book(),
    "the one who gave it up never reported again": _without(orphan(), 1, 20),
    "an open operation may have got it": _tell(orphan(), 5, (15, None), ("start", "t-0", None), group=None),
}


@pytest.mark.parametrize("name", NO_ORPHAN)
def test_it_is_no_orphan_where_a_member_may_own_it_or_none_lives(tmp_path: Path, name: str) -> None:
    rows = NO_ORPHAN[name].rows
    if name == "it was never given up for certain":
        rows = [row | ({"outcome": "fail"} if row["kind"] == "release" else {}) for row in orphan().rows]
    if name == "only of another topic":
        rows = [row | ({"key": "u-1"} if row["key"] == "t-1" else {}) for row in orphan().rows]
    if name == "the others looked rarely":
        rows = [row for row in orphan().rows if row["process"] != 2 or row["call"] // S % 6 < 1 or row["call"] < 4 * S]
    assert judged(tmp_path, rows, DEADLINED) == []


@pytest.mark.parametrize(("times", "many"), [
    ({"intended": 12.0, "injected": 12.1, "healed": 15.0, "recovered": 25.0}, 0),
    ({"intended": 12.0, "injected": 12.1, "healed": 15.0, "recovered": 16.0}, 1),
    ({"intended": 12.0, "injected": 12.1, "healed": 15.0}, 0),
    ({"intended": 32.0, "injected": 32.1, "healed": 35.0}, 1),
])  # fmt: skip
def test_time_under_faults_does_not_count(tmp_path: Path, times: dict[str, float], many: int) -> None:
    for how in (fault, as_recorded):
        assert len(judged(tmp_path / how.__name__, orphan().rows, DEADLINED, how("kill", "n1", times))) == many


def test_a_partition_given_in_the_background_is_reported_later(tmp_path: Path) -> None:
    """c1 is silent from 10 s to 35 s; what it says then it may have owned since."""
    book = orphan()
    assert (
        len(judged(tmp_path / "recorded", _tell(book, 1, (33, 33.1), ("observe-begin", "g", 7)).rows, DEADLINED)) == 1
    )
    rows = _tell(orphan(), 1, (33, 33.1), ("acquire", "t-0", 3)).rows
    assert judged(tmp_path / "given", rows, DEADLINED) == []


@pytest.mark.parametrize("first", [True, False])
def test_a_hold_that_is_reported_after_its_end_hides_no_orphan(tmp_path: Path, first: bool) -> None:
    """c3 takes t-0 at 36 s; then c1 tells of the hold that it gave up at 10 s, again or for the first time."""
    book = _tell(orphan(until=42, again=36), 1, (41, 41.1), ("acquire", "t-0", 1))
    if not first:
        book.rows = [row for row in book.rows if row["op"] != 0]
    (reported,) = judged(tmp_path, book.rows, DEADLINED)
    assert "from 10.400 s to 35.000 s" in reported.claim


def test_the_death_of_its_owner_frees_a_partition(tmp_path: Path) -> None:
    """Process 1 ends with an unknown outcome; its worker goes on as process 11, and no one takes t-0."""
    book = _without(orphan(), 1, 9.9)
    _tell(book, 1, (10, None), ("observe-begin", "t-0", 1))
    assert judged(tmp_path / "open", book.rows, DEADLINED) == []
    _tell(book, 11, (13, 13.1), ("acquire", "g", 5))
    _tell(book, 11, (41, 41.1), ("observe-begin", "g", 5))
    (reported,) = judged(tmp_path / "over", book.rows, DEADLINED)
    assert "from 13.000 s to 39.020 s" in reported.claim
    send = [row | ({"kind": "append"} if row["process"] == 5 else {}) for row in NO_ORPHAN[
        "an open operation may have got it"].rows]  # fmt: skip
    assert len(judged(tmp_path / "send", send, DEADLINED)) == 1


def test_an_interrupted_run_says_nothing_of_orphans(tmp_path: Path) -> None:
    folder = write(tmp_path / "history", orphan().rows)
    assert "orphaned-partition" in judge(folder, DEADLINED).anomalies
    assert "orphaned-partition" not in judge(folder, DEADLINED, interrupted=True).anomalies


def test_nothing_is_owed_where_holds_are_not_recorded(tmp_path: Path) -> None:
    rows = [row | {"assignment": None, "generation": 1} for row in Book().add(1, (1, 2), ("acquire", "t-0", 1)).rows]
    looked = {one.check for one in judge(write(tmp_path / "history", rows), Contract()).examined}
    assert "double-ownership" in looked
    assert "orphaned-partition" not in looked
    assert {family.name for family in (*GENERATIONS, ORPHANS)} >= {"double-ownership", "orphaned-partition"}
