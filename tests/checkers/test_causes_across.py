"""Tests that what checks of several families see, or one check from both sides, is one finding; two causes are two."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict

from helpers import commit_histories
from helpers.epoch_histories import began, joined, keyed, log_end, mark, record
from helpers.judging import judge
from helpers.log_histories import Book, Row, effect, write
from helpers.state_histories import numbered, recorded, registered, said, written

Shown = dict[str, str | None]
S = 1_000_000_000
ENDS = Contract(linearizable_ends=True)


@dataclass(frozen=True)
class History:
    """The subject of a judgement."""

    rows: list[Row] = field(default_factory=list)
    contract: Contract = field(default_factory=Contract)
    others: dict[str, list[Row]] = field(default_factory=dict)


def shown(folder: Path, history: History) -> Shown:
    """By anomaly, numbered where it is not the first: beneath which other one it is shown. All count."""
    judgement = judge(write(folder, history.rows, **history.others), history.contract)
    assert judgement.verdict is Verdict.FAIL
    assert sum(judgement.anomalies.values()) == len(judgement.findings), "none is lost"
    names: list[str] = []
    for one in judgement.findings:
        before = sum(name.split()[0] == one.anomaly for name in names)
        names.append(f"{one.anomaly} {before + 1}" if before else one.anomaly)
    heads = [one.same_cause_as for one in judgement.findings]
    return {names[place]: None if head is None else names[head] for place, head in enumerate(heads)}


# -- commits -----------------------------------------------------------------------------------------------------------


def commits(*looks: int) -> History:
    """Commit 7 was rejected; these numbers were fetched."""
    fetches = [commit_histories.fetched(op, value, 5, (2 * op, 2 * op + 1)) for op, value in enumerate(looks, 3)]
    made = [
        commit_histories.commit(1, 6, 5, (0, 1), group=None),
        commit_histories.commit(2, 7, 5, (2, 3), group=None, outcome="fail"),
    ]
    return History([*made, *(row | {"group": None, "assignment": None} for row in fetches)])


def committed_above(reported: int) -> History:
    """A member committed offset 4; then these ends were reported, of a log that had gone to 6."""
    rows = [
        *commit_histories.poll(1, 0, 4, (0, 1)),
        commit_histories.commit(2, 7, 4, (2, 3), process=1, assignment=1),
        commit_histories.end(3, 6, (4, 5), leader_epoch=1),
        commit_histories.end(4, reported, (6, 7), leader_epoch=1),
    ]
    if reported > 3:
        rows.append(commit_histories.end(5, 3, (8, 9)))
    return History(rows, ENDS)


# -- records -----------------------------------------------------------------------------------------------------------


def recreated(*, at: int) -> History:
    """A record of the topic before was read from the new one at offset 0; ``at`` this one there were two values."""
    book = Book()
    book.send([1], 0, (0, 10))
    book.add("topic-create", (40, 50), None, value=1, process=5)
    book.rows[-1]["key"] = "orders#2"
    first = len(book.rows)
    book.send([2], at, (60, 70), process=1)
    if at:
        book.send([3], at, (71, 72), process=2)
    book.poll(0, [(0, 1), (1, 3)][: at + 1], at + 1, (100, 110))
    for row in book.rows[first:]:
        row["key"] = "orders#2-0"
    return History(book.rows)


def reused(*, at: int) -> History:
    """Value 1 is at offset 3, too; this offset was given away twice."""
    book = Book()
    book.send([1], 0, (100, 110))
    book.send([7, 8], 1, (120, 130))
    book.send([2], at, (200, 210), process=3)
    book.poll(0, sorted(({0: 1, 1: 7, 2: 8, 3: 1} | {at: 2}).items()), 4, (300, 310))
    return History(book.rows)


def failed_and_read(*, at: int) -> History:
    """Offset 0 has two values; one of a failed send was read at this one."""
    book = Book()
    book.send([1], 0, (10, 20))
    book.send([2], None, (30, 40), outcome="fail")
    if at:
        book.send([3], 0, (11, 21), process=2)
    book.poll(0, [(0, 1), (1, 2)] if at else [(0, 2)], at + 1, (50, 60))
    return History(book.rows)


def misplaced(*, also: int = 0) -> History:
    """Value 1 was acknowledged at offset 1 and is at 2; and this one is at 3, too."""
    book = Book()
    book.send([7], 0, (1, 5))
    book.send([1], 1, (10, 20))
    twice = [(3, also)] if also else []
    book.poll(0, [(0, 7), (2, 1), *twice], 3 + len(twice), (50, 60))
    return History(book.rows)


def moved(*, twice: bool = False) -> History:
    """Value 1 was read at offset 1, and then at 2; another one is perhaps at two offsets."""
    book = Book()
    book.send([7], 0, (1, 5))
    for one in (1, 9):
        book.send([one], None, (10 + one, None), outcome="info", process=one)
    nine = [(3, 9), (4, 9)][: twice + 1]
    for at, when in ((1, (50, 60)), (2, (70, 80))):
        book.poll(0, [(0, 7), (at, 1), *nine], 5 if twice else 4, when, process=at + 20, assignment=at)
    return History(book.rows)


def late(*fillings: tuple[tuple[int, ...], int], process: int = 1) -> History:
    """After a set was at these offsets, a lower one was filled."""
    book = Book()
    for number, (above, filled) in enumerate(fillings):
        start = 100 * number
        book.send(above, above[0], (start, start + 10), process=2 * number)
        book.send([filled], filled, (start + 20, start + 30), process=2 * number + process)
    return History(book.rows)


def torn(*, same: bool) -> History:
    """A set whose second value lies below its first; or it lies elsewhere, and the next send lies below it."""
    book = Book()
    book.send([1, 2], 3, (10, 20))
    book.rows[1]["position"] = 2 if same else 6
    if not same:
        book.send([5], 4, (11, 21), process=2)
        book.send([4], 5, (30, 40))
    return History(book.rows)


def reported(*, at: int) -> History:
    """The log's end was 3, and then lower; and this offset was filled late."""
    book = Book()
    book.send([1, 2, 3], 0, (1, 5))
    book.add("end", (10, 20), 3, leader_epoch=1)
    book.add("end", (30, 40), 1, leader_epoch=1)
    if at:
        book.send([at + 1], at + 1, (50, 60), process=3)
        book.send([at], at, (70, 80), process=4)
    return History(book.rows, ENDS)


def sent_away(*, lost: int) -> History:
    """A reader was answered that offset 2 is not in the log; this one is gone."""
    book = Book()
    book.send([10, 11, 12], 0, (1, 5))
    book.add("out-of-range", (10, 20), 2)
    book.poll(0, [(at, at + 10) for at in range(3) if at != lost], 3, (30, 40))
    return History(book.rows, Contract(retention_ms=-1, retention_bytes=-1))


def acknowledged_early(*, lost: int) -> History:
    """Two members lacked offset 1 when it was acknowledged; this one is gone."""
    book = Book()
    book.send([10, 11, 12], 0, (1, 5))
    book.poll(0, [(at, at + 10) for at in range(3) if at != lost], 3, (30, 40))
    lacking = {"look": 0, "time": 6, "ended": 6, "what": "lacking", "key": "orders-0", "position": 1, "log_end": 1}
    looked = {"look": 0, "time": 6, "ended": 6, "what": "inspected", "acknowledgements": 3}
    return History(book.rows, others={"looks": [lacking | {"node": "n2"}, lacking | {"node": "n3"}, looked]})


# -- groups and queues -------------------------------------------------------------------------------------------------


def given_out_twice(*, generation: int) -> History:
    """Generation 3 was stored twice; in this one two owners had both partitions."""
    owned = [
        effect(op, sub, "acquire", f"t-{sub}", op * S, op * S + 1, group="g", generation=generation, owner=f"m{op}",
               assignment=op, process=op)
        for op in (1, 2) for sub in (0, 1)
    ]  # fmt: skip
    stored = [
        {"time": seq * S, "node": f"n{seq}", "incarnation": 1, "seq": 1, "event": "group-generation", "key": "g",
         "epoch": 3, "detail": "{}"}
        for seq in (1, 2)
    ]  # fmt: skip
    return History(owned, others={"events": stored})


def found_empty(*, later: bool) -> History:
    """Element 7 never came out; the queue said twice that it is empty, perhaps when 8 was inside, too."""

    def step(op: int, kind: str, value: int | None) -> Row:
        return effect(op, 0, kind, "q", 2 * op * S, (2 * op + 1) * S, value=value, process=op)

    add, take, end = "queue-enqueue", "queue-dequeue", "queue-drained"
    rows = [step(1, add, 7), step(3, take, None), step(4, take, None), step(9, end, None)]
    return History([*rows, *([step(2, add, 8), step(5, take, 8)] if later else [])], Contract(linearizable_queues=True))


# -- replicas ----------------------------------------------------------------------------------------------------------


def incomplete(*, end: int) -> History:
    """A replica joined without offset 8; up to 12 was committed before a later leader's log went to here."""
    events = [mark(1, 3, 9, node="n3"), began(2, 4, 9, 5, node="n2"), joined(3, 4, 8, 5, node="n2")]
    return History(others={"events": [*events, mark(4, 4, 12, node="n2"), began(5, 5, end, 5, node="n4")]})


def left_out(*, position: int) -> History:
    """An election asked only one of three members; a leader began with a log to here, of the 12 that were committed."""
    nodes = [registered(f"n{broker}", broker) for broker in (1, 2, 3)]
    election = [
        written(1, 4, -1, [1, 2], elr=[3]), recorded(1, "n2", 3, 9), written(1, 5, 2, [2]),
        mark(1, 3, 12, node="n3"), began(1, 5, position, 3, node="n2"),
    ]  # fmt: skip
    return History(others={"events": numbered([*nodes, *election])})


def too_soon(*replicas: int) -> History:
    """Old replicas were taken away, and a move ended, with two in sync."""
    away = said(1, "assignment-written", 4, 7, [1, 2], replicas=[1, 2, 3], gone=[4])
    ended = said(2, "reassignment-ended", 4, 8, [1, 2], replicas=list(replicas))
    return History(others={"events": [away, ended]})


def compacted(*, lacks: int) -> History:
    """Two members lack the last value of a key, at offset 1; a third one this offset."""
    sends = [keyed(1, 1, 1, "a"), keyed(2, 2, 2, "b")]
    held = {"n1": {1, 2}, "n2": {2}, "n3": {1, 2} - {lacks}}
    disks = [record(node, at, 0, 0) for node, places in held.items() for at in sorted(places)]
    ends = [log_end(node, 9, None, 9) for node in held]
    return History(sends, Contract(compacted=("t-0",)), {"replicas": disks + ends})


def elements_lost(*nodes: str, again: bool = False) -> History:
    """Elements that these nodes acknowledged and the next read lacks; ``again``: another, that a later one lacks."""
    rows = [
        effect(op, 0, "set-add", "s", op * S, op * S + 1, value=op, node=node, process=op)
        for op, node in enumerate(nodes)
    ]
    read = len(rows)
    rows.append(effect(read, 0, "set-read", "s", read * S, read * S + 1, value=None, process=90))
    if again:
        rows.append(effect(read + 1, 0, "set-add", "s", (read + 1) * S, (read + 1) * S + 1, value=50, node=nodes[0]))
        rows.append(effect(read + 2, 0, "set-read", "s", (read + 2) * S, (read + 2) * S + 1, value=None, process=91))
    return History(rows)


ONE: dict[str, tuple[History, Shown]] = {
    "a commit that was rejected, and fetched": (
        commits(7),
        {"missing-writer": "refused-but-done", "refused-but-done": None},
    ),
    "an end that went back below a commit": (
        committed_above(3),
        {
            "high-watermark-regression": None,
            "real-time-order": "high-watermark-regression",
            "commit-beyond-log": "high-watermark-regression",
        },
    ),
    "a record of the topic before, where the new one has its own": (
        recreated(at=0),
        dict.fromkeys(("inconsistent-offset", "phantom", "lost-write"), "resurrected") | {"resurrected": None},
    ),
    "an offset that was given away twice, whose first value is elsewhere": (
        reused(at=0),
        {"inconsistent-offset": None}
        | dict.fromkeys(("duplicate", "real-time-order", "real-time-order 2", "misplaced-ack"), "inconsistent-offset"),
    ),
    "a failed send's value, where another is": (
        failed_and_read(at=0),
        {"inconsistent-offset": None, "aborted-read": "inconsistent-offset", "lost-write": "inconsistent-offset"},
    ),
    "a value that was acknowledged elsewhere than it is": (
        misplaced(),
        {"duplicate": "misplaced-ack", "misplaced-ack": None},
    ),
    "a value that is somewhere else now": (
        moved(),
        {"vanished": None} | dict.fromkeys(("duplicate", "vanished 2", "poll-skip", "poll-skip 2"), "vanished"),
    ),
    "an offset that is filled after several above it": (
        late(((5, 6), 4)),
        {"real-time-order": None, "real-time-order 2": "real-time-order"},
    ),
    "offsets of one process that fall": (
        late(((5,), 4), process=0),
        {"real-time-order": None, "nonmonotonic-send": "real-time-order"},
    ),
    "a set whose second value lies below its first": (
        torn(same=True),
        {"nonmonotonic-send": "send-skip", "send-skip": None},
    ),
    "an end below all that was known": (
        reported(at=0),
        {"high-watermark-regression": None}
        | dict.fromkeys(("real-time-order", "real-time-order 2", "real-time-order 3"), "high-watermark-regression"),
    ),
    "a reader that is sent away from what is lost": (
        sent_away(lost=1),
        {"lost-write": None, "false-out-of-range": "lost-write"},
    ),
    "a record that two members lacked, and that is lost": (
        acknowledged_early(lost=1),
        {"lost-write": None, "early-acknowledgement": "lost-write", "early-acknowledgement 2": "lost-write"},
    ),
    "a generation that was given out twice": (
        given_out_twice(generation=3),
        {"double-ownership": "generation-reuse", "double-ownership 2": "generation-reuse", "generation-reuse": None},
    ),
    "an element that is lost, where the queue was said to be empty": (
        found_empty(later=False),
        {"queue-lost": None, "queue-false-empty": "queue-lost", "queue-false-empty 2": "queue-lost"},
    ),
    "elements that one node acknowledged, and that one read lacks": (
        elements_lost("n1", "n1", "n1"),
        {"set-lost": None, "set-lost 2": "set-lost", "set-lost 3": "set-lost"},
    ),
    "a member that joined without a record, and led without it": (
        incomplete(end=8),
        {"leader-completeness": None, "member-completeness": "leader-completeness"},
    ),
    "an election that left out two logs, and a leader that lacks records": (
        left_out(position=9),
        {
            "leader-completeness": None,
            "overlooked-log": "leader-completeness",
            "overlooked-log 2": "leader-completeness",
        },
    ),
    "a move that took replicas away too soon, and ended": (
        too_soon(1, 2, 3),
        {"early-move": None, "early-move 2": "early-move"},
    ),
    "a last value that two members lack": (
        compacted(lacks=1),
        {"lost-last-value": None, "lost-last-value 2": "lost-last-value"},
    ),
}

APART: dict[str, tuple[History, Shown]] = {
    "another number was fetched that no one committed": (
        commits(7, 8),
        {"missing-writer": "refused-but-done", "missing-writer 2": None, "refused-but-done": None},
    ),
    "another end lies below a commit": (
        committed_above(5),
        {
            "high-watermark-regression": None,
            "real-time-order": None,
            "real-time-order 2": "high-watermark-regression",
            "commit-beyond-log": "real-time-order",
        },
    ),
    "a record of the topic before, and two values of the new one at another offset": (
        recreated(at=1),
        {
            "inconsistent-offset": None,
            "lost-write": "inconsistent-offset",
            "phantom": "resurrected",
            "resurrected": None,
        },
    ),
    "an offset that was given away twice, and a value that is at two others": (
        reused(at=1),
        {"inconsistent-offset": None, "duplicate": None}
        | dict.fromkeys(("real-time-order", "lost-write"), "inconsistent-offset"),
    ),
    "a failed send's value at another offset than the one with two": (
        failed_and_read(at=1),
        {"inconsistent-offset": None, "aborted-read": None, "lost-write": "inconsistent-offset"},
    ),
    "another value is at two offsets than the misplaced one": (
        misplaced(also=7),
        {"duplicate": None, "duplicate 2": "misplaced-ack", "misplaced-ack": None},
    ),
    "the misplaced value is at two other offsets": (
        misplaced(also=1),
        {"duplicate": None, "misplaced-ack": None},
    ),
    "a value is gone, and another one is at two offsets": (
        moved(twice=True),
        {"vanished": None, "duplicate 2": None}
        | dict.fromkeys(("duplicate", "vanished 2", "poll-skip", "poll-skip 2"), "vanished"),
    ),
    "two offsets that are filled late": (
        late(((3,), 2), ((6,), 5)),
        {"real-time-order": None, "real-time-order 2": None},
    ),
    "a set that is split elsewhere than where offsets fall": (
        torn(same=False),
        {"real-time-order": None, "nonmonotonic-send": "real-time-order", "send-skip": None},
    ),
    "an end below all that was known, and an offset that is filled late": (
        reported(at=5),
        {"high-watermark-regression": None, "real-time-order 4": None}
        | dict.fromkeys(("real-time-order", "real-time-order 2", "real-time-order 3"), "high-watermark-regression"),
    ),
    "a reader that is sent away, and a loss elsewhere": (
        sent_away(lost=0),
        {"lost-write": None, "false-out-of-range": None},
    ),
    "a record that two members lacked, and another that is lost": (
        acknowledged_early(lost=2),
        {"lost-write": None, "early-acknowledgement": None, "early-acknowledgement 2": "early-acknowledgement"},
    ),
    "another generation has two owners than the one that was stored twice": (
        given_out_twice(generation=4),
        {"double-ownership": None, "double-ownership 2": "double-ownership", "generation-reuse": None},
    ),
    "the queue held what came out later, when it was said to be empty": (
        found_empty(later=True),
        {"queue-lost": None, "queue-false-empty": None, "queue-false-empty 2": None},
    ),
    "elements that two nodes acknowledged": (
        elements_lost("n1", "n2", "n1"),
        {"set-lost": None, "set-lost 2": None, "set-lost 3": "set-lost"},
    ),
    "elements that two reads lack": (
        elements_lost("n1", "n1", again=True),
        {"set-lost": None, "set-lost 2": "set-lost", "set-lost 3": None},
    ),
    "a member joined without a record, and a leader lacks others": (
        incomplete(end=9),
        {"leader-completeness": None, "member-completeness": None},
    ),
    "two moves that ended too soon": (
        too_soon(1, 2, 4),
        {"early-move": None, "early-move 2": None},
    ),
    "two last values that members lack": (
        compacted(lacks=2),
        {"lost-last-value": None, "lost-last-value 2": None},
    ),
}


@pytest.mark.parametrize(("history", "expected"), (ONE | APART).values(), ids=[*ONE, *APART])
def test_one_cause_is_one_finding_and_two_are_two(tmp_path: Path, history: History, expected: Shown) -> None:
    assert shown(tmp_path, history) == expected


def test_each_first_history_has_one_head_and_each_second_several() -> None:
    heads = [[list(expected.values()).count(None) for _, expected in cases.values()] for cases in (ONE, APART)]
    assert set(heads[0]) == {1}
    assert min(heads[1]) > 1
